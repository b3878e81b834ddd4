"""What a kernel tells the compiler of its integers: tl.multiple_of and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.registry import HINTS
from gemmproof.reference.symbolic.machine.values import Ints, Pointers
from gemmproof.reference.symbolic.terms import TRUE, Cond, eq, every, le, make, some, substitute
from gemmproof.reference.ttir.module import Op

if TYPE_CHECKING:
    from gemmproof.reference.symbolic.machine.interpret import Machine


def claim_hints(machine: Machine, op: Op, value: Any, argument: str = "") -> None:
    """Claim what an operation's hints say of a value: its result, or a loop's `argument`."""
    said = {word: f"{hint}{argument}" for hint, word in HINTS.items()}
    said = {word: name for word, name in said.items() if name in op.attrs}
    if said and not isinstance(value, Ints):
        what = "pointers" if isinstance(value, Pointers) else "loaded numbers"
        cond = ~eq(machine.unknown(f"a hint on {what}", value.shape), 0)
        machine.claim("hint", f"a hint on {what}", cond)
        return
    for word, name in said.items():
        rank = len(value.shape) or 1
        for axis, n in enumerate((op.integers(name) * rank)[:rank]):
            if n > 1:
                machine.claim("hint", f"tl.{word}({n})", _hint(word, value, axis, n))


def _hint(word: str, value: Ints, axis: int, n: int) -> Cond:
    if not value.shape:
        return eq(make("mod", value.term, n), 0) if word == "multiple_of" else TRUE
    index = lane(axis, value.shape[axis])
    atom = index.atom
    if word == "multiple_of":
        starts = eq(make("mod", value.term, n), 0)
        if atom is None:
            return starts
        # what follows its left neighbour is inside a run, whose first value counts
        before = substitute(value.term, {atom: index - 1})
        return some((starts, every((le(1, index), eq(value.term, before + 1)))))
    if atom is None:
        return TRUE
    n = min(n, value.shape[axis])
    rest = make("mod", index, n)
    first = substitute(value.term, {atom: index - rest})
    step = 1 if word == "max_contiguous" else 0
    return eq(value.term, first + rest * step)
