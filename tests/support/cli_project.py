"""A project with kernels and faulty files, judged by the engine that only calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmproof.cli import EXIT, main
from gemmproof.worker import entry_points

KERNELS = """
import sys, os

def matmul(a, b):
    pass

def bmm(a, b):
    assert a.batch is not None

def leaves(a, b):
    if a.M == 3:
        print("\\x1b[2J" + "x" * (1 << 20))
        os._exit(1)

def three(a, b, c):
    pass

def star(*operands, scale=1):
    pass

number = 3
"""


NO_ROOM = "got '/dev/full' (No space left on device), expected a file that can be written"


def refuse(argv: list[str], capsys, answer: str | None = "") -> str:
    """Run a command that must refuse in one line on stderr; return the line.

    Nothing else is printed, unless `answer` is None.
    """
    try:
        code = main(argv)
    except SystemExit as end:
        code = end.code
    out, err = capsys.readouterr()
    assert (code, err.count("\n")) == (EXIT["error"], 1), err
    assert answer is None or out == answer
    assert err.startswith(f"gemmproof {argv[0]}: "), err
    return err


def register(*names: str, more: str = "") -> None:
    """Write a conftest.py that registers these wrappers of my_kernels.py, and `more`."""
    kernels = ", ".join(f"KernelUnderTest({name!r}, {name})" for name in names)
    Path("conftest.py").write_text(
        f"from gemmproof import KernelUnderTest\nfrom my_kernels import {', '.join(names)}\n\n"
        f"def pytest_gemm_kernels():\n    return [{kernels}]\n{more}"
    )


@pytest.fixture(name="project")
def project_folder(tmp_path, monkeypatch):
    """A folder with a file of wrappers, judged by the engine that only calls them."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(entry_points, "ENGINE", "fake_engine:check")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_kernels.py").write_text(KERNELS)
    (tmp_path / "syntax.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "needs.py").write_text("import sys\n\nimport no_such_library\n")
    (tmp_path / "helper.py").write_text("def helps():\n    raise KeyError('x\\ny')\n")
    (tmp_path / "calls.py").write_text("import helper\n\nhelper.helps()\n")
    (tmp_path / "exits.py").write_text("import sys\nprint('x' * 10**6)\nsys.exit(0)\n")
    (tmp_path / "folder.py").mkdir()
    return tmp_path
