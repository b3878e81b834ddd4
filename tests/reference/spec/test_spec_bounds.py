"""A million outputs, their data made worse step by step: none beyond its bound, some near it."""

from fractions import Fraction

import numpy as np
import pytest
from tests.support.lanes import first_of_each

from gemmproof.reference.arithmetic import bits, round_to, widen
from gemmproof.reference.dot import dot_model
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.spec import Rules, evaluate, sigmoid

F = np.float32
P, K = 5000, 24  # outputs searched at once, each with separate data
FEW = 400


def draw(rng, fmt, n, k=K):
    """Operands (n, 1, k) and (n, k, 1): a fourth each swallowed, positive, cancelling and wide."""
    p = FORMATS[fmt].p
    a, b = 1 + rng.random((n, k)), 1 + rng.random((n, k))
    part = np.arange(n) % 4
    sign = np.where((part >= 2)[:, None], rng.choice([-1, 1], (n, k)), 1)
    wide = np.where((part == 3)[:, None], 2.0 ** rng.integers(-4, 4, (n, k)), 1.0)
    a, b = a * sign * wide, b * wide
    # addends of nearly half an ulp of the first, which is all that a sum keeps
    small = 2.0 ** -min(12, p + 4) * (1 - 2.0**-p * rng.integers(0, 2, (n, k)))
    a[part == 0], b[part == 0] = small[part == 0], 2.0**-12
    a[part == 0, 0], b[part == 0, 0] = 1, 1
    return round_to(a, fmt)[:, None, :], round_to(b, fmt)[:, :, None]


def worsen(rng, x, chosen):
    """x with one bit of the significand, or the sign, flipped in some elements of some outputs."""
    p = FORMATS[NAMES[x.dtype]].p
    top = x.dtype.itemsize * 8 - 1
    bit = rng.integers(0, p, x.shape)
    bit = np.where(bit == p - 1, top, bit)
    flip = (rng.random(x.shape) < 2 / x[0].size) & chosen.reshape(-1, *[1] * (x.ndim - 1))
    code = bits(x) ^ (np.left_shift(1, bit) * flip).astype(bits(x).dtype)
    return code.view(x.dtype)


NAMES = {FORMATS[n].storage: n for n in ("fp32", "fp16", "bf16", "fp8e4m3")}


def search(rng, spec, way, given, rounds, rules):
    """The largest |computed - value| / bound while every output's data follow its own climb."""
    best = np.full(len(given["a"]), -1.0)
    tried = dict(given)
    for _ in range(rounds):
        operands = {n: (x, NAMES[x.dtype]) for n, x in tried.items()}
        (c,) = evaluate(spec, operands, rules)
        with np.errstate(all="ignore"):
            got = widen(way(**tried)).reshape(c.shape)
        bound = c.bound
        off, known = np.abs(got - c.value), np.isfinite(bound)
        assert known.mean() > 0.9
        assert (off <= bound)[known].all()
        ratio = np.where(known, off / np.where(bound == 0, 1, bound), 0).reshape(len(best))
        better = ratio >= best
        best = np.where(better, ratio, best)
        for n, x in tried.items():
            keep = better.reshape(-1, *[1] * (x.ndim - 1))
            given[n] = np.where(keep, x, given[n])
        chosen = rng.random(len(best)) < 0.9
        tried = {n: worsen(rng, x, chosen) for n, x in given.items()}
    return best.max()


def column(x):
    return np.ascontiguousarray(x.reshape(len(x), -1).T.astype(F))


def addends(a, b, *more):
    return [*(column(a) * column(b)), *more]


def ascending(terms):
    acc = terms[0]
    for term in terms[1:]:
        acc = acc + term
    return acc


def descending(terms):
    return ascending(terms[::-1])


def in_pairs(terms):
    while len(terms) > 1:
        terms = [ascending(terms[i : i + 2]) for i in range(0, len(terms), 2)]
    return terms[0]


def in_slices(terms):
    return ascending([ascending(terms[i::3]) for i in range(3)])


def flat(*arrays):
    return [x.reshape(len(x)) for x in arrays]


