"""The command line: one clear line for every bad input, the exit codes, and the reports."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gemmproof import supervise
from gemmproof.cli import EXIT, TARGETS, main
from gemmproof.properties.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.render import clean, lines, table
from gemmproof.results import SCHEMA, PropertyResult, Report

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


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a file of wrappers, judged by the engine that only calls them."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(supervise, "ENGINE", "fake_engine:check")
    monkeypatch.setattr(supervise, "TABLE", "fake_engine")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_kernels.py").write_text(KERNELS)
    (tmp_path / "syntax.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "needs.py").write_text("import sys\n\nimport no_such_library\n")
    (tmp_path / "helper.py").write_text("def helps():\n    raise KeyError('x\\ny')\n")
    (tmp_path / "calls.py").write_text("import helper\n\nhelper.helps()\n")
    (tmp_path / "exits.py").write_text("import sys\nprint('x' * 10**6)\nsys.exit(0)\n")
    (tmp_path / "folder.py").mkdir()
    return tmp_path


def test_a_right_kernel_passes(project, capsys):
    assert main(["check", "my_kernels.py:matmul"]) == EXIT["pass"]
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["runs_to_completion", "100", "cases"]
    assert out[-1].startswith("matmul: pass: all 2 properties held (100 cases, ")


USAGE = [
    ("", "the following arguments are required: command"),
    ("check", "the following arguments are required: TARGET"),
    ("check my_kernels.py:matmul --frob", "unrecognized arguments: --frob"),
    ("check my_kernels.py:matmul --max 3", "unrecognized arguments: --max 3"),
    ("check my_kernels.py:matmul --dtype fp17", "argument --dtype: invalid choice: 'fp17'"),
    ("check my_kernels.py:matmul --layouts odd", "argument --layouts: invalid choice: 'odd'"),
    ("check my_kernels.py:matmul --target sm_1", "argument --target: invalid choice: 'sm_1'"),
    ("check my_kernels.py:matmul --device tpu", "argument --device: invalid choice: 'tpu'"),
    ("check my_kernels.py:matmul --max-examples 0", "--max-examples: got '0', expected an integer"),
    ("check my_kernels.py:matmul --max-examples ten", "--max-examples: got 'ten'"),
    ("check my_kernels.py:matmul --seed -1", "--seed: got '-1', expected an integer 0.."),
    ("check my_kernels.py:matmul --seed 99999999999999999999", "--seed: got '99999"),
    ("check my_kernels.py:matmul --json", "argument --json: expected one argument"),
]
MISTAKES = [
    ("check my_kernels.py", "got 'my_kernels.py', expected path/to/file.py:function"),
    ("check :matmul", "got ':matmul', expected path/to/file.py:function"),
    ("check my_kernels.py:", "got 'my_kernels.py:', expected path/to/file.py:function"),
    ("check my_kernels.py:a-b", "got 'my_kernels.py:a-b', expected path/to/file.py:function"),
    ("check absent.py:matmul", "got 'absent.py' (no such file), expected a Python file"),
    ("check folder.py:matmul", "got 'folder.py' (a folder), expected a Python file"),
    ("check ./my_kernels:matmul", "got './my_kernels', expected a file that ends in .py"),
    ("check absent.module:matmul", "absent.module: importing it raised ModuleNotFoundError"),
    ("check my_kernels.py:matmull", "got 'matmull', which is not there, expected perhaps 'matmul'"),
    ("check my_kernels.py:zzz", "expected one of: bmm leaves matmul star three"),
    ("check my_kernels.py:number", "my_kernels.py:number: got int, expected a function"),
    ("check my_kernels.py:three", "got three(a, b, c) (missing a required argument: 'c')"),
    ("check syntax.py:f", "syntax.py:2: importing it raised SyntaxError: invalid syntax"),
    ("check needs.py:f", "needs.py:3: importing it raised ModuleNotFoundError: No module named"),
    ("check calls.py:f", "helper.py:2: importing it raised KeyError: 'x\\ny'"),
    ("check exits.py:f", "exits.py:3: importing it raised SystemExit: 0"),
    ("check my_kernels.py:matmul --case {", "case: got broken JSON"),
    ("check my_kernels.py:matmul --case 7", "case: got 7, expected an object"),
    ("""check my_kernels.py:matmul --case '{"M":1}'""", "case: got no N, expected M, N and K"),
    (
        """check my_kernels.py:matmul --case '{"M":1,"N":1,"K":1,"L":1}'""",
        'case: got unknown field "L", expected fields of M N K',
    ),
    (
        """check my_kernels.py:matmul --case '{"M":1e99,"N":1,"K":1}'""",
        "case M: got 1e+99, expected an integer 0..65536",
    ),
    (
        """check my_kernels.py:matmul --case '{"M":65536,"N":65536,"K":65536}'""",
        "case: got 12884901888 elements of a, b and c, expected at most",
    ),
    (
        """check my_kernels.py:matmul --dtype bf16 --case '{"M":1,"N":1,"K":1,"dtype":"fp16"}'""",
        "case dtype: got fp16, expected one of --dtype: bf16",
    ),
    (
        """check my_kernels.py:bmm --case '{"M":1,"N":1,"K":1}'""",
        "case: got no batch, expected one for 3-D operands",
    ),
    ("check my_kernels.py:matmul --json absent/x.json", "--json: got 'absent/x.json' (No such"),
    ("check my_kernels.py:matmul --junit folder.py", "--junit: got 'folder.py' (Is a directory)"),
    ("check my_kernels.py:matmul --json x --junit ./x", "--junit: got './x' as for --json"),
    ("signoff", "--conftest: got 'conftest.py' (no such file), expected a conftest.py"),
    ("signoff --conftest needs.py", "needs.py:3: importing it raised ModuleNotFoundError"),
    ("signoff --conftest my_kernels.py", "my_kernels.py: got no pytest_gemm_kernels(), expected"),
]


@pytest.mark.parametrize(("command", "said"), USAGE)
def test_bad_usage_is_one_line(project, capsys, command, said):
    with pytest.raises(SystemExit) as left:
        main(shlex.split(command))
    captured = capsys.readouterr()
    assert (left.value.code, captured.out, captured.err.count("\n")) == (EXIT["error"], "", 1)
    assert said in captured.err


@pytest.mark.parametrize(("command", "said"), MISTAKES)
def test_a_bad_target_case_or_file_is_one_line(project, capsys, command, said):
    assert main(shlex.split(command)) == EXIT["error"]
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert said in captured.err
    assert captured.err.startswith(f"gemmproof {command.split()[0]}: ")


def test_unwritable_reports_are_found_before_the_run_and_leave_no_file(project, monkeypatch):
    monkeypatch.setattr(supervise, "watch", None)
    assert main(["check", "my_kernels.py:matmul", "--json", "x", "--junit", "absent/y"]) == 2
    assert not Path("x").exists()


def test_an_error_is_written_to_the_reports_too(project):
    assert main(["check", "needs.py:f", "--json", "report.json", "--junit", "report.xml"]) == 2
    report = json.loads(Path("report.json").read_text())
    assert (report["verdict"], report["target"], report["findings"]) == ("error", "needs.py:f", [])
    assert report["note"].startswith("needs.py:3: importing it raised")
    (case,) = ElementTree.parse("report.xml").iter("testcase")
    assert case.find("error").get("message") == report["note"]


def test_a_death_reads_like_any_finding_and_its_line_can_be_pasted(project, capfd):
    options = ["--json", "report.json", "--junit", "report.xml", "--layouts", "contiguous"]
    assert main(["check", "my_kernels.py:leaves", *options]) == EXIT["fail"]
    out = capfd.readouterr().out.splitlines()
    assert out[0] == "leaves does not run to completion: every case ends in a result"
    assert out[1].endswith("got a process that ended itself with status 1, expected a result")
    assert out[2] == "  smallest case: M=3 N=1 K=1 fp16, a row, b row"
    reproduce = out[3].removeprefix("  reproduce:  ")
    assert out[-1].startswith("leaves: fail: 1 of 2 properties do not hold (3 cases, ")
    assert "; stopped after 4 cases: a process that ended itself with status 1" in out[-1]
    report = json.loads(Path("report.json").read_text())
    (finding,) = report["findings"]
    assert finding["reproduce"] == reproduce
    assert finding["case"] == {"M": 3, "N": 1, "K": 1, "dtype": "fp16"}
    assert report["schema"] == SCHEMA
    failed, other = ElementTree.parse("report.xml").iter("testcase")
    assert reproduce in failed.find("failure").text
    assert other.find("failure") is None
    words = shlex.split(reproduce)
    assert words[:5] == ["gemmproof", "check", "my_kernels.py:leaves", "--layouts", "contiguous"]
    assert main(words[1:]) == EXIT["fail"]
    # What a single case prints is shown, and cannot move the cursor.
    shown = capfd.readouterr().out
    assert "the last output of the worker:" in shown
    assert "\x1b" not in shown
    assert len(shown) < 40_000


def test_a_quote_in_the_target_survives_the_shell(project, capsys):
    Path("it's.py").write_text(KERNELS)
    assert main(["check", "it's.py:leaves"]) == EXIT["fail"]
    line = next(s for s in capsys.readouterr().out.splitlines() if "reproduce:" in s)
    assert shlex.split(line)[1:4] == ["gemmproof", "check", "it's.py:leaves"]


def test_the_operands_are_batched_for_bmm(project):
    case = '{"M":1,"N":1,"K":1,"batch":2}'
    assert main(["check", "my_kernels.py:bmm", "--case", case]) == EXIT["pass"]
    assert main(["check", "my_kernels.py:star", "--case", case, "--batched"]) == EXIT["pass"]


def test_a_file_finds_its_neighbours_and_its_package(project):
    Path("neighbour.py").write_text("def f(a, b):\n    pass\n")
    # The name of a standard module, which must stay what it is.
    Path("random.py").write_text("assert __name__ != 'random'\nfrom neighbour import f\n")
    package = project / "pack" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "gemm.py").write_text("from . import other\nf = other.f\n")
    (package / "other.py").write_text("def f(a, b):\n    pass\n")
    for target in ("random.py:f", "pack/inner/gemm.py:f", "pack.inner.gemm:f", "neighbour:f"):
        assert main(["check", target, "--max-examples", "1"]) == EXIT["pass"]


def test_a_lane_that_cannot_run_is_incomplete_not_passed(project, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command = ["check", "my_kernels.py:matmul", "--device", "cuda", "--json", "report.json"]
    assert main([*command, "--junit", "report.xml"]) == EXIT["incomplete"]
    out = capsys.readouterr().out
    assert "incomplete: 2 properties judged" in out
    assert "torch finds no CUDA GPU here; the kernel was simulated only" in out
    report = json.loads(Path("report.json").read_text())
    assert report["verdict"] == "incomplete"
    assert report["properties"][-1]["status"] == "not run"
    assert len(list(ElementTree.parse("report.xml").iter("error"))) == 1


CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import leaves, matmul, star

def pytest_gemm_kernels():
    return [KernelUnderTest(f.__name__, f, Contract()) for f in (matmul, star, leaves)[:{}]]
"""


