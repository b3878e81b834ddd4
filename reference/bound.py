"""Error bounds: how far an output may lie from the exact product, element by element.

No tolerance is chosen: each term is derived from the declared accumulator, and the docstrings give
the inequalities.
"""

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, truncate_tf32, widen
from gemmproof.reference.bound_chain import Running, add_rounded, chain_error, start_at
from gemmproof.reference.bound_tree import Addends, aligned, sum_by_unit, sum_to_nearest
from gemmproof.reference.dot.model import DotModel, order_k, slices
from gemmproof.reference.dot.split import SPLITS, pieces
from gemmproof.reference.exact import exact_product
from gemmproof.reference.formats import FORMATS, Format, format_named


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
    """The largest |out - (c + a @ b)| that `model` and one rounding to `out_format` allow.

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

    E_in: what the unit does not see of fp32 operands (tf32, and the pieces of a split).
    E_acc: the running bound of the chains, and of the additions around them.
    E_split: of split_k partial sums added in split_format (the accumulator's where None).
    E_ref: the error of the float64 reference. The bound of a tensor-core chain is for
    ascending k; an IEEE model's holds for every order.

    any_order: the model says what is kept of a sum, and nothing of its order: its units' steps may
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
    """What any tree of additions may give, by what the unit keeps in each of them."""
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
    """Every tl.dot of the K loop in turn, as `DotModel.dot` runs them."""
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
    """Whether a row of a (axis -1) or a column of b (axis -2) has a piece rounded up to Inf."""
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
    whole one's, but for one more incomplete step each. n = S - 1 additions, and S stores besides
    when split_format is narrower than the accumulator; gamma_n = n u / (1 - n u).
    """
    fmt, acc_fmt = split_format or model.acc_format, FORMATS[model.acc_format]
    fmt = format_named(fmt) if isinstance(fmt, str) else fmt
    n = split_k - 1 if fmt.p >= acc_fmt.p else 2 * split_k
    gamma = n * fmt.u / (1 - n * fmt.u)
    unit = model.unit
    step = unit.L * 2.0**-unit.F + 2.0**-unit.fraction if unit.kind == "fused" else 0.0
    return (gamma + split_k * step) * size + n * fmt.eta / 2
