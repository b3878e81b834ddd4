"""x @ y of SpecArrays: sums of products over k in any order, on any unit that the rules admit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import Array, round_to
from gemmproof.reference.bounds import bound_unread
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.formats import ACCUMULATORS, FORMATS, FP8, Format
from gemmproof.reference.spec import operations
from gemmproof.reference.spec.array import (
    NO_GRID,
    U64,
    Rules,
    SpecArray,
    Unscaled,
    collapse,
    fits_unscaled,
    growth,
    keep_exact,
    known_contraction,
    settle,
    unscale,
)
from gemmproof.reference.spec.operations import (
    INT32,
    Gathered,
    apply,
    both,
    held_by,
    spread,
    to_float,
)


def matmul_in(x: Any, y: Any, accumulator: str | None = None) -> SpecArray:
    """Return x @ y, whose sums are kept in the format `accumulator` instead of the contract's."""
    if accumulator is None:
        return matmul(x, y)
    if accumulator not in ACCUMULATORS:
        known = " ".join(ACCUMULATORS)
        raise ValueError(f"spec: got {accumulator=}, expected one of {known}")
    x, y = both(spread(x), spread(y))
    rules = replace(x.rules, accumulator=accumulator)
    product = matmul(replace(x, rules=rules), replace(y, rules=rules))
    return replace(product, rules=x.rules)


def matmul(x: Any, y: Any) -> SpecArray:
    """Return x @ y; the rows of x that share a matrix at once if y was gathered."""
    x = spread(x)
    if isinstance(y, Gathered) and y.ids.size and isinstance(x, SpecArray) and x.ndim > 1:
        _require_fit(x.shape, y.shape)
        if x.ndim <= y.ndim and _broadcasts_to(x.shape[:-2], y.ids.shape):
            return _by_matrix(x, y)
    x, y = both(x, spread(y))
    _require_fit(x.shape, y.shape)
    if x.ndim > 1 and y.ndim > 1:
        return _contract(x, y)
    # a vector is a row on the left and a column on the right, as in numpy
    left, right = (-2,) * (x.ndim == 1), (-1,) * (y.ndim == 1)
    product = _contract(operations.expand_dims(x, left), operations.expand_dims(y, right))
    return operations.squeeze(product, (*left, *right))


def einsum(axes: str, x: Any, y: Any) -> SpecArray:
    """Return the product of two arrays by the letters of their axes, such as "bmd,bnd->bmn"."""
    inputs, arrow, out = axes.replace(" ", "").partition("->")
    left, _, right = inputs.partition(",")
    shared = [i for i in left if i in right]
    lead, over = [i for i in shared if i in out], [i for i in shared if i not in out]
    rows, columns = [i for i in left if i not in right], [i for i in right if i not in left]
    letters = [*lead, *rows, *columns]
    unique = all(len(set(part)) == len(part) for part in (left, right, out))
    x, y = both(spread(x), spread(y))
    fits_axes = (len(left), len(right)) == (x.ndim, y.ndim)
    if not (arrow and unique and fits_axes and sorted(out) == sorted(letters)):
        got = f"{axes!r} for arrays of {x.ndim} and {y.ndim} axes"
        raise ValueError(f'spec: got einsum {got}, expected two arrays such as "bmd,bnd->bmn"')
    sizes = {**dict(zip(right, y.shape, strict=True)), **dict(zip(left, x.shape, strict=True))}

    def arrange(z: SpecArray, own: str, *groups: list[str]) -> SpecArray:
        order = [own.index(i) for group in groups for i in group]
        sides = [sizes[i] for i in groups[0]]
        sides += [math.prod(sizes[i] for i in group) for group in groups[1:]]
        return operations.reshape(operations.transpose(z, order), tuple(sides))

    product = matmul(arrange(x, left, lead, rows, over), arrange(y, right, lead, over, columns))
    product = operations.reshape(product, tuple(sizes[i] for i in letters))
    return operations.transpose(product, [letters.index(i) for i in out])


