"""What a kernel claims is true: of every lane, or of those that a hint concerns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gemmproof.reference.symbolic.machine.interpret import Machine
from gemmproof.reference.symbolic.machine.seen import Claim
from gemmproof.reference.symbolic.machine.values import Access, Data
from gemmproof.reference.symbolic.obligations.verdict import (
    OPEN,
    PROVED,
    REFUTED,
    Verdict,
    ask,
)
from gemmproof.reference.symbolic.obligations.walks import find_walk
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import Atom, Cond

Stores = Callable[[Access], Iterable[Access]]


def judge_claim(solver: Solver, claim: Claim, small: tuple[Atom, ...]) -> Verdict:
    """Whether a claim holds in every lane."""
    cond, path = claim.cond, claim.path
    walk = find_walk(solver, cond, path)
    if walk is not None:
        cond, path = walk.swap(cond), walk.swap(path)
    said = ask(solver, claim.words, claim.where, cond, (path,), small)
    if said.status == REFUTED and claim.words != "tl.assume":
        # at fault only in lanes that reach a store
        return Verdict(OPEN, claim.words, claim.where, "it does not hold in every lane")
    return said


def judge_hint(
    solver: Solver, claim: Claim, small: tuple[Atom, ...], machines: Sequence[Machine],
    stores: Iterable[Access], list_stores: Stores,
) -> Verdict:  # fmt: skip
    """Whether what a hint says holds in the lanes that matter, or in every lane.

    `stores` are those of results; `list_stores` gives those of the memory that a load reads.
    """
    number = claim.number
    if number is not None and _is_harmless(solver, number, machines, stores, list_stores):
        return Verdict(PROVED, claim.words, claim.where)
    return judge_claim(solver, claim, small)


def _is_harmless(
    solver: Solver, number: Any, machines: Sequence[Machine], stores: Iterable[Access],
    list_stores: Stores,
) -> bool:  # fmt: skip
    """Whether lanes that a hint misdescribes are not stored to, and reach nothing that is."""

    def is_true(access: Access, given: Cond) -> bool:
        here = (given, access.path, access.mask)
        said = (cond for n, cond in access.hints if n == number)
        return all(solver.follows(cond, *here) == YES for cond in said)

    waiting: list[tuple[Data, Cond]] = []
    for machine in machines:
        if number in machine.forgone:
            return False
        if not all(is_true(x, machine.path) for x in machine.accesses if x.kind != "load"):
            return False
        waiting += [(value, path) for value, path, _ in machine.uses]
    waiting += _list_values(stores)
    seen: set[tuple[Data, Cond]] = set()
    while waiting:
        value, given = waiting.pop()
        if (value, given) in seen:
            continue
        seen.add((value, given))
        if value.kind == "hole":  # whatever an earlier trip left
            return False
        if value.kind == "load":
            load: Access = value.access
            if not is_true(load, given):
                return False
            if load.other is not None:
                waiting.append((load.other, given & ~load.mask))
            waiting += _list_values(list_stores(load))
        for i, part in enumerate(value.parts):
            chosen = given & (value.cond if i == 0 else ~value.cond)
            waiting.append((part, chosen if value.kind == "choice" else given))
    return True


def _list_values(stores: Iterable[Access]) -> list[tuple[Data, Cond]]:
    """What is stored, and where."""
    return [(x.value, x.path & x.mask) for x in stores if x.value is not None]
