"""The names of a formula: functions against exact values, masks, words, groups, roundings."""

import ast
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from tests.reference.spec.spec_ways import dot, floats, fp32, judge, run, scales

from gemmproof import KernelUnderTest, formulas
from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.provenance import Heartbeat
from gemmproof.reference.spec import NAMES, Rules, SpecError, operations
from gemmproof.reference.spec.array import ELEMENTS
from gemmproof.reference.spec.names import parse_formula
from gemmproof.target import Calling

F = np.float32
M, N, K = 9, 7, 64


def formula(text, *names):
    """The function that --spec makes of a text."""
    operands = tuple(f"{name}=fp32[M]" for name in names if name not in ("a", "b"))
    return Calling(operands=operands, spec=text).make_spec()


# -- functions -----------------------------------------------------------------------------------
def exactly(function, x):
    """The value of a function of a float, by 60 decimal digits."""
    with localcontext() as context:
        context.prec = 60
        return Fraction(function(Decimal(float(x))))


def erf(x):
    """The error function by its series, which every digit of 60 decimals holds for |x| < 6."""
    if abs(x) > 6:  # 1 - erf(6) is 2e-17
        return Decimal(1).copy_sign(x)
    term = total = x
    for n in range(1, 400):
        term = -term * x * x / n
        total += term / (2 * n + 1)
    return total * 2 / PI.sqrt()


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


def tanh(x):
    return 1 - 2 / ((2 * x).exp() + 1)


EXACT = {
    "gelu": lambda x: x / 2 * (1 + erf(x / Decimal(2).sqrt())),
    "gelu_tanh": lambda x: x / 2 * (1 + tanh((2 / PI).sqrt() * (x + Decimal("0.044715") * x**3))),
    "silu": lambda x: x / (1 + (-x).exp()),
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
    "relu": lambda x: max(x, Decimal(0)),
    "exp2": lambda x: (x * Decimal(2).ln()).exp(),
    "log": lambda x: abs(x).ln(),
    "log2": lambda x: abs(x).ln() / Decimal(2).ln(),
    "rsqrt": lambda x: 1 / abs(x).sqrt(),
}
# computations in fp32, as kernels make them; libraries round each function to a fraction of an ulp
WAYS = {
    "gelu": [lambda x: F(0.5) * x * (1 + f32(math.erf, x * F(math.sqrt(0.5)))),
             lambda x: F(0.5) * x + F(0.5) * x * f32(math.erf, x / F(math.sqrt(2)))],
    "gelu_tanh": [
        lambda x: F(0.5) * x * (1 + np.tanh(F(0.7978845608) * (x + F(0.044715) * x * x * x))),
        lambda x: x / (1 + np.exp(-F(2) * x * (F(0.7978845608) + F(0.0356774081) * (x * x)))),
    ],
    "silu": [lambda x: x / (1 + np.exp(-x)), lambda x: x * (1 / (1 + np.exp2(-x * F(1.442695))))],
    "sigmoid": [lambda x: 1 / (1 + np.exp(-x))],
    "relu": [lambda x: np.maximum(x, 0)],
    "exp2": [np.exp2, lambda x: np.exp2(np.floor(x)) * np.exp2(x - np.floor(x))],
    "log": [np.log, lambda x: np.log2(x) * F(math.log(2))],
    "log2": [np.log2],
    "rsqrt": [lambda x: 1 / np.sqrt(x), lambda x: 1 / np.sqrt(x.astype(float))],
}  # fmt: skip
POSITIVE = ("log", "log2", "rsqrt")


def f32(function, x):
    return np.array([function(v) for v in x.tolist()]).astype(F)


