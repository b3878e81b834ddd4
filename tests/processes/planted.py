"""The planted faults: each in the first call, midway, in the last one, and after a finding."""

from __future__ import annotations

from dataclasses import dataclass

import acts

#: Calls of each kernel, by their M; a fault is planted in one of them.
CALLS = 5
MOMENTS = {"at_once": 0, "midway": 2, "at_last": CALLS - 1}
#: Of the call before it, whose finding a fault must not take along.
FOUND = "found"


@dataclass(frozen=True, slots=True)
class Planted:
    """A kernel that does `act` in call `at`; with `found`, the call before has a finding."""

    kind: str
    act: str
    at: int
    found: bool = False

    @property
    def name(self) -> str:
        """Of the kernel."""
        moment = next(name for name, at in MOMENTS.items() if at == self.at)
        return "-".join((self.act.lower(), moment, *[FOUND] * self.found))


KINDS = {
    "crash": acts.CRASHES,
    "left": acts.LEAVES,
    "hang": acts.HANGS,
    "killed": acts.OUTSIDE,
    "none": acts.MESSES,
}


#: Kinds whose worker is started again and again: each act is planted at one moment of the three.
DEAR = ("crash", "hang", "killed")


def list_planted() -> list[Planted]:
    """Each act at each moment, or at one, and but for hangs once more after a finding."""
    planted = []
    for kind, named in KINDS.items():
        for number, act in enumerate(named):
            moments = list(MOMENTS.values())
            if kind in DEAR:
                moments = [moments[number % len(moments)]]
            planted += [Planted(kind, act, at) for at in moments]
            if kind != "hang":
                planted.append(Planted(kind, act, MOMENTS["midway"], found=True))
    return planted


def make_kernel(planted: Planted):
    """The wrapper."""
    act = KINDS[planted.kind][planted.act]

    def kernel(a, b):
        if a.M == planted.at:
            act()
        return planted.found and a.M == planted.at - 1

    return kernel
