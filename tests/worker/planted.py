"""Planted faults: in the first call, midway or in the last one, and after a finding."""

from __future__ import annotations

from dataclasses import dataclass

from tests.worker import acts

#: Calls of each kernel, numbered by M; a fault is planted in one of them.
CALLS = 5
MOMENTS = {"at_once": 0, "midway": 2, "at_last": CALLS - 1}
#: Marks the call before the fault, whose finding must not be lost.
FOUND = "found"


@dataclass(frozen=True, slots=True)
class Planted:
    """A kernel that does `act` in call `at`; `after_finding`: the call before has a finding."""

    kind: str
    act: str
    at: int
    after_finding: bool = False

    @property
    def name(self) -> str:
        """The name of the kernel."""
        moment = next(name for name, at in MOMENTS.items() if at == self.at)
        return "-".join((self.act.lower(), moment, *[FOUND] * self.after_finding))


KINDS = {
    "crash": acts.CRASHES,
    "left": acts.LEAVES,
    "hang": acts.HANGS,
    "killed": acts.OUTSIDE,
    "none": acts.MESSES,
}


def list_planted() -> list[Planted]:
    """Return each act at one of the moments, in turn, and all but hangs again after a finding."""
    planted, moments = [], list(MOMENTS.values())
    for kind, named in KINDS.items():
        for number, act in enumerate(named):
            planted.append(Planted(kind, act, moments[number % len(moments)]))
            if kind != "hang":
                planted.append(Planted(kind, act, MOMENTS["midway"], after_finding=True))
    return planted


def make_kernel(planted: Planted):
    """Return the wrapper."""
    act = KINDS[planted.kind][planted.act]

    def kernel(a, b):
        if a.M == planted.at:
            act()
        return planted.after_finding and a.M == planted.at - 1

    return kernel
