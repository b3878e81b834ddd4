"""The exact product of two operands, and bounds of the error of computed ones."""

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.arithmetic import (
    Array,
    format_of,
    truncate_tf32,
    two_product,
    two_sum,
    widen,
)
from gemmproof.reference.dot import SPLITS, DotModel, order_k, pieces, slices
from gemmproof.reference.dot.tensor_core import Unit
from gemmproof.reference.formats import FORMATS, Format, format_named

# -- exact product -------------------------------------------------------------------------------
# A relative guard for the few roundings made while a bound itself is computed in float64.
_OUTWARD = 1.0 + 2.0**-40


def exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return c ~ a @ b and e, |c - a @ b| <= e elementwise; a (..., M, K), b (..., K, N).

    Integers: c is exact (int64, or object when int64 could overflow), e = 0. Floats of at most
    24 bits: every product is exact in float64, so summed in any order
    e = K 2**-53 |a||b| (Jeannerod and Rump, SIMAX 34, 2013), or 0 where the data fit one window
    of 53 bits in fixed point. float64 operands: compensated (Ogita, Rump and Oishi, SISC 26, 2005,
    Dot2), e = 2**-53 |c| + gamma_K(2**-53)**2 |a||b|, valid while nothing over- or underflows.
    Inf and NaN spread as in IEEE, and e is then 0.
    """
    if format_of(a.dtype).kind == "int" and format_of(b.dtype).kind == "int":
        return _exact_integers(a, b)
    K = a.shape[-1]
    wide_a, wide_b = widen(a), widen(b)
    with np.errstate(all="ignore"):
        if max(format_of(a.dtype).p, format_of(b.dtype).p) > 24:
            c, e = _multiply_compensated(wide_a, wide_b)
        else:
            c = wide_a @ wide_b
            e = K * 2.0**-53 * _OUTWARD * (np.abs(wide_a) @ np.abs(wide_b))
            if _fits_window(wide_a, wide_b):
                e = np.zeros_like(c)
        special = special_values(wide_a, wide_b)
        if special is not None:
            c = np.where(np.isnan(special) | np.isinf(special), special, c)
        e = np.where(np.isfinite(c), e, 0.0)
    return c, e


def special_values(a: Array, b: Array) -> Array | None:
    """Return a @ b where Inf and NaN among float64 operands decide it, in any order of the sum.

    None when all are finite. Else NaN, +Inf or -Inf where that is the result, 0 elsewhere: NaN for
    any NaN, Inf * 0, or infinities of both signs; the overflow of a finite sum is not detected.
    """
    if np.isfinite(a).all() and np.isfinite(b).all():
        return None
    finite_a, finite_b = np.isfinite(a), np.isfinite(b)
    nan = _some(np.isnan(a), np.ones_like(finite_b)) | _some(np.ones_like(finite_a), np.isnan(b))
    nan |= _some(np.isinf(a), b == 0) | _some(a == 0, np.isinf(b))
    plus, minus = np.zeros_like(nan), np.zeros_like(nan)
    for x, y in ((np.isinf(a), np.ones_like(finite_b)), (np.ones_like(finite_a), np.isinf(b))):
        for sign_a, sign_b in ((a > 0, b > 0), (a < 0, b < 0)):
            plus |= _some(x & sign_a, y & sign_b)
        for sign_a, sign_b in ((a > 0, b < 0), (a < 0, b > 0)):
            minus |= _some(x & sign_a, y & sign_b)
    result = np.where(plus, np.inf, np.where(minus, -np.inf, 0.0))
    return np.where(nan | (plus & minus), np.nan, result)


def _some(a: Array, b: Array) -> Array:
    """Return whether any k has both a[m, k] and b[k, n]."""
    count: Array = a.astype(np.float32) @ b.astype(np.float32)
    return count > 0


def _fits_window(a: Array, b: Array) -> bool:
    """Return whether all products and partial sums are multiples of one unit below 2**53 of it."""
    grid = 0
    for x in (a, b):
        finite = np.abs(x[np.isfinite(x) & (x != 0)])
        if not finite.size:
            return True
        _, top = np.frexp(finite.max())
        # the lowest set bit of each value, from its 53-bit integer
        mantissa, e = np.frexp(finite)
        whole = (mantissa * 2.0**53).astype(np.int64)
        _, trailing = np.frexp((whole & -whole).astype(np.float64))
        grid += int(top) - int((e + trailing).min()) + 54
    return grid <= 53 and a.shape[-1] << grid <= 2**53


def _exact_integers(a: Array, b: Array) -> tuple[Array, Array]:
    K = a.shape[-1]
    size = [max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0 for x in (a, b)]
    largest = K * size[0] * size[1]
    c: Array
    if largest <= 2**53:
        c = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
    elif largest < 2**63:
        c = a.astype(np.int64) @ b.astype(np.int64)
    else:
        c = a.astype(object) @ b.astype(object)
    return c, np.zeros(c.shape)


def _multiply_compensated(a: Array, b: Array) -> tuple[Array, Array]:
    K = a.shape[-1]
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    c, low, size = (np.zeros(shape) for _ in range(3))
    for k in range(K):
        x, y = a[..., :, k, None], b[..., k, None, :]
        product, error = two_product(x, y)
        c, carry = two_sum(c, product)
        low += carry + error
        size += np.abs(product)
    gamma = K * 2.0**-53 / (1 - K * 2.0**-53)
    c = c + low
    return c, (2.0**-53 * np.abs(c) + gamma * gamma * size) * _OUTWARD


# -- trees of sums -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Addends:
    """The addends of a sum: |c|, the number of nonzero products, the sum of their magnitudes.

    `additions`: a tree with n + 1 addends that are not zero makes n of them, so that K = 1 makes
    none and an addend that meets only zeros is unchanged.
    """

    start: Array
    products: Array
    size: Array

    @staticmethod
    def of(a: Array, b: Array, start: Array) -> "Addends":
        """Return those of start + a b, for finite float64 a (..., M, K) and b (..., K, N)."""
        products = (a != 0).astype(np.float64) @ (b != 0).astype(np.float64)
        return Addends(np.abs(start), products, np.abs(a) @ np.abs(b))

    @property
    def additions(self) -> Array:
        return np.maximum(self.products + (self.start > 0) - 1, 0)

    @property
    def total(self) -> Array:
        return self.start + self.size


def sum_to_nearest(addends: Addends, formats: tuple[Format, Format, Format]) -> tuple[Array, Array]:
    """|sum| and |sum - exact| of IEEE arithmetic: n u S + m eta / 2, S = |c| + |a||b|, in any tree.

    formats: of a, b and the accumulator. n is the number of additions, plus one where products have
    more bits than the accumulator and are rounded themselves (Jeannerod and Rump, SIMAX 34, 2013),
    so split-K, blocked loops and atomics in the accumulator's format are admitted. A fused node
    RN(s + p), s a float with n roundings over S, keeps the claim for n + 1: its rounding is at most
    |p| (s is itself a float) and at most u |s + p|; if |p| <= u S the first gives n u S + u S, else
    the second gives n u S + u (S + n u S + |p|) < (n + 1) u (S + |p|).

    Below the normal range an addition is exact, and one of the m products or fused nodes is off by
    at most eta / 2, which later roundings may enlarge by n u; by nothing where every product is a
    multiple of eta.
    """
    a_fmt, b_fmt, acc = formats
    rounded = _bits(a_fmt) + _bits(b_fmt) > acc.p
    n = addends.additions + rounded * (addends.products > 0)
    lost = 0.0 if a_fmt.eta * b_fmt.eta >= acc.eta else addends.products * acc.eta / 2
    growth = n * acc.u
    underflow = lost * (1 + growth)
    return addends.total * (1 + growth) + underflow, addends.total * growth + underflow


def sum_by_unit(
    addends: Addends, unit: Unit, formats: tuple[Format, Format, Format], part: int = 0
) -> tuple[Array, Array]:
    """|sum| and |sum - exact| of fused steps and of additions to nearest, in any tree.

    A step that joins m + 1 addends cuts at most m of them, each by less than 2**-F of the sum of
    their magnitudes T: the largest is whole, because 2 (p - 1) <= F for products and p - 1 <= F for
    c (else c is cut once more where it enters; c from an addition to nearest has that addition to
    spare). The sum is rounded once, by at most r T, r = 2**-fraction when cut and half of that to
    nearest. So with addends known to (g_i - 1) S_i, the sum is known to (g - 1) sum S_i where
    g = (1 + m 2**-F) (1 + r) max g_i, and 1 + m 2**-F <= (1 + 2**-F)**m. An addition to nearest in
    the accumulator's format, u <= 2**-F + r, is within this too. In any tree of n additions then,
    steps that join two addends being the worst, |error| <= ((1 + 2**-F)**n (1 + r)**n - 1) S. Where
    a product has more bits than the sum keeps, its own rounding adds a factor 1 + r. T counts a
    subnormal operand as 2**emin, which is how the unit aligns it: `addends` are those of `aligned`.

    With `part`, sums start from zero at least every `part` k and are added to nearest. Such a sum
    has at most min(part, products) addends, and at most ceil(part / L) steps whatever the k hold;
    then it passes at most n additions to nearest.

    Below the normal range a step is off by 2**(emin - F) for each cut and 2**(emin - fraction) for
    its rounding, at most n + (number of products) times; by nothing where every addend is a
    multiple of the last bit.
    """
    a_fmt, b_fmt, acc = formats
    n, begun = addends.additions, addends.start > 0
    r = 2.0 ** -(unit.fraction + (unit.rounding == "rne"))
    lone = (_bits(a_fmt) + _bits(b_fmt) > unit.fraction + 1) * (addends.products > 0)
    if part:
        cuts = np.maximum(np.minimum(addends.products, part) - 1, 0)
        roundings, joins = np.minimum(cuts + lone, -(-part // unit.L)), n
    else:
        cuts, roundings, joins = n + begun * (acc.p - 1 > unit.F), n + lone, 0 * n
    growth = np.expm1(
        cuts * np.log1p(2.0**-unit.F) + roundings * np.log1p(r) + joins * np.log1p(acc.u)
    )
    last = 2.0 ** (acc.emin - unit.fraction)
    step = 2.0 ** (acc.emin - unit.F) + last
    lossless = a_fmt.eta * b_fmt.eta >= last and (acc.eta >= last or not begun.any())
    underflow = 0.0 if lossless else step * (n + addends.products) * (1 + growth)
    return addends.total * (1 + growth) + underflow, addends.total * growth + underflow


def aligned(x: Array, fmt: Format) -> Array:
    """|x|, 2**emin where that is subnormal, 0 for zeros: no less than 2**e of the encoding."""
    return np.where(x == 0, 0.0, np.maximum(np.abs(x), 2.0**fmt.emin))


def _bits(fmt: Format) -> int:
    # a unit that may ignore the low bits of fp32 operands may also use them
    return fmt.stored.p


# -- chains of dots ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Running:
    """Bounds (M, N) of an accumulator: its magnitude, and its distance from the exact sum."""

    size: Array
    error: Array


def start_at(c: Array) -> Running:
    """Return the bounds of an accumulator that holds c exactly."""
    return Running(np.abs(c), np.zeros(c.shape))


def chain_error(
    a: Array, b: Array, start: Running, unit: Unit, formats: tuple[Format, Format, Format]
) -> Running:
    """Return the bound after a chain over a (..., M, K) and b (..., K, N), finite float64 values.

    formats: of a, b and the accumulator.
    """
    if unit.kind == "integer":
        return Running(start.size + np.abs(a) @ np.abs(b), start.error)
    if unit.kind == "fma":
        size, error = sum_to_nearest(Addends.of(a, b, start.size), formats)
        return Running(size, start.error + error)
    return _fused(a, b, start, unit, formats)


def _fused(
    a: Array, b: Array, start: Running, unit: Unit, formats: tuple[Format, Format, Format]
) -> Running:
    """Per step: error += n 2**-F max(|c|, 2**e) + r (|c| + |a||b|) + underflow.

    e is the largest product exponent of the step, n = L the number of addends that can be cut: the
    largest is held exactly, because 2 (p - 1) <= F for the products, and p - 1 <= F for c, or else
    n = L + 1 while c may have more than F + 1 bits. A cut is below 2**(e_max - F) and never
    enlarges an addend, so |sum| <= |c| + |a||b| without growth. The sum is then cut
    (r = 2**-fraction) or rounded to nearest (r = 2**-(fraction + 1), and |acc| grows by 1 + r).
    Where a subnormal c or the floor holds e_max up, the cuts are below 2**(emin - F). 2**e comes
    from the encodings, as the smaller of max 2**e_a max 2**e_b and sum 2**(e_a + e_b).
    """
    a_fmt, b_fmt, acc = formats
    nearest = unit.rounding == "rne"
    r = 2.0 ** -(unit.fraction + nearest)
    underflow = (unit.L + 1) * 2.0 ** (acc.emin - unit.F) + 2.0 ** (acc.emin - unit.fraction)
    size, error = start.size, start.error
    power_a, power_b = power_of(a, a_fmt), power_of(b, b_fmt)
    a, b = np.abs(a), np.abs(b)
    held = acc.p - 1 <= unit.F or not start.size.any()
    for k in range(0, a.shape[-1], unit.L):
        ks = slice(k, k + unit.L)
        p, q = power_a[..., ks], power_b[..., ks, :]
        top = np.minimum(p.max(-1)[..., :, None] * q.max(-2)[..., None, :], p @ q)
        cut = unit.L + (not held)
        total = size + a[..., ks] @ b[..., ks, :]
        error = error + cut * 2.0**-unit.F * np.maximum(size, top) + r * total + underflow
        size = total * (1 + r) + underflow if nearest else total
        held = True
    return Running(size, error)


def power_of(x: Array, fmt: Format) -> Array:
    """2**e of finite float64 values by their encoding in fmt: e >= emin, 0 for zeros."""
    _, e = np.frexp(x)
    return np.where(x == 0, 0.0, np.ldexp(1.0, np.maximum(e - 1, fmt.emin)))


def add_rounded(x: Running, y: Running, acc: Format) -> Running:
    """RN(x + y): the errors add, and u (|x| + |y|) for the rounding, 0 if subnormal or x + 0."""
    size = x.size + y.size
    u = np.where((x.size > 0) & (y.size > 0), acc.u, 0.0)
    return Running(size * (1 + u), x.error + y.error + u * size)


# -- bounds of a product -------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Accumulated:
    """An accumulator before it is stored: the exact value, and a bound of |acc - exact|.

    Both float64 (..., M, N). The error is Inf where the accumulator may overflow. Where the exact
    value is Inf or NaN it is 0: specials are compared separately.
    """

    exact: Array
    error: Array


def gemm_bound(
    a: Array,
    b: Array,
    model: DotModel,
    out_format: Format | str,
    *,
    c: Array | None = None,
    split_k: int = 1,
    split_format: Format | str | None = None,
) -> Array:
    """Return the largest |out - (c + a @ b)| that `model` and one rounding to `out_format` allow.

    a (..., M, K), b (..., K, N), c (..., M, N) or None, in storage dtypes; the result is float64
    (..., M, N), Inf where the accumulator or the output may overflow. The exact product is
    `exact_product`'s, whose own error is part of the bound. Its two halves are `bound_accumulation`
    and `bound_rounding`.
    """
    acc = bound_accumulation(a, b, model, c=c, split_k=split_k, split_format=split_format)
    return bound_rounding(acc, out_format, FORMATS[model.acc_format]).error


def bound_accumulation(
    a: Array,
    b: Array,
    model: DotModel,
    *,
    c: Array | None = None,
    split_k: int = 1,
    split_format: Format | str | None = None,
    any_order: bool = False,
) -> Accumulated:
    """|acc - (c + a b)| <= E_in + E_acc + E_split + E_ref.

    E_in: the bits of fp32 operands that the unit does not read (tf32, and the pieces of a split).
    E_acc: the running bound of the chains, and of the additions around them.
    E_split: of split_k partial sums added in split_format (the accumulator's if None).
    E_ref: the error of the float64 reference. The bound of a tensor-core chain is for
    ascending k; an IEEE model's holds for every order.

    any_order: the model defines the bits kept of a sum, and not its order: its units' steps may
    hold any of the k, sums may be split, and every partial sum may be added to nearest.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        exact, error = exact_product(a, b)
        exact, error = exact.astype(np.float64), error.astype(np.float64)
        wide_c = np.zeros(exact.shape) if c is None else widen(c)
        if c is not None:
            exact = exact + wide_c
            error = error + 2.0**-53 * np.abs(exact)
        special = ~np.isfinite(exact)
        x, y = (np.where(np.isfinite(v), v, v.dtype.type(0)) for v in (_numbers(a), _numbers(b)))
        start = start_at(np.where(np.isfinite(wide_c), wide_c, 0.0))
        running = (_any_order if any_order else _dots)(x, y, start, model)
        total = error + bound_unread(x, y, model) + running.error
        size = running.size
        if split_k > 1:
            total = total + _split_error(size, split_k, split_format, model)
        acc_fmt = FORMATS[model.acc_format]
        # float64 sums of K terms of one sign, and a few roundings a step
        outward = 1.0 + (4 * a.shape[-1] + 64) * 2.0**-52
        total = np.where((size + total) * outward < acc_fmt.max, total * outward, np.inf)
        if model.unit.kind == "integer":
            total = np.where(size * outward < acc_fmt.max, 0.0, np.inf)
        return Accumulated(exact, np.where(special, 0.0, total))


def bound_rounding(acc: Accumulated, out_format: Format | str, held: Format | str) -> Accumulated:
    """One rounding to nearest from the format `held`: |RN(x) - x| <= u |x| + eta / 2.

    |x| <= |exact| + error; nothing is added when out_format holds every value of `held`. A float
    becomes an integer in any direction, as casts cut and quantisers round: by less than 1. Inf
    where the result may leave the range of out_format.
    """
    out, old = (format_named(f) if isinstance(f, str) else f for f in (out_format, held))
    magnitude, error = np.abs(acc.exact) + acc.error, acc.error
    if out.kind == "float" and (out.p < old.p or out.emin > old.emin):
        error = error + out.u * magnitude + out.eta / 2
    outward = 1.0 + 2.0**-48
    fits = magnitude * outward < out.max
    if out.kind == "int" and old.kind == "float":
        error = error + 1.0
    if out.name.startswith("u"):
        fits &= acc.exact >= acc.error * outward
    error = np.where(fits, error * outward, np.inf)
    return Accumulated(acc.exact, np.where(np.isfinite(acc.exact), error, 0.0))


def _numbers(x: Array) -> Array:
    return x if x.dtype == np.float32 else widen(x)


def _any_order(a: Array, b: Array, acc: Running, model: DotModel) -> Running:
    """Bound any tree of additions, by the bits that the unit keeps in each of them."""
    assert not model.split
    formats = _read_formats(model)
    a, b = _read_operand(a, model.a_format), _read_operand(b, model.b_format)
    if model.unit.kind == "integer":
        return chain_error(a, b, acc, model.unit, formats)
    if model.unit.kind == "fma":
        return Running(*sum_to_nearest(Addends.of(a, b, acc.size), formats))
    a, b = aligned(a, formats[0]), aligned(b, formats[1])
    return Running(*sum_by_unit(Addends.of(a, b, acc.size), model.unit, formats, model.part))


def _dots(a: Array, b: Array, acc: Running, model: DotModel) -> Running:
    """Bound every tl.dot of the K loop in turn, as `DotModel.dot` runs them."""
    acc_fmt = FORMATS[model.acc_format]
    zero = start_at(np.zeros_like(acc.size))
    for block in slices(a.shape[-1], model.BLOCK_K if model.from_zero or model.part else 0):
        x, y = a[..., block], b[..., block, :]
        if model.from_zero:
            acc = add_rounded(acc, _parts(x, y, zero, model), acc_fmt)
        else:
            acc = _parts(x, y, acc, model)
    return acc


def _read_formats(model: DotModel) -> tuple[Format, Format, Format]:
    a_format, b_format = (model.as_format or name for name in (model.a_format, model.b_format))
    return FORMATS[a_format], FORMATS[b_format], FORMATS[model.acc_format]


def _parts(a: Array, b: Array, acc: Running, model: DotModel) -> Running:
    formats = _read_formats(model)
    if model.split:
        a_pieces, b_pieces = _finite_pieces(a, model), _finite_pieces(b, model)
        for i, j in SPLITS[model.split]:
            acc = chain_error(a_pieces[i], b_pieces[j], acc, model.unit, formats)
        return acc
    a, b = order_k(_read_operand(a, model.a_format), _read_operand(b, model.b_format), model.order)
    if not model.part:
        return chain_error(a, b, acc, model.unit, formats)
    zero = start_at(np.zeros_like(acc.size))
    for ks in slices(a.shape[-1], model.part):
        part = chain_error(a[..., ks], b[..., ks, :], zero, model.unit, formats)
        acc = add_rounded(acc, part, formats[2])
    return acc


def _read_operand(x: Array, format_name: str) -> Array:
    return widen(truncate_tf32(x) if format_name == "tf32" else x)


def _finite_pieces(x: Array, model: DotModel) -> list[Array]:
    return [np.where(np.isfinite(p), widen(p), 0.0) for p in pieces(x, model.split)]


def _overflows(x: Array, model: DotModel, axis: int) -> Array:
    """Return whether a row of a (axis -1) or column of b (axis -2) has a piece rounded to Inf."""
    infinite = [np.isinf(p) for p in pieces(x, model.split)]
    return np.logical_or.reduce(infinite).any(axis=axis, keepdims=True)


def bound_unread(a: Array, b: Array, model: DotModel) -> Array | float:
    """|a b - what is multiplied|, from the data: with a = sum a_i + r_a, and b alike,

    |a b - sum of a_i b_j| <= sum over missing (i, j) of |a_i||b_j| + |r_a||b| + |sum a_i||r_b|.
    For tf32 there is one piece, a cut to 11 bits. Inf where a piece overflows.
    """
    if model.split:
        a_pieces, b_pieces = _finite_pieces(a, model), _finite_pieces(b, model)
        terms = SPLITS[model.split]
    elif "tf32" in (model.a_format, model.b_format):
        a_pieces, b_pieces, terms = (
            [_read_operand(a, "tf32")],
            [_read_operand(b, "tf32")],
            ((0, 0),),
        )
    else:
        return 0.0
    wide_a, wide_b = widen(a), widen(b)
    rest_a, rest_b = (np.abs(w - sum(p)) for w, p in ((wide_a, a_pieces), (wide_b, b_pieces)))
    error: Array = rest_a @ np.abs(wide_b) + (np.abs(wide_a) + rest_a) @ rest_b
    if model.split:
        error = np.where(_overflows(a, model, -1) | _overflows(b, model, -2), np.inf, error)
    for i, p in enumerate(a_pieces):
        for j, q in enumerate(b_pieces):
            if (i, j) not in terms:
                error = error + np.abs(p) @ np.abs(q)
    return error


def _split_error(
    size: Array, split_k: int, split_format: Format | str | None, model: DotModel
) -> Array:
    """S partial sums of any share of the k: n roundings of u over all their magnitudes.

    The chains themselves: each is a part of the whole one, so its running bound is within the
    whole one's, but for one more incomplete step each. n = S - 1 additions, and also S stores
    when split_format is narrower than the accumulator; gamma_n = n u / (1 - n u).
    """
    fmt, acc_fmt = split_format or model.acc_format, FORMATS[model.acc_format]
    fmt = format_named(fmt) if isinstance(fmt, str) else fmt
    n = split_k - 1 if fmt.p >= acc_fmt.p else 2 * split_k
    gamma = n * fmt.u / (1 - n * fmt.u)
    unit = model.unit
    step = unit.L * 2.0**-unit.F + 2.0**-unit.fraction if unit.kind == "fused" else 0.0
    return (gamma + split_k * step) * size + n * fmt.eta / 2
