"""Operations that move lanes: what they compute stays the same, of other lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.interpret import Machine
from gemmproof.reference.symbolic.machine.joining import choose
from gemmproof.reference.symbolic.machine.registry import rule
from gemmproof.reference.symbolic.machine.values import Ints, insert_axis, permute, swap_lanes
from gemmproof.reference.symbolic.terms import Poly, eq, make, term
from gemmproof.reference.ttir.module import Op


@rule("tt.make_range")
def _range(machine: Machine, op: Op, values: Sequence[Any]) -> Ints:
    start, end = op.integer("start"), op.integer("end")
    return Ints(lane(0, end - start) + start, (end - start,))


@rule("tt.splat", "tt.broadcast")
def _broadcast(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return values[0].map(lambda x: x, op.types[0].shape)


@rule("tt.expand_dims")
def _expand(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return insert_axis(values[0], op.integer("axis"))


@rule("tt.trans")
def _transpose(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return permute(values[0], tuple(op.integers("order")))


@rule("tt.reshape")
def _reshape(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return reshape(values[0], op.types[0].shape)


def reshape(value: Any, shape: tuple[int, ...]) -> Any:
    """A block in another shape, its lanes in row-major order."""
    place: Poly = term(0)
    for axis, n in enumerate(shape):
        place = place * n + lane(axis, n)
    swaps = {}
    below = 1
    for axis in reversed(range(len(value.shape))):
        n = value.shape[axis]
        atom = lane(axis, n).atom
        if atom is not None:
            swaps[atom] = make("mod", make("floordiv", place, below), n)
        below *= n
    return swap_lanes(value, swaps, shape)


@rule("tt.join")
def _join(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    shape = op.types[0].shape
    first = eq(lane(len(shape) - 1, 2), 0)
    x, y = (value.map(lambda part: part, shape) for value in values)
    return choose(machine, first, x, y)


@rule("tt.split")
def _split(machine: Machine, op: Op, values: Sequence[Any]) -> list[Any]:
    *shape, n = values[0].shape
    atom = lane(len(shape), n).atom
    assert atom is not None
    return [swap_lanes(values[0], {atom: term(i)}, tuple(shape)) for i in range(2)]


@rule("tt.unsplat")
def _unsplat(machine: Machine, op: Op, values: Sequence[Any]) -> Any:
    return values[0].map(lambda x: x, ())
