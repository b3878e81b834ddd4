"""A clone without symbolic links is refused in one line, by pip's build and by ./run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path):
    """A clone by a git without symbolic links: each link is a file that holds its target."""
    for name in ("setup.py", "run", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    package = tmp_path / "src" / "gemmproof"
    package.mkdir(parents=True)
    for name in ("kernels", "properties", "reference"):
        assert (ROOT / "src" / "gemmproof" / name).resolve() == ROOT / name
        (package / name).write_text(f"../../{name}")
    return tmp_path


@pytest.mark.parametrize("command", [[sys.executable, "setup.py", "--version"], ["./run", "test"]])
def test_a_clone_without_links_is_refused(clone, command):
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert done.returncode != 0
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)
    assert ": got a file, expected a link to ../../" in done.stderr
