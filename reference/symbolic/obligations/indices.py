"""Coordinates of stored elements, and walks over K."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.reference.simulation import Where
from gemmproof.reference.symbolic.interpreter.symbolic_values import SymbolicAccess
from gemmproof.reference.symbolic.lemmas import LANE, lane, list_parts
from gemmproof.reference.symbolic.solver import NO, YES, Model, Solver
from gemmproof.reference.symbolic.terms import (
    TRUE,
    Atom,
    Cond,
    Monomial,
    Poly,
    eq,
    every,
    le,
    lt,
    make,
    substitute,
    term,
    walk,
)

# -- verdict -------------------------------------------------------------------------------------
PROVED, REFUTED, OPEN = "proved", "refuted", "open"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one obligation: `text` describe it, of a load or store at `where`.

    `why`: the reason if it is open. `model`: the symbols' values at which it fails; if it is open,
    where it may lead to a fault. `lacks`: the condition that fails there.
    """

    status: str
    text: str
    where: Where | None
    why: str = ""
    model: Model | None = None
    lacks: Cond | None = None


@dataclass(frozen=True, slots=True)
class Obligation:
    """A condition to be proved: `terms` are all its parts, `judge` has a solver judge it."""

    terms: tuple[Any, ...]
    judge: Callable[[Solver], Iterable[Verdict]]


def ask(
    solver: Solver, text: str, where: Where | None, goal: Cond, given: tuple[Cond, ...],
    small: tuple[Atom, ...] = (),
) -> Verdict:  # fmt: skip
    """Judge whether a goal follows; if not, give the smallest values found at which it fails."""
    answer = solver.follows(goal, *given)
    if answer == YES:
        return Verdict(PROVED, text, where)
    doubt = find_unknown(goal, *given)
    if doubt:
        return Verdict(OPEN, text, where, doubt)
    model = solver.find(~goal, *given, small=small)
    if model is not None:
        return Verdict(REFUTED, text, where, model=model, lacks=goal)
    reason = "z3 found no values" if answer == NO else "z3 came to no end"
    return Verdict(OPEN, text, where, reason)


def find_unknown(*conds: Cond) -> str:
    """Return why something that conditions name is unknown, or "" if all is known."""
    return next((str(x.args[0]) for x in walk(*conds) if x.kind == "unknown"), "")


# -- coordinates ---------------------------------------------------------------------------------
class NotAffine(Exception):
    """An offset that terms do not show to be a sum of indices times the view's strides."""


def locate(offset: Poly, shape: Sequence[Poly], strides: Sequence[Poly]) -> tuple[Poly, ...]:
    """Return the index along each axis whose strides give the offset. Raises NotAffine.

    Any answer will do for a proof: the offset is their sum, however it is written.
    """
    indices: list[Poly] = [term(0)] * len(shape)
    rest = offset
    axes = [i for i, n in enumerate(shape) if n.constant != 1]
    for axis in sorted(axes, key=lambda i: _rank(strides[i]), reverse=True):
        indices[axis], rest = _divide(rest, strides[axis])
    if rest.terms:
        raise NotAffine(f"{rest} elements are along no axis")
    return tuple(indices)


def _rank(stride: Poly) -> tuple[int, int]:
    """Return a key that is larger for a stride to be divided by first."""
    leading = _leading(stride)
    return len(leading), abs(stride.terms.get(leading, 0))


def _leading(stride: Poly) -> Monomial:
    return max(stride.terms, key=lambda m: (len(m), [x.number for x in m]), default=())


def _divide(whole: Poly, stride: Poly) -> tuple[Poly, Poly]:
    """Return the quotient and rest of a polynomial division by the stride's leading monomial."""
    leading = _leading(stride)
    coefficient = stride.terms.get(leading, 0)
    quotient = term(0)
    if not coefficient:
        return quotient, whole
    terms = {}
    for monomial, c in whole.terms.items():
        left = _remove(monomial, leading)
        if left is not None and c % coefficient == 0:
            terms[left] = c // coefficient
    quotient = Poly(terms)
    return quotient, whole - quotient * stride