def _require_fit(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    if not (x and y) or x[-1] != y[-2:][0] or not _agree(x[:-2], y[:-2]):
        raise ValueError(f"spec: got shapes {x} @ {y}, expected (..., M, K) @ (..., K, N)")


def _agree(x: tuple[int, ...], y: tuple[int, ...]) -> bool:
    return all(1 in (n, m) or n == m for n, m in zip(x[::-1], y[::-1], strict=False))


def _broadcasts_to(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return all(n in (1, m) for n, m in zip(shape[::-1], to[::-1], strict=False))


def _by_matrix(x: SpecArray, y: Gathered) -> SpecArray:
    (R, K), N = x.shape[-2:], y.shape[-1]
    x = operations.broadcast(x, (*y.ids.shape, R, K))
    parts, lines = [], []
    for i in np.unique(y.ids):
        here = np.nonzero(y.ids == i)
        count = len(here[0])
        rows = apply(x, lambda z, here=here, n=count: z[here].reshape(n * R, K))
        part = _contract(rows, apply(y.base, lambda z, i=i: z[i]))
        parts.append(operations.reshape(part, (count, R, N)))
        lines.append(np.ravel_multi_index(here, y.ids.shape))
    order = np.argsort(np.concatenate(lines))
    shape = (*y.ids.shape, R, N)
    return apply(operations.concatenate(parts), lambda z: z[order].reshape(shape))


def _contract(x: SpecArray, y: SpecArray) -> SpecArray:
    """x @ y: e + g(n) (size + e), e the error of the operands and n the chain's of `_steps`.

    The size is that of all products of monomials: an operand that is a sum may be multiplied out,
    one of two. It counts subnormal operands of a fused unit by their encoding, 2**emin, by which
    products are aligned. If there are two ways, each product may go one of them, so all of this is
    the larger of both.
    """
    rules = x.rules
    if not (x.pure or y.pure):
        x, y = collapse(x), collapse(y)
    K = x.shape[-1]
    with np.errstate(invalid="ignore", over="ignore"):
        value = x.value @ y.value
    rows, columns = (
        z.low.min(axis, initial=NO_GRID, keepdims=True) for z, axis in ((x, -1), (y, -2))
    )
    low = np.minimum(rows + columns, NO_GRID)
    exact = np.asarray(x.exact.all(-1, keepdims=True) & y.exact.all(-2, keepdims=True))
    if x.whole and y.whole:
        size = x.size @ y.size
        exact = keep_exact(exact, size, low, INT32)
        # each slice of 32 k, the least depth of a tl.dot of bytes, may be a separate sum
        count = np.full(value.shape, max(0.0, -(-K // 32) - 1))
        error = np.where(exact, 0.0, np.inf)
        return SpecArray(rules, value, error, size, count, low, exact, None, True)
    x, y = to_float(x), to_float(y)
    ways = _list_ways(x, y, rules)
    with np.errstate(over="ignore", invalid="ignore"):
        size_x, size_y = (reduce(np.maximum, z) for z in zip(*(w.sizes for w in ways), strict=True))
        size = size_x @ size_y
        error = U64 * K * size
        error = error + _product(x.error, size_y) + _product(size_x + x.error, y.error)
        n = _products(x, y)
        chains, later, floors = zip(*(_steps(n, K, way, rules) for way in ways), strict=True)
        n_chain, n_later, tiny = reduce(np.maximum, chains), reduce(np.maximum, later), sum(floors)
        truncation, least = _bound_truncation(x, y, ways[0].model, size)
        error = error + growth(n_chain, rules) * (size + error) + tiny + truncation
    count = x.count.max(-1, initial=0.0, keepdims=True) + y.count.max(
        -2, initial=0.0, keepdims=True
    )
    count = np.broadcast_to(count + n_later, value.shape)
    registers = (FORMATS[rules.accumulator], *(_register(way.model) for way in ways))
    exact = keep_exact(exact & (np.asarray(truncation) == 0), size, low, *registers)
    top = min(fmt.max for fmt in registers)
    error = np.where(size + error <= top, error, np.inf)
    if (was := ways[-1].was) is not None:
        within = was.most <= min(top, rules.fmt.max)
        exact = exact & within & fits_unscaled(was, registers, rules.fmt)
        error = np.where(within, error, np.inf)
    held = tuple(dict.fromkeys((*held_by(x, y), *(f.name for f in registers))))
    product = SpecArray(rules, value, error, size, count, low, exact, None, held=held)
    if np.isfinite(value).all():
        return product
    # a sum that may overflow, to either sign, before Inf is added to it
    safe = size + error <= top
    known = known_contraction(x, y, least)
    if was is not None:
        known = known & ~np.isinf(was.most)
    return settle(product, lambda: known & (np.isnan(value) | safe))


@dataclass(frozen=True, slots=True)
class _Way:
    """A unit, and the operand sizes by which it aligns them; `was`: operands before scales."""

    model: DotModel
    sizes: tuple[Array, Array]
    was: Unscaled | None = None


def _list_ways(x: SpecArray, y: SpecArray, rules: Rules) -> list[_Way]:
    """List the units that may sum the products: of the operands, and of their fp8 originals."""
    model = choose_model(x, y, rules)
    ways = [_Way(model, _align(x, y, model))]
    if (was := unscale(x, y)) is not None:
        model = choose_model(*was.stored, rules)
        size_x, size_y = _align(*was.stored, model)
        factor_x, factor_y = map(np.abs, was.factors)
        ways.append(_Way(model, (size_x * factor_x, size_y * factor_y), was))
    return ways


def _product(a: Array, b: Array) -> Array | float:
    """Return a @ b of errors, which are mostly 0; unknown ones stay unknown times 0."""
    if not (a.any() and b.any()):
        return 0.0
    product: Array = a @ b
    return product


def _products(x: SpecArray, y: SpecArray) -> Array | float:
    """Count the products that are not exactly 0: adding a zero rounds nothing."""
    some = [(z.size + z.error > 0) | ~np.isfinite(z.value) for z in (x, y)]
    if all(s.all() for s in some):
        return float(x.shape[-1])
    return np.asarray(some[0].astype(np.float32) @ some[1].astype(np.float32), np.float64)


def _steps(
    n: Array | float, K: int, way: _Way, rules: Rules
) -> tuple[Array | float, Array | float, Array | float]:
    """Return, for n products: the chain's roundings in units of u, those that later addends may go
    through, and the underflow of the products.

    IEEE, each product and each sum rounded, in any tree: n u of the accumulator. Fused, in any
    order of k and in slices of at least L k: a product is cut below 2**(e_max - F), the largest
    addend is not, so all of n and a start are off by (n + 1) 2**-F. Each step cuts or rounds the
    sum by r = 2**-fraction; slices are at most J = ceil(K / L), so they have at most 2 J steps
    (each has one incomplete step at most, and complete ones) and J additions. Steps without
    products round nothing. Both are admitted: a kernel may do without the tensor cores, in the
    intermediate format.

    Narrow fp8 units under a wider accumulator: the chain is of at most `promotion` k, relative to
    its own share of the size, and later addends are not in their registers. If products are scaled
    afterwards, it is also of products with the same scales, and begins with one of them, which is
    not cut and rounds nothing.
    """
    u, acc, unit = rules.fmt.u, FORMATS[rules.accumulator], way.model.unit
    register, many = _register(way.model), n if way.was is None else way.was.most
    ieee = n * (acc.u / u if unit.kind != "fused" or acc.p < register.p else 1.0)
    if unit.kind != "fused":
        return ieee, ieee, many * acc.eta
    r, promoted = 2.0**-unit.fraction, register.p < acc.p
    within: Any = min(K, rules.promotion) if promoted else K
    if promoted and way.was is not None:
        within = np.minimum(within, way.was.alike)
    J, part = np.minimum(n, -(-K // unit.L)), np.minimum(n, within)
    cuts, steps = (part + 1, part) if way.was is None else (part - 1, part - 1)
    cut = (cuts * 2.0**-unit.F + 2 * np.minimum(steps, -(-within // unit.L)) * r) / u
    fused = np.where(np.asarray(n) > 0, cut + J * acc.u / u, 0.0)
    floor = max(acc.eta, 2.0 ** (register.emin - min(unit.F, unit.fraction)))
    if promoted:
        return np.maximum(ieee, fused + ieee), ieee, many * floor
    most = np.maximum(ieee, fused)
    return most, most, many * floor


def _register(model: DotModel) -> Format:
    """Return the format whose bits the unit's sums keep."""
    acc = FORMATS[model.acc_format]
    kept = min(model.unit.F, model.unit.fraction) + 1
    if model.unit.kind != "fused" or kept >= acc.p:
        return acc
    return next(f for f in FORMATS.values() if f.accumulator and (f.p, f.emin) == (kept, acc.emin))


def _formats(model: DotModel) -> tuple[Format, Format]:
    names = (model.as_format or name for name in (model.a_format, model.b_format))
    a, b = (FORMATS[name] for name in names)
    return a, b


def _align(x: SpecArray, y: SpecArray, model: DotModel) -> tuple[Array, Array]:
    """Return sizes, no smaller than the power of two that the unit aligns each operand by."""
    if model.unit.kind != "fused":
        return x.size, y.size
    least = [2.0**fmt.emin for fmt in _formats(model)]
    size_x, size_y = (
        np.where(z.size > 0, np.maximum(z.size, tiny), 0.0)
        for z, tiny in zip((x, y), least, strict=True)
    )
    return size_x, size_y


def _bound_truncation(
    x: SpecArray, y: SpecArray, model: DotModel, size: Array
) -> tuple[Array | float, float]:
    """Bound the bits of operands that a tf32 unit drops; and return the size that it reads as 0."""
    if "tf32" not in (model.a_format, model.b_format):
        return 0.0, 0.0
    tiny = 2.0 ** FORMATS["tf32"].emin
    if x.fmt is None or y.fmt is None:
        return 2.0**-9 * size, tiny  # each operand loses less than 2**-10 of itself
    wide = [round_to(np.where(np.isfinite(z.value), z.value, 0.0), "fp32") for z in (x, y)]
    return np.asarray(bound_unread(wide[0], wide[1], model)), tiny


def choose_model(x: SpecArray, y: SpecArray, rules: Rules) -> DotModel:
    """Return the target's dot for these operands; IEEE multiply-adds if it has no such unit.

    An operand in no format (an intermediate value) may have been stored in its partner's, or in
    fp16 if that has 8 bits; with no partner's it is in the intermediate format. Of two formats the
    wider is used if it holds the other's values, as kernels convert int8 and fp8 to the 16 bits of
    a partner. A tensor core without fp8 gets fp16 (Triton converts, exactly).
    """
    a, b = (z.fmt.name if z.fmt is not None and z.fmt.name in FORMATS else "" for z in (x, y))
    a, b = _stored(a, b, rules), _stored(b, a, rules)
    if a != b and not (a in FP8 and b in FP8):
        a = b = next((to for to, of in ((a, b), (b, a)) if _holds(to, of)), rules.between)
    formats = a, b
    narrow = FORMATS[rules.accumulator].emin == FORMATS["fp32"].emin
    acc = "fp32" if narrow else rules.accumulator  # registers with fp32's exponents
    for a, b in (formats, tuple("fp16" if name in FP8 else name for name in formats)):
        try:
            return dot_model(rules.target, (a, b), acc)
        except ValueError:  # no such unit
            continue
    return dot_model(None, rules.between if not FORMATS[formats[0]].sums else formats[0])


def _stored(name: str, partner: str, rules: Rules) -> str:
    if name or not partner:
        return name or rules.between
    return partner if FORMATS[partner].itemsize > 1 else "fp16"


def _holds(to: str, of: str) -> bool:
    """Return whether a dot reads operands of both formats as `to`; tf32 reads fp32's."""
    wide, narrow = FORMATS[to], FORMATS[of]
    least = wide.emin - wide.p <= narrow.emin - narrow.p
    return (to, of) == ("tf32", "fp32") or (
        wide.kind == "float" and wide.p >= narrow.p and wide.emax >= narrow.emax and least
    )
