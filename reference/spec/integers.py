"""Bits and whole quotients of integers: what packed weights are unpacked by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.formats import CODES, format_named
from gemmproof.reference.spec.arithmetic import INT32, pair
from gemmproof.reference.spec.array import SpecArray, exactly, fits, lowest_bit

Whole = Callable[[Array, Array], Array]


def whole(name: str, function: Whole) -> Callable[[Any, Any], SpecArray]:
    """A function of two arrays of integers; unknown where an operand or the result may be off."""

    def evaluate(x: Any, y: Any) -> SpecArray:
        x, y = pair(x, y)
        if not (x.whole and y.whole):
            raise TypeError(f"spec: got floats for {name}, expected integers on both sides")
        with np.errstate(all="ignore"):
            value = function(x.value.astype(np.int64), y.value.astype(np.int64)).astype(np.float64)
        size, low, zeros = np.abs(value), lowest_bit(value), np.zeros(value.shape)
        exact = x.exact & y.exact & fits(size, low, INT32)
        error = np.where(exact, 0.0, np.inf)
        return SpecArray(x.rules, value, error, size, zeros, low, exact, None, True)

    return evaluate


def _left(x: Array, y: Array) -> Array:
    # what leaves 32 bits is unknown to `fits`, what would leave 64 must not come back
    return np.where(y < 32, x << np.minimum(y, 31), 1 << 40)


bitwise_and = whole("&", np.bitwise_and)
bitwise_or = whole("|", np.bitwise_or)
bitwise_xor = whole("^", np.bitwise_xor)
left_shift = whole("<<", _left)
right_shift = whole(">>", lambda x, y: x >> np.clip(y, 0, 63))
floor_divide = whole("//", lambda x, y: np.where(y == 0, 1 << 40, x // np.where(y == 0, 1, y)))
remainder = whole("%", lambda x, y: np.where(y == 0, 1 << 40, x % np.where(y == 0, 1, y)))


def decode(x: SpecArray, name: str) -> SpecArray:
    """Integers as the codes of a float format, such as e2m1 unpacked from a byte, or e8m0 scales.

    e2m1 takes the low four bits.
    """
    fmt = CODES[name] if name in CODES else format_named(name)
    if not (x.whole and x.exact.all()):
        raise TypeError("spec: got codes that may be rounded, expected an operand of integers")
    codes = x.value.astype(np.int64).astype(f"u{fmt.itemsize}")
    if name == "e2m1":
        codes &= np.uint8(15)
    value = codes.view(fmt.storage).astype(np.float64)
    return exactly(value, x.rules, fmt)


def invert(x: SpecArray) -> SpecArray:
    """~x."""
    return bitwise_xor(x, -1)
