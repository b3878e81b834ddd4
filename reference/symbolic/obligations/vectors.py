"""The obligations of the vectors that hints give accesses: aligned, and right where it matters."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gemmproof.reference.simulator.axis_analysis import Widening, list_widenings
from gemmproof.reference.symbolic.interpreter.interpret import Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import Ints, SymbolicAccess
from gemmproof.reference.symbolic.lemmas import lane
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import (
    Atom,
    Cond,
    Poly,
    eq,
    every,
    lt,
    make,
    substitute,
    term,
)


def are_aligned(solver: Solver, machine: Machine) -> bool:
    """Return whether every vector that hints give an access begins at a multiple of its size.

    Those of lanes that are masked or never stored are included: a GPU aborts a launch for them.
    """
    widenings = _find(_Functions(machine.functions), tuple(_list_known(machine.arguments)))
    if widenings is None:
        return False
    for widening in widenings:
        accesses = [x for x in machine.accesses if _is_of(widening, x)]
        if not accesses or not all(_is_aligned(solver, x, widening) for x in accesses):
            return False
    return True


def list_runs(machine: Machine, access: SymbolicAccess) -> Iterator[Cond]:
    """Yield the conditions that a lane follows the first one of its vector."""
    known = tuple(_list_known(machine.arguments))
    for widening in _find(_Functions(machine.functions), known) or ():
        atom = _lane_atom(access, widening)
        if not _is_of(widening, access) or atom is None:
            continue
        assumed = [
            eq(key, 1) if n == 1 else eq(make("mod", key, 16), 0)
            for key, n in widening.required.items()
            if isinstance(key, Poly)
        ]
        for width in _list_widths(widening):
            past = make("mod", term(atom), width)
            first = substitute(access.term, {atom: term(atom) - past})
            yield eq(access.term, first + past) | ~every(assumed)


def _is_of(widening: Widening, access: SymbolicAccess) -> bool:
    """Return whether an access may be of the operation that has these vectors."""
    where, loc = access.where, widening.loc
    if where is None or loc is None or access.kind != widening.kind:
        return False
    return (where.file, where.line) == (loc.file, loc.line)


def _lane_atom(access: SymbolicAccess, widening: Widening) -> Atom | None:
    if widening.axis >= len(access.shape):
        return None
    return lane(widening.axis, access.shape[widening.axis]).atom


def _list_widths(widening: Widening) -> list[int]:
    """List the widths that vectors may have: narrower ones if the tile is small, or masked."""
    return [1 << i for i in range(1, widening.width.bit_length())]


def _is_aligned(solver: Solver, access: SymbolicAccess, widening: Widening) -> bool:
    atom = _lane_atom(access, widening)
    if atom is None:
        return False
    swaps: dict[Atom, Poly] = {}
    for key, n in widening.required.items():
        name = key.atom if isinstance(key, Poly) else None
        if name is not None:
            part = term(Atom("symbol", "sixteenths", name, is_natural=True))
            swaps[name] = term(1) if n == 1 else part * 16
    for width in _list_widths(widening):
        number = Atom("symbol", "vector", atom, width, is_natural=True)
        at = {**swaps, atom: term(number) * width}
        address, path = substitute(access.term, at), substitute(access.path, at)
        within = lt(term(number), access.shape[widening.axis] // width)
        if not _is_multiple(address, width):
            goal = eq(make("mod", address, width), 0)
            if solver.follows(goal, path, within) != YES:
                return False
    return True


def _is_multiple(number: Poly, width: int) -> bool:
    """Return whether a sum is evidently a multiple of a width, on both sides of each choice."""
    rest = make("mod", number, width)
    if rest.constant is not None:
        return rest.constant == 0
    for monomial, factor in number.terms.items():
        if factor % width == 0:
            continue
        choice = Poly({monomial: 1}).atom
        if choice is None or choice.kind != "choice":
            return False
        if not all(_is_multiple(side * factor, width) for side in choice.args[1:]):
            return False
    return True


# -- widenings of a launch -----------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class _Functions:
    """The functions of a kernel, compared by identity: their text does not change."""

    functions: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.functions.values())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Functions) and [*map(id, self.functions.values())] == [
            *map(id, other.functions.values())
        ]


@lru_cache(maxsize=64)
def _find(functions: _Functions, known: tuple[Hashable, ...]) -> list[Widening] | None:
    return list_widenings(functions.functions, known)


def _list_known(arguments: Sequence[Any]) -> Iterator[Hashable]:
    """Yield a number for each argument that is one, a term for another integer, None for others."""
    for argument in arguments:
        if isinstance(argument, Ints):
            constant = argument.term.constant
            yield argument.term if constant is None else constant
        else:
            yield None