def _remove(monomial: Monomial, factor: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def split_choices(offset: Poly, strides: Sequence[Poly]) -> Iterator[tuple[Cond, Poly]]:
    """Yield an offset in each case of its choices between terms that contain strides."""
    steps = {x for stride in strides for x in stride.atoms}
    for atom in sorted(offset.atoms, key=lambda x: x.number):
        if atom.kind == "choice" and any(_has(x, steps) for x in atom.args[1:]):
            cond, *branches = atom.args
            for case, branch in zip((cond, ~cond), branches, strict=True):
                for further, chosen in split_choices(substitute(offset, {atom: branch}), strides):
                    yield case & further, chosen
            return
    yield TRUE, offset


def list_choices(
    conds: tuple[Cond, ...], at: tuple[Poly, ...], most: int = 4
) -> Iterator[tuple[Cond, tuple[Cond, ...], tuple[Poly, ...]]]:
    """Yield conditions and indices in each case of the indices' choices, at most `most` of them."""
    choice = min((x for x in walk(*at) if x.kind == "choice"), key=lambda x: x.number, default=None)
    if choice is None or not most:
        yield TRUE, conds, at
        return
    cond, *branches = choice.args
    for case, branch in zip((cond, ~cond), branches, strict=True):
        swap = {choice: branch}
        inner = tuple(substitute(x, swap) for x in conds), tuple(substitute(x, swap) for x in at)
        for further, chosen, indices in list_choices(*inner, most - 1):
            yield case & further, chosen, indices


def _has(part: Poly, steps: set[Atom]) -> bool:
    return any(x in steps or (x.kind == "choice" and any(_has(y, steps) for y in x.args[1:]))
               for x in part.atoms)  # fmt: skip


# -- instances -----------------------------------------------------------------------------------
def list_free(solver: Solver, *what: Poly | Cond) -> list[Atom]:
    """Return the programs, trips and lanes that terms name, and those that their ranges name."""
    free: dict[Atom, None] = {}
    waiting = list(walk(*what))
    while waiting:
        atom = waiting.pop()
        if atom in free or not is_free(atom):
            continue
        free[atom] = None
        waiting += walk(solver.known[atom]) if atom in solver.known else ()
    return sorted(free, key=lambda x: x.number)


def is_free(atom: Atom) -> bool:
    """Return whether an atom is a program, a trip or a lane: one of many, and not a size."""
    names = ("lane", "trip", "trips", "earlier", "walk")
    return atom.kind == "symbol" and (atom.args[0] in names or is_program(atom))


def is_program(atom: Atom) -> bool:
    """Return whether an atom is a program's number along an axis of its grid."""
    return atom.kind == "symbol" and str(atom.args[0]).startswith("pid_")


def copy_free(solver: Solver, free: Sequence[Atom]) -> dict[Atom, Poly]:
    """Return another program, trip and lane for which the same conditions are known."""
    swaps = {}
    for atom in free:
        new = solver.new_symbol(f"{atom.args[0]}'", atom.most).atom
        assert new is not None
        swaps[atom] = term(new)
    for atom, copy in swaps.items():
        new = copy.atom
        assert new is not None
        bounds = [substitute(solver.known[atom], swaps)] if atom in solver.known else []
        if atom.args[0] == "lane":
            bounds.append(lt(copy, atom.args[2]))
        solver.known[new] = every(bounds)
    return swaps


def list_others(solver: Solver, access: SymbolicAccess) -> list[Atom]:
    """Return the program and the lanes of an access, whether or not its terms name them."""
    lanes = (lane(i, n).atom for i, n in enumerate(access.shape))
    return [*list_programs(solver, access), *(x for x in lanes if x is not None)]


def list_programs(solver: Solver, access: SymbolicAccess) -> list[Atom]:
    """Return the program of an access along each axis of its grid."""
    named = [x for x in solver.known if is_program(x)]
    return [x for x in named if x.args[1:] == (access.launch,)]


# -- digits --------------------------------------------------------------------------------------
def split_equal(x: Poly, y: Poly) -> Iterator[Cond]:
    """Yield what the equality of two numbers implies: p = q and i = j if 64 p + i = 64 q + j.

    Equal numbers have equal quotients and remainders; they are split at a weight if what is below
    it is smaller than it in both.
    """
    for weight in sorted({abs(c) for m, c in x.terms.items() if m and abs(c) > 1}):
        below = [_keep(number, weight) for number in (x, y)]
        if all(part.most is not None and part.most < weight for part in below):
            yield from split_equal(*(make("floordiv", number, weight) for number in (x, y)))
            yield from split_equal(*below)
            return
    yield eq(x, y)


def _keep(number: Poly, weight: int) -> Poly:
    """Return the part of a number that is no multiple of a weight."""
    return Poly({m: c for m, c in number.terms.items() if c % weight})


def new_element(
    solver: Solver, shape: Sequence[Poly], places: Iterable[Sequence[Poly]]
) -> tuple[list[Poly], Cond]:
    """Return any index along each axis, and the conditions that it meets.

    If all indices have lanes of one size along an axis, it is a tile's number and a lane in it, and
    the number is below that of tiles. A tile is what a program stores, in any number of parts.
    """
    indices: list[Poly] = []
    within: list[Cond] = []
    for axis, n in enumerate(shape):
        size = find_step([at[axis] for at in places])
        tile, lane = solver.new_symbol("element"), solver.new_symbol("element", size - 1)
        indices.append(size * tile + lane)
        within += [lt(lane, size), lt(indices[-1], n), lt(tile, count_tiles(n, size))]
    return indices, every(within)


def count_tiles(n: Poly, size: int) -> Poly:
    """Return the number of tiles of an axis."""
    return make("floordiv", n + size - 1, size)


def find_step(indices: Sequence[Poly]) -> int:
    """Return the number of elements along an axis from one program's lanes to the next one's."""
    size = find_tile(indices)
    steps = (c for index in indices for m, c in index.terms.items() if m and c % size == 0)
    return math.gcd(*steps) or size if size > 1 else 1


def find_tile(indices: Sequence[Poly]) -> int:
    """Return the number of lanes that an axis is counted in, or 1 if they are no last digit."""
    sizes = set()
    for index in indices:
        lanes = [x for x in index.atoms if x.kind == "symbol" and x.args[0] == LANE]
        size = lanes[0].args[2] if len(lanes) == 1 and index.terms.get((lanes[0],)) == 1 else 1
        others = (c for m, c in index.terms.items() if lanes and m != (lanes[0],))
        sizes.add(size if all(c % size == 0 for c in others) else 1)
    return sizes.pop() if len(sizes) == 1 else 1


# -- walks ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Walk:
    """A program and its trip, and `number`, the number from 0 to `end` - 1 that they reach."""

    program: Atom
    trip: Atom
    stride: Poly
    number: Atom
    end: Poly

    def swap(self, what: Any) -> Any:
        """Return the same with the number in place of program + stride trip."""
        return substitute(what, {self.program: term(self.number) - self.stride * term(self.trip)})


def count_programs(solver: Solver, program: Atom) -> Poly:
    """Return the size of the grid along a program's axis, which is known to bound the program."""
    for cond in list_parts([solver.known[program]]):
        if cond.kind == "le" and cond.term is not None and cond.term.terms.get((program,)) == 1:
            return term(program) + 1 - cond.term
    return term(0)


def join_walks(solver: Solver, access: SymbolicAccess) -> tuple[SymbolicAccess, list[Atom]]:
    """Replace an access's walking program and its trip by a number; return its programs too.

    Return the access itself, and the programs of its launch, if none walks or if more than the
    number is named.
    """
    programs = list_programs(solver, access)
    whole = (access.mask, access.path, *(cond for _, cond in access.steps))
    terms = (access.term, *(step for step, _ in access.steps))
    match = find_walk(solver, *whole, *terms)
    if match is None or match.trip not in access.trips:
        return access, programs
    joined = replace(
        access,
        term=match.swap(access.term),
        mask=match.swap(access.mask),
        path=match.swap(access.path),
        steps=tuple((match.swap(step), match.swap(cond)) for step, cond in access.steps),
        trips=tuple(x for x in access.trips if x is not match.trip),
    )
    return joined, [match.number if x is match.program else x for x in programs]


def find_walk(solver: Solver, *what: Poly | Cond) -> Walk | None:
    """Return the walk that terms and conditions name, if they name nothing else of its program.

    The solver then knows the range of the number that replaces it.
    """
    free = list_free(solver, *what)
    for trip in free:
        for match in _list_walks(solver, trip) if trip.args[0] == "trip" else ():
            own = {match.program, trip}
            others = (solver.known[x] for x in free if x not in own and x in solver.known)
            if own.isdisjoint(walk(*map(match.swap, what), *others)):
                solver.known[match.number] = lt(term(match.number), match.end)
                return match
    return None


def _list_walks(solver: Solver, trip: Atom) -> Iterator[Walk]:
    """Yield the walk that a loop is, if all programs together reach each number once."""
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
            number = Atom("symbol", "walk", *program.args[1:], *trip.args[1:], is_natural=True)
            grid = count_programs(solver, program)
            fits = le(grid, stride) & (le(stride, grid) | le(end, grid)) & le(1, stride)
            if solver.follows(fits, lt(term(program), grid)) == YES:
                yield Walk(program, trip, stride, number, end)
