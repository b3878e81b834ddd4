"""The strategies and the Hypothesis items work with the oldest Hypothesis that is declared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ("tests/properties/test_strategies.py", "tests/corpora/test_draws.py")
ITEMS = "tests/plugin/test_hypothesis_items.py"


@pytest.mark.lane("full")
def test_the_oldest_hypothesis_shrinks_and_drives_the_items(tmp_path):
    declared = (ROOT / "pyproject.toml").read_text()
    version = re.search(r'"hypothesis>=([\d.]+)"', declared)[1]
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert uv, "got no uv, expected it in the environment: pip install uv"
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, f"hypothesis=={version}.*"], check=True)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)

    used = run("-c", "import hypothesis; print(hypothesis.__version__)").stdout
    assert used.startswith(f"{version}."), used
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *TESTS, ITEMS)
    assert done.returncode == 0, done.stdout