def scaled(a, b, s, t, bias):
    return (a @ b) * s * t + bias


def scaled_after(order):
    def way(a, b, s, t, bias):
        s, t, bias = flat(s, t, bias)
        return order(addends(a, b)) * (s * t) + bias

    return way


def scaled_first(a, b, s, t, bias):
    return ascending([flat(bias)[0], *(column(a) * flat(s)[0] * (column(b) * flat(t)[0]))])


def biased_first(a, b, s, t, bias):
    s, t, bias = flat(s, t, bias)
    return ascending([bias / (s * t), *addends(a, b)]) * s * t


def gemm(a, b, s, t, bias):
    return s * (a @ b) + t * bias


def gemm_after(a, b, s, t, bias):
    s, t, bias = flat(s, t, bias)
    return s * in_slices(addends(a, b)) + t * bias


def gemm_before(a, b, s, t, bias):
    s, t, bias = flat(s, t, bias)
    return s * ascending([t / s * bias, *addends(a, b)])


def divided(a, b, s, t, bias):
    return (a @ b + bias) / (s * t)


def divided_twice(a, b, s, t, bias):
    s, t, bias = flat(s, t, bias)
    # a reciprocal off by 1 ulp, as rcp.approx may be
    return ascending(addends(a, b, bias)) * np.nextafter(1 / s, F(np.inf)) * (1 / t)


def blocks(a, b, s, t, bias):
    parts = [a[:, :, k : k + 8] @ b[:, k : k + 8] for k in range(0, K, 8)]
    return np.stack([part * s for part in parts]).sum(0) * t + bias


def blocks_as_one(a, b, s, t, bias):
    s, t, bias = flat(s, t, bias)
    return ascending([bias / t, *(column(a) * s * column(b))]) * t


def silu(a, b, s, t, bias):
    return (x := (a @ b) * s + bias) * sigmoid(x)


def silu_off(a, b, s, t, bias):
    s, _, bias = flat(s, t, bias)
    x = ascending(addends(a, b)) * s + bias
    e = np.exp(-x)
    e = e + (2 + np.floor(F(1.173) * np.abs(x))) * np.spacing(np.minimum(e, F(3e38)))
    return x / (1 + e)


def gelu(a, b, s, t, bias):
    x = (a @ b) * s + bias
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def gelu_by_exp(a, b, s, t, bias):
    s, _, bias = flat(s, t, bias)
    x = ascending(addends(a, b)) * s + bias
    z = F(0.7978845608028654) * x * (1 + F(0.044715) * x * x)
    half = F(0.5) * x
    return half + half * (2 / (1 + np.exp(-2 * z)) - 1)


def gated(a, b, s, t, bias):
    return np.maximum((a @ b) * t, 0) * (a @ b + bias)


def gated_where(a, b, s, t, bias):
    s, t, bias = flat(s, t, bias)
    x = in_pairs(addends(a, b)) * t
    return np.where(x > 0, x, F(0)) * descending(addends(a, b, bias))


# spec, way, and the least part of the bound that the search must come to
WAYS = [
    (scaled, scaled_after(ascending), 0.5), (scaled, scaled_after(descending), 0.2),
    (scaled, scaled_after(in_pairs), 0.05), (scaled, scaled_first, 0.5),
    (scaled, biased_first, 0.5), (gemm, gemm_after, 0.3), (gemm, gemm_before, 0.5),
    (divided, divided_twice, 0.4), (blocks, blocks_as_one, 0.4), (silu, silu_off, 0.2),
    (gelu, gelu_by_exp, 0.2), (gated, gated_where, 0.1),
]  # fmt: skip
ROUNDS = 17


@pytest.mark.parametrize(("spec", "way", "least"), first_of_each(WAYS, lambda row: row[0]))
def test_no_evaluation_in_any_order_exceeds_the_bound(spec, way, least):
    assert P * ROUNDS * len(WAYS) > 1_000_000
    rng = np.random.default_rng(1)
    a, b = draw(rng, "fp16", P)
    s, t = (np.exp2(rng.uniform(-3, 3, (P, 1, 1))).astype(F) for _ in "st")
    bias = (rng.standard_normal((P, 1, 1)) * rng.choice([0, 1e-6, 1, 30], (P, 1, 1))).astype(F)
    given = {"a": a, "b": b, "s": s, "t": t, "bias": bias}
    top = search(rng, spec, way, given, ROUNDS, Rules())
    assert least < top <= 1