@pytest.mark.parametrize("name", EXACT)
def test_a_function_has_its_exact_value_and_admits_every_way_to_compute_it(name):
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-6, 6, 300), rng.uniform(-1e-3, 1e-3, 50)]).astype(F)
    x = np.abs(x) if name in POSITIVE else x
    c = run(lambda x: NAMES[name](x), x=fp32(*x))
    assert c.known.all()
    true = [exactly(EXACT[name], v) for v in x]
    for way in WAYS[name]:
        got = np.asarray(way(x), F)
        off = [abs(Fraction(float(g)) - t) for g, t in zip(got, true, strict=True)]
        bound = [Fraction(float(b)) for b in c.bound]
        assert all(o <= b for o, b in zip(off, bound, strict=True))
    # float64 has it to 2**-50 of the largest term, far within the bound
    near = [abs(Fraction(float(v)) - t) / max(1, t) for v, t in zip(c.value, true, strict=True)]
    assert max(near) < 2**-47
    # and the bound is some ulp of the terms that cancel
    assert (c.bound <= 2.0**-19 * np.maximum(np.abs(c.value), np.maximum(1, np.abs(x)))).all()


@pytest.mark.parametrize("name", [n for n in EXACT if n != "relu"])
def test_a_wrong_function_is_beyond_the_bound(name):
    x = np.linspace(0.5, 3, 40).astype(F)
    c = run(lambda x: NAMES[name](x), x=fp32(*x))
    other = {"gelu": "gelu_tanh", "gelu_tanh": "gelu"}.get(name)
    wrong = run(lambda x: NAMES[other](x), x=fp32(*x)).value if other else c.value * (1 + 2.0**-15)
    assert (np.abs(wrong - c.value) > c.bound).any()


@pytest.mark.parametrize("shift", [0, 300])  # the larger, the more the arguments are rounded
def test_softmax_admits_one_pass_in_slices_and_no_other_weights(shift):
    rng, n = np.random.default_rng(4), 70
    x = (rng.standard_normal((M, n)) * 4 + shift).astype(F)

    def online(x, width):
        log2e = F(1.44269504)
        top, total, parts = np.full((M, 1), -np.inf, F), np.zeros((M, 1), F), []
        for i in range(0, n, width):
            part = x[:, i : i + width]
            new = np.maximum(top, part.max(1, keepdims=True))
            share = np.exp2((top - new) * log2e)
            weight = np.exp2(part * log2e - new * log2e)
            parts = [p * share for p in parts] + [weight]
            total, top = total * share + weight.sum(1, keepdims=True, dtype=F), new
        return np.concatenate(parts, 1) / total

    def whole(x):
        weight = np.exp(x - x.max(1, keepdims=True))
        return weight * (1 / weight.sum(1, keepdims=True, dtype=F))

    right = [whole, lambda x: online(x, 16), lambda x: online(x, 32)]
    wrong = [lambda x: whole(x) * F(1 + 2.0**-10), lambda x: np.exp(x - 300)]
    judge(lambda x: NAMES["softmax"](x), {"x": x}, right, wrong)
    c = run(NAMES["softmax"], x=(x, "fp32"))
    with localcontext() as context:
        context.prec = 50
        weights = [Decimal(float(v)).exp() for v in x[0]]
        true = [w / sum(weights) for w in weights]
    assert max(abs(Decimal(float(v)) - t) for v, t in zip(c.value[0], true, strict=True)) < 2**-50


def test_softmax_of_masked_scores_is_0_there():
    x = np.arange(12, dtype=F).reshape(3, 4)
    spec = formula("softmax(where(arange(3)[:, None] >= arange(4), x, -inf))", "x")
    c = run(spec, a=fp32(0), b=fp32(0), x=(x, "fp32"))
    assert c.value[0].tolist() == [1, 0, 0, 0]
    assert c.known.all()
    assert (c.bound < 2.0**-18).all()


