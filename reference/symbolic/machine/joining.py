"""Values that meet where paths do: each under the condition that it is the one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gemmproof.reference.symbolic.machine.seen import NotFollowed
from gemmproof.reference.symbolic.machine.values import (
    BlockWindow,
    Bools,
    Data,
    Hinted,
    Ints,
    Pointers,
)
from gemmproof.reference.symbolic.terms import FALSE, TRUE, Cond, Poly, every, make, some

if TYPE_CHECKING:
    from gemmproof.reference.symbolic.machine.interpret import Machine


def merge(edges: Sequence[tuple[Cond, list[Any]]], machine: Machine) -> list[Any]:
    """The values that meet where paths do: those of the first path whose condition holds."""
    if not edges:
        return []
    (_, values), *others = reversed(edges)
    for cond, earlier in others:
        values = [choose(machine, cond, x, y) for x, y in zip(earlier, values, strict=True)]
    return list(values)


def choose(machine: Machine, cond: Cond, x: Any, y: Any) -> Any:
    """x where a condition holds, else y."""
    if cond == TRUE or x is y or x == y:
        return x
    if cond == FALSE:
        return y
    shape = x.block if isinstance(x, BlockWindow) else x.shape
    if isinstance(x, BlockWindow) and isinstance(y, BlockWindow):
        return _choose_window(machine, cond, x, y)
    if isinstance(x, Pointers) and isinstance(y, Pointers):
        if x.tensor != y.tensor:
            raise NotFollowed("a pointer that is one of two tensors'", machine.where)
        steps = tuple(dict.fromkeys((*x.steps, *y.steps)))
        number = make("choice", cond, x.term, y.term)
        return Pointers(x.tensor, number, shape, steps, _choose_hints(cond, x, y))
    if isinstance(x, Ints) and isinstance(y, Ints):
        number = make("choice", cond, x.term, y.term)
        return Ints(number, shape, x.bits, hints=_choose_hints(cond, x, y))
    if isinstance(x, Bools) and isinstance(y, Bools):
        return Bools(some((every((cond, x.cond)), every((~cond, y.cond)))), shape)
    return Data("choice", shape, (machine.data(x), machine.data(y)), cond=cond)


def _choose_hints(cond: Cond, x: Any, y: Any) -> tuple[Hinted, ...]:
    """What was said of each of two, where it is the one."""
    first = ((number, said | ~cond) for number, said in x.hints)
    return (*first, *((number, said | cond) for number, said in y.hints))


def _choose_window(machine: Machine, cond: Cond, x: BlockWindow, y: BlockWindow) -> BlockWindow:
    def each(first: Sequence[Poly], second: Sequence[Poly]) -> tuple[Poly, ...]:
        return tuple(make("choice", cond, p, q) for p, q in zip(first, second, strict=True))

    base = choose(machine, cond, x.base, y.base)
    sizes, strides = each(x.sizes, y.sizes), each(x.strides, y.strides)
    return BlockWindow(base, sizes, strides, each(x.starts, y.starts), x.block, x.fill)
