"""Sums, products, quotients and contractions of SpecArrays; `array` states what they keep true."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, round_to
from gemmproof.reference.bound import bound_unread
from gemmproof.reference.bound_chain import chain_error, start_at
from gemmproof.reference.dot.model import DotModel, dot_model
from gemmproof.reference.formats import FORMATS, FP8
from gemmproof.reference.spec.array import (
    ELEMENTS,
    NO_GRID,
    U64,
    Rules,
    SpecArray,
    collapse,
    constant,
    fits,
    rounded,
)

INT32 = FORMATS["int32"]
# div.full.f32, what Triton makes of `/`, is off by at most 2 ulp (PTX ISA), 4 u of the quotient; so
# is rcp.approx (1 ulp) with the product that follows it.
DIVISION = 4.0


def add(x: Any, y: Any) -> SpecArray:
    """x + y: error_x + error_y + n_x u size_y + n_y u size_x + u (size_x + size_y)."""
    x, y = pair(x, y)
    u = x.rules.fmt.u
    size = x.size + y.size
    error = x.error + y.error + u * (x.count * y.size + y.count * x.size + size)
    low = np.minimum(x.low, y.low)
    with np.errstate(invalid="ignore"):
        value = x.value + y.value
    return _made(x, y, value, error, size, low)


def negative(x: SpecArray) -> SpecArray:
    """-x, exactly."""
    return replace(x, value=-x.value)


def subtract(x: Any, y: Any) -> SpecArray:
    """x - y, as x + (-y)."""
    x, y = pair(x, y)
    return add(x, negative(y))


def multiply(x: Any, y: Any) -> SpecArray:
    """x y: error_x size_y + error_y size_x + error_x error_y + u size_x size_y + eta."""
    x, y = pair(x, y)
    if not (x.pure or y.pure):
        x, y = collapse(x), collapse(y)
    fmt = x.rules.fmt
    with np.errstate(invalid="ignore", over="ignore"):
        size = x.size * y.size
        error = x.error * y.size + y.error * x.size + x.error * y.error + fmt.u * size + fmt.eta
        value = x.value * y.value
    low = np.where((x.low >= NO_GRID) | (y.low >= NO_GRID), NO_GRID, x.low + y.low)
    return _made(x, y, value, error, size, low, x.pure and y.pure)


def divide(x: Any, y: Any) -> SpecArray:
    """x / y: (error_x + |q| error_y) / (|y| - error_y) + 2 ulp; Inf where y may be 0.

    Exact where y is a power of two.
    """
    x, y = pair(x, y)
    x, y = (_to_float(z) for z in (x, y))
    if not y.pure:
        x, y = collapse(x), collapse(y)
    fmt = x.rules.fmt
    with np.errstate(all="ignore"):
        value = x.value / y.value
        least = np.abs(y.value) - y.bound
        error = (x.error + np.abs(value) * y.error) / least
        size = x.size / least
        error = error + DIVISION * fmt.u * (size + error) + fmt.eta
        error = np.where(least > 0, error, np.inf)
    mantissa, e = np.frexp(y.value)
    power = (np.abs(mantissa) == 0.5) & y.exact
    low = np.where(power & (x.low < NO_GRID), x.low - e + 1, -NO_GRID)
    low = np.where((x.low >= NO_GRID) & (y.value != 0), NO_GRID, low)
    exact = x.exact & power & fits(size, low, fmt)
    count = x.count + y.count + DIVISION
    pure, error = x.pure and y.pure, _overflow(error, size, fmt.max)
    return SpecArray(x.rules, value, error, size, count, low, exact, pure=pure)


def matmul(x: Any, y: Any) -> SpecArray:
    """x @ y over the target's dot, in any order of k.

    The chain is bounded by `bound_chain` over what the operands may be at most, and `count` is that
    bound in units of u size: what is added later may have been what the accumulator began with.
    """
    rules = _rules(x, y)
    x, y = (z if isinstance(z, SpecArray) else constant(z, rules) for z in (x, y))
    if min(x.ndim, y.ndim) < 2 or x.shape[-1] != y.shape[-2]:
        raise ValueError(
            f"spec: got shapes {x.shape} @ {y.shape}, expected (..., M, K) @ (..., K, N)"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        value = x.value @ y.value
        size = x.size @ y.size
        error = x.error @ y.size + x.size @ y.error + x.error @ y.error
    K = x.shape[-1]
    rows, columns = (
        z.low.min(axis, initial=NO_GRID, keepdims=True) for z, axis in ((x, -1), (y, -2))
    )
    low = np.minimum(rows + columns, NO_GRID)
    operands = _all(x.exact, -1) & _all(y.exact, -2)
    if x.whole and y.whole:
        exact = operands & fits(size, low, INT32)
        error = np.where(exact, 0.0, np.inf)
        return SpecArray(rules, value, error, size, np.zeros(value.shape), low, exact, None, True)
    x, y = _to_float(x), _to_float(y)
    model = choose_model(x, y, rules)
    acc = FORMATS[model.acc_format]
    with np.errstate(over="ignore"):
        chain, steps, unread = _chain(x, y, model)
        error = error + chain + K * U64 * size
    count = np.broadcast_to(_most(x.count, -1) + _most(y.count, -2) + steps, value.shape)
    exact = operands & _chain_is_exact(size, low, model) & (unread == 0)
    error = _overflow(error, size, acc.max)
    return SpecArray(rules, value, error, size, count, low, exact)


def total(x: SpecArray, axis: Any = None, keepdims: bool = False) -> SpecArray:
    """The sum along axes, in any order: n - 1 more roundings for every addend."""
    n = x.value.size // max(1, int(np.sum(x.value, axis=axis).size)) if x.value.size else 0
    u = x.rules.fmt.u

    def over(z: Array) -> Array:
        return np.asarray(np.sum(z, axis=axis, keepdims=keepdims))

    value, size = over(x.value), over(x.size)
    count = np.asarray(np.max(x.count, axis=axis, keepdims=keepdims, initial=0.0)) + max(n - 1, 0)
    error = over(x.error) + max(n - 1, 0) * (u + U64) * size
    low = np.asarray(np.min(x.low, axis=axis, keepdims=keepdims, initial=NO_GRID))
    exact = np.asarray(np.all(x.exact, axis=axis, keepdims=keepdims))
    fmt = INT32 if x.whole else x.rules.fmt
    exact = exact & fits(size, low, fmt)
    error = np.where(exact, 0.0, np.inf) if x.whole else _overflow(error, size, fmt.max)
    return SpecArray(x.rules, value, error, size, count, low, exact, None, x.whole)


def choose_model(x: SpecArray, y: SpecArray, rules: Rules) -> DotModel:
    """The dot of the target for these operands; IEEE multiply-adds where it has no such unit.

    What is in no format of a dot (an intermediate value) is multiplied in the intermediate format.
    A tensor core without fp8 gets fp16 (Triton converts, exactly).
    """
    names = tuple(rules.between if z.fmt is None else z.fmt.name for z in (x, y))
    same = names[0] == names[1] or all(name in FP8 for name in names)
    other = "tf32" if "tf32" in names else rules.between
    wanted = names if same else (other, other)
    for pair in (wanted, tuple("fp16" if name in FP8 else name for name in wanted)):
        try:
            return dot_model(rules.target, (pair[0], pair[1]), rules.accumulator)
        except ValueError:  # no such unit
            continue
    return dot_model(None, rules.between if not FORMATS[wanted[0]].sums else wanted[0])


def _chain(x: SpecArray, y: SpecArray, model: DotModel) -> tuple[Array, float, Array | float]:
    """The chain's bound, its bound in units of u size, and what the unit does not read."""
    a, b = (np.where(np.isfinite(z.reach), z.reach, 0.0) for z in (x, y))
    K, unit, u = x.shape[-1], model.unit, x.rules.fmt.u
    a_format, b_format = (model.as_format or name for name in (model.a_format, model.b_format))
    acc = FORMATS[model.acc_format]
    size = a @ b
    steps = K * acc.u / u
    if unit.kind == "fused":
        r = 2.0 ** -(unit.fraction + (unit.rounding == "rne"))
        steps = -(-K // unit.L) * ((unit.L + 1) * 2.0**-unit.F + r) / u
        steps += (-(-K // model.part) if model.part else 0) * acc.u / u
    if model.part:
        error = steps * u * size
    else:
        formats = (FORMATS[a_format], FORMATS[b_format], acc)
        error = chain_error(a, b, start_at(np.zeros(size.shape)), unit, formats).error
    if "tf32" not in (model.a_format, model.b_format):
        return error, steps, 0.0
    if x.fmt is None or y.fmt is None:
        unread: Array = 2.0**-9 * size  # each operand loses less than 2**-10 of itself
    else:
        wide = [round_to(np.where(np.isfinite(z.value), z.value, 0.0), "fp32") for z in (x, y)]
        unread = np.asarray(bound_unread(wide[0], wide[1], model))
    return error + unread, steps, unread


def _chain_is_exact(size: Array, low: Array, model: DotModel) -> Array:
    """Whether no chain can round: every partial sum is a multiple of 2**low up to `size`.

    A fused step cuts below 2**(e_max - F) and keeps `fraction` bits; e_max < F + 1 + low where
    size < 2**(F + 1 + low), for products are aligned by exponents that are at most their own.
    """
    acc, unit = FORMATS[model.acc_format], model.unit
    whole = fits(size, low, acc)
    if unit.kind == "fused":
        keep = min(unit.F, unit.fraction) + 1
        whole &= size < np.ldexp(1.0, np.clip(low + keep, -1080, 1023))
    return whole


def _rules(x: Any, y: Any) -> Rules:
    return x.rules if isinstance(x, SpecArray) else y.rules


def pair(x: Any, y: Any) -> tuple[SpecArray, SpecArray]:
    """Both as arrays of one shape."""
    rules = _rules(x, y)
    x, y = (z if isinstance(z, SpecArray) else constant(z, rules) for z in (x, y))
    try:
        shape = np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise ValueError(
            f"spec: got shapes {x.shape} and {y.shape}, expected ones that broadcast"
        ) from None
    if x.whole != y.whole:
        x, y = _to_float(x), _to_float(y)
    return broadcast(x, shape), broadcast(y, shape)


def _to_float(x: SpecArray) -> SpecArray:
    """Integers as numbers of the intermediate format: one rounding where they are too long."""
    if not x.whole:
        return x
    if x.fmt is not None and x.fmt.p <= x.rules.fmt.p:
        return replace(x, whole=False)
    return rounded(x, x.rules.fmt)


def broadcast(x: SpecArray, shape: tuple[int, ...]) -> SpecArray:
    """x, repeated to a shape."""
    if x.shape == shape:
        return x
    return apply(x, lambda z: np.broadcast_to(z, shape))


def apply(x: SpecArray, move: Any) -> SpecArray:
    """x with its elements moved about by a function of arrays."""
    return replace(x, **{name: move(getattr(x, name)) for name in ELEMENTS})


def _made(
    x: SpecArray,
    y: SpecArray,
    value: Array,
    error: Array,
    size: Array,
    low: Array,
    pure: bool = False,
) -> SpecArray:
    rules, whole = x.rules, x.whole
    fmt = INT32 if whole else rules.fmt
    exact = x.exact & y.exact & fits(size, low, fmt)
    if whole:
        error = np.where(exact, 0.0, np.inf)
    else:
        error = _overflow(error + U64 * np.abs(value), size, fmt.max)
    count = x.count + y.count + 1
    return SpecArray(rules, value, error, size, count, low, exact, None, whole, pure)


def _overflow(error: Array, size: Array, top: float) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(size + error <= top, error, np.inf)


def _all(x: Array, axis: int) -> Array:
    return np.asarray(x.all(axis=axis, keepdims=True))


def _most(x: Array, axis: int) -> Array:
    return np.asarray(x.max(axis=axis, initial=0.0, keepdims=True))
