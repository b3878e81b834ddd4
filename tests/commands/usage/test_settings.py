"""[tool.gemmproof] sets the options that are not on the command line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cli_project import project_folder  # noqa: F401

from gemmproof.cli import EXIT, main, parse_options
from gemmproof.reference.formats import FORMATS
from gemmproof.settings import find_pythonpath, list_words
from gemmproof.spelling import find_format, suggest
from gemmproof.target import read_operand


def write(text):
    Path("pyproject.toml").write_text(f"[tool.gemmproof]\n{text}\n")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path)


def test_settings_are_options_and_typed_ones_replace_them(monkeypatch):
    write('dtype = ["fp16", "bf16"]\nmax-examples = 7\nsizes = "K=16..:16"\nhuge = true\njobs = 3')
    options = parse_options(["check", "x.py:f", "--max-examples", "9"])
    contract = options.contract
    assert (contract.dtype, contract.huge, options.search.max_examples) == (
        ("fp16", "bf16"),
        True,
        9,
    )
    assert contract.sizes == (("K", "16..:16"),)
    assert parse_options(["check", "x.py:f", "--dtype=int8"]).contract.dtype == ("int8",)
    signoff = parse_options(["signoff"])
    assert (signoff.jobs, signoff.search.max_examples) == (3, 7)
    monkeypatch.chdir("inner")  # the nearest file above counts
    assert parse_options(["check", "x.py:f"]).search.max_examples == 7


def test_a_project_without_settings_has_the_usual_ones():
    Path("pyproject.toml").write_text("[project]\nname = 'p'\n")
    assert parse_options(["check", "x.py:f"]).search.max_examples == 100


NO_TABLE = "pyproject.toml: got tool.gemmproof = 3, expected a table\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-example = 3", "pyproject.toml [tool.gemmproof]: got 'max-example', expected one of "),
        ("max-examples = 0", "argument --max-examples: got '0', expected an integer"),
        ('layouts = "dense"', "argument --layouts: got 'dense', expected"),
        ("max-examples = ", "pyproject.toml: got broken TOML"),
        ("", NO_TABLE),
    ],
)
def test_a_wrong_setting_is_one_line(text, message, capsys):
    write(text)
    if message == NO_TABLE:
        Path("pyproject.toml").write_text("[tool]\ngemmproof = 3\n")
    with pytest.raises(SystemExit) as left:
        parse_options(["check", "x.py:f"])
    err = capsys.readouterr().err
    assert (left.value.code, err.count("\n")) == (EXIT["error"], 1)
    assert message in err


def test_a_check_keeps_to_them(project):
    write('dtype = ["bf16"]\nmax-examples = 3')
    assert main(["check", "my_kernels.py:matmul", "--json", "report.json"]) == EXIT["pass"]
    report = json.loads(Path("report.json").read_text())
    assert max(p["examples"] for p in report["properties"]) == 3


HEADER = """
from gemmproof import settings
find, looked = settings.find_settings, []
settings.find_settings = lambda folder: looked.append(folder) or find(folder)

def pytest_report_header(config):
    from gemmproof.plugin import OPTIONS
    return f"{config.stash[OPTIONS].search.max_examples} examples, looked {len(looked)} times"
"""


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("args", "examples"),
    [([], 4), (["-o", "gemm_max_examples=5"], 5), (["--gemm-max-examples=6"], 6)],
)
def test_the_plugin_takes_them_last_and_looks_for_them_once(args, examples):
    write("max-examples = 4")
    Path("conftest.py").write_text(HEADER)
    command = [sys.executable, "-m", "pytest", "-p", "gemmproof.plugin", *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shown = re.findall(r"(\d+) examples, looked (\d+) times\n", done.stdout)
    assert shown == [(str(examples), "1")], done.stdout + done.stderr


# -- formats as other projects spell them, and typing errors ---------------------------------------
SPELLINGS = {
    "fp16": ("float16", "torch.float16", "half", "FP16", "f16", "tl.float16"),
    "bf16": ("bfloat16", "torch.bfloat16"),
    "fp32": ("float32", "float", "torch.float", "f32"),
    "tf32": ("TF32", "tfloat32"),
    "fp8e4m3": ("float8_e4m3fn", "torch.float8_e4m3fn", "e4m3", "fp8_e4m3", "float8e4nv"),
    "fp8e5m2": ("float8_e5m2", "fp8-e5m2", "tl.float8e5"),
    "int8": ("i8", "torch.int8"),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_format_has_many_spellings(name):
    for spelled in SPELLINGS[name]:
        assert find_format(spelled) == name
        assert parse_options(["check", "f.py:f", "--dtype", spelled]).contract.dtype == (name,)


def test_an_operand_may_be_spelled_so_too():
    assert read_operand("x=float16[M]")[1].format == "fp16"


def test_our_own_names_stand_for_themselves():
    assert {name: find_format(name) for name in FORMATS} == {name: name for name in FORMATS}
    for unknown in ("fp8", "int", "", "torch.", "x.y"):
        assert find_format(unknown) == unknown


def test_what_is_near_is_suggested_and_nothing_else(texts):
    options = ("--max-examples", "--memory-limit", "--seed")
    for typed, near in (("--max", "--max-examples"), ("--memory-limt", "--memory-limit")):
        texts("the suggestion of a name that is near", suggest(typed, options), name=near)
    assert suggest("--jobs", options) == ""
    assert suggest("gpu", ("cpu", "cuda")) == ""


def test_a_setting_is_suggested_too():
    with pytest.raises(ValueError, match=r"got 'time-limt', .*; did you mean 'time-limit'\?$"):
        list(list_words({"time-limt": 3}, ["--time-limit", "--seed"], [], []))


# -- the imports of a conftest.py in a separate folder ---------------------------------------------
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
    """Create a package in src/ and a conftest.py in tests/."""
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
    assert find_pythonpath(tmp_path / "tests") == [str(tmp_path / folder) for folder in folders]


@pytest.mark.parametrize("name", SILENT)
def test_what_says_nothing_is_passed_over(name, tmp_path):
    (tmp_path / name).write_text(SILENT[name])
    assert find_pythonpath(tmp_path) == []