def test_signoff_judges_every_kernel_in_one_table(project, capsys):
    Path("conftest.py").write_text(CONFTEST.format(2))
    assert main(["signoff", "--max-examples", "3"]) == EXIT["pass"]
    captured = capsys.readouterr()
    rows = [line.split() for line in captured.out.splitlines()]
    assert rows[:4] == [
        ["matmul", "star"],
        ["runs_to_completion", "3", "3"],
        ["stays_in_bounds", "3", "3"],
        ["verdict", "pass", "pass"],
    ]
    assert captured.out.splitlines()[-1] == "signoff: pass (2 pass)"
    assert "matmul: pass after " in captured.err


def test_signoff_tells_the_gravest_verdict_and_how_to_reproduce_it(project, capsys):
    Path("conftest.py").write_text(CONFTEST.format(3))
    command = ["signoff", "--json", "report.json", "--junit", "report.xml"]
    assert main([*command, "--max-examples", "5"]) == EXIT["fail"]
    out = capsys.readouterr().out
    assert "signoff: fail (1 fail, 2 pass)" in out
    report = json.loads(Path("report.json").read_text())
    assert [k["verdict"] for k in report["kernels"]] == ["pass", "pass", "fail"]
    words = shlex.split(report["kernels"][2]["findings"][0]["reproduce"])
    assert words[:4] == ["gemmproof", "signoff", "--kernel", "leaves"]
    assert main(words[1:]) == EXIT["fail"]
    assert len(list(ElementTree.parse("report.xml").iter("testsuite"))) == 3


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("None", "got None from pytest_gemm_kernels(), expected KernelUnderTest records"),
        ("[1]", "got [1] from pytest_gemm_kernels()"),
        ("[]", "got no kernels, expected at least one"),
        ("[KernelUnderTest('x', print)] * 2", "expected different names"),
        ("[KernelUnderTest('x', 3)]", "kernel x: got launch=3, expected a function of a and b"),
    ],
)
def test_a_hook_that_returns_nonsense_is_one_line(project, capsys, returned, said):
    text = f"from gemmproof import KernelUnderTest\ndef pytest_gemm_kernels(): return {returned}\n"
    Path("conftest.py").write_text(text)
    assert main(["signoff"]) == EXIT["error"]
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_what_a_target_says_cannot_break_the_screen_or_the_xml():
    assert clean("a\x1b[31m\u202eb\ud800\r\n<&[red]é×") == "a\\x1b[31m\\u202eb\\ud800\\r\n<&[red]é×"


