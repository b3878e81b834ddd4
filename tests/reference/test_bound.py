"""The exact product knows its error; no output exceeds its bound, and bad cases come near it."""

from fractions import Fraction

import numpy as np
import pytest
from tests.support.dot_oracle import STYLES, problem
from tests.support.lanes import first_of_each

from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.bounds import bound_accumulation, exact_product, gemm_bound, special_values
from gemmproof.reference.dot import dot_model
from gemmproof.reference.dot.triton_dot import triton_dot
from gemmproof.reference.formats import FORMATS


def rationals(x):
    return np.vectorize(lambda v: Fraction(float(v)), otypes=[object])(x)


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "fp64", "fp8e4m3"])
@pytest.mark.parametrize("spread", [0, 3, 14])
def test_exact_product_knows_its_error(name, spread):
    rng = np.random.default_rng(spread)

    def draw(shape):
        e = rng.integers(-spread, spread + 1, shape)
        return round_to(np.ldexp(rng.standard_normal(shape), e), name, saturate=True)

    a, b = draw((5, 40)), draw((40, 6))
    a[:, -1], b[-1] = -a[:, 0], b[0]
    c, e = exact_product(a, b)
    true = rationals(a) @ rationals(b)
    assert (np.abs(rationals(c) - true) <= rationals(e)).all()
    assert (e <= 40 * 2.0**-52 * (np.abs(a.astype("f8")) @ np.abs(b.astype("f8")))).all()


SMALL = np.random.default_rng(0).integers(-8, 9, (4, 50)).astype(np.float16)
RANGES = [np.iinfo(name) for name in ("int8", "uint8", "int32", "int64")]
EXTREMES = [np.array([[x.max, x.min], [x.max, x.max]], x.dtype) for x in RANGES]


@pytest.mark.parametrize("a", [SMALL, *EXTREMES], ids=lambda a: a.dtype.name)
def test_products_of_integers_are_exact(a):
    c, e = exact_product(a, a.T)
    assert c.tolist() == (a.astype(object) @ a.T.astype(object)).tolist()
    assert not e.any()


def test_special_values_are_classified_in_any_order():
    a = np.array([[np.inf, 1.0], [np.inf, -np.inf], [np.nan, 0], [0, 0], [1, -np.inf]])
    b = np.array([[1.0, 0.0, -1.0], [1.0, 1.0, 2.0]])
    got = special_values(a, b)
    nan, inf = np.nan, np.inf
    expected = [[inf, nan, -inf], [nan, nan, -inf], [nan] * 3, [0.0] * 3, [-inf] * 3]
    assert np.array_equal(got, expected, equal_nan=True)
    assert special_values(b, b.T) is None


TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
MODELS = {
    "ieee fp16": dot_model(None, "fp16"),
    "ieee bf16": dot_model(None, "bf16"),
    "ieee fp32": dot_model(None, "fp32"),
    "ieee fp64": dot_model(None, "fp64"),
    "ieee fp16 onto fp16": dot_model(None, "fp16", "fp16"),
    "volta": dot_model("sm_70", "fp16"),
    "ampere bf16": dot_model("sm_80", "bf16"),
    "ampere tf32": dot_model("sm_80", "tf32"),
    "ada fp8": dot_model("sm_89", "fp8e4m3"),
    "hopper bf16": dot_model("sm_90", "bf16"),
    "hopper fp16": dot_model("sm_90", "fp16"),
    "hopper tf32": dot_model("sm_90", "tf32"),
    "hopper fp8": dot_model("sm_90", ("fp8e4m3", "fp8e5m2")),
    "hopper fp16 onto fp16": dot_model("sm_90", "fp16", "fp16"),
    "hopper fp8 onto fp16": dot_model("sm_90", "fp8e5m2", "fp16"),
    "hopper fp8 emulated": dot_model("sm_90", "fp8e5m2", instruction="mma"),
    "hopper fp8 emulated onto fp16": dot_model("sm_90", "fp8e5m2", "fp16", "mma"),
    "blackwell fp8": dot_model("sm_100", "fp8e5m2"),
    "hopper fp8 promoted": triton_dot("sm_90", "fp8e5m2", max_num_imprecise_acc=32, **TILE),
    "hopper fp8 spelled": triton_dot("sm_90", "fp8e4m3", acc_passed=False, **TILE),
    "hopper fp8 upcast": triton_dot("sm_90", "fp8e5m2", **TILE | {"BLOCK_M": 16}),
    "tf32x3": triton_dot("sm_90", "fp32", input_precision="tf32x3", **TILE),
    "bf16x3": triton_dot("sm_80", "fp32", input_precision="bf16x3", **TILE),
    "bf16x6": triton_dot("sm_90", "fp32", input_precision="bf16x6", **TILE),
    "int8": dot_model("sm_90", "int8"),
}
FLOATS = {name: model for name, model in MODELS.items() if model.a_format != "int8"}


