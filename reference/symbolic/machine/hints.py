"""What a kernel tells the compiler of its integers: tl.multiple_of and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.integers import ARITHMETIC
from gemmproof.reference.symbolic.machine.registry import HINTS
from gemmproof.reference.symbolic.machine.values import BlockWindow, Hinted, Ints, Pointers
from gemmproof.reference.symbolic.terms import (
    TRUE,
    Cond,
    eq,
    every,
    le,
    lt,
    make,
    some,
    substitute,
    term,
)
from gemmproof.reference.ttir.module import Op

if TYPE_CHECKING:
    from gemmproof.reference.symbolic.machine.interpret import Machine


# the result's lanes are computed from the same lanes of the operands
ELEMENTWISE = {*ARITHMETIC, "arith.extsi", "arith.extui", "arith.trunci", "tt.addptr"}
# of what an operation moves, the hints are moved with it
MOVED = {
    "arith.select", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape",
}  # fmt: skip
ACCESSES = {"tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"}


def claim_hints(machine: Machine, op: Op, value: Any, argument: str = "") -> Any:
    """Claim what an operation's hints say of a value: its result, or a loop's `argument`.

    The value then keeps what was said of it.
    """
    said = {word: f"{hint}{argument}" for hint, word in HINTS.items()}
    said = {word: name for word, name in said.items() if name in op.attrs}
    if said and not isinstance(value, Ints):
        what = "pointers" if isinstance(value, Pointers) else "loaded numbers"
        cond = ~eq(machine.unknown(f"a hint on {what}", value.shape), 0)
        machine.claim("hint", f"a hint on {what}", cond)
        return value
    hints = []
    for word, name in said.items():
        rank = len(value.shape) or 1
        for axis, n in enumerate((op.integers(name) * rank)[:rank]):
            cond = _hint(word, value, axis, n) if n > 1 else TRUE
            number = (machine.launch, next(machine.numbers))
            machine.claim("hint", f"tl.{word}({n})", cond, number)
            hints.append((number, _say_of_lane(machine, word, value, axis, cond)))
    return replace(value, hints=(*value.hints, *hints)) if hints else value


def hints_of(value: Any) -> tuple[Hinted, ...]:
    """What was said of the values that a value is computed from."""
    value = value.base if isinstance(value, BlockWindow) else value
    return value.hints if isinstance(value, Ints | Pointers) else ()


def keep_hints(machine: Machine, op: Op, values: Sequence[Any], results: list[Any]) -> list[Any]:
    """The results of an operation with what was said of its operands.

    Where results cannot keep it, as those of a comparison, it must hold in every lane.
    """
    hints = tuple(dict.fromkeys(x for value in values for x in hints_of(value)))
    if not hints or op.name in MOVED:
        return results
    if op.name in ELEMENTWISE and all(isinstance(x, Ints | Pointers) for x in results):
        return [replace(x, hints=hints) for x in results]
    others = values[1:] if op.name in ACCESSES else values
    machine.forgo(x for value in others for x in hints_of(value))
    return results


def _say_of_lane(machine: Machine, word: str, value: Ints, axis: int, cond: Cond) -> Cond:
    """What must hold for a lane not to be misdescribed: of a multiple, for all its run.

    That is more than needed: every lane up to it, whichever that is, begins a run at a multiple or
    follows its neighbour.
    """
    atom = lane(axis, value.shape[axis]).atom if value.shape else None
    if word != "multiple_of" or atom is None:
        return cond
    up_to = machine.symbol("lane up to it")
    return lt(term(atom), up_to) | substitute(cond, {atom: up_to})


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
