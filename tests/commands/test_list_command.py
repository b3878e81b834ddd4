"""`gemmproof list`, and `check FILE`: kernels and properties, with the commands to paste."""

import json
import shlex
from pathlib import Path

import pytest
from tests.support.cli_project import project_folder, refuse  # noqa: F401
from tests.texts import line_with

from gemmproof.cli import main
from gemmproof.properties.property_table import BY_NAME
from gemmproof.reference.gpus import GPUS

HEAD = """
import torch

def product(kernel):
    pass

"""
ONE = HEAD + "def matmul(a, b):\n    if a.M < 0:\n        kernel[(1,)](a, b, b.shape)\n"
TWO = ONE + "def bmm(a, b, scale):\n    kernel[(1,)](a, b, a.shape)\n"
CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import matmul, star

def pytest_gemm_kernels():
    both = Contract(formats=("fp16", "int8"))
    return [
        KernelUnderTest("first", matmul, both),
        KernelUnderTest("\\x1b[2Jlast", star, Contract(), device_only=True),
    ]
"""


def test_everything_is_listed(project, capsys, texts):
    Path("conftest.py").write_text(CONFTEST)
    assert main(["list", "--json", "list.json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    for name in (*BY_NAME, *GPUS, "operands", "llama"):
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1
    assert "  first        fp16 int8" in lines
    texts("a kernel for a GPU only in the list", line_with(out, "[2Jlast"))
    texts("a GPU without predictions in the list", line_with(out, "gfx942"))
    data = json.loads(Path("list.json").read_text())
    first = {"name": "first", "formats": ["fp16", "int8"], "device_only": False}
    assert data["kernels"][0] == first
    assert {row["name"] for row in data["properties"]} >= set(BY_NAME)
    assert "1024x1024x1024" in data["suites"]["square"]


@pytest.mark.parametrize("text", [None, "import pytest\n"])
def test_a_project_without_kernels_is_listed_too(project, text, capsys):
    if text is not None:
        Path("conftest.py").write_text(text)
    assert main(["list"]) == 0
    line = "  conftest.py registers no kernel; gemmproof init writes one\n"
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ("list --conftest absent.py", "--conftest: got 'absent.py' (no such file), expected a Pyt"),
        ("list --conftest my_kernels.py", "my_kernels.py: got no pytest_gemm_kernels(), expected"),
        ("list --conftest syntax.py", "syntax.py:2: importing it raised SyntaxError"),
        ("list absent.py", "file: got 'absent.py' (no such file), expected a Python file"),
        ("list folder.py", "file: got 'folder.py' (a folder), expected a Python file"),
        ("list syntax.py", "syntax.py:2: got invalid syntax, expected Python"),
        ("check syntax.py", "syntax.py:2: got invalid syntax, expected Python\n"),
        ("check absent.py", "target: got 'absent.py' (no such file), expected a Python file\n"),
    ],
)
def test_what_cannot_be_listed_is_one_line(project, args, line, capsys):
    args = args.split()
    assert refuse(args, capsys).startswith(f"gemmproof {args[0]}: {line}")


def test_the_wrappers_of_a_file_are_commands_to_paste(project, capsys, texts):
    Path("it's.py").write_text(TWO)
    assert main(["list", "it's.py", "--json", "list.json"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert shlex.split(first) == ["gemmproof", "check", "it's.py:matmul"]
    assert shlex.split(second, comments=True)[2] == "it's.py:bmm"
    texts("a wrapper that takes more than a and b", second, file='"it\'s.py:bmm"')
    assert [w["needs"] for w in json.loads(Path("list.json").read_text())] == [[], ["scale"]]


@pytest.mark.lane("full")
def test_the_only_wrapper_of_a_file_is_checked(project, capsys, texts):
    Path("one.py").write_text(ONE)
    assert main(["check", "one.py", "--max-examples", "1", "--json", "report.json"]) == 0
    texts("the only wrapper of a file", capsys.readouterr().err)
    report = json.loads(Path("report.json").read_text())
    assert (report["verdict"], report["target"]) == ("pass", "one.py:matmul")


def test_several_wrappers_are_listed_and_none_is_judged(project, capsys, texts):
    Path("two.py").write_text(TWO)
    assert main(["check", "two.py", "--json", "report.json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    texts("a file of several wrappers", err)
    report = json.loads(Path("report.json").read_text())
    assert (report["verdict"], report["target"]) == ("error", "two.py")
