"""Ways to misread an operand: other strides, an index off or wrapped; diagnose.py tries them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from gemmproof.properties.cases.generate import Tile
from gemmproof.properties.cases.operands import PlacedOperand, view_strided
from gemmproof.properties.contract import ROLES
from gemmproof.reference.arithmetic import Array


def list_readings(operand: PlacedOperand) -> Iterator[tuple[str, Array]]:
    """The operand as other strides give it, where they stay in its parent."""
    view = operand.view
    _, rows, columns = view.shape
    plane, row, column = view.strides
    for words, strides in (
        ("its strides swapped", (plane, column, row)),
        ("row-major dense strides", (rows * columns, columns, 1)),
        ("column-major dense strides", (rows * columns, 1, rows)),
        ("a column stride of 1", (plane, row, 1)),
        ("a row stride of 1", (plane, 1, column)),
        ("a batch stride of 0", (0, row, column)),
        ("a batch stride of its rows", (rows * row, row, column)),
    ):
        last = sum((n - 1) * s for n, s in zip(view.shape, strides, strict=True))
        steps = [(s, t) for n, s, t in zip(view.shape, strides, view.strides, strict=True) if n > 1]
        if any(s != t for s, t in steps) and view.first + last < view.extent:
            other = view_strided(operand.parent, replace(view, strides=strides))
            yield words, np.ascontiguousarray(other).reshape(tuple(operand.tensor.shape))


def list_displaced(own: Array, name: str, tiles: Iterable[Tile]) -> Iterator[tuple[str, Array]]:
    """An operand with its indices along each axis moved by one, zero beyond its ends, or wrapped.

    The operand itself is left out, as layouts that repeat elements give it.
    """
    one, code = np.ascontiguousarray(own), f"u{own.itemsize}"
    blocks = sorted({side for tile in tiles for side in tile})
    for axis in range(own.ndim):
        axes, n = ("batch", *ROLES[name].axes)[3 - own.ndim :], own.shape[axis]
        label, index = axes[axis].lower(), np.arange(n)
        places = [(f"at {label} + 1", index + 1), (f"at {label} - 1", index - 1)]
        places += [(f"at {label} modulo {block}", index % block) for block in blocks if block < n]
        for words, place in places:
            inside = ((place >= 0) & (place < n)).reshape(
                [-1 if d == axis else 1 for d in range(own.ndim)]
            )
            taken = np.take(one.view(code), place.clip(0, n - 1), axis)
            other = np.where(inside, taken, taken.dtype.type(0))
            if not np.array_equal(other, one.view(code)):
                yield words, other.view(own.dtype)


def list_strided(operand: PlacedOperand) -> Iterator[tuple[str, Array]]:
    """The operand as other strides give it, made of its sides and its own strides, inside it.

    Of three axes either the first one's stride is another or those of the last two.
    """
    view, axes = operand.view, operand.tensor.dim()
    shape, own = view.shape[3 - axes :], view.strides[3 - axes :]
    within = sum((n - 1) * s for n, s in zip(shape, own, strict=True))
    steps = sorted({0, 1, *own[-2:], *shape})
    choices = [(*own[:-2], *last) for last in itertools.product(steps, repeat=min(axes, 2))]
    if axes == 3:
        areas = sorted({m * n for m in shape for n in shape} | set(steps))
        choices += [(area, *own[1:]) for area in areas]
    flat = operand.parent[view.first : view.first + within + 1]
    for strides in choices:
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if strides != own and 0 < reach <= within:
            places = (np.arange(n) * s for n, s in zip(shape, strides, strict=True))
            at = functools.reduce(np.add.outer, places)
            yield f"strides {strides} in place of {own}", np.ascontiguousarray(flat[at])
