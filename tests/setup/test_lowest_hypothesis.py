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
TESTS = ("tests/properties/cases/test_strategies.py", "tests/corpora/test_draws.py")
ITEMS = [
    f"tests/plugin/test_hypothesis_items.py::test_{name}"
    for name in (
        "a_case_ends_at_the_boundary_of_the_fault",
        "the_number_of_cases_is_that_of_the_profile",
        "the_database_keeps_a_failing_case_and_tries_it_first",
        "nothing_is_written_without_a_database",
    )
]


@pytest.mark.lane("full")
@pytest.mark.timeout(900)  # it installs a package, and runs tests that take a minute
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
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *TESTS, *ITEMS)
    assert done.returncode == 0, done.stdout
