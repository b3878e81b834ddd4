"""`check --check-model`: compilations, reports, and the cost of a compiler that fails."""

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.lowering import lowered_kernels as kernels
from tests.texts import line_with

from gemmproof.cli import EXIT, main
from gemmproof.compiled.assumptions import AssumptionCheck
from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import decode, dump, encode, parse
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.simulation import CompileError, Where
from gemmproof.reference.simulator import run
from gemmproof.reference.simulator.ops import dots
from gemmproof.report.record import Report
from gemmproof.report.text import lines
from gemmproof.target import display_path
from gemmproof.worker.processes import resident
from gemmproof.worker.protocol import ModelCheckStarted

KERNEL = KernelUnderTest("right", kernels.right, Contract(M="64", N="64", K="64"))
CASE = Case(64, 64, 64)
TARGET = f"{Path(kernels.__file__).resolve()}:right"
SIZES = ["--target", "sm_80", "--case", CASE.to_json(), "--no-proof", "--quiet"]


def judge(kernel=KERNEL, **options):
    return check(kernel, case=CASE, target="sm_80", check_model=True, **options)


def launch(*wrappers, target="sm_80"):
    """Return the launches of some calls."""
    a = torch.ones(64, 64, dtype=torch.float16)
    return [x for call in wrappers for x in run(call, a, a.clone(), target=target).launches]


def predict_by_steps_of_five(monkeypatch):
    """Patch the choice of a model as a mistake in it would."""
    note = dots.note_model

    def note_wrong(model, tile, start):
        note(replace(model, unit=replace(model.unit, L=5)), tile, start)

    monkeypatch.setattr(dots, "note_model", note_wrong)


# -- reports -------------------------------------------------------------------------------------
def test_a_check_tells_that_what_it_predicts_is_compiled(texts):
    events = []
    report = judge(listener=events.append)
    assert report.verdict == "pass"
    assert report.model_check == replace(report.model_check, target="sm_80", launches=1, agreed=1)
    shown = "\n".join(text for text, _ in lines(report, str))
    texts("a launch that is compiled as predicted", line_with(shown, "model check"))
    progress = [(x.number, x.of) for x in events if isinstance(x, ModelCheckStarted)]
    assert progress == [(1, 1)]
    assert parse(Report, dump(report), "report") == report


def test_an_ordinary_check_compiles_nothing(monkeypatch):
    monkeypatch.setattr(os, "fork", None)
    report = check(KERNEL, case=CASE, target="sm_80")
    assert report.verdict == "pass"
    assert report.model_check is None
    old = encode(report)
    del old["model_check"]  # as in older versions
    assert decode(Report, old, "report") == report


def test_a_contradiction_is_an_error_of_ours_and_no_finding(monkeypatch, texts):
    predict_by_steps_of_five(monkeypatch)
    report = judge()
    assert report.verdict == "incomplete"
    assert not report.findings
    assert report.model_check.differ == 1
    (line,) = report.model_check.contradicted
    path = display_path(kernels.__file__)
    texts("a dot that is not compiled as predicted", line, path=path)
    assert line in report.note
    shown = [text for text, _ in lines(report, str)]
    summary = line_with("\n".join(shown), "model check")
    texts("a launch that is not compiled as predicted", summary)
    assert f"  {line}" in shown


def test_a_kernel_without_dots_has_no_assumption():
    def rows(a, b):
        return (a.float() @ b.float()).to(a.dtype)

    report = judge(KernelUnderTest("rows", rows, KERNEL.contract))
    assert report.model_check is None or not report.model_check.launches


@pytest.mark.parametrize("target", [None, "gfx942"])
def test_without_a_prediction_there_is_no_assumption(target, capsys, texts):
    text = f"check_model: got target {target}, expected one of sm_70"
    with pytest.raises(ValueError, match=text):
        check(KERNEL, case=CASE, target=target, check_model=True)
    options = [] if target is None else ["--target", target]
    assert main(["check", TARGET, "--check-model", *options]) == EXIT["error"]
    got = target or "no --target"
    texts("a model check without a predicted target", capsys.readouterr().err, got=got)


