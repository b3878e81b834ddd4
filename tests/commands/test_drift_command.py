"""`gemmproof drift`: its reports, its exit codes, its picture, and one clear line for bad usage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support import drift_kernels
from tests.support.cli_project import NO_ROOM, refuse
from tests.texts import line_with

from gemmproof.cli import main, parse_options
from gemmproof.drift import command
from gemmproof.drift.plot import draw
from gemmproof.drift.run import drift
from gemmproof.properties.codec import dump, encode, parse
from gemmproof.reference.dot import dot_model
from gemmproof.report.record import Report
from gemmproof.report.text import kernel_name
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import CaseStarted, Done, Failed


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Return a report that passes and one that does not."""
    good, bad = dot_model("sm_90", "fp16"), dot_model("sm_90", "fp16", "fp16")
    return {
        name: drift(model.dot, "fp16", sizes=[64, 128], name=f"k.py:{name}", gpu="sm_90")
        for name, model in (("good", good), ("bad", bad))
    }


def run_with(report: Report | None, monkeypatch, *args: str, gpu=None, end=None) -> int:
    """Return the command's exit code if its worker left this report, or ended so."""
    outcome = end or WorkerExit(done=Done(encode(report)))
    outcome.parts["device"] = gpu
    monkeypatch.setattr(command, "watch", lambda *_: outcome)
    options = parse_options(["drift", "tests/support/drift_kernels.py:passed", *args])
    return command.run(options)


@pytest.mark.lane("full")
def test_reports_survive_json(reports: dict[str, Report], texts) -> None:
    for report in reports.values():
        assert parse(Report, dump(report), "report") == report
    bad = reports["bad"].drift
    endless = replace(bad.measures[0], ratio=float("inf"))
    report = replace(reports["bad"], drift=replace(bad, measures=(endless,)))
    assert "NaN" not in dump(report)
    assert parse(Report, dump(report), "report") == report
    texts("an accumulator in one line", encode(report)["drift"]["accumulator"]["name"])


@pytest.mark.parametrize("option", ["--json", "--svg"])
def test_a_report_without_room_is_incomplete_and_the_answer_is_printed(
    reports, monkeypatch, capsys, option, texts
) -> None:
    assert run_with(reports["good"], monkeypatch, option, "/dev/full") == 3
    out, err = capsys.readouterr()
    texts("the verdict of a drift that is allowed", out.splitlines()[-1].partition(", worst")[0])
    assert err == f"gemmproof drift: {option}: {NO_ROOM}\n"


def test_the_output_says_what_was_found(
    reports, monkeypatch, capsys, tmp_path: Path, texts
) -> None:
    path = tmp_path / "drift.json"
    assert run_with(reports["good"], monkeypatch, "--json", str(path)) == 0
    out = capsys.readouterr().out
    texts("the accumulator that was found", line_with(out, "accumulator"))
    texts("the verdict of a drift that is allowed", out.splitlines()[-1].partition(", worst")[0])
    assert json.loads(path.read_text())["verdict"] == "pass"
    assert run_with(reports["bad"], monkeypatch) == 1
    out = capsys.readouterr().out
    texts("a sum that keeps too few bits", line_with(out, "10 bits (fp16)"))


def test_without_a_gpu_a_launch_is_incomplete(reports, monkeypatch, capsys, texts) -> None:
    assert run_with(reports["good"], monkeypatch, "--device", "cuda") == 3
    out = capsys.readouterr().out
    texts("the verdict of a drift without a GPU", out.splitlines()[-1])
    assert run_with(reports["bad"], monkeypatch, "--device", "cuda") == 1
    assert run_with(reports["good"], monkeypatch, "--device", "cuda", gpu="NVIDIA H200") == 0


def test_a_dead_worker_is_a_finding_and_a_mistake_is_not(monkeypatch, capsys) -> None:
    died = WorkerExit("crash", case=CaseStarted("product 3"))
    assert run_with(None, monkeypatch, end=died) == 1
    assert "product 3" in capsys.readouterr().out
    mistake = WorkerExit(failure=Failed("error", "k.py:3: tl.foo"))
    assert run_with(None, monkeypatch, end=mistake) == 2
    assert capsys.readouterr().err == "gemmproof drift: k.py:3: tl.foo\n"
    assert (
        run_with(None, monkeypatch, end=WorkerExit(failure=Failed("internal", "KeyError: 1"))) == 2
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--dtype", "int8"], "--dtype: got 'int8', expected one of"),
        (["--target", "sm_99"], "--target: got 'sm_99', expected one of"),
        (["--accumulator", "fp64"], "--accumulator: got 'fp64', expected"),
        (["--K", "512..100"], "--K: got '512..100', expected LOW..HIGH, powers of two"),
        (["--K", "1..2..4"], "--K: got '1..2..4', expected LOW..HIGH, powers of two"),
        (["--json", "no/such/o.json"], "--json: got 'no/such/o.json' (No such file"),
        (
            ["--json", "same", "--svg", "./same"],
            "--svg: got './same', the file of --json, expected",
        ),
    ],
    ids=lambda x: x[-1] if isinstance(x, list) else "",
)
def test_bad_usage_is_one_clear_line(args, message: str, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text("def f(a, b): pass")
    assert message in refuse(["drift", "k.py:f", *args], capsys)


def test_a_picture_without_matplotlib_is_refused_at_once(monkeypatch, capsys, texts) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["drift", "k.py:f", "--svg", "k.svg"]) == 2
    texts("a picture without matplotlib", capsys.readouterr().err)
    assert not Path("k.svg").exists()


@pytest.mark.lane("full")
def test_the_command_from_end_to_end(tmp_path: Path, capsys, texts) -> None:
    """In a worker: a kernel that is refused, and one that passes, with its picture."""
    kernel = tmp_path / "odd.py"
    kernel.write_text("def odd(a, b):\n    raise TypeError('fp16 is not for me')\n")
    assert main(["drift", f"{kernel}:odd"]) == 2
    texts("the drift of a kernel that raises", capsys.readouterr().err)
    svg = tmp_path / "drift.svg"
    target = f"{drift_kernels.__file__}:passed"
    assert main(["drift", target, "--K", "512", "--svg", str(svg)]) == 0
    assert ", fp16 on sm_90: pass: " in capsys.readouterr().out
    drawn = list(ElementTree.parse(svg).getroot().itertext())
    texts("the heading of a picture of drift", line_with("\n".join(drawn), "passed: "))


@pytest.mark.lane("full")
def test_a_picture_names_its_verdict_and_its_axes(reports, tmp_path: Path) -> None:
    none = replace(reports["bad"].drift, measures=(), slope=None)
    for report in (*reports.values(), replace(reports["bad"], drift=none)):
        svg = tmp_path / "drift.svg"
        draw(report, str(svg))
        text = " ".join(ElementTree.parse(svg).getroot().itertext())
        verdict = "accumulates" if report.verdict == "pass" else "does not accumulate"
        assert f"{kernel_name(report)}: {report.verdict}: {verdict} as declared, in fp32" in text
        assert ("K (terms in a sum)" in text) == bool(report.drift.measures)
        assert ("beyond the bound" in text) == any(m.ratio > 1 for m in report.drift.measures)
