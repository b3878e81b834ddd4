"""Programs that walk over a range in strides of their number, as `range(pid, tiles, programs)`.

Program p comes to p, p + S, p + 2 S, ... below T. Where the programs are min(S, T), or S, each
number below T is come to by one program in one trip: by T % S, for that is a program, and by no
other, for two numbers that differ by less than S are not S apart. So whatever names nothing of the
program and its trip but p + S trip speaks of a number below T, as if T programs did one each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.instances import is_program, list_free, list_programs
from gemmproof.reference.symbolic.questions import list_parts
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, le, lt, substitute, term, walk


@dataclass(frozen=True, slots=True)
class Walk:
    """A program and its trip, and `place`, the number from 0 to `end` - 1 that they come to."""

    program: Atom
    trip: Atom
    stride: Poly
    place: Atom
    end: Poly

    def swap(self, what: Any) -> Any:
        """The same with the number in place of program + stride trip."""
        return substitute(what, {self.program: term(self.place) - self.stride * term(self.trip)})


def count_programs(solver: Solver, program: Atom) -> Poly:
    """The size of the grid along a program's axis, below which the program is known to be."""
    for cond in list_parts([solver.known[program]]):
        if cond.kind == "le" and cond.term is not None and cond.term.terms.get((program,)) == 1:
            return term(program) + 1 - cond.term
    return term(0)


def join_walks(solver: Solver, access: Access) -> tuple[Access, list[Atom]]:
    """An access with a number in place of a program that walks and its trip; and its programs.

    The access itself, and the programs of its launch, where none walks or more than the number is
    named.
    """
    programs = list_programs(solver, access)
    whole = (access.mask, access.path, *(cond for _, cond in access.steps))
    terms = (access.term, *(step for step, _ in access.steps))
    found = find_walk(solver, *whole, *terms)
    if found is None or found.trip not in access.trips:
        return access, programs
    joined = replace(
        access,
        term=found.swap(access.term),
        mask=found.swap(access.mask),
        path=found.swap(access.path),
        steps=tuple((found.swap(step), found.swap(cond)) for step, cond in access.steps),
        trips=tuple(x for x in access.trips if x is not found.trip),
    )
    return joined, [found.place if x is found.program else x for x in programs]


def find_walk(solver: Solver, *what: Poly | Cond) -> Walk | None:
    """The walk that terms and conditions speak of, if it is all that they name of its program.

    From then on the solver knows of the number that stands for it.
    """
    free = list_free(solver, *what)
    for trip in free:
        for found in _list_walks(solver, trip) if trip.args[0] == "trip" else ():
            own = {found.program, trip}
            others = (solver.known[x] for x in free if x not in own and x in solver.known)
            if own.isdisjoint(walk(*map(found.swap, what), *others)):
                solver.known[found.place] = lt(term(found.place), found.end)
                return found
    return None


def _list_walks(solver: Solver, trip: Atom) -> Iterator[Walk]:
    """The walk that a loop is, if all programs together come to each number once."""
    for cond in list_parts([solver.known[trip]]):
        if cond.kind != "le" or cond.term is None:
            continue
        rest = cond.term - 1  # program + stride trip - end
        steps = {m: c for m, c in rest.terms.items() if m.count(trip) == 1}
        stride = Poly({tuple(x for x in m if x is not trip): c for m, c in steps.items()})
        for program in filter(is_program, rest.atoms):
            end = term(program) + stride * term(trip) - rest
            if not {program, trip}.isdisjoint(walk(end, stride)):
                continue
            place = Atom("symbol", "walk", *program.args[1:], *trip.args[1:], is_natural=True)
            grid = count_programs(solver, program)
            fits = le(grid, stride) & (le(stride, grid) | le(end, grid)) & le(1, stride)
            if solver.follows(fits, lt(term(program), grid)) == YES:
                yield Walk(program, trip, stride, place, end)
