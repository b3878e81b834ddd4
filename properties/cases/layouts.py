"""Memory layouts of operands: strides and offset of every view that torch can make.

Each operand is a view of a separate parent, and no two views of a case share a leading dimension by
accident: the padding of b differs from that of a, so a kernel that mixes up two strides reads other
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

ANY, CONTIGUOUS, ROW = "any", "contiguous", "row"
GUARD = 64  # elements before and after a view: 64 of any itemsize keep the base 16-byte aligned
WIDE = 2**31  # the first offset that a signed 32-bit integer does not hold

Shape = tuple[int, int, int]
Placement = tuple[tuple[int, int, int], int, int]
Place = Callable[[Shape, int, int], Placement]


@dataclass(frozen=True, slots=True)
class OperandView:
    """Strides and offset in elements, over (batch, rows, columns), of a view of a parent.

    `first` is the offset of element (0, 0, 0) in the parent, `extent` the parent's size in
    elements.
    """

    shape: Shape
    strides: tuple[int, int, int]
    first: int
    extent: int


def _row(shape: Shape, number: int, k_axis: int) -> Placement:
    batch, rows, columns = shape
    return (rows * columns, columns, 1), 0, batch * rows * columns


def _transpose(lay_out: Place) -> Place:
    """Return the layout that transposes `lay_out` of the transposed shape."""

    def transposed(shape: Shape, number: int, k_axis: int) -> Placement:
        batch, rows, columns = shape
        (plane, column, row), first, extent = lay_out((batch, columns, rows), number, k_axis)
        return (plane, row, column), first, extent

    return transposed


def _padded(shape: Shape, number: int, k_axis: int) -> Placement:
    batch, rows, columns = shape
    lead = columns + 3 + 2 * number
    return (lead * (rows + 1), lead, 1), 0, batch * lead * (rows + 1)


def _transposed(shape: Shape, number: int, k_axis: int) -> Placement:
    batch, rows, columns = shape
    lead = rows + 5 + 2 * number
    return (lead * (columns + 1), 1, lead), 0, batch * lead * (columns + 1)


def _sliced(shape: Shape, number: int, k_axis: int) -> Placement:
    # parent[1::2, 1::s, 1::t] with s, t = 2, 3 for a and 3, 2 for b
    batch, rows, columns = shape
    step_row, step_column = (2, 3) if number % 2 == 0 else (3, 2)
    lead = step_column * columns + 1 + number // 2
    plane = (step_row * rows + 1) * lead
    return (2 * plane, step_row * lead, step_column), plane + lead + 1, (2 * batch + 1) * plane


def _vector(shape: Shape, axis: int) -> Placement:
    # one vector along an axis, repeated over the other one
    n = shape[axis]
    return (n, int(axis == 1), int(axis == 2)), 0, shape[0] * n


def _misaligned(shape: Shape, number: int, k_axis: int) -> Placement:
    strides, _, extent = _row(shape, number, k_axis)
    return strides, 1, extent + 1


def _shared(shape: Shape, number: int, k_axis: int) -> Placement:
    # one matrix for the whole batch
    _, rows, columns = shape
    return (0, columns, 1), 0, rows * columns


def _batch_inner(shape: Shape, number: int, k_axis: int) -> Placement:
    # (rows, batch, columns) in memory: the view that permute makes of a model's activations
    batch, rows, columns = shape
    return (columns, batch * columns, 1), 0, batch * rows * columns


def _narrow(shape: Shape, number: int, k_axis: int) -> Placement:
    # a few columns of a parent so wide that the last row begins at 2**31 (b: just beyond it);
    # a batch lies side by side in the same rows
    batch, rows, columns = shape
    lead = _lead(rows, batch * columns, number)
    return (columns, lead, 1), 0, lead * rows


def _narrow_batch(shape: Shape, number: int, k_axis: int) -> Placement:
    # dense matrices so far apart that the last one begins at 2**31
    batch, rows, columns = shape
    lead = _lead(batch, rows * columns, number)
    return (lead, columns, 1), 0, lead * batch


def _lead(count: int, length: int, number: int) -> int:
    """Return the distance of `count` lines of `length` elements whose last one begins at 2**31."""
    return max(length, -(-WIDE // max(count - 1, 1)) + number)


# Each layout of (batch, rows, columns): the shape, the number that distinguishes the operands of a
# case and the axis that runs over K give the strides, the first element's offset beyond the guard,
# and the number of the parent's elements between its guards.
LAYOUTS: Mapping[str, Place] = MappingProxyType(
    {
        ROW: _row,
        "column": _transpose(_row),
        "padded": _padded,
        "sliced": _sliced,
        "transposed": _transposed,
        "expanded": lambda shape, number, k_axis: _vector(shape, k_axis),
        "expanded_k": lambda shape, number, k_axis: _vector(shape, 3 - k_axis),  # repeated over K
        "misaligned": _misaligned,
        "shared": _shared,
        "batch_inner": _batch_inner,
        "narrow": _narrow,
        "narrow_transposed": _transpose(_narrow),
        "narrow_batch": _narrow_batch,
    }
)
BATCHED = ("shared", "batch_inner", "narrow_batch")
HUGE = ("narrow", "narrow_transposed", "narrow_batch")


def view(name: str, shape: Shape, number: int, k_axis: int) -> OperandView:
    """Return the view of `shape` in layout `name` for operand `number`, guards included."""
    # an empty side takes the strides of a side of 1, as torch gives them
    batch, rows, columns = (max(side, 1) for side in shape)
    strides, first, extent = LAYOUTS[name]((batch, rows, columns), number, k_axis)
    return OperandView(shape, strides, GUARD + first, extent + 2 * GUARD)
