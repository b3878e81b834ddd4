"""The launches of a check, on a fake device: every fault is found, for the right reason."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.backends import launched_kernels as kernels
from tests.backends.fake_gpu import (
    CASES,
    CONTRACT,
    NAMES,
    FakeGpu,
    differ_in_call_2,
    flip,
    flip_each,
    launch,
    make_kernel,
    only_root,
    statuses,
)
from tests.corpora.no_false_alarm.splitting import atomics_onto_zeros
from tests.support.wide import wide

from gemmproof.backends import cuda as lane
from gemmproof.backends.autotune import CaseNotRunnable
from gemmproof.backends.cuda import FILLS, launch_cases
from gemmproof.backends.predict import predict
from gemmproof.cli import EXIT, main
from gemmproof.compiled.assumptions import AssumptionCheck
from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import dump, parse
from gemmproof.reference.simulator.ops import dots
from gemmproof.report.record import Report
from gemmproof.target import display_path
from gemmproof.worker.protocol import CaseStarted, ModelCheckStarted, PartialReport


# -- right kernels -------------------------------------------------------------------------------
def test_a_right_kernel_holds_on_the_device(texts):
    report, device, events = launch(kernels.plain)
    assert report.verdict == "pass"
    assert not report.findings
    assert tuple(statuses(report)) == NAMES
    assert statuses(report)["equals_prediction"] == ("pass", 3)
    assert statuses(report)["within_bound"] == ("pass", 1)  # the only data that rounds
    texts("what was launched of a right kernel", report.note)
    assert report.versions["device"] == "fake GPU"
    assert device.fill == [*FILLS] * 3
    assert [e.phase for e in events if isinstance(e, CaseStarted)] == ["launch"] * 3
    counts = [launched_examples(e) for e in events if isinstance(e, PartialReport)]
    assert counts == [1, 2, 3]


def launched_examples(event):
    """Return the number of launched cases in the report so far."""
    results = {(p.name, p.backend): p.examples for p in event.report.properties}
    return results["runs_to_completion", "cuda"]


def test_every_configuration_is_forced_and_the_tuners_own_choice_is_compared():
    cases = [replace(CASES[1], config=i) for i in (0, 1)]
    report, device, _ = launch(kernels.tuned, cases)
    assert report.verdict == "pass", report
    first, second = (str(config) for config in kernels.CONFIGS)
    assert device.ran == [first] * 3 + [second] * 6  # three of them chosen by the tuner


# -- faults, and their findings ------------------------------------------------------------------
def hide_values(message):
    """Return the message without its values, which are random, and their bits."""
    return re.sub(r"\S+ \(0x\w+\)", "<value>", message)


def test_a_bit_that_was_not_predicted(texts):
    report, *_ = launch(kernels.plain, CASES[1:], FakeGpu(flip_each))
    finding = only_root(report)
    assert (finding.property, finding.fault) == ("equals_prediction", "not_as_predicted")
    texts("a bit that was not predicted", hide_values(finding.message))
    assert finding.case == replace(CASES[1], calls=3)
    assert statuses(report)["within_bound"][0] == "pass"


@pytest.mark.lane("full")
def test_an_integer_that_is_not_exact_comes_before_the_prediction():
    report, *_ = launch(kernels.plain, CASES[:1], FakeGpu(flip_each))
    assert only_root(report).property == "exact_on_integers"
    assert {f.cause for f in report.findings} == {None, "exact_on_integers"}


def test_bits_that_differ_from_call_to_call_where_determinism_is_promised(texts):
    finding = only_root(launch(kernels.plain, CASES[1:2], FakeGpu(differ_in_call_2))[0])
    assert (finding.property, finding.fault) == ("same_bits_on_dirty_outputs", "bits_differ")
    texts("bits that differ from call to call", hide_values(finding.message))
    loose = wide(deterministic=False)
    report, *_ = launch(kernels.plain, CASES[1:2], FakeGpu(differ_in_call_2), loose)
    assert report.verdict == "pass"
    assert "same_bits_on_dirty_outputs" not in statuses(report)


def test_the_order_of_atomics_is_not_guaranteed():
    """But exact sums are the same in any order."""
    report, *_ = launch(atomics_onto_zeros, CASES[1:2], FakeGpu(differ_in_call_2))
    assert report.findings == ()
    exact = replace(CASES[1], fill="index")
    finding = only_root(launch(atomics_onto_zeros, [exact], FakeGpu(differ_in_call_2))[0])
    assert finding.property == "same_bits_on_dirty_outputs"


@pytest.mark.parametrize(
    ("where", "fault"), [(-3, "guard_changed"), (35, "gap_changed"), (0, "element_changed")]
)
def test_memory_that_a_launch_changed(where, fault):
    def touch(call, c, tensors):
        a = tensors[0]
        torch.as_strided(a, (1,), (1,), a.storage_offset() + where).view(torch.int16)[0] ^= 1
        return c

    report, *_ = launch(kernels.plain, CASES[1:2], FakeGpu(touch))
    finding = next(f for f in report.findings if f.cause is None)
    assert (finding.property, finding.fault) == ("leaves_inputs_untouched", fault)
    assert finding.message.endswith("on the fake GPU")


@pytest.mark.lane("full")
def test_a_cuda_error_ends_the_lane_and_earlier_findings_stay(texts):
    def fault(call, c, tensors):
        if call > 3:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        return flip(c)

    report, device, _ = launch(kernels.plain, CASES, FakeGpu(fault))
    assert device.calls == 4
    error = next(f for f in report.findings if f.fault == "cuda_error")
    assert error.property == "runs_to_completion"
    assert "illegal memory access" in error.message
    assert error.case == replace(CASES[1], calls=3)
    assert any(f.property == "exact_on_integers" for f in report.findings)
    texts("what was launched until a CUDA error", report.note)


def test_an_exception_is_a_finding_and_the_next_case_is_launched():
    def fault(call, c, tensors):
        if call == 1:
            raise ValueError("only here")
        return c

    report, device, _ = launch(kernels.plain, CASES, FakeGpu(fault))
    message = "got ValueError: only here, expected a result on the fake GPU"
    assert only_root(report).message.endswith(message)
    assert device.calls == 1 + 3 + 3


def test_a_result_of_another_format():
    report, *_ = launch(kernels.plain, CASES[1:2], FakeGpu(lambda n, c, t: c.half()))
    assert only_root(report).fault == "other_result"


# -- launches that cannot be judged ----------------------------------------------------------------
def test_a_capability_without_a_model_is_incomplete(texts):
    device = FakeGpu()
    device.capability = (10, 3)
    report, *_ = launch(kernels.plain, device=device)
    assert report.verdict == "incomplete"
    assert statuses(report)["equals_prediction"] == ("not run", 0)
    assert statuses(report)["within_bound"][0] == "pass"
    texts("a device without a model", report.note)


def test_a_dot_without_a_model_is_incomplete(monkeypatch, texts):
    lacks = "tl.dot: no such unit"
    monkeypatch.setattr(lane, "predict", lambda *given: replace(predict(*given), lacks=lacks))
    report, *_ = launch(kernels.plain)
    assert report.verdict == "incomplete"
    texts("a dot without a model", report.note)


def test_bits_that_a_compiler_may_choose_are_compared_only_where_sums_are_exact(texts):
    report, *_ = launch(kernels.multiply_adds, (Case(3, 2, 5), Case(3, 2, 5, fill="normal")))
    assert report.verdict == "pass"
    assert statuses(report)["equals_prediction"] == ("pass", 1)
    texts("bits that a compiler may choose", report.note)


def test_a_configuration_that_does_not_fit_is_passed_over_with_a_note(texts):
    class Small(FakeGpu):
        def call(self, function, tensors, index, choices, beat):
            if choices:
                raise CaseNotRunnable("configuration BLOCK_M: 32: out of resource: shared memory")
            return super().call(function, tensors, index, choices, beat)

    report, *_ = launch(kernels.tuned, CASES[1:2], Small())
    assert report.verdict == "pass"
    texts("a configuration that does not fit", report.note)
    device = FakeGpu()
    device.memory = 100
    report, *_ = launch(kernels.tuned, CASES[1:2], device)
    assert report.verdict == "incomplete"
    assert "an operand of 0.0 GiB" in report.note


def test_nothing_is_launched_after_a_finding_of_a_simulated_case():
    kernel, report = make_kernel(kernels.plain, CONTRACT)
    device = FakeGpu()
    after = launch_cases(kernel, report.with_note("it fails", "fail"), CASES, device, print)
    assert device.calls == 0
    assert after.verdict == "fail"
    assert {status for status, _ in statuses(after).values()} == {"not run"}


def test_the_engine_and_the_lane_agree_on_a_checked_kernel():
    kernel, _ = make_kernel(kernels.tuned, CONTRACT)
    cases = []

    def listener(event):
        if isinstance(event, CaseStarted):
            cases.append(Case.from_json(event.case))

    report = check(kernel, max_examples=6, listener=listener)
    after = launch_cases(kernel, report, cases, FakeGpu(), lambda event: None)
    assert after.verdict == "pass", after
    assert len(after.properties) == len(report.properties) + len(NAMES)
    assert parse(Report, dump(after), "report") == after


@pytest.mark.lane("full")
def test_without_a_device_the_command_is_incomplete(monkeypatch, capsys, texts):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(Path(__file__).parent)
    target = "launched_kernels.py:plain"
    command = ["check", target, "--device", "cuda", "--max-examples", "2", "--seed", "1"]
    assert main(command) == EXIT["incomplete"]
    out = capsys.readouterr().out
    texts("the verdict of a launch without a GPU", out.splitlines()[-1])


# -- bits that differ from a prediction: its assumptions are compiled ------------------------------
FLIPPED = CASES[1:2]  # of values that are no integers


@pytest.fixture
def wrong_model(monkeypatch):
    """Make the choice of models wrong: it takes five products at once."""
    note = dots.note_model

    def note_wrong(model, tile, start):
        note(replace(model, unit=replace(model.unit, L=5)), tile, start)

    monkeypatch.setattr(dots, "note_model", note_wrong)


@pytest.mark.lane("full")
def test_bits_that_differ_are_a_finding_where_the_assumptions_hold():
    report, *_ = launch(kernels.plain, FLIPPED, FakeGpu(flip_each))
    assert only_root(report).property == "equals_prediction"
    _, _, events = launch(kernels.plain, FLIPPED, FakeGpu(flip_each))
    kinds = [type(e) for e in events if not isinstance(e, PartialReport) or e.report.findings]
    assert kinds.index(ModelCheckStarted) < kinds.index(PartialReport)


@pytest.mark.lane("full")
def test_bits_that_differ_are_none_where_a_assumption_does_not_hold(wrong_model, texts):
    report, _, events = launch(kernels.plain, FLIPPED, FakeGpu(flip_each))
    assert report.verdict == "incomplete"
    assert not report.findings
    assert statuses(report)["equals_prediction"][0] == "not run"
    path = display_path(kernels.__file__)
    texts("bits that differ where a model does not hold", report.note, path=path)
    assert not any(e.report.findings for e in events if isinstance(e, PartialReport))


def test_other_faults_of_the_same_launch_are_told_all_the_same(wrong_model):
    report, *_ = launch(kernels.plain, FLIPPED, FakeGpu(differ_in_call_2))
    assert only_root(report).property == "same_bits_on_dirty_outputs"


def test_what_is_as_predicted_is_compiled_only_where_that_is_asked_for():
    events = launch(kernels.plain, FLIPPED)[2]
    assert not any(isinstance(e, ModelCheckStarted) for e in events)
    assumptions = AssumptionCheck(events.append, every=True)
    launch_cases(
        *make_kernel(kernels.plain, CONTRACT), FLIPPED, FakeGpu(), events.append, assumptions
    )
    assumptions.check_noted()
    assumptions = assumptions.conclude()
    assert (assumptions.target, assumptions.launches, assumptions.agreed) == ("sm_90", 1, 1)


@pytest.mark.lane("full")
def test_a_check_that_launches_has_the_assumptions_of_both():
    kernel, _ = make_kernel(kernels.plain, CONTRACT)
    options = {"case": FLIPPED[0], "launch": True}
    report = check(kernel, device=FakeGpu(), target="sm_80", check_model=True, **options)
    assert report.verdict == "pass"
    assumptions = report.model_check
    assert (assumptions.target, assumptions.launches, assumptions.agreed) == ("sm_90 sm_80", 2, 2)
    assert check(kernel, device=FakeGpu(), **options).model_check is None


@pytest.mark.lane("full")
def test_a_check_with_bits_that_differ_says_what_its_assumptions_are(wrong_model):
    kernel, _ = make_kernel(kernels.plain, CONTRACT)
    report = check(kernel, case=FLIPPED[0], launch=True, device=FakeGpu(flip_each))
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert report.model_check.differ == 1
