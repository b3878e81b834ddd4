"""What is said of each property while a kernel is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gemmproof.properties import memory, values
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.paths import Decided, Traced
from gemmproof.properties.proof.seek import SECONDS as SEEKING
from gemmproof.properties.proof.seek import Way
from gemmproof.properties.proof.verdict import REFUTED, Proof
from gemmproof.properties.proof.visits import Visits
from gemmproof.reference.symbolic.solver import Solver

ABOUT = (memory.BOUNDS, memory.FIT, memory.HINTS, memory.ONCE, memory.LANES, values.EXACT)


@dataclass(slots=True)
class Book:
    """What was said of each property so far.

    `open`: why a property is not decided, and `late` those of them for which time ran out.
    `suspected`: cases at which properties may not hold; `ways`: the paths, in which more of them
    are sought for `seeking` seconds at most. `checked` is what z3 said to texts, `proved` what
    holds, `decided` the sizes of a domain at which conditions hold, `narrow` the solvers that know
    a part of what holds, by what they know.
    """

    kernel: KernelUnderTest
    visits: Visits
    open: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    refuted: dict[str, Proof] = field(default_factory=dict)
    suspected: dict[str, Case] = field(default_factory=dict)
    ways: list[Way] = field(default_factory=list)
    seeking: float = SEEKING
    unvisited: dict[str, None] = field(default_factory=dict)
    checked: dict[str, str] = field(default_factory=dict)
    proved: dict[Any, int] = field(default_factory=dict)
    decided: Decided = field(default_factory=dict)
    traced: Traced = field(default_factory=dict)
    narrow: dict[Any, Solver] = field(default_factory=dict)
    # atoms that are let go are other ones when they come again: what was checked would be lost
    solvers: list[Solver] = field(default_factory=list)

    def leave_open(self, name: str, why: str, late: bool = False) -> None:
        if late and name not in self.open:
            self.late.add(name)
        self.open.setdefault(name, why)

    def leave_all_open(self, why: str, late: bool = False) -> None:
        for name in ABOUT:
            self.leave_open(name, why, late)

    def refute(self, name: str, why: str, case: Case) -> None:
        """Keep where a property does not hold; of several cases the simplest."""
        held = self.refuted.get(name)
        if held is None or case.rank < Case.from_json(held.case or "").rank:
            self.refuted[name] = Proof(name, REFUTED, why=why, case=case.to_json())

    def suspect(self, name: str, case: Case) -> None:
        held = self.suspected.get(name)
        if held is None or case.rank < held.rank:
            self.suspected[name] = case
