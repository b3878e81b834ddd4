"""`gemmproof bench`: the worker, the table, the picture, and refusals in one line."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree

import pytest
from tests.bench.fake_cuda_device import MEASURE_CEILING, FakeDevice, measure_small
from tests.report.schemas import validate
from tests.support.cli_project import NO_ROOM, refuse

from gemmproof.bench import command
from gemmproof.bench import task as worker
from gemmproof.bench.record import BenchReport, BenchRequest
from gemmproof.cli import main
from gemmproof.properties.codec import decode, dump
from gemmproof.target import TargetError
from gemmproof.terminal import Interrupted
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import (
    CaseStarted,
    Done,
    Failed,
    Ready,
    read_event,
    write_event,
)

KERNELS = """
import torch

def matmul(a, b, out=None):
    return torch.matmul(a, b, out=out)

def slow(a, b):
    return a @ b

def bad(a, b):
    return (a @ b) * 2

def wide(a, b):
    return a.float() @ b.float()

def raising(a, b):
    raise ValueError("not this one")

def linear(a, b, bias, alpha=1.0):
    return (alpha * (a.float() @ b.float()) + bias.float()).to(a.dtype)

def without_bias(a, b, bias):
    return a @ b

def theirs(a, b, bias):
    return (0.5 * (a.float() @ b.float()) + bias.float()).to(a.dtype)
