"""Integers in words, rows in groups, and a matrix for each row of a formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import Array
from gemmproof.reference.spec import operations
from gemmproof.reference.spec.array import SpecArray
from gemmproof.reference.spec.contraction import matmul
from gemmproof.reference.spec.functions import masked, whole
from gemmproof.reference.spec.operations import Gathered, apply, spread, to_plain

# The element that each field of a word holds, the lowest bits first, by a common name.
ORDERS: Mapping[str, Any] = {
    "gptq": None,  # AutoGPTQ, and whatever else counts from the lowest bits
    "awq": (0, 2, 4, 6, 1, 3, 5, 7),  # AutoAWQ's order_map
    "high_first": slice(None, None, -1),
}


def unpack(
    w: SpecArray,
    bits: int = 4,
    order: str | Sequence[int] | None = None,
    axis: int = 0,
    signed: bool = False,
    blocks: bool = False,
) -> SpecArray:
    """Return the integers of `bits` bits in words, whose `axis` becomes longer.

    Field i, the i-th from the lowest bits, holds element order[i] of its word, or, with `blocks`,
    of the order[i]-th block of the axis. Orders with a name are those of ORDERS.
    """
    w = spread(w)
    if not (isinstance(w, SpecArray) and w.whole):
        raise TypeError("spec: got floats to unpack, expected an operand of integers")
    width = 8 * (w.fmt.itemsize if w.fmt is not None else 4)
    if bits not in (1, 2, 4, 8, 16) or width % bits:
        raise ValueError(f"spec: got {bits=} of words of {width}, expected 1, 2, 4, 8 or 16")
    fields = _find_order(order, width // bits)
    axis = axis % w.ndim
    shifts = bits * np.argsort(fields)
    sides = [1] * (w.ndim + 1)
    sides[axis if blocks else axis + 1] = len(shifts)
    packed = operations.expand_dims(w, axis if blocks else axis + 1)
    mask, half = (1 << bits) - 1, 1 << (bits - 1)

    def extract(word: Array, shift: Array) -> Array:
        field = (word >> shift) & mask
        return field - ((field & half) << 1) if signed else field

    values = whole("unpack", extract)(packed, shifts.reshape(sides))
    shape = (*w.shape[:axis], w.shape[axis] * len(shifts), *w.shape[axis + 1 :])
    return operations.reshape(values, shape)


def _find_order(order: str | Sequence[int] | None, count: int) -> Array:
    if isinstance(order, str) and order not in ORDERS:
        known = ", ".join(ORDERS)
        raise ValueError(f"spec: got {order=}, expected {known} or the element of each field")
    chosen = ORDERS[order] if isinstance(order, str) else order
    if chosen is None or isinstance(chosen, slice):
        return np.arange(count)[chosen or slice(None)]
    fields = np.asarray(to_plain(chosen))
    if sorted(fields.tolist()) != list(range(count)):
        raise ValueError(
            f"spec: got {order=} for the {count} fields of a word, expected 0 to {count - 1} once"
        )
    return fields


def segments(offsets: Any, size: int, ends: bool = False) -> Array:
    """Return the group of each of `size` rows, as integers.

    `offsets` are where groups begin, with the end of the last one or without; or, with `ends`,
    where they end. Rows before the first group have -1, rows beyond the last one the number of
    groups.
    """
    bounds = np.asarray(to_plain(offsets))
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu":
        raise TypeError(f"spec: got offsets of shape {bounds.shape}, expected a list of integers")
    return np.searchsorted(bounds, np.arange(size), side="right") - (not ends)


def rowwise_matmul(x: Any, y: Any, ids: Any) -> Any:
    """Return x[i] @ y[ids[i]] for each row i of a matrix x: a row for each of the ids.

    ids have an axis for the rows, and possibly one for several matrices of each row. A row whose id
    is that of no matrix is 0.
    """
    x, y, ids = spread(x), spread(y), np.asarray(to_plain(ids))
    if ids.dtype.kind not in "iu" or not (ids.ndim and x.ndim == 2 and y.ndim == 3):
        got = f"shapes {x.shape}, {y.shape} and ids {ids.shape} of {ids.dtype}"
        raise ValueError(f"spec: got {got}, expected (M, K), (E, K, N) and integers (M, ...)")
    if ids.shape[0] != x.shape[0]:
        raise ValueError(f"spec: got {len(ids)} ids of {x.shape[0]} rows, expected one for each")
    inside = (ids >= 0) & (ids < y.shape[0])
    ones = (1,) * ids.ndim
    rows = operations.reshape(x, (x.shape[0], *ones, x.shape[1]))
    if not inside.any():
        zeros = np.zeros((*ids.shape, y.shape[2]))
        return operations.constant(zeros, x.rules)
    product = matmul(rows, Gathered(y, np.where(inside, ids, ids[inside][0])))
    product = apply(product, lambda z: z[..., 0, :])
    return masked(product, inside[..., None])
