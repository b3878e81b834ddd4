"""A fake device that is the tile simulator, and the report of launches of a kernel on it."""

from __future__ import annotations

import torch
from tests.support.wide import wide

from gemmproof.backends.autotune import choose
from gemmproof.backends.cuda import launch_cases
from gemmproof.backends.cuda_device import allocate
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.simulator import run
from gemmproof.report.record import SCHEMA, Report

CPU = torch.device("cpu")
CONTRACT = wide()
CASES = (
    Case(1, 1, 1),
    Case(33, 34, 35, layouts=(("a", "padded"), ("b", "transposed")), fill="normal"),
    Case(40, 20, 70, fill="special"),
)
NAMES = (
    "runs_to_completion",
    "leaves_inputs_untouched",
    "exact_on_integers",
    "within_bound",
    "same_bits_on_dirty_outputs",
    "special_values",
    "equals_prediction",
)


class FakeGpu:
    """A device that is the tile simulator with the target sm_90; `fault` changes its results."""

    name = "fake GPU"
    capability: tuple[int, int] | None = (9, 0)
    multiprocessors = 132
    target = "sm_90"

    def __init__(self, fault=lambda call, result, tensors: result):
        self.fault, self.calls, self.fill, self.ran = fault, 0, [], []
        self.memory = 2**33
        self.facts = {"device": self.name, "driver": "1.2"}

    def free_bytes(self):
        return self.memory

    def allocate(self, operand, dtype):
        return allocate(operand, dtype, CPU)

    def fill_uninitialised(self, byte):
        self.fill.append(byte)

    def call(self, function, tensors, index, choices, beat):
        beat()
        self.calls += 1
        # a tuner takes the last configuration, whichever the case has
        with choose(-1 if choices is None else index, choices or ()) as chosen:
            result = run(function, *tensors, target=self.target, config=index).result
        self.ran += [str(choice.config) for choice in chosen]
        return self.fault(self.calls, result, tensors), chosen


def make_kernel(function, contract) -> tuple[KernelUnderTest, Report]:
    kernel = KernelUnderTest(function.__name__, function, contract)
    report = Report(SCHEMA, kernel.name, (), (), 0.0, {})
    return kernel, report


def launch(function, cases=CASES, device=None, contract=CONTRACT):
    device = device or FakeGpu()
    events = []
    report = launch_cases(*make_kernel(function, contract), cases, device, events.append)
    return report, device, events


def statuses(report):
    return {p.name: (p.status, p.examples) for p in report.properties}


def only_root(report):
    """Return the only root cause."""
    roots = [f for f in report.findings if f.cause is None]
    assert len(roots) == 1, roots
    assert report.verdict == "fail"
    return roots[0]


def differ_in_call_2(call, c, tensors):
    """A fault: the second call flips a bit of its result."""
    return flip(c, (2, 3)) if call == 2 else c


def flip_each(call, c, tensors):
    """A fault: each call flips a bit of the predicted result."""
    return flip(c)


def flip(x, at=(-1, -1), bit=1):
    x = x.clone()
    x.view(torch.int32)[at] ^= bit
    return x