def test_the_largest_element_is_off_by_what_may_be_chosen():
    third = float(F(1 / 3))
    x, y = fp32(third, 2, 1), fp32(3, 0.5, 1e-9)
    c = run(lambda x, y: NAMES["max"](x * y), x=x, y=y)
    assert c.value == third * 3
    assert 2.0**-25 < c.bound < 2.0**-23
    assert run(lambda x: x.min(), x=x).bound == 0
    odd = run(lambda x: x.max(), x=fp32(1, np.nan))
    assert not odd.known  # tl.max drops it


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x**2", 9), ("x**3", 27), ("x**0", 1), ("2.0 ** n", 8), ("2 ** (n - 5)", 0.25),
        ("ceil(x / 2)", 2), ("trunc(-x / 2)", -1), ("mean(stack([x, x]), axis=0)", 3),
        ("acc = x * 2; acc + acc", 12), ("p, q = split(stack([x, n * 1.0]), 2); p * q", [[9]]),
        ("max(x, 5.0)", 5), ("sum(x * i for i in range(3))", 9), ("sum(stack([x, x]), axis=0)", 6),
        ("tile(x, 2)", [3, 3]), ("take(x, n - 3)", 3), ("(x > 2) + (x > 5)", 1), ("bf16(x)", 3),
        ("where((x > 2) & (n > 2) | (n == 7), 1, 0)", 1), ("logical_not(x > 2) * x", 0),
        ("repeat(arange(2), n[0])", [0, 0, 0, 1, 1, 1]), ("(x > 2)[None].T.sum()", 1),
    ],
)  # fmt: skip
def test_formulas_as_people_write_them(text, value):
    c = run(
        formula(text, "x", "n"),
        a=fp32(0),
        b=fp32(0),
        x=fp32(3),
        n=(np.array([3], np.int32), "int32"),
    )
    assert c.value.tolist() == np.broadcast_to(value, c.shape).tolist()
    assert c.exact.all() or "mean" in text


# -- masks ---------------------------------------------------------------------------------------
def test_a_mask_keeps_elements_as_they_are():
    rng = np.random.default_rng(6)
    ids = rng.integers(0, 3, M).astype(np.int32)
    given = {"a": floats(rng, "fp16", M, K), "w": floats(rng, "fp16", 3, K, N), "ids": ids}

    def by_mask(a, w, ids):
        return sum((a * (ids == g)[:, None]) @ w[g] for g in range(3))

    def after(a, w, ids):
        return sum((a @ w[g]) * (ids == g)[:, None] for g in range(3))

    def way(a, w, ids, shift=0):
        return np.stack([dot(a[m : m + 1], w[(ids[m] + shift) % 3])[0] for m in range(M)])

    for spec in (by_mask, after, lambda a, w, ids: NAMES["rowwise_matmul"](a, w, ids)):
        judge(spec, given, [way], [lambda **x: way(**x, shift=1)])


def test_causal_and_banded_masks_over_the_sizes():
    x = np.arange(1, 13, dtype=F).reshape(3, 4)
    spec = formula(
        "x * ((arange(M)[:, None] >= arange(N)) & (arange(M)[:, None] < arange(N) + 2))", "x"
    )
    c = run(lambda **given: spec(**given, M=3, N=4), a=fp32(0), b=fp32(0), x=(x, "fp32"))
    assert c.value.tolist() == (np.tril(x) - np.tril(x, -2)).tolist()
    assert c.exact.all()


def test_what_a_mask_leaves_out_may_be_nan_or_0():
    c = run(lambda x: x * np.array([True, False, False]), x=fp32(np.nan, np.nan, 5))
    assert c.known.tolist() == [True, False, True]
    assert c.value[2] == 0


def test_a_mask_that_an_error_decides_admits_both():
    third = float(F(1 / 3))
    c = run(lambda x, y: (x * y >= 1.0) * y, x=fp32(third, third), y=fp32(3, 9))
    assert c.bound[0] >= 3
    assert c.value[1] == 9
    assert c.bound[1] == 0


# -- words ---------------------------------------------------------------------------------------
def pack(values, order, bits, width):
    """Words of `width` bits along the last axis: field i holds element order[i]."""
    n = width // bits
    fields = values.reshape(*values.shape[:-1], -1, n)[..., list(order)].astype(object)
    mask = (1 << bits) - 1
    words_of = sum((fields[..., i] & mask) << (bits * i) for i in range(n))
    signed = np.where(words_of >= 1 << (width - 1), words_of - (1 << width), words_of)
    return signed.astype(np.int64)


AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