"""


@pytest.fixture(autouse=True)
def project_files(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("fast.py", "other.py"):
        Path(name).write_text(KERNELS)
    monkeypatch.setattr(MEASURE_CEILING, measure_small)
    monkeypatch.setattr(command, "watch", watch_here)


def watch_here(function: str, request: BenchRequest, limits, listener) -> WorkerExit:
    """Run the worker in this process, on the fake device, with requests and events as JSON."""
    outcome = WorkerExit()

    def emit(event) -> None:
        received, held = read_event(write_event(event, 0))
        outcome.take(received, held)
        listener(received)

    request = decode(BenchRequest, json.loads(dump(request)), "request")
    emit(Ready())
    try:
        device = FakeDevice(matmul=0.02, slow=0.05)
        emit(Done(worker.measure_on(device, request, emit)))
    except TargetError as error:
        emit(Failed("error", str(error)))
    return outcome


WORDS = ("--shapes", "24x20x32,8x16x64", "--rounds", "3", "--settle", "0")


def bench(*args: str) -> int:
    try:
        return main(["bench", *args])
    except SystemExit as end:
        return int(end.code or 0)


@pytest.mark.lane("full")
def test_the_command_from_targets_to_table_json_and_picture(capsys) -> None:
    status = bench(
        "fast.py:matmul", "fast.py:slow", *WORDS, "--dtype", "fp16", "--dtype", "bf16",
        "--json", "o.json", "--svg", "o.svg",
    )  # fmt: skip
    captured = capsys.readouterr()
    assert (status, captured.err) == (0, "")
    rows = [line.split() for line in captured.out.splitlines()]
    assert rows[0][:4] == ["kernel", "format", "shape", "ratio"]
    assert ["slow", "fp16", "24x20x32", "0.400", "0.400..0.400", "slower"] in [r[:6] for r in rows]
    for text in (
        *("within noise 1.000..1.000", "torch.matmul again", "median of 3 rounds"),
        *("under load: 1980..1980 MHz, 40..40 C, 600..600 W", "fake GPU, torch "),
    ):
        assert text in captured.out
    document = validate("bench", "o.json")
    assert (document["schema"], document["facts"]["device"]) == (1, "fake GPU")
    assert [row["verdict"] for row in document["rows"]] == ["control", "within noise", "slower"] * 4
    report = decode(BenchReport, document, "bench")
    assert [c.format for c in report.ceilings] == ["fp16", "bf16"]
    text = " ".join(ElementTree.parse("o.svg").getroot().itertext())
    for word in ("slow", "24x20x32", "torch.matmul", "share of the ceiling", "noise"):
        assert word in text


@pytest.mark.lane("full")
def test_a_wrong_result_is_told_and_the_exit_code_is_1(capsys) -> None:
    assert bench("fast.py:bad", "fast.py:matmul", *WORDS, "--svg", "o.svg") == 1
    out = capsys.readouterr().out
    assert "not timed: bad at 24x20x32 fp16, c[0, 0] of buffer 0: got " in out
    assert "bad: wrong, not timed" in " ".join(ElementTree.parse("o.svg").getroot().itertext())


LINEAR = ("--operand", "bias=fp16[N]", "--spec", "a @ b + bias")
NAMED_ALIKE = ("fast.py:matmul", "other.py:matmul")
NOT_TIMED = "not timed: without_bias at 24x20x32 fp16, c[0, 0] of buffer 0: got "


@pytest.mark.parametrize(
    ("args", "status", "texts"),
    [
        (
            (*NAMED_ALIKE, "--against", "fast.py:slow"),
            0,
            ["fast.py:slow again", *(f"\n{target} " for target in NAMED_ALIKE), "2.500"],
        ),
        (("fast.py:raising", "--call", "matmul(a, b)"), 0, ["raising"]),
        (("fast.py:without_bias", *LINEAR), 1, [NOT_TIMED, ", allowed error "]),
    ],
    ids=["two functions of one name", "a call in the target's names", "a forgotten operand"],
)
def test_the_answer_names_what_was_compared(args, status, texts, capsys) -> None:
    assert bench(*args, *WORDS) == status
    out = capsys.readouterr().out
    assert [text for text in texts if text not in out] == []


@pytest.mark.lane("full")
def test_operands_and_a_formula_are_stated_as_for_check(capsys) -> None:
    options = ("--operand", "alpha=0.5|1.0", "--operand", "bias=fp16[N]")
    options = (*options, "--spec", "alpha * (a @ b) + bias", "--json", "o.json")
    assert bench("fast.py:linear", *options, "--against", "addmm", *WORDS) == 0
    out = capsys.readouterr().out
    assert "addmm's result is not the formula's: torch.addmm at 24x20x32 fp16, c[" in out
    rows = json.loads(Path("o.json").read_text())["rows"]
    assert [row["peer"] for row in rows] == ["torch.addmm"] * 4
    assert rows[1]["operands"] == {"alpha": "0.5", "bias": "fp16[N]"}
    assert bench("fast.py:linear", *options, "--against", "fast.py:theirs", *WORDS) == 0
    out = capsys.readouterr().out
    assert "fast.py:theirs again" in out
    assert "formula" not in out
    call = ("--call", "linear(a, b, bias, 2 * alpha)")
    assert bench("fast.py:raising", *call, *options, *WORDS) == 1
    call = ("--call", "linear(a, b, bias=bias)")
    assert bench("fast.py:raising", *call, *LINEAR, *WORDS) == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fast.py:linear", "--operand", "bias=fp16[N]"], "got operands without a formula, expe"),
        (["fast.py:linear", *LINEAR, "--operand", "x=fp7[N]"], "--operand x: operand format: got"),
        (["fast.py:matmul", *LINEAR, *WORDS], "(got an unexpected keyword argument 'bias'), expe"),
        (["fast.py:linear", *LINEAR, "--against", "mm"], "--against: got 'mm', expected a functio"),
        (["fast.py:matmul", *WORDS, "--against", "addmm"], "--against addmm: got no operand bias"),
        (["fast.py:matmul", "--shapes", "lama"], "--shapes: got 'lama', expected MxNxK, batchxM"),
        (["fast.py:matmul", "--shapes", "lama"], "square tall wide small_k llama"),
        (["fast.py:matmul", "--shapes", "4096x4096"], "--shapes: got '4096x4096', expected MxNxK"),
        (["fast.py:matmul", "--dtype", "fp7"], "--dtype: got 'fp7', expected one of"),
        (["fast.py:matmul", "--rounds", "0"], "--rounds: got '0', expected an integer 1..2147"),
        (["fast.py:matmul", "--settle", "nan"], "--settle: got 'nan', expected seconds of 0..60"),
        (["fast.py:matmul", "--json", "no/o.json"], "--json: got 'no/o.json' (No such file"),
        (["fast.py:matmul", "--call", "matmul(a"], "--call: got 'matmul(a' ("),
        (["slow.py:matmul"], "target: got 'slow.py' (no such file), expected a Python file"),
        (["fast.py:matmull", *WORDS], "fast.py: got 'matmull', which is not there, expected perha"),
        (
            ["fast.py:raising", *WORDS],
            "fast.py:17: calling raising at 24x20x32 fp16 raised ValueError:",
        ),
        (["fast.py:matmul", "--against", "fast.py:bad", *WORDS], "fast.py:bad at 24x20x32 fp16, c"),
        (["fast.py:slow", "--dtype", "int8", *WORDS], "torch._int_mm at 24x20x32 int8: got a res"),
        (["fast.py:slow", "--out-dtype", "bf16", *WORDS], "slow at 24x20x32 fp16: got a result in"),
        (
            ["fast.py:wide", "--shapes", "2x32x32x32", "--dtype", "fp8e4m3"],
            "calling torch._scaled_mm at 2x32x32x32 fp8e4m3 raised ",
        ),
    ],
    ids=lambda x: " ".join(x[:3]) if isinstance(x, list) else "",
)
def test_bad_usage_is_one_clear_line(args, message: str, capsys) -> None:
    assert message in refuse(["bench", *args], capsys, answer=None)


def test_what_was_measured_is_left_where_a_later_shape_fails(capsys, tmp_path) -> None:
    slow = "def slow(a, b):"
    Path("fast.py").write_text(KERNELS.replace(slow, f"{slow}\n    a.shape[0] == 24 or 1 / 0"))
    assert bench("fast.py:slow", *WORDS, "--json", "o.json") == 2
    captured = capsys.readouterr()
    assert "24x20x32" in captured.out
    assert "calling slow at 8x16x64 fp16 raised ZeroDivisionError" in captured.err
    assert len(json.loads(Path("o.json").read_text())["rows"]) == 2


def test_a_worker_that_dies_is_told_in_one_line(monkeypatch, capsys) -> None:
    def dies(function, request, limits, listener) -> WorkerExit:
        outcome = WorkerExit(end="crash", how="the process died of SIGSEGV", where="fast.py:9")
        outcome.take(Ready())
        outcome.take(CaseStarted("24x20x32 fp16", "launch"))
        return outcome

    monkeypatch.setattr(command, "watch", dies)
    assert bench("fast.py:slow", *WORDS) == 2
    message = "24x20x32 fp16: fast.py:9: the process died of SIGSEGV"
    # on a slow machine a progress line precedes it
    assert capsys.readouterr().err.splitlines()[-1] == f"gemmproof bench: {message}"


def test_a_picture_without_matplotlib_is_refused_at_once(monkeypatch, capsys) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert bench("fast.py:matmul", "--svg", "o.svg") == 2
    err = capsys.readouterr().err
    assert "needs matplotlib: pip install 'gemmproof[bench]'" in err


@pytest.mark.parametrize("option", ["--json", "--svg"])
def test_a_report_without_room_is_incomplete_and_the_table_is_printed(capsys, option) -> None:
    assert bench("fast.py:matmul", *WORDS, option, "/dev/full") == 3
    out, err = capsys.readouterr()
    assert "median of 3 rounds" in out
    assert err == f"gemmproof bench: {option}: {NO_ROOM}\n"


def test_what_was_measured_before_an_interruption_is_told(monkeypatch, capsys) -> None:
    def interrupt(function, request, limits, listener) -> NoReturn:
        watch_here(function, request, limits, listener)
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(command, "watch", interrupt)
    assert bench("fast.py:matmul", *WORDS, "--json", "o.json") == 130
    captured = capsys.readouterr()
    assert "24x20x32" in captured.out
    assert captured.err == "gemmproof bench: interrupted by SIGINT\n"
    assert json.loads(Path("o.json").read_text())["rows"]


@pytest.mark.lane("full")
def test_without_a_gpu_the_worker_refuses_in_one_line(monkeypatch, capsys, tmp_path) -> None:
    """End to end: a real worker, which loads nothing of the target."""
    monkeypatch.undo()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    Path("bad.py").write_text("raise SystemExit('loaded')")
    assert bench("bad.py:matmul") == 2
    message = "device: got no CUDA GPU that torch can use, expected one"
    # on a slow machine a progress line precedes it
    assert capsys.readouterr().err.splitlines()[-1] == f"gemmproof bench: {message}"
