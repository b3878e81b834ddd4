"""`gemmproof check`: exit codes, reports, lines to paste, and reports that fit a screen."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.cli_project import KERNELS, project_folder, register  # noqa: F401
from tests.texts import line_with

from gemmproof import kernels
from gemmproof.cli import EXIT, main
from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.reference.gpus import TARGETS
from gemmproof.report.record import SCHEMA, PropertyResult, Report
from gemmproof.report.text import clean, lines, table
from gemmproof.worker import supervisor


def test_a_right_kernel_passes(project, capsys, texts):
    assert main(["check", "my_kernels.py:matmul"]) == EXIT["pass"]
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["runs_to_completion", "100", "cases"]
    texts("the verdict of a kernel that holds", out[-1])


def test_unwritable_reports_are_found_before_the_run_and_leave_no_file(project, monkeypatch):
    monkeypatch.setattr(supervisor, "watch", None)
    assert main(["check", "my_kernels.py:matmul", "--json", "x", "--junit", "absent/y"]) == 2
    assert not Path("x").exists()


def test_an_error_is_written_to_the_reports_too(project, texts):
    assert main(["check", "needs.py:f", "--json", "report.json", "--junit", "report.xml"]) == 2
    report = json.loads(Path("report.json").read_text())
    assert (report["verdict"], report["target"], report["findings"]) == ("error", "needs.py:f", [])
    texts("a file that cannot be imported", report["note"])
    (case,) = ElementTree.parse("report.xml").iter("testcase")
    assert case.find("error").get("message") == report["note"]


def test_a_death_reads_like_any_finding_and_its_line_can_be_pasted(project, capfd, texts):
    options = ["--json", "report.json", "--junit", "report.xml", "--layouts", "any"]
    assert main(["check", "my_kernels.py:leaves", *options]) == EXIT["fail"]
    out = capfd.readouterr().out.splitlines()
    texts("the report on a process that ended itself", "\n".join([*out[:3], out[-1]]))
    reproduce = out[3].removeprefix("  reproduce:  ")
    report = json.loads(Path("report.json").read_text())
    (finding,) = report["findings"]
    assert finding["reproduce"] == reproduce
    assert finding["case"] == {"M": 3, "N": 1, "K": 1, "dtype": "fp16"}
    assert report["schema"] == SCHEMA
    failed, other = ElementTree.parse("report.xml").iter("testcase")
    assert reproduce in failed.find("failure").text
    assert other.find("failure") is None
    args = shlex.split(reproduce)
    assert args[:5] == ["gemmproof", "check", "my_kernels.py:leaves", "--layouts", "any"]
    assert main(args[1:]) == EXIT["fail"]
    # The output of a single case is shown, and cannot move the cursor.
    shown = capfd.readouterr().out
    texts("the heading of the output of a worker", line_with(shown, "last output"))
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
    # The name of a standard module, which must not be replaced.
    Path("random.py").write_text("assert __name__ != 'random'\nfrom neighbour import f\n")
    package = project / "pack" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "gemm.py").write_text("from . import other\nf = other.f\n")
    (package / "other.py").write_text("def f(a, b):\n    pass\n")
    for target in ("random.py:f", "pack/inner/gemm.py:f", "pack.inner.gemm:f", "neighbour:f"):
        assert main(["check", target, "--max-examples", "1"]) == EXIT["pass"]


def test_a_file_needs_only_what_it_imports_of_its_package(project, capsys):
    package = project / "wide" / "ops"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("import module_that_is_missing\n")
    (package / "__init__.py").write_text("raise RuntimeError('no device')\n")
    (package / "tiles.py").write_text("def f(a, b):\n    pass\n")
    (package / "gemm.py").write_text("from .tiles import f\nfrom wide.ops import tiles\n")
    (package / "layer.py").write_text("import another_missing_module\n")
    assert main(["check", "wide/ops/gemm.py:f", "--max-examples", "1"]) == EXIT["pass"]
    assert main(["check", "wide/ops/layer.py:f"]) == EXIT["error"]
    assert "wide/ops/layer.py:1: importing it raised" in capsys.readouterr().err


def test_a_lane_that_cannot_run_is_incomplete_not_passed(project, capsys, monkeypatch, texts):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command = ["check", "my_kernels.py:matmul", "--device", "cuda", "--json", "report.json"]
    assert main([*command, "--junit", "report.xml"]) == EXIT["incomplete"]
    out = capsys.readouterr().out
    texts("the verdict without the GPU that was asked for", out.splitlines()[-1])
    report = json.loads(Path("report.json").read_text())
    assert report["verdict"] == "incomplete"
    assert report["properties"][-1]["status"] == "not run"
    assert len(list(ElementTree.parse("report.xml").iter("error"))) == 1


def test_what_a_target_says_cannot_break_the_screen_or_the_xml():
    assert clean("a\x1b[31m\u202eb\ud800\r\n<&[red]é×") == r"a\x1b[31m\u202eb\ud800\r\n<&[red]é×"


def finding(i: int, **changes: str) -> Finding:
    return Finding("stays_in_bounds", "out_of_bounds", f"message {i}", Case(i, 1, 1), **changes)


def test_a_report_fits_a_screen(texts):
    held = PropertyResult("stays_in_bounds", "every lane is in", "fail", 40)
    findings = tuple(finding(i) for i in range(30))
    followers = tuple(finding(i, cause="stays_in_bounds") for i in range(30))
    report = Report(SCHEMA, "f.py:matmul", (held,), findings + followers, 1.0, {})
    shown = [text for text, _ in lines(report, lambda case: "again")]
    assert len(shown) < 40
    texts("a report that is cut to fit a screen", "\n".join(shown))


def test_the_table_breaks_into_blocks_that_fit():
    held = (PropertyResult("within_bound", "", "pass", 100, 0.5),)
    reports = [Report(SCHEMA, f"kernel_{i}", held, (), 1.0, {}) for i in range(9)]
    rows = table(reports, 60)
    assert max(map(len, rows)) <= 60
    assert sum(row.count("0.500  100") for row in rows) == 9


def test_the_targets_are_those_of_the_models():
    from gemmproof.reference import dot

    for name in TARGETS:
        dot.dot_model(name, "fp16")


def test_the_module_is_the_command(project):
    env = {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-m", "gemmproof", "--version"]
    assert subprocess.check_output(command, env=env, text=True).startswith("gemmproof 0.")


# -- `--json -`: the report on stdout, and the answer on stderr ------------------------------------
MATMUL = str(Path(kernels.__file__).parent / "matmul.py:matmul")


def test_json_and_nothing_else(project, capsys):
    assert main(["check", "my_kernels.py:leaves", "--max-examples", "5", "--json", "-"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["verdict"] == "fail"
    assert captured.err.splitlines()[-1].startswith("leaves: fail: ")
    assert not Path("-").exists()


def test_junit_and_nothing_else(project, capsys):
    register("matmul")
    command = ["signoff", "--max-examples", "3", "--junit", "-", "--json", "report.json"]
    assert main(command) == EXIT["pass"]
    captured = capsys.readouterr()
    assert ElementTree.fromstring(captured.out).tag == "testsuites"
    assert captured.err.splitlines()[-1] == "signoff: pass (1 pass)"
    assert json.loads(Path("report.json").read_text())["verdict"] == "pass"


@pytest.mark.lane("full")
def test_an_address_map_or_its_picture(capsys):
    assert main(["explain", MATMUL, "--json", "-"]) == EXIT["pass"]
    captured = capsys.readouterr()
    assert json.loads(captured.out)
    assert "store c" in captured.err
    assert main(["explain", MATMUL, "--svg", "-"]) == EXIT["pass"]
    assert ElementTree.fromstring(capsys.readouterr().out).tag.endswith("svg")
