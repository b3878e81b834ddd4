"""What moves the elements of a SpecArray about, and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmproof.reference.spec.arithmetic import apply, held_by, to_float
from gemmproof.reference.spec.array import ELEMENTS, Scaled, SpecArray, constant
from gemmproof.reference.spec.gather import Gathered, spread


def index(x: SpecArray, key: Any) -> SpecArray | Gathered:
    """x[key]: slices, None, integers, and arrays of integers, operands among them."""
    keys = key if isinstance(key, tuple) else (key,)
    plain = tuple(_plain(k) for k in keys)
    ids = plain[0]
    whole = len(plain) == 1 and isinstance(ids, np.ndarray) and ids.dtype.kind in "iu"
    try:
        if whole and ids.ndim == 1 and x.ndim == 3:
            return Gathered(x, np.arange(x.shape[0])[ids])
        return apply(x, lambda z: np.asarray(z[plain]))
    except IndexError as error:
        raise ValueError(f"spec: {error}") from None


def _plain(key: Any) -> Any:
    if not isinstance(key, SpecArray):
        return key
    if not (key.whole and key.exact.all()):
        raise TypeError("spec: got an index that may be rounded, expected an operand of integers")
    return key.value.astype(np.int64)


def reshape(x: SpecArray, *shape: Any) -> SpecArray:
    """The elements in another shape."""
    sides = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return apply(x, lambda z: z.reshape(sides))


def transpose(x: SpecArray, *axes: Any) -> SpecArray:
    """The axes in another order; reversed where none is given."""
    order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
    return apply(x, lambda z: np.transpose(z, order))


def swapaxes(x: SpecArray, first: int, second: int) -> SpecArray:
    """Two axes exchanged."""
    return apply(x, lambda z: np.swapaxes(z, first, second))


def expand_dims(x: SpecArray, axis: Any) -> SpecArray:
    """New axes of one element."""
    return apply(x, lambda z: np.expand_dims(z, axis))


def squeeze(x: SpecArray, axis: Any = None) -> SpecArray:
    """Without axes of one element."""
    return apply(x, lambda z: np.squeeze(z, axis))


def repeat(x: SpecArray, repeats: int, axis: int | None = None) -> SpecArray:
    """Each element, or line, several times over: a scale for every element of its group."""
    return apply(x, lambda z: np.repeat(z, repeats, axis))


def broadcast_to(x: SpecArray, shape: Sequence[int]) -> SpecArray:
    """x repeated to a shape."""
    return apply(x, lambda z: np.broadcast_to(z, shape))


def concatenate(arrays: Sequence[Any], axis: int = 0) -> SpecArray:
    """Arrays one after another."""
    return _join(arrays, lambda parts: np.concatenate(parts, axis=axis))


def stack(arrays: Sequence[Any], axis: int = 0) -> SpecArray:
    """Arrays of one shape side by side along a new axis."""
    return _join(arrays, lambda parts: np.stack(parts, axis=axis))


def _join(arrays: Sequence[Any], join: Any) -> SpecArray:
    rules = next(x.rules for x in arrays if hasattr(x, "rules"))
    made = [spread(x) if hasattr(x, "rules") else constant(x, rules) for x in arrays]
    whole, pure = all(x.whole for x in made), all(x.pure for x in made)
    made = made if whole else [to_float(x) for x in made]
    first = made[0]
    parts = {name: join([getattr(x, name) for x in made]) for name in ELEMENTS}
    fmt = first.fmt if all(x.fmt is first.fmt for x in made) else None
    scaled = [x.scaled for x in made if x.scaled is not None]
    were = None
    if len(scaled) == len(made):
        were = Scaled(_join([x.stored for x in scaled], join), join([x.factor for x in scaled]))
        were = were if were.stored.fmt is not None else None
    return replace(
        first, **parts, fmt=fmt, whole=whole, pure=pure, held=held_by(*made), scaled=were
    )
