"""A value that a loop carries, with symbols for what the trips before added to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemmproof.reference.symbolic.machine.values import BlockWindow, Bools, Data, Ints, Pointers
from gemmproof.reference.symbolic.terms import Cond, Poly, eq, new_symbol

if TYPE_CHECKING:
    from gemmproof.reference.symbolic.machine.interpret import Machine


def terms_of(value: Any) -> tuple[Poly, ...]:
    """The integers of a value that a loop may carry."""
    if isinstance(value, Ints | Pointers):
        return (value.term,)
    if isinstance(value, BlockWindow):
        return (value.base.term, *value.starts)
    if isinstance(value, Bools):
        return (value.number,)
    return ()


def fixed_of(value: Any) -> Any:
    """What a loop is not followed in changing: whose elements, and how a window lies on them."""
    if isinstance(value, Pointers):
        return value.tensor
    if isinstance(value, BlockWindow):
        return (value.base.tensor, value.sizes, value.strides, value.block, value.fill)
    return None


class Hole:
    """A carried value with a symbol for what the trips before added to it."""

    def __init__(self, init: Any) -> None:
        self.init = init
        self.first = terms_of(init)
        self.symbols = [new_symbol("carried") for _ in self.first]
        self.atoms = [x.atom for x in self.symbols if x.atom is not None]
        if isinstance(init, Data):
            self.value: Any = Data("hole", init.shape, word=str(id(self)))
        elif isinstance(init, Bools):
            self.value = Bools(~_zero(init.number + self.symbols[0]), init.shape)
        else:
            self.value = self.fill(self.symbols)

    def fill(self, added: Sequence[Poly]) -> Any:
        """The value with these terms added to its first one."""
        if isinstance(self.init, Ints | Pointers):
            return replace(self.init, term=self.init.term + added[0])
        if isinstance(self.init, BlockWindow):
            base = replace(self.init.base, term=self.init.base.term + added[0])
            starts = (x + y for x, y in zip(self.init.starts, added[1:], strict=True))
            return replace(self.init, base=base, starts=tuple(starts))
        return Bools(~_zero(self.init.number + added[0]), self.init.shape)

    def unknown(self, machine: Machine) -> Any:
        """The value where nothing is known of what the trips add."""
        if isinstance(self.init, Data):
            return self.value
        shape = () if isinstance(self.init, BlockWindow) else self.init.shape
        why = "a value that a loop carries"
        return self.fill([machine.unknown(why, shape) for _ in self.first])


def _zero(number: Poly) -> Cond:
    return eq(number, 0)
