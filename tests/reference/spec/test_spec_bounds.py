"""A million outputs of adversarial evaluations: none beyond its bound, and some come near it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gemmproof.reference.arithmetic.conversions import round_to, widen
from gemmproof.reference.dot import dot_model
from gemmproof.reference.spec import Rules, evaluate, sigmoid

F = np.float32
M, N, K = 24, 20, 48
ROUNDS = 320  # of M N outputs for each formula and unit


def draw(rng, kind, *shape):
    """fp16 data: full mantissas of one sign, sums that cancel, or exponents far apart."""
    x = 1 + rng.random(shape)
    if kind == "cancelling":
        x = x * rng.choice([-1, 1], shape)
    if kind == "wide":
        x = np.ldexp(x, rng.integers(-6, 5, shape)) * rng.choice([-1, 1], shape)
    return round_to(x, "fp16")


def add_up(rng, terms):
    """fp32 addends (n, ...) summed in a random tree; neighbours, sorted or shuffled."""
    terms = list(terms[rng.permutation(len(terms))])
    while len(terms) > 1:
        i = int(rng.integers(len(terms) - 1))
        terms[i : i + 2] = [terms[i] + terms[i + 1]]
    return terms[0]


def products(a, b):
    return (a.T[:, :, None].astype(F)) * b[:, None, :].astype(F)


def dot(rng, a, b, start=None):
    terms = products(a, b)
    if start is not None:
        terms = np.concatenate([terms, np.broadcast_to(start, terms.shape[1:])[None]])
    return add_up(rng, terms)


# formula -> the spec, and ways to compute it in fp32 that a kernel may choose
def scaled(a, b, s, t, bias):
    return (a @ b) * s[:, None] * t[None, :] + bias


def scaled_after(rng, a, b, s, t, bias):
    return dot(rng, a, b) * (s[:, None] * t) + bias


def scaled_inside(rng, a, b, s, t, bias):
    blocks = [slice(k, k + 16) for k in range(0, K, 16)]
    parts = [dot(rng, a[:, ks], b[ks]) * s[:, None] * t for ks in blocks]
    return add_up(rng, np.stack([*parts, np.broadcast_to(bias, parts[0].shape)]))


def scaled_first(rng, a, b, s, t, bias):
    terms = (s[:, None] * a.astype(F)).T[:, :, None] * (b.astype(F) * t)[:, None, :]
    return add_up(rng, np.concatenate([terms, np.broadcast_to(bias, (1, M, N))]))


def gemm(a, b, c, alpha, beta):
    return alpha * (a @ b) + beta * c


def gemm_after(rng, a, b, c, alpha, beta):
    return F(alpha) * dot(rng, a, b) + F(beta) * c


def gemm_before(rng, a, b, c, alpha, beta):
    return F(alpha) * dot(rng, a, b, F(beta / alpha) * c)


def silu(a, b, s, t, bias):
    return (x := (a @ b) * s[:, None] + bias) * sigmoid(x)


def silu_off(rng, a, b, s, t, bias):
    x = dot(rng, a, b) * s[:, None] + bias
    e = np.exp(-x)
    # an exponential off by as much as the manual allows
    ulps = (2 + np.floor(F(1.173) * np.abs(x))) * rng.choice(F([-1, 1]), x.shape)
    off = np.where(np.isinf(e), 0, ulps * np.spacing(np.minimum(e, F(3e38))))
    return x / (1 + (e + off).astype(F))


def gelu(a, b, s, t, bias):
    x = (a @ b) * s[:, None] + bias
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def gelu_by_exp(rng, a, b, s, t, bias):
    x = dot(rng, a, b) * s[:, None] + bias
    z = F(0.7978845608028654) * x * (1 + F(0.044715) * x * x)
    return F(0.5) * x * (1 + (2 / (1 + np.exp(-2 * z)) - 1))


def relu(a, b, s, t, bias):
    return np.maximum((a @ b) * t + bias, 0)


def relu_where(rng, a, b, s, t, bias):
    x = dot(rng, a, b) * t + bias
    return np.where(x > 0, x, F(0))


WAYS = {
    scaled: (scaled_after, scaled_inside, scaled_first),
    gemm: (gemm_after, gemm_before),
    silu: (silu_off,),
    gelu: (gelu_by_exp,),
    relu: (relu_where,),
}


def operands(rng, spec, kind):
    a, b = draw(rng, kind, M, K), draw(rng, kind, K, N)
    if spec is gemm:
        c = rng.standard_normal((M, N)).astype(F)
        return {"a": a, "b": b, "c": c, "alpha": 0.7, "beta": -1.3}
    s, t = (np.exp2(rng.uniform(-6, 1, n)).astype(F) for n in (M, N))
    return {"a": a, "b": b, "s": s, "t": t, "bias": rng.standard_normal(N).astype(F) * F(8)}


def stated(given):
    names = {np.dtype(np.float16): "fp16", np.dtype(F): "fp32"}
    return {n: (x, names[x.dtype]) if isinstance(x, np.ndarray) else x for n, x in given.items()}


def ratio_of(got, c, tops):
    bound = c.bound
    assert np.isfinite(bound).all()
    over = np.abs(widen(got) - c.value) / np.where(bound == 0, 1, bound)
    assert (np.abs(widen(got) - c.value) <= bound).all(), over.max()
    tops.append(float(over.max()))


@pytest.mark.parametrize("spec", WAYS)
def test_no_evaluation_in_any_order_exceeds_the_bound(spec):
    rng, tops = np.random.default_rng(1), []
    with np.errstate(over="ignore"):
        for i in range(ROUNDS):
            given = operands(rng, spec, ("positive", "cancelling", "wide")[i % 3])
            (c,) = evaluate(spec, stated(given), Rules())
            way = WAYS[spec][i % len(WAYS[spec])]
            ratio_of(way(rng, **given), c, tops)
    assert max(tops) > 0.02  # a bound that nothing approaches would say nothing


@pytest.mark.parametrize("target", ["sm_70", "sm_80", "sm_90", "sm_100"])
def test_no_tensor_core_exceeds_the_bound_with_a_bias_before_or_after(target):
    rng, tops, model = np.random.default_rng(2), [], dot_model(target, "fp16")
    for i in range(ROUNDS):
        given = operands(rng, scaled, ("positive", "cancelling", "wide")[i % 3])
        given["s"][:], given["t"][:] = 1, F(2.0) ** rng.integers(-9, 9)
        (c,) = evaluate(scaled, stated(given), Rules(target))
        t, bias = given["t"][0], given["bias"]
        start = np.ascontiguousarray(np.broadcast_to(bias / t, (M, N)))
        got = model.dot(given["a"], given["b"], start) * t if i % 2 else None
        if got is None:
            got = model.dot(given["a"], given["b"]) * t + bias
        ratio_of(got, c, tops)
    assert max(tops) > 0.02


def rationals(x):
    return np.vectorize(lambda v: Fraction(float(v)), otypes=[object])(x)


def test_the_value_is_as_near_to_the_exact_one():
    rng = np.random.default_rng(3)
    for kind in ("positive", "cancelling", "wide"):
        given = operands(rng, scaled, kind)
        (c,) = evaluate(scaled, stated(given), Rules())
        exact = {name: rationals(x) for name, x in given.items()}
        true = (exact["a"] @ exact["b"]) * exact["s"][:, None] * exact["t"] + exact["bias"]
        off = np.abs(rationals(c.value) - true)
        # float64's share of the bound, whose own is for 24 bits
        assert (off <= rationals(c.bound * 2.0**-28)).all()


@pytest.mark.parametrize("spec", [scaled, relu])
def test_what_is_called_exact_has_one_value_in_any_order(spec):
    rng = np.random.default_rng(4)
    for i in range(30):
        a, b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((M, K), (K, N)))
        s, t = (F(2.0) ** rng.integers(-3, 4, n).astype(F) for n in (M, N))
        bias = rng.integers(-(2 ** (i % 24)), 2 ** (i % 24) + 1, N).astype(F) / F(64)
        given = {"a": a, "b": b, "s": s, "t": t, "bias": bias}
        (c,) = evaluate(spec, stated(given), Rules())
        assert i > 12 or c.exact.all()
        for way in WAYS[spec]:
            got = way(rng, **given)
            assert np.array_equal(got[c.exact], c.value[c.exact].astype(F))
