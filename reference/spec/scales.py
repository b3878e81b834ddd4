"""fp8 operands times their scales: a kernel may sum what is stored, and scale the sums.

(x s) @ (y t), x and y stored in fp8: a kernel divides k into parts, each of one s and one t, has
the tensor core sum x y over a part from zero, multiplies that sum P by s and t, and adds it in the
accumulator. Where P is off by at most g times the part's sum of |x y|, s t P is off by g times its
sum of |x s y t|, since s and t are the same throughout the part; and so c is by g times the sum of
all |x s y t|, however far apart the scales of other parts are. g is that of a chain of one part,
which has no more products than there are equal factors along k, in any order of k.

What the scales round is charged where they are multiplied. Where all |x s y t| together fit p bits
from their lowest bit on, so do those of |x y| of a part, P s, P t and s t: to divide by a number
lowers the size by at least as much as the lowest bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.formats import FP8, Format
from gemmproof.reference.spec.array import Scaled, SpecArray, lowest_bit


@dataclass(frozen=True, slots=True, eq=False)
class Unscaled:
    """Both operands of a contraction as they are stored, and the factors that they have.

    For each element of the result: `alike` products at most have both factors in common. `most` is
    no less than s, t and s t, than how many products there are, and than the sum of |x y|, with
    either factor, both or none.
    """

    stored: tuple[SpecArray, SpecArray]
    factors: tuple[Array, Array]
    alike: Array
    most: Array


def scale(x: SpecArray, by: SpecArray, how: Callable[..., Any] = np.multiply) -> Scaled | None:
    """What x times (`how`) a scale was, where x is in fp8 or is scaled already, and `by` is not.

    Of two numbers of 8 bits neither is known to be the scale, but e8m0 is nothing else.
    """
    was = _stored(x)
    narrow = by.fmt is not None and by.fmt.itemsize == 1 and by.fmt.p > 1
    if was is None or not by.pure or narrow or by.scaled is not None:
        return None
    return Scaled(was.stored, how(was.factor, by.value))


def unscale(x: SpecArray, y: SpecArray) -> Unscaled | None:
    """Two operands before they were scaled, where both were in fp8."""
    x_was, y_was = _stored(x), _stored(y)
    if x_was is None or y_was is None or (x.scaled is None and y.scaled is None):
        return None
    alike, parts, odd = [], [], []
    for z, axis in ((x_was, -1), (y_was, -2)):
        alike.append(_count_equal(z.factor, axis))
        size = z.stored.size
        reach = np.maximum(size, 1) * np.maximum(np.abs(z.factor), 1)
        parts.append(np.where(size > 0, reach, 0.0))
        odd.append(np.isinf(z.factor).any(axis, keepdims=True))
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.where(odd[0] | odd[1], np.inf, parts[0] @ parts[1])
    return Unscaled(
        (x_was.stored, y_was.stored), (x_was.factor, y_was.factor), np.minimum(*alike), most
    )


def fits_unscaled(was: Unscaled, registers: Iterable[Format], between: Format) -> Array:
    """Whether x y is no finer than what registers hold, nor x y s, x y t and s t than `between`."""
    sums, scales = (
        sum(
            np.minimum(z.min(axis, initial=0, keepdims=True), 0)
            for z, axis in zip(lows, (-1, -2), strict=True)
        )
        for lows in ([z.low for z in was.stored], [lowest_bit(z) for z in was.factors])
    )
    inside = sums + scales >= _finest(between)
    for fmt in registers:
        inside = inside & (sums >= _finest(fmt))
    return np.asarray(inside)


def _finest(fmt: Format) -> int:
    return fmt.emin - fmt.p + 1


def _stored(x: SpecArray) -> Scaled | None:
    if x.fmt is not None and x.fmt.name in FP8:
        return Scaled(x, np.broadcast_to(1.0, x.shape))
    return x.scaled


def _count_equal(factor: Array, axis: int) -> Array:
    """How often the most frequent number along an axis is there; the axis stays, of length 1."""
    lines = np.sort(np.moveaxis(factor, axis, -1))
    k = np.arange(lines.shape[-1])
    begins = np.ones(lines.shape, bool)
    begins[..., 1:] = lines[..., 1:] != lines[..., :-1]
    after = k - np.maximum.accumulate(np.where(begins, k, 0), -1)
    return np.moveaxis(after.max(-1, initial=-1, keepdims=True) + 1, -1, axis)