def formats(model):
    return FORMATS[model.a_format], FORMATS[model.b_format], FORMATS[model.acc_format]


def exceeds(out, exact, bound):
    """Return where a finite output lies outside its bound; no check where the bound is Inf."""
    with np.errstate(invalid="ignore"):
        distance = np.abs(widen(out) - exact)
    return np.isfinite(exact) & np.isfinite(bound) & ~(distance <= bound)


@pytest.mark.parametrize("name", first_of_each(FLOATS, lambda name: FLOATS[name].a_format))
def test_no_output_exceeds_its_bound(name):
    model = FLOATS[name]
    judged = 0
    for seed, style in enumerate(STYLES):
        rng = np.random.default_rng(seed)
        M, K = (6, 40) if name == "ieee fp64" else (24, 176)  # it is exact and slow
        a, b, c = problem(rng, M, M, K, *formats(model), style)
        for out_name in (model.acc_format, "bf16", "fp16", "fp8e5m2"):
            out = round_to(model.dot(a, b, c), out_name, saturate=out_name == "fp8e5m2")
            exact = bound_accumulation(a, b, model, c=c).exact
            bound = gemm_bound(a, b, model, out_name, c=c)
            assert not exceeds(out, exact, bound).any(), (style, out_name)
            judged += int((np.isfinite(exact) & np.isfinite(bound)).sum())
    assert judged > (500 if name == "ieee fp64" else 5000)


