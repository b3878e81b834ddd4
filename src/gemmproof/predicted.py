"""What the tile simulator predicts for a case on a device, and where no bits can be predicted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from gemmproof.properties.case import Case
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.properties.finding import Finding
from gemmproof.properties.judged import judge
from gemmproof.properties.launched import exact_data
from gemmproof.properties.outcome import Outcome, execute
from gemmproof.reference.fake_cuda import TARGETS
from gemmproof.reference.observation import Launch
from gemmproof.reference.simulator import run
from gemmproof.tuning import Choice, simulated

# Operators of torch whose order of summation is the library's own on each device.
_SUMS = ("sum", "mean", "mm", "bmm", "addmm", "baddbmm", "dot", "mv", "cumsum", "prod", "norm")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A case simulated for a device: the outcome, what is wrong with it, and what it ran in.

    `lacks` says why there is no model for it, None if there is one. `free` says what leaves the
    bits open although there is a model, None if nothing does.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    choices: list[Choice]
    lacks: str | None
    free: str | None


def target_of(capability: tuple[int, int] | None) -> str | None:
    """The target of the simulator that a capability is, None if there is no model of it."""
    return next((name for name, facts in TARGETS.items() if facts[0] == capability), None)


def predict(
    kernel: KernelUnderTest, case: Case, target: str, sms: int, choices: list[Choice] | None = None
) -> Prediction:
    """Simulate one call for `target` with `sms` multiprocessors, tuned kernels in `choices`."""
    one = replace(case, calls=1, compare=None, sms=sms if case.sms is None else case.sms)
    with simulated(case.config, choices or ()) as made, _sums_of_torch() as sums:
        outcome = execute(replace(kernel, mirror=None), one, run, target)
    lacks = None
    if outcome.raised is not None and not outcome.known:
        lacks = outcome.raised.text
    findings = [replace(f, case=case) for f in judge(outcome).findings]
    launches = outcome.runs[0].launches if outcome.runs else []
    return Prediction(outcome, tuple(findings), made, lacks, _free(outcome, launches, sums))


def _free(outcome: Outcome, launches: list[Launch], sums: list[str]) -> str | None:
    """What a compiler, a scheduler or a library may do in its own order."""
    for launch in launches:
        if {"/", "math"} & set(launch.rounds):
            return "a division or function that the device approximates"
    if exact_data(outcome):
        return None
    for launch in launches:
        rounds = set(launch.rounds)
        if launch.atomics:
            return "the order of atomics"
        if rounds & {"reduce", "scan"}:
            return "the order of a reduction"
        if "*" in rounds and rounds & {"+", "-"}:
            return "a product and a sum that the compiler may fuse"
    return f"the order of torch's {sums[0]}" if sums else None


class _Watch(TorchDispatchMode):
    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in the simulator: torch would import its compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if name in _SUMS:
            self.seen.append(name)
        return func(*args, **(kwargs or {}))


@contextmanager
def _sums_of_torch() -> Iterator[list[str]]:
    seen: list[str] = []
    with _Watch(seen):
        yield seen
