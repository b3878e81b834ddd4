"""Programs, trips and lanes of an access, and others of which the same is known."""

from __future__ import annotations

from collections.abc import Sequence

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.solver import Solver
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, every, lt, substitute, term, walk


def list_free(solver: Solver, *what: Poly | Cond) -> list[Atom]:
    """The programs, trips and lanes that terms speak of, those of their ranges too."""
    found: dict[Atom, None] = {}
    waiting = list(walk(*what))
    while waiting:
        atom = waiting.pop()
        if atom in found or not is_free(atom):
            continue
        found[atom] = None
        waiting += walk(solver.known[atom]) if atom in solver.known else ()
    return sorted(found, key=lambda x: x.number)


def is_free(atom: Atom) -> bool:
    """Whether an atom is a program, a trip or a lane: one of many, and not a size."""
    words = ("lane", "trip", "trips", "earlier", "walk")
    return atom.kind == "symbol" and (atom.args[0] in words or is_program(atom))


def is_program(atom: Atom) -> bool:
    """Whether an atom is a program's number along an axis of its grid."""
    return atom.kind == "symbol" and str(atom.args[0]).startswith("pid_")


def copy_free(solver: Solver, free: Sequence[Atom]) -> dict[Atom, Poly]:
    """Another program, trip and lane, of which the same is known."""
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


def list_others(solver: Solver, access: Access) -> list[Atom]:
    """The program and the lanes of an access, whether or not its terms name them."""
    lanes = (lane(i, n).atom for i, n in enumerate(access.shape))
    return [*list_programs(solver, access), *(x for x in lanes if x is not None)]


def list_programs(solver: Solver, access: Access) -> list[Atom]:
    """The program of an access along each axis of its grid."""
    named = [x for x in solver.known if is_program(x)]
    return [x for x in named if x.args[1:] == (access.launch,)]
