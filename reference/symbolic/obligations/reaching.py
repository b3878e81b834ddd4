"""Whether some program, trip and lane comes to each of many places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from gemmproof.reference.symbolic.definitions import pin
from gemmproof.reference.symbolic.obligations.coordinates import list_choices
from gemmproof.reference.symbolic.obligations.instances import list_free
from gemmproof.reference.symbolic.obligations.inversion import Inversion, NoInverse
from gemmproof.reference.symbolic.questions import list_parts
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import (
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    some,
    substitute,
    term,
    walk,
)

# under which conditions, in which loops' trips, which indices
Source = tuple[tuple[Cond, ...], tuple[Atom, ...], Sequence[Poly]]
# the kinds of atoms whose definitions leave them one value
DEFINED = ("floordiv", "mod", "div", "rem", "min", "max", "choice", "flag")


def find_gap(
    solver: Solver, sources: Sequence[Source], targets: Sequence[Poly], within: Cond
) -> str:
    """Why it is not shown that sources come to all targets that are `within`, "" where it is."""
    why = "which program stores an element is no plain sum"
    for splits in (False, True):
        ways: list[tuple[Cond, Cond]] = []
        for source in sources:
            with suppress(NoInverse):
                ways += _list_ways(solver, source, targets, splits)
        if ways and _covers(solver, ways, within):
            return ""
        why = "z3 came to no end" if ways else why
    return why


def _covers(solver: Solver, ways: list[tuple[Cond, Cond]], within: Cond) -> bool:
    """Whether every element is come to: in each case by its way, or by one of them."""
    given, alone = [within], len(ways) > 1
    for case, goal in ways if alone else ():
        alone = alone and solver.follows(goal, *given, case) == YES
        given.append(~case)
    if alone and solver.decide(TRUE, *given) == "unsat":
        return True
    return solver.follows(some(goal for _, goal in ways), within) == YES


def _list_ways(
    solver: Solver, source: Source, targets: Sequence[Poly], splits: bool
) -> Iterator[tuple[Cond, Cond]]:
    """What must hold for a source to come to the targets, and in which case of its choices."""
    whole, trips, at = source
    for chosen, conds, places in list_choices(whole, tuple(at)) if splits else ((TRUE, whole, at),):
        free = list_free(solver, chosen, *conds, *places, *map(term, trips))
        inverse = Inversion(free)
        equations = list(zip(places, targets, strict=True))
        inverse.solve(equations)
        goal = reach(solver, inverse, equations, (chosen, *conds))
        told = [x for x in list_parts([goal]) if _tells(x, targets)]
        yield every((substitute(chosen, inverse.complete(chosen)), *told)), goal


def _tells(cond: Cond, targets: Sequence[Poly]) -> bool:
    """Whether a condition tells targets apart by themselves, as even ones from odd ones."""
    return {x for x in walk(cond) if x.is_leaf} <= set(walk(*targets))


def reach(
    solver: Solver, inverse: Inversion, equations: Sequence[tuple[Poly, Poly]],
    conds: tuple[Cond, ...],
) -> Cond:  # fmt: skip
    """What must hold for the values of an inversion to be programs, trips and lanes that are there.

    They are if what pins every atom holds of its value: a quotient and a remainder are the only
    numbers of which theirs does.
    """
    ranges = [solver.known[x] for x in inverse.free if x in solver.known]
    values = inverse.complete(*conds, *ranges, *(left for left, _ in equations))
    named = walk(*values.values(), *conds, *(left for left, _ in equations))
    if any(x.kind not in DEFINED for x in inverse.digits) or any(
        x.kind == "unknown" for x in named
    ):
        raise NoInverse
    defined = [cond for atom in values for cond in pin(atom)]
    met = [eq(substitute(left, values), right) for left, right in equations]
    return every((*met, *(substitute(cond, values) for cond in (*conds, *ranges, *defined))))