@pytest.mark.lane("full")
def test_the_command(tmp_path, capsys, texts):
    file = tmp_path / "report.json"
    assert main(["check", TARGET, *SIZES, "--check-model", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    texts("a launch that is compiled as predicted", line_with(out, "model check"))
    document = json.loads(file.read_text())["model_check"]
    assert (document["target"], document["launches"], document["dots"], document["agreed"]) == (
        "sm_80",
        1,
        1,
        1,
    )
    assert (document["differ"], document["contradicted"], document["failed"]) == (0, [], [])


# -- compilations, and their number --------------------------------------------------------------
class Compiler:
    """A compiler that knows nothing about the dots of a launch, and logs each launch.

    Launches of eight warps trigger the fault.
    """

    def __init__(self, log, fault=lambda launch: None):
        self.log, self.fault = log, fault

    def __call__(self, planned, workdir):
        launch = planned.captured
        with self.log.open("a") as file:
            file.write(f"{launch.kernel} {launch.options.num_warps}\n")
        if launch.options.num_warps == 8:
            self.fault(launch)
        return planned.record


def assumptions(tmp_path, fault=lambda launch: None, **options):
    compiler = Compiler(tmp_path / "log", fault)
    return AssumptionCheck(lambda event: None, lower=compiler, **options)


def test_launches_that_compile_to_the_same_are_compiled_once(tmp_path):
    checker = assumptions(tmp_path)
    checker.check("sm_80", launch(kernels.several, kernels.right, kernels.flat))
    checker.check("sm_80", launch(kernels.right))
    log = (tmp_path / "log").read_text().splitlines()
    assert log == ["tile_kernel 4", "tile_kernel 8", "tile_kernel 4"]
    assert (checker.conclude().launches, checker.conclude().not_known) == (3, 3)


def test_a_daemonic_process_compiles_too(tmp_path, monkeypatch):
    """Those of a multiprocessing.Pool are; they may not start another Process."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    checker = assumptions(tmp_path)
    checker.check("sm_80", launch(kernels.right))
    assert checker.conclude().failed == ()


def die(launch):
    os._exit(1)


def crash(launch):
    os.kill(os.getpid(), signal.SIGKILL)


def hang(launch):
    time.sleep(1000)


def fill(launch):
    held = []
    while True:
        held.append(b"x" * (1 << 26))


def refuse(launch):
    raise CompileError("no such thing", Where("kernel.py", 7, "f"))


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("fault", "how"),
    [
        (die, "the compiler's process ended"),
        (crash, "the compiler's process died of SIGKILL"),
        (hang, "it timed out after 1 s"),
        (fill, "GiB of memory ("),
        (refuse, "kernel.py:7: no such thing"),
    ],
)
def test_what_takes_a_compiler_down_costs_one_launch(fault, how, tmp_path):
    seconds = 1 if fault is hang else 60
    memory = (2 << 30) + resident(os.getpid())  # a forked child begins with the pages of this one
    checker = assumptions(tmp_path, fault, seconds=seconds, memory=memory)
    result = checker.check("sm_80", launch(kernels.several))
    assert (result.launches, result.dots, len(result.failed)) == (2, 1, 1)
    failed, _, ended = result.failed[0].partition(": not compiled: ")
    assert failed.split()[:4] == ["tile_kernel", "BM=64", "BN=64", "BK=32"]
    assert how in ended
    assert not result.is_kept
    assert "1 launch not compiled" in result.say()


def test_a_launch_that_is_not_compiled_leaves_a_check_incomplete(monkeypatch, texts):
    monkeypatch.setattr(
        "gemmproof.engine.sections.AssumptionCheck",
        lambda tell, seconds, every: AssumptionCheck(tell, seconds, every=every, lower=fail),
    )
    report = judge()
    assert report.verdict == "incomplete"
    (failed,) = report.model_check.failed
    texts("gemmproof fails while a launch is compiled", failed)
    assert failed in report.note


def fail(planned, workdir):
    raise RuntimeError("broken")
