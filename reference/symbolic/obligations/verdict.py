"""What the solver said of one obligation."""

from __future__ import annotations

from dataclasses import dataclass

from gemmproof.reference.observation import Where
from gemmproof.reference.symbolic.solver import NO, YES, Model, Solver
from gemmproof.reference.symbolic.terms import Atom, Cond, walk

PROVED, REFUTED, OPEN = "proved", "refuted", "open"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One obligation: `words` say what was asked, of a load or store at `where`.

    `why`: why it is open. `model`: the symbols' values at which it fails. `lacks`: the condition
    that fails there.
    """

    status: str
    words: str
    where: Where | None
    why: str = ""
    model: Model | None = None
    lacks: Cond | None = None


def ask(
    solver: Solver, words: str, where: Where | None, goal: Cond, given: tuple[Cond, ...],
    small: tuple[Atom, ...] = (),
) -> Verdict:  # fmt: skip
    """Whether a goal follows; where not, the smallest values found at which it fails."""
    answer = solver.follows(goal, *given)
    if answer == YES:
        return Verdict(PROVED, words, where)
    doubt = find_unknown(goal, *given)
    if doubt:
        return Verdict(OPEN, words, where, doubt)
    model = solver.find(~goal, *given, small=small)
    if model is not None:
        return Verdict(REFUTED, words, where, model=model, lacks=goal)
    why = "z3 found no values" if answer == NO else "z3 came to no end"
    return Verdict(OPEN, words, where, why)


def find_unknown(*conds: Cond) -> str:
    """Why something that conditions name is unknown, "" where all is known."""
    return next((str(x.args[0]) for x in walk(*conds) if x.kind == "unknown"), "")
