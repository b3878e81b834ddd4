"""The launches of a check, on a pretended device: every fault found, for the right reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import launched_kernels as kernels
import numpy as np
import pytest
import torch
from triton.runtime.errors import OutOfResources

from gemmproof import launched as lane
from gemmproof.check import check
from gemmproof.cli import EXIT, main
from gemmproof.launched import DIRT, launched
from gemmproof.predicted import predict, target_of
from gemmproof.properties.case import Case
from gemmproof.properties.contract import Contract, KernelUnderTest
from gemmproof.properties.launched import agree
from gemmproof.properties.operands import operands
from gemmproof.properties.placed import changed, placed
from gemmproof.reference.simulator import run
from gemmproof.results import Report
from gemmproof.share import SHARE, share
from gemmproof.tuning import DoesNotFit, forced, simulated

CPU = torch.device("cpu")
CONTRACT = Contract()
CASES = (
    Case(1, 1, 1),
    Case(33, 34, 35, a="padded", b="transposed", fill="normal"),
    Case(40, 20, 70, fill="special"),
)
NAMES = (
    "launched_to_the_end",
    "launched_inputs_untouched",
    "launched_same_bits",
    "launched_within_bound",
    "launched_equals_predicted",
)


class Pretended:
    """A device that is the tile simulator with the target sm_90; `fault` spoils what it gives."""

    name = "pretended GPU"
    capability: tuple[int, int] | None = (9, 0)
    multiprocessors = 132
    target = "sm_90"

    def __init__(self, fault=lambda call, result, tensors: result):
        self.fault = fault
        self.calls = 0
        self.dirt = []
        self.memory = 2**33
        self.facts = {"device": self.name, "driver": "1.2"}
        self.ran = []

    def room(self):
        return self.memory

    def place(self, operand, dtype):
        return placed(operand, dtype, CPU)

    def dirty(self, byte):
        self.dirt.append(byte)

    def call(self, function, tensors, index, choices, beat):
        beat()
        self.calls += 1
        # a tuner takes the last configuration, whatever the case's own is
        with simulated(-1 if choices is None else index, choices or ()) as made:
            result = run(function, *tensors, target=self.target, config=index).result
        self.ran += [str(choice.config) for choice in made]
        return self.fault(self.calls, result, tensors), made


def held(function, contract) -> tuple[KernelUnderTest, Report]:
    kernel = KernelUnderTest(function.__name__, function, contract)
    report = Report(1, kernel.name, "pass", (), (), 0.0, {})
    return kernel, report


def launch(function, cases=CASES, device=None, contract=CONTRACT):
    device = device or Pretended()
    events = []
    report = launched(*held(function, contract), cases, device, events.append)
    return report, device, events


def statuses(report):
    return {p.name: (p.status, p.examples) for p in report.properties}


def only(report):
    """The one root cause."""
    roots = [f for f in report.findings if f.cause is None]
    assert len(roots) == 1, roots
    assert report.verdict == "fail"
    return roots[0]


def flipped(x, at=(-1, -1), bit=1):
    x = x.clone()
    x.view(torch.int32)[at] ^= bit
    return x


# -- what holds ----------------------------------------------------------------------------------
def test_a_right_kernel_holds_on_the_device():
    report, device, events = launch(kernels.plain)
    assert report.verdict == "pass"
    assert not report.findings
    assert tuple(statuses(report)) == NAMES
    assert statuses(report)["launched_equals_predicted"] == ("pass", 3)
    assert statuses(report)["launched_within_bound"] == ("pass", 2)  # special values have no bound
    assert "9 launches of 3 of 3 cases on the pretended GPU (sm_90, driver 1.2)" in report.note
    assert report.versions["device"] == "pretended GPU"
    assert device.dirt == [*DIRT] * 3
    assert [e["phase"] for e in events if e["event"] == "case"] == ["launch"] * 3
    assert sum(e["event"] == "judged" for e in events) == 3


def test_every_configuration_is_forced_and_the_tuners_own_choice_is_compared():
    cases = [replace(CASES[1], config=i) for i in (0, 1)]
    report, device, _ = launch(kernels.tuned, cases)
    assert report.verdict == "pass", report
    first, second = (str(config) for config in kernels.CONFIGS)
    assert device.ran == [first] * 3 + [second] * 6  # three of them chosen by the tuner


# -- what does not, and why ----------------------------------------------------------------------
def test_a_bit_that_was_not_predicted():
    report, *_ = launch(kernels.plain, CASES[1:], Pretended(lambda n, c, t: flipped(c)))
    finding = only(report)
    assert (finding.property, finding.fault) == ("launched_equals_predicted", "not_as_predicted")
    assert "as predicted for sm_90; 1 of 1122 elements differ" in finding.message
    assert finding.case == replace(CASES[1], calls=3)
    assert statuses(report)["launched_within_bound"][0] == "pass"


def test_an_integer_that_is_not_exact_comes_before_the_prediction():
    report, *_ = launch(kernels.plain, CASES[:1], Pretended(lambda n, c, t: flipped(c)))
    assert only(report).property == "launched_within_bound"
    assert {f.cause for f in report.findings} == {None, "launched_within_bound"}


def test_bits_that_differ_from_call_to_call():
    def fault(call, c, tensors):
        return flipped(c, (2, 3)) if call == 2 else c

    finding = only(launch(kernels.plain, CASES[1:2], Pretended(fault))[0])
    assert (finding.property, finding.fault) == ("launched_same_bits", "bits_differ")
    assert finding.message.startswith("c[2, 3]: got ")
    assert "in call 2 over 0x00 bytes" in finding.message


def test_nobody_who_promised_no_determinism_is_accused_of_its_lack():
    def fault(call, c, tensors):
        return flipped(c, (2, 3)) if call == 2 else c

    loose = Contract(deterministic=False)
    report, *_ = launch(kernels.plain, CASES[1:2], Pretended(fault), loose)
    assert report.verdict == "pass"
    assert "launched_same_bits" not in statuses(report)


@pytest.mark.parametrize(
    ("where", "fault"), [(-3, "guard_changed"), (35, "gap_changed"), (0, "element_changed")]
)
def test_memory_that_a_launch_changed(where, fault):
    def touch(call, c, tensors):
        a = tensors[0]
        torch.as_strided(a, (1,), (1,), a.storage_offset() + where).view(torch.int16)[0] ^= 1
        return c

    report, *_ = launch(kernels.plain, CASES[1:2], Pretended(touch))
    finding = next(f for f in report.findings if f.cause is None)
    assert (finding.property, finding.fault) == ("launched_inputs_untouched", fault)
    assert finding.message.endswith("on the pretended GPU")


def test_a_cuda_error_ends_the_lane_and_earlier_findings_stay():
    def fault(call, c, tensors):
        if call > 3:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        return flipped(c)

    report, device, _ = launch(kernels.plain, CASES, Pretended(fault))
    assert device.calls == 4
    error = next(f for f in report.findings if f.fault == "cuda_error")
    assert error.property == "launched_to_the_end"
    assert "illegal memory access" in error.message
    assert error.case == replace(CASES[1], calls=3)
    assert any(f.property == "launched_within_bound" for f in report.findings)
    assert "stopped there: the CUDA error" in report.note


def test_an_exception_is_a_finding_and_the_next_case_is_launched():
    def fault(call, c, tensors):
        if call == 1:
            raise ValueError("only here")
        return c

    report, device, _ = launch(kernels.plain, CASES, Pretended(fault))
    assert only(report).message.endswith(
        "got ValueError: only here on the pretended GPU, expected a result"
    )
    assert device.calls == 1 + 3 + 3


def test_a_result_of_another_format():
    report, *_ = launch(kernels.plain, CASES[1:2], Pretended(lambda n, c, t: c.half()))
    assert only(report).fault == "other_result"


# -- what cannot be told -------------------------------------------------------------------------
def test_a_capability_without_a_model_is_incomplete():
    device = Pretended()
    device.capability = (10, 3)
    report, *_ = launch(kernels.plain, device=device)
    assert report.verdict == "incomplete"
    assert statuses(report)["launched_equals_predicted"] == ("not run", 0)
    assert statuses(report)["launched_within_bound"][0] == "pass"
    assert "not run: no model of a device of capability 10.3" in report.note


def test_a_dot_without_a_model_is_incomplete(monkeypatch):
    def predicted(*arguments):
        return replace(predict(*arguments), lacks="tl.dot: no such unit")

    monkeypatch.setattr(lane, "predict", predicted)
    report, *_ = launch(kernels.plain)
    assert report.verdict == "incomplete"
    assert report.note.endswith("launched_equals_predicted not run: tl.dot: no such unit")


def test_bits_that_a_compiler_may_choose_are_compared_only_where_sums_are_exact():
    report, *_ = launch(kernels.multiply_adds, (Case(3, 2, 5), Case(3, 2, 5, fill="normal")))
    assert report.verdict == "pass"
    assert statuses(report)["launched_equals_predicted"] == ("pass", 1)
    assert "1 without predicted bits: a product and a sum that the compiler may fuse" in report.note


def test_a_configuration_that_does_not_fit_is_passed_over_and_said():
    class Small(Pretended):
        def call(self, function, tensors, index, choices, beat):
            if choices:
                raise DoesNotFit("BLOCK_M: 32: out of resource: shared memory")
            return super().call(function, tensors, index, choices, beat)

    report, *_ = launch(kernels.tuned, CASES[1:2], Small())
    assert report.verdict == "pass"
    assert "passed over 1: configuration BLOCK_M: 32: out of resource" in report.note
    report, *_ = launch(kernels.tuned, CASES[1:2], replace_room(Pretended(), 100))
    assert report.verdict == "incomplete"
    assert "operands of 0.0 GiB" in report.note


def replace_room(device, room):
    device.memory = room
    return device


def test_nothing_is_launched_after_a_finding_of_a_simulated_case():
    kernel, report = held(kernels.plain, CONTRACT)
    device = Pretended()
    after = launched(kernel, replace(report, verdict="fail"), CASES, device, print)
    assert device.calls == 0
    assert after.verdict == "fail"
    assert {status for status, _ in statuses(after).values()} == {"not run"}


# -- its parts -----------------------------------------------------------------------------------
def test_the_share_has_every_configuration_and_layout_and_is_smallest_first():
    drawn = [Case(i, 7, 9) for i in range(200)]
    drawn += [Case(5, 5, 5, a="sliced"), Case(6, 6, 6, config=3, compare="negated")]
    chosen = share(drawn)
    assert len(chosen) <= SHARE
    assert {c.a for c in chosen} == {"row", "sliced"}
    assert {c.config for c in chosen} == {0, 3}
    assert all(c.compare is None for c in chosen)
    volumes = [c.M * c.N * c.K for c in chosen]
    assert volumes == sorted(volumes)
    assert max(volumes) > 100 * 63


def test_a_nan_is_the_devices_nan_and_signed_zeros_differ():
    got = np.array([np.nan, 0.0, 1.0], np.float32)
    other = np.array([0xFFC00000, 0x80000000, 0x3F800000], np.uint32).view(np.float32)
    assert agree(got, other).tolist() == [True, False, True]


@pytest.mark.parametrize("layout", ["row", "sliced", "expanded", "misaligned"])
@pytest.mark.parametrize("dtype", ["fp16", "fp8e4m3", "int8"])
def test_a_placed_operand_is_the_operand(layout, dtype):
    a, _ = operands(Case(3, 4, 5, dtype, a=layout))
    there = placed(a, dtype, CPU)
    assert there.tensor.stride() == a.tensor.stride()
    assert there.tensor.storage_offset() == a.tensor.storage_offset()
    assert np.array_equal(there.storage.numpy(), a.parent.view(np.uint8))
    assert there.tensor.untyped_storage().data_ptr() != a.tensor.untyped_storage().data_ptr()
    assert changed(there) == []
    there.storage[-1] ^= 1
    assert [(t.what, t.count) for t in changed(there)] == [("guard", 1)]


def test_a_change_far_from_the_rows_of_a_huge_parent(monkeypatch):
    monkeypatch.setattr("gemmproof.properties.operands.SMALL", 100)
    a, _ = operands(Case(3, 4, 400, a="padded"))
    gap = [(0, 64), (200, 300), (a.view.extent - 64, a.view.extent)]
    a = replace(
        a, watched=tuple(gap), before=tuple(a.parent.view("u2")[i:j].copy() for i, j in gap)
    )
    there = placed(a, "fp16", CPU)
    assert changed(there) == []
    there.storage[2 * 500] ^= 1
    assert [(t.what, t.place) for t in changed(there)] == [("gap", "a offset 436")]


def test_capabilities_and_targets():
    assert target_of((9, 0)) == "sm_90"
    assert target_of((12, 0)) == "sm_120"
    assert target_of((10, 3)) is None
    assert target_of(None) is None


class Tuner:
    """What a forced launch needs of an autotuner, and a kernel too large for the device."""

    arg_names = ("a",)

    def __init__(self, count):
        self.configs = kernels.CONFIGS[:count]
        self.fn = self

    def prune_configs(self, kwargs):
        return self.configs

    def run(self, *args, **kwargs):
        raise OutOfResources(300, 200, "shared memory")


@pytest.mark.parametrize(("count", "raised"), [(2, DoesNotFit), (1, OutOfResources)])
def test_only_a_tuner_with_a_choice_passes_over_a_configuration(count, raised):
    from triton.runtime.autotuner import Autotuner

    with forced(3) as made, pytest.raises(raised):
        Autotuner.run(Tuner(count), 1)
    assert str(made[0].config) == str(kernels.CONFIGS[1 if count == 2 else 0])
    assert made[0].among == count


def test_the_engine_and_the_lane_agree_on_a_checked_kernel():
    kernel, _ = held(kernels.tuned, CONTRACT)
    cases = []

    def listener(event):
        if event["event"] == "case":
            cases.append(Case.from_json(event["case"]))

    report = check(kernel, max_examples=6, listener=listener)
    after = launched(kernel, report, cases, Pretended(), lambda event: None)
    assert after.verdict == "pass", after
    assert len(after.properties) == len(report.properties) + len(NAMES)
    assert Report.from_json(after.to_json()) == after


def test_without_a_device_the_command_is_incomplete(monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(Path(__file__).parent)
    target = "launched_kernels.py:plain"
    command = ["check", target, "--device", "cuda", "--max-examples", "2", "--seed", "1"]
    assert main(command) == EXIT["incomplete"]
    out = capsys.readouterr().out
    assert "torch finds no CUDA GPU here; the kernel was simulated only" in out
