"""Bits that differ from a prediction: its premises are compiled before anything is said of them."""

from __future__ import annotations

from dataclasses import replace

import launched_kernels as kernels
import pytest
from fake_gpu import CASES, CONTRACT, FakeGpu, flip, launch, make_kernel, only_root, statuses

from gemmproof.backends.cuda import launch_cases
from gemmproof.engine.check import check
from gemmproof.lowering.premise.check import PremiseCheck
from gemmproof.reference.simulator.ops.dots import dot

FLIPPED = CASES[1:2]  # of values that are no integers


@pytest.fixture
def told_wrong(monkeypatch):
    """A choice of models that takes five products at once."""
    note = dot.note_model

    def note_wrong(model, tile, start):
        note(replace(model, unit=replace(model.unit, L=5)), tile, start)

    monkeypatch.setattr(dot, "note_model", note_wrong)


def spoil(call, c, tensors):
    return flip(c)


def test_bits_that_differ_are_a_finding_where_the_premises_hold():
    report, *_ = launch(kernels.plain, FLIPPED, FakeGpu(spoil))
    assert only_root(report).property == "equals_prediction"
    events = [e for e in launch(kernels.plain, FLIPPED, FakeGpu(spoil))[2] if e["event"] != "case"]
    names = [e["event"] for e in events]
    assert names.index("premise") < names.index("finding")


def test_bits_that_differ_are_none_where_a_premise_does_not_hold(told_wrong):
    report, _, events = launch(kernels.plain, FLIPPED, FakeGpu(spoil))
    assert report.verdict == "incomplete"
    assert not report.findings
    assert statuses(report)["equals_prediction"][0] == "not run"
    assert "equals_prediction not run: " in report.note
    assert "5 of k at once, onto the sum before it; compiled to 4 mma m16n8k16" in report.note
    assert not any(e["event"] == "finding" for e in events)


def test_other_faults_of_the_same_launch_are_told_all_the_same(told_wrong):
    def fault(call, c, tensors):
        return flip(c, (2, 3)) if call == 2 else c

    report, *_ = launch(kernels.plain, FLIPPED, FakeGpu(fault))
    assert only_root(report).property == "same_bits_on_dirty_outputs"


def test_what_is_as_predicted_is_compiled_only_where_that_is_asked_for():
    events = launch(kernels.plain, FLIPPED)[2]
    assert not any(e["event"] == "premise" for e in events)
    one = PremiseCheck(events.append, every=True)
    launch_cases(*make_kernel(kernels.plain, CONTRACT), FLIPPED, FakeGpu(), events.append, one)
    one.check_noted()
    assert (one.conclude().target, one.conclude().launches, one.conclude().agreed) == (
        "sm_90",
        1,
        1,
    )


@pytest.mark.lane("full")
def test_a_check_that_launches_has_the_premises_of_both():
    made, _ = make_kernel(kernels.plain, CONTRACT)
    words = {"case": FLIPPED[0], "launch": True}
    report = check(made, device=FakeGpu(), target="sm_80", premise=True, **words)
    assert report.verdict == "pass"
    assert report.premises.target == "sm_90 sm_80"
    assert (report.premises.launches, report.premises.agreed) == (2, 2)
    assert check(made, device=FakeGpu(), **words).premises is None


@pytest.mark.lane("full")
def test_a_check_with_bits_that_differ_says_what_its_premises_are(told_wrong):
    made, _ = make_kernel(kernels.plain, CONTRACT)
    report = check(made, case=FLIPPED[0], launch=True, device=FakeGpu(spoil))
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert report.premises.differ == 1
