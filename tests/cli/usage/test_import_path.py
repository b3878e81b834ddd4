"""A conftest.py in a folder of its own imports what it can import within pytest."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_project import project_folder  # noqa: F401

from gemmproof.cli import EXIT, main
from gemmproof.settings import find_pythonpath

CONFTEST = """
from gemmproof import Contract, KernelUnderTest

def pytest_gemm_kernels():
    import wave
    from pkg.product import matmul
    return [KernelUnderTest("matmul", matmul, Contract())]
"""
SIGNOFF = ["signoff", "--no-proof", "--max-examples", "1", "--quiet"]
TOML = '[tool.pytest.ini_options]\npythonpath = ["src", "a b"]\n'
FILES = {
    "pyproject.toml": (TOML, ["src", "a b"]),
    "pytest.ini": ("[pytest]\npythonpath = src 'a b'\n", ["src", "a b"]),
    "tox.ini": ("[pytest]\npythonpath =\n  src\n  lib\n", ["src", "lib"]),
    "setup.cfg": ("[tool:pytest]\npythonpath = src %(x)s\n", ["src", "%(x)s"]),
    "pytest.toml": ("[pytest]\npythonpath = ['src']\n", ["src"]),
}
SILENT = {
    "pyproject.toml": "[tool.pytest.ini_options\n",
    "setup.cfg": "[pytest]\npythonpath = src\n",
    "pytest.ini": "no section\n",
    "tox.ini": "[tox]\n",
}


@pytest.fixture(name="package")
def package_folder(project):
    """A package in src/ and a conftest.py in tests/."""
    for folder in ("src/pkg", "tests"):
        (project / folder).mkdir(parents=True)
    (project / "src/pkg/__init__.py").touch()
    (project / "src/pkg/product.py").write_text("def matmul(a, b):\n    pass\n")
    (project / "tests/conftest.py").write_text(CONFTEST)
    return project


def test_signoff_imports_what_the_pythonpath_of_pytest_names(package, capsys):
    asked = [*SIGNOFF, "--conftest", "tests/conftest.py"]
    assert main(asked) == EXIT["error"]
    assert "No module named 'pkg'" in capsys.readouterr().err
    Path("pyproject.toml").write_text(TOML)
    assert main(asked) == EXIT["pass"]
    assert main(["list", "--conftest", "tests/conftest.py"]) == 0
    assert "matmul" in capsys.readouterr().out


def test_signoff_imports_from_the_current_folder_last(package, monkeypatch):
    monkeypatch.chdir("src")
    Path("wave.py").write_text("raise SystemExit('Python has that module itself')\n")
    assert main([*SIGNOFF, "--conftest", "../tests/conftest.py"]) == EXIT["pass"]


@pytest.mark.parametrize("name", FILES)
def test_each_file_of_pytest_is_read(name, tmp_path):
    text, folders = FILES[name]
    (tmp_path / "tests").mkdir()
    (tmp_path / name).write_text(text)
    assert find_pythonpath(tmp_path / "tests") == [str(tmp_path / one) for one in folders]


@pytest.mark.parametrize("name", SILENT)
def test_what_says_nothing_is_passed_over(name, tmp_path):
    (tmp_path / name).write_text(SILENT[name])
    assert find_pythonpath(tmp_path) == []