def formats_of(target):
    for fmt in ("fp16", "bf16", "fp8e4m3"):
        try:
            yield fmt, dot_model(target, fmt)
        except ValueError:
            continue


@pytest.mark.parametrize("target", TARGETS)
def test_no_tensor_core_exceeds_the_bound(target):
    rng = np.random.default_rng(2)
    for fmt, model in formats_of(target):
        narrow = model.unit.fraction < 23
        accumulator = "e8m13" if narrow else "fp32"

        def plus(a, b, c):
            return a @ b + c

        def chain(a, b, c, model=model):
            return model.dot(a, b, c)

        def slices(a, b, c, model=model):
            ks = [slice(0, K, 2), slice(1, K, 2)]
            return sum((model.dot(a[..., k], b[:, k]) for k in ks), c)

        for way in (chain, slices):
            a, b = draw(rng, fmt, FEW)
            c = (
                rng.standard_normal((FEW, 1, 1)) * 2.0 ** rng.integers(-30, 3, (FEW, 1, 1))
            ).astype(F)
            top = search(rng, plus, way, {"a": a, "b": b, "c": c}, 12, Rules(target, accumulator))
            assert 0.1 < top <= 1, (fmt, way)


@pytest.mark.parametrize("target", [None, *TARGETS])
def test_an_accumulator_of_fp16_stays_within_its_bound(target):
    rng, model = np.random.default_rng(3), dot_model(target, "fp16", "fp16")
    a, b = draw(rng, "fp16", FEW)
    c = rng.standard_normal((FEW, 1, 1)).astype(np.float16)

    def chain(a, b, c):
        return model.dot(a, b, c)

    given = {"a": a, "b": b, "c": c}
    assert (
        0.05 < search(rng, lambda a, b, c: a @ b + c, chain, given, 12, Rules(target, "fp16")) <= 1
    )


def rationals(x):
    return np.vectorize(lambda v: Fraction(float(v)), otypes=[object])(x)


def test_the_value_is_as_near_to_the_exact_one():
    rng = np.random.default_rng(3)
    a, b = draw(rng, "fp16", 200)
    s, t, bias = (rng.standard_normal((200, 1, 1)).astype(F) for _ in "stb")
    given = {"a": a, "b": b, "s": s, "t": t, "bias": bias}
    (c,) = evaluate(scaled, {n: (x, NAMES[x.dtype]) for n, x in given.items()}, Rules())
    exact = {name: rationals(x) for name, x in given.items()}
    true = (exact["a"] @ exact["b"]) * exact["s"] * exact["t"] + exact["bias"]
    # float64's share of the bound, whose own is for 24 bits
    assert (np.abs(rationals(c.value) - true) <= rationals(c.bound * 2.0**-28)).all()


@pytest.mark.parametrize(
    ("spec", "way"), [w[:2] for w in WAYS if w[0] in (scaled, gemm, blocks, gated)]
)
def test_what_is_called_exact_has_one_value_in_any_order(spec, way):
    rng, n = np.random.default_rng(4), 200
    for i in range(24):
        a, b = (rng.integers(-8, 9, (n, K)).astype(np.float16) for _ in "ab")
        s, t = (F(2.0) ** rng.integers(-3, 4, (n, 1, 1)).astype(F) for _ in "st")
        bias = rng.integers(-(2**i), 2**i + 1, (n, 1, 1)).astype(F) / F(64)
        given = {"a": a[:, None], "b": b[:, :, None], "s": s, "t": t, "bias": bias}
        (c,) = evaluate(spec, {n: (x, NAMES[x.dtype]) for n, x in given.items()}, Rules())
        assert i > 11 or c.exact.mean() > 0.5
        got = way(**given).reshape(c.shape)
        assert np.array_equal(got[c.exact], c.value[c.exact].astype(F))