def finding(i: int, **changes: str) -> Finding:
    return Finding("stays_in_bounds", "out_of_bounds", f"message {i}", Case(i, 1, 1), **changes)


def test_an_answer_fits_a_screen():
    held = PropertyResult("stays_in_bounds", "every lane is in", "fail", 40)
    found = tuple(finding(i) for i in range(30))
    followers = tuple(finding(i, cause="stays_in_bounds") for i in range(30))
    report = Report(SCHEMA, "f.py:matmul", "fail", (held,), found + followers, 1.0, {})
    said = [text for text, _ in lines(report, lambda case: "again")]
    assert len(said) < 40
    assert said[0] == "matmul does not stay in bounds: every lane is in"
    assert "and 26 findings more: --json has all" in said


def test_the_table_breaks_into_blocks_that_fit():
    held = (PropertyResult("within_bound", "", "pass", 100, 0.5),)
    reports = [Report(SCHEMA, f"kernel_{i}", "pass", held, (), 1.0, {}) for i in range(9)]
    rows = table(reports, 60)
    assert max(map(len, rows)) <= 60
    assert sum(row.count("0.500  100") for row in rows) == 9


def test_the_targets_are_those_of_the_models():
    from gemmproof.reference import dot

    for name in TARGETS:
        dot.dot_model(name, "fp16")


def test_the_module_is_the_command(project):
    root = Path(__file__).parent.parent / "src"
    done = subprocess.run(
        [sys.executable, "-m", "gemmproof", "--version"],
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("gemmproof 0.")