def worst_case(model):
    """c and equal products that the accumulator loses whole, step after step; 32 steps."""
    unit, (a_fmt, b_fmt, acc) = model.unit, formats(model)
    K = 32 * unit.L
    a, b = np.zeros((1, K)), np.zeros((K, 1))
    c = 2.0 ** (0 if acc.name == "fp16" else 10)
    if unit.kind == "fma" or unit.L * 2.0**-unit.F < acc.u:
        lost, every = c * acc.u, unit.L
    else:
        lost, every = c * 2.0**-unit.F, 1
    x = 2.0 ** (np.log2(lost) // 2)
    a[:, ::every], b[::every] = x, lost / x
    if unit.kind == "fused" and every == 1:
        a, b = a * (1 - a_fmt.u), b * (1 - b_fmt.u)
    return round_to(a, a_fmt), round_to(b, b_fmt), np.full((1, 1), c, acc.storage)


@pytest.mark.parametrize("name", [n for n, m in FLOATS.items() if not (m.part or m.from_zero)])
def test_bad_cases_come_within_a_factor_of_two_and_a_half(name):
    model = FLOATS[name]
    a, b, c = worst_case(model)
    acc = bound_accumulation(a, b, model, c=c)
    distance = abs(float(widen(model.dot(a, b, c))[0, 0]) - acc.exact[0, 0])
    assert distance <= acc.error[0, 0] <= 2.5 * distance


def gaussian(shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("target", [None, "sm_90"])
def test_common_faults_are_rejected_and_a_right_kernel_is_not(target):
    M, K = 96, 1024
    a, b = gaussian((M, K), np.float16, 0), gaussian((K, M), np.float16, 1)
    model = dot_model(target, "fp16")
    right = model.dot(a, b)
    exact = exact_product(a, b)[0]

    def rejected(out, out_name):
        return bool(exceeds(out, exact, gemm_bound(a, b, model, out_name)).any())

    truncated = (right.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    dropped = right.copy()
    dropped[5] = model.dot(a[5:6, :-1], b[:-1])
    corner = round_to(right, "fp16")
    corner[-1, -1] += np.float16(0.25)
    low = np.zeros((M, M))
    for k in range(0, K, 32):
        low = widen(round_to(low + exact_product(a[:, k : k + 32], b[k : k + 32])[0], "bf16"))
    parts = [model.dot(a[:, k : k + 256], b[k : k + 256]) for k in range(0, K, 256)]
    for out_name in ("fp16", "bf16", "fp32"):
        assert not rejected(round_to(right, out_name), out_name)
    assert rejected(round_to(dot_model(target, "fp16", "fp16").dot(a, b), "fp16"), "fp16")
    assert rejected(round_to(low, "bf16"), "bf16")
    assert rejected(round_to(truncated, "bf16"), "bf16")
    assert rejected(round_to(dropped, "fp16"), "fp16")
    assert rejected(corner, "fp16")
    assert rejected(round_to(round_to(exact, "bf16"), "fp32"), "fp32")
    split = gemm_bound(a, b, model, "fp32", split_k=4)
    assert not exceeds(((parts[0] + parts[1]) + parts[2]) + parts[3], exact, split).any()


def test_split_k_in_half_precision_needs_its_own_bound():
    a, b = gaussian((32, 512), np.float16, 2), gaussian((512, 32), np.float16, 3)
    model = dot_model("sm_90", "fp16")
    out = np.zeros((32, 32), np.float16)
    for k in range(0, 512, 128):
        out = out + round_to(model.dot(a[:, k : k + 128], b[k : k + 128]), "fp16")
    exact = exact_product(a, b)[0]
    assert exceeds(out, exact, gemm_bound(a, b, model, "fp16", split_k=4)).any()
    half = gemm_bound(a, b, model, "fp16", split_k=4, split_format="fp16")
    assert not exceeds(out, exact, half).any()


def test_tf32_inputs_cost_what_the_data_lose():
    a, b = gaussian((8, 64), np.float32, 4), gaussian((64, 8), np.float32, 5)
    model = dot_model("sm_90", "tf32")
    cut = (a.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    short = (b.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    full = gemm_bound(a, b, model, "fp32")
    assert (full > 50 * gemm_bound(cut, short, model, "fp32")).all()
    assert not exceeds(model.dot(a, b), exact_product(a, b)[0], full).any()


def test_bound_is_infinite_only_where_something_may_overflow():
    ieee = MODELS["ieee fp16"]
    unit, large = np.ones((1, 1), np.float16), np.full((1, 1), 7e4, np.float32)
    assert np.isinf(gemm_bound(unit, unit, ieee, "fp16", c=large)).all()
    assert np.isfinite(gemm_bound(unit, unit, ieee, "bf16", c=large)).all()
    wide = np.full((1, 64), 60.0, np.float16)
    assert np.isinf(gemm_bound(wide, wide.T, dot_model("sm_90", "fp16", "fp16"), "fp32")).all()
    special = np.array([[np.inf, 1.0]], np.float16)
    assert not gemm_bound(special, np.ones((2, 1), np.float16), ieee, "fp16").any()
    top = np.full((1, 1), np.finfo(np.float32).max)
    assert np.isinf(gemm_bound(top, top * 0 + 1, MODELS["tf32x3"], "fp32")).all()


def test_integers_have_no_error_until_they_overflow():
    model = MODELS["int8"]
    a = np.full((2, 64), -128, np.int8)
    assert not gemm_bound(a, a.T, model, "int32").any()
    c = np.full((2, 2), 2**31 - 2, np.int32)
    assert np.isinf(gemm_bound(a, a.T, model, "int32", c=c)).all()
    assert (gemm_bound(a, a.T, model, "fp16") > 0).all()