@pytest.mark.parametrize(
    ("order", "fields", "bits", "fmt"),
    [
        (None, range(8), 4, "int32"), ("gptq", range(8), 4, "int32"), ("awq", AWQ, 4, "int32"),
        (AWQ, AWQ, 4, "int32"), ("high_first", (1, 0), 4, "uint8"), (None, range(4), 2, "uint8"),
        (None, range(4), 8, "int32"), ("high_first", (7, 6, 5, 4, 3, 2, 1, 0), 1, "uint8"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("signed", [False, True])
def test_integers_are_unpacked_in_the_order_of_their_fields(order, fields, bits, fmt, signed):
    rng = np.random.default_rng(7)
    low = -(1 << (bits - 1)) if signed else 0
    values = rng.integers(low, low + (1 << bits), (5, 16))
    storage = np.dtype(fmt)
    q = pack(values, fields, bits, 8 * storage.itemsize).astype(storage)
    c = run(lambda q: NAMES["unpack"](q, bits, order, axis=1, signed=signed), q=(q, fmt))
    assert np.array_equal(c.value, values)
    assert c.exact.all()
    turned = run(lambda q: NAMES["unpack"](q, bits, order, signed=signed), q=(q.T, fmt))
    assert np.array_equal(turned.value, values.T)


def test_fields_may_hold_blocks_of_the_axis():
    values = np.arange(16).reshape(8, 2)
    q = (values[:4] << 4 | values[4:]).astype(np.uint8)  # HQQ: the first half in the high bits
    spec = formula("unpack(q, 4, (1, 0), blocks=True)", "q")
    assert np.array_equal(run(spec, a=fp32(0), b=fp32(0), q=(q, "uint8")).value, values)


# -- groups --------------------------------------------------------------------------------------
def test_rows_belong_to_the_segments_of_offsets():
    segments = NAMES["segments"]
    offsets = np.array([0, 2, 2, 5])
    assert segments(offsets, 5).tolist() == [0, 0, 2, 2, 2]
    assert segments(offsets[:-1], 5).tolist() == [0, 0, 2, 2, 2]
    assert segments(offsets[1:], 6, ends=True).tolist() == [0, 0, 2, 2, 2, 3]
    assert segments(np.array([1, 3]), 4).tolist() == [-1, 0, 0, 1]


def test_a_grouped_product_by_offsets_and_rows_of_no_group():
    rng = np.random.default_rng(8)
    given = {"a": floats(rng, "fp16", M, K), "w": floats(rng, "fp16", 3, K, N),
             "offsets": np.array([0, 4, 4, 7], np.int32)}  # fmt: skip

    def spec(a, w, offsets):
        return NAMES["rowwise_matmul"](a, w, NAMES["segments"](offsets, M))

    def way(a, w, offsets, shift=0):
        groups = [dot(a[i:j], w[g - shift]) for g, (i, j) in enumerate([(0, 4), (4, 4), (4, 7)])]
        return np.concatenate([*groups, np.zeros((2, N), F)])

    judge(spec, given, [way], [lambda **x: way(**x, shift=1)])


def test_every_choice_of_every_token_at_once():
    rng, E, T = np.random.default_rng(9), 4, 3
    ids = rng.integers(0, E, (M, T)).astype(np.int32)
    given = {"a": floats(rng, "fp16", M, K), "b": floats(rng, "fp16", E, N, K), "ids": ids,
             "p": scales(rng, M, T)}  # fmt: skip

    def rowwise(a, b, ids, p):
        return (NAMES["rowwise_matmul"](a, b.mT, ids) * p[:, :, None]).sum(1)

    def gathered(a, b, ids, p):
        return ((a[:, None, None, :] @ b[ids].mT)[:, :, 0] * p[:, :, None]).sum(1)

    def by_element(a, b, ids, p):
        return ((a[:, None, None, :] * b[ids]).sum(-1) * p[:, :, None]).sum(1)

    def way(a, b, ids, p, shift=0):
        rows = [[dot(a[m : m + 1], b[(i + shift) % E].T)[0] for i in ids[m]] for m in range(M)]
        return (np.array(rows) * p[:, :, None]).sum(1)

    for spec in (rowwise, gathered, by_element):
        judge(spec, given, [way], [lambda **x: way(**x, shift=1)])


def test_grouped_query_attention_products():
    rng, B, H, G, D = np.random.default_rng(10), 2, 4, 2, 16
    q, k, v = (floats(rng, "fp16", B, h, M, D) for h in (H, H // G, H // G))

    def spec(q, k, v):
        scores = (q @ NAMES["repeat"](k, G, axis=1).mT) * 0.25
        return NAMES["softmax"](scores).may_round("fp16") @ NAMES["repeat"](v, G, axis=1)

    def by_letters(q, k, v):
        wide = [NAMES["repeat"](x, G, axis=1) for x in (k, v)]
        scores = NAMES["einsum"]("bhmd, bhnd -> bhmn", q, wide[0]) * 0.25
        weights = NAMES["softmax"](scores).may_round("fp16")
        return NAMES["einsum"]("bhmn,bhnd->bhmd", weights, wide[1])

    def way(q, k, v, spread=np.repeat):
        wide_k, wide_v = spread(k, G, axis=1), spread(v, G, axis=1)
        x = dot(q, np.swapaxes(wide_k, -1, -2)) * F(0.25)
        e = np.exp(x - x.max(-1, keepdims=True))
        return dot((e / e.sum(-1, keepdims=True, dtype=F)).astype(np.float16), wide_v)

    def tiled(x, n, axis):
        return np.tile(x, (1, n, 1, 1))

    for formula_of in (spec, by_letters):
        judge(formula_of, {"q": q, "k": k, "v": v}, [way], [lambda **x: way(**x, spread=tiled)])


def test_letters_name_axes_in_any_order():
    rng = np.random.default_rng(14)
    x, y = rng.integers(-4, 5, (3, 2, 4)).astype(F), rng.integers(-4, 5, (4, 5, 2)).astype(F)
    for axes in ("abc,cdb->ad", "abc,cdb->dab", "abc,cdb->bcda"):
        c = run(lambda x, y, axes=axes: np.einsum(axes, x, y), x=(x, "fp32"), y=(y, "fp32"))
        assert np.array_equal(c.value, np.einsum(axes, x, y))
        assert c.exact.all()
    with pytest.raises(SpecError, match="got einsum 'abc,cdb->a' for arrays of 3 and 3 axes"):
        run(lambda x, y: np.einsum("abc,cdb->a", x, y), x=(x, "fp32"), y=(y, "fp32"))


@pytest.mark.parametrize("sizes", [(0, 4, 3), (3, 0, 4), (3, 4, 0)])
def test_gathered_products_of_no_rows_columns_or_k(sizes):
    m, n, k = sizes
    a, b = np.ones((m, k), np.float16), np.ones((2, n, k), np.float16)
    ids = np.arange(m, dtype=np.int32) % 2
    given = {"a": (a, "fp16"), "b": (b, "fp16"), "ids": (ids, "int32")}
    for spec in (
        lambda a, b, ids: (a[:, None, :] @ b[ids].mT)[:, 0],
        lambda a, b, ids: NAMES["rowwise_matmul"](a, b.mT, ids),
    ):
        c = run(spec, **given)
        assert c.value.tolist() == np.zeros((m, n)).tolist()
        assert c.exact.all()


def test_an_accumulator_of_one_product():
    rng = np.random.default_rng(11)
    given = {"a": (floats(rng, "fp16", M, K), "fp16"), "b": (floats(rng, "fp16", K, N), "fp16")}
    narrow = run(lambda a, b: NAMES["matmul"](a, b, accumulator="fp16"), **given)
    assert np.array_equal(narrow.bound, run(lambda a, b: a @ b, Rules(None, "fp16"), **given).bound)
    assert narrow.rules == Rules()


# -- bands ---------------------------------------------------------------------------------------
def draw_special(rng, *shape):
    x = rng.standard_normal(shape).astype(F)
    x.flat[:: x.size // 5] = [0, np.nan, np.inf, -np.inf, 1e38, 1e-40][
        : len(x.flat[:: x.size // 5])
    ]
    return x


@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
@pytest.mark.parametrize("draw", [lambda rng, *s: floats(rng, "fp16", *s), draw_special])
def test_a_product_that_is_summed_in_bands_has_the_same_bits_and_bounds(monkeypatch, axis, draw):
    rng = np.random.default_rng(12)
    fmt = "fp32" if draw is draw_special else "fp16"
    given = {
        "x": (draw(rng, 9, 1, 11), fmt), "w": (draw(rng, 3, 13, 11), fmt),
        "s": (draw(rng, 11), fmt),
        "ids": (rng.integers(0, 3, 9).astype(np.int32), "int32"),
    }  # fmt: skip

    def spec(x, w, s, ids):
        return (x * w[ids] * s).sum(axis)

    whole = run(spec, Rules("sm_90"), **given)
    monkeypatch.setattr(operations, "DEFERRED", 0)
    monkeypatch.setattr(operations, "BAND", 100)
    parts = run(spec, Rules("sm_90"), **given)
    for name in ELEMENTS:
        assert np.array_equal(getattr(whole, name), getattr(parts, name), equal_nan=True), name
    assert (parts.shape, parts.held, parts.pure) == (whole.shape, whole.held, whole.pure)
    beside = run(lambda x, w, s, ids: 1 + (x * w[ids]).reshape(-1), **given)
    monkeypatch.setattr(operations, "DEFERRED", 10**9)
    assert np.array_equal(
        beside.value, run(lambda x, w, s, ids: 1 + (x * w[ids]).reshape(-1), **given).value,
        equal_nan=True,
    )  # fmt: skip


def test_large_masks_and_integers_are_products_too(monkeypatch):
    monkeypatch.setattr(operations, "DEFERRED", 0)
    x = np.arange(-3, 5, dtype=F).reshape(2, 2, 2)
    n = np.arange(8, dtype=np.int32).reshape(2, 2, 2)
    for spec, value in (
        (lambda x, n: (x > 0) * (n > 5), (x > 0) & (n > 5)), (lambda x, n: n * n, n * n),
        (lambda x, n: (n * x * 0.5).sum(0), (n * x * 0.5).sum(0)), (lambda x, n: x * n, x * n),
        (lambda x, n: [*(x * n)][1], (x * n)[1]), (lambda x, n: (x * n).T, (x * n).T),
    ):  # fmt: skip
        c = run(spec, x=(x, "fp32"), n=(n, "int32"))
        assert np.array_equal(c.value, value)
        assert c.exact.all()


def multiply_elements(x, y):
    """A product of elements as `multiply` defines it, without what it saves for most arrays."""
    x, y = operations.pair(x, y)
    fmt, out = x.rules.fmt, x.pure or y.pure
    with np.errstate(all="ignore"):
        at_x, at_y = (z.size if out else np.abs(z.value) for z in (x, y))
        error = x.error * at_y + y.error * at_x + x.error * y.error
        size = x.size * y.size if out else np.maximum(x.reach * y.size, x.size * y.reach)
        powers = [(np.abs(np.frexp(z.value)[0]) == 0.5) & z.exact & z.pure for z in (x, y)]
        products = 1 + (x.count + y.count if out else 0.0)
        rounds = np.expm1(~(powers[0] | powers[1]) * fmt.u)
        error = error + rounds * (size + error) + ((size > 0) | (error > 0)) * products * fmt.eta
        error = error + 2.0**-53 * np.abs(x.value * y.value)
        return np.where(size + error <= fmt.max, error, np.inf)


@pytest.mark.parametrize("draw", [lambda rng, *s: floats(rng, "fp32", *s), scales])
def test_products_have_the_bounds_of_their_definition(draw):
    rng = np.random.default_rng(13)
    x, y, z = draw(rng, 6, 1), draw(rng, 6, 5), draw(rng, 5)
    given = {"x": (x, "fp32"), "y": (y, "fp32"), "z": (z, "fp32")}
    for spec in (
        lambda x, y, z: (x, y), lambda x, y, z: (x * y, z), lambda x, y, z: (x * y + z, z),
        lambda x, y, z: (x * y + z, y - 0.3), lambda x, y, z: (x / y, z + y),
    ):  # fmt: skip
        seen = []

        def watched(x, y, z, spec=spec, seen=seen):
            left, right = spec(x, y, z)
            seen.append(multiply_elements(left, right))
            return left * right

        assert np.array_equal(run(watched, **given).error, seen[0])


# -- text ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("gleu(a @ b)", "--spec: got 'gleu', did you mean gelu? expected one of a b "),
        (
            "torch.exp(a @ b)",
            "--spec: got 'torch', did you mean exp, where, take? expected one of ",
        ),
        (
            "a @ b + biass",
            "--spec: got 'biass', did you mean bias? expected one of a b bias M N K ",
        ),
        ("clamp(a @ b, 0, 1)", "--spec: got 'clamp', did you mean clip? expected one of "),
        ("q = a @ b", "--spec: got 'q = a @ b' (expected an expression at the end), expected "),
        ("import os; a", "--spec: got 'import os; a' (expected assignments such as acc = a @ b "),
    ],
)
def test_an_unknown_name_gives_the_known_ones_in_one_line(text, start):
    with pytest.raises(ValueError, match="--spec") as refused:
        Calling(operands=("bias=fp16[N]",), spec=text).make_spec()
    assert str(refused.value).startswith(start)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "start"),
    [
        (
            lambda x: x.reshap(3),
            "spec: got .reshap of an array, did you mean reshape? expected one",
        ),
        (lambda x: x.silu(), "spec: got .silu of an array, did you mean silu(x)? expected one of "),
        (lambda x: np.arctan(x), "spec: got np.arctan, expected one of abs "),
        (
            lambda x: NAMES["unpack"](x),
            "spec: got floats to unpack, expected an operand of integers",
        ),
        (lambda x: NAMES["gelu"](1.0), "spec: got gelu of float, expected an array"),
        (lambda x: x**1.5, "spec: got a power of 1.5, expected 0, 1, 2, ..., -1, 0.5 or -0.5"),
        (lambda x: NAMES["matmul"](x, x, "fp8"), "spec: got accumulator='fp8', expected one of "),
    ],
)
def test_what_a_name_cannot_do_is_refused_in_one_line(spec, start):
    with pytest.raises(SpecError) as refused:
        run(spec, x=fp32(1, 2, 3))
    assert str(refused.value).startswith(start)


def test_formulas_in_python_have_the_same_names():
    assert formulas.gelu is NAMES["gelu"]
    assert {"unpack", "segments", "where", "bf16"} <= {*formulas.__all__}
    with pytest.raises(AttributeError, match="no attribute 'gleu'"):
        formulas.gleu  # noqa: B018


def test_a_formula_gets_the_sizes_that_it_has_parameters_for():
    sizes = {"M": 3, "N": 4, "K": 5}
    for spec, result in (
        (lambda a, b, M, batch: (a, b, M, batch), ("a", "b", 3, 1)),
        (lambda a, b, **more: more, {}),
        (formula("a + b * K", "a"), "abbbbb"),
    ):
        kernel = KernelUnderTest("f", len, spec=spec)
        assert kernel.calculate({"a": "a", "b": "b"}, sizes) == result


def test_assignments_before_the_expression_become_arguments():
    tree = parse_formula("acc = a @ b\nacc * acc")
    assert ast.unparse(tree) == "(lambda acc: acc * acc)(a @ b)"


def test_an_evaluation_shows_that_it_advances(monkeypatch):
    signs = []
    monkeypatch.setattr(Heartbeat, "send", staticmethod(signs.append))
    monkeypatch.setattr(Heartbeat, "_given", 0.0)
    monkeypatch.setattr("gemmproof.reference.provenance.BEAT", 0.0)
    run(lambda x: x * 2 + 1, x=fp32(1, 2))
    assert {*signs} == {"evaluating the formula"}


def test_rounding_points_are_those_of_the_format():
    x = np.array([1 + 2.0**-9, 300.0, 0.1], F)
    for name in ("bf16", "fp16", "fp8e5m2"):
        c = run(NAMES[name], x=(x, "fp32"))
        assert np.array_equal(c.value, widen(round_to(x, name)))
        assert c.exact.all()
