"""Around the instruction: order of k, promotion, split operands, and refusals."""

from functools import partial

import numpy as np
import pytest
from tests.support.dot_oracle import fused_chain, operand

from gemmproof.reference.arithmetic import bits, widen
from gemmproof.reference.dot import EMULATION_ORDER, dot_model
from gemmproof.reference.dot.stacked import computed_factors, computed_format, factors
from gemmproof.reference.dot.triton_dot import NoModel, folds, kwidth_order, triton_dot
from gemmproof.reference.formats import FORMATS

FP8 = FORMATS["fp8e4m3"].storage
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 128}


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        ("sm_90", {}, 16384),
        ("sm_90", {"acc_passed": False}, 20480),
        ("sm_90", {"max_num_imprecise_acc": 128}, 20480),
        ("sm_90", {"max_num_imprecise_acc": 0}, 20480),
        ("sm_90", {"BLOCK_M": 32}, 20480),
        ("sm_89", {}, 16384),
        ("sm_89", {"acc_passed": False}, 16384),
        ("sm_89", {"acc_passed": False, "max_num_imprecise_acc": 32}, 20480),
        ("sm_89", {"max_num_imprecise_acc": 32}, 16384),
        ("sm_100", {}, 20480),
        ("sm_120", {}, 20480),
        (None, {}, 20480),
    ],
)
def test_ones_stick_where_the_accumulator_keeps_13_bits(target, options, expected):
    model = triton_dot(target, "fp8e4m3", **TILE | options)
    ones = np.ones((1, 20480), FP8)
    assert float(model.dot(ones, ones.T)[0, 0]) == expected


@pytest.mark.parametrize("interval", [32, 48, 64, 96, 128])
@pytest.mark.parametrize("acc_passed", [True, False])
def test_promotion_interval_shows(interval, acc_passed):
    K = 512
    a, b = np.zeros((1, K), FP8), np.zeros((K, 1), FP8)
    a[0, 0], b[0] = 1, 1
    a[0, 32::32] = 2.0**-7
    b[32::32] = 2.0**-7
    model = triton_dot(
        "sm_90", "fp8e4m3", **TILE, max_num_imprecise_acc=interval, acc_passed=acc_passed
    )
    kept = {32: 1, 48: 2, 64: 2, 96: 3, 128: 4}[interval]
    assert float(model.dot(a, b)[0, 0]) == 1 + (K // 32 - kept) * 2.0**-14


def test_the_two_spellings_add_the_parts_in_different_order():
    rng = np.random.default_rng(0)
    a, b = (operand(rng, s, FORMATS["fp8e4m3"], "window", 3) for s in ((20, 256), (256, 20)))
    instruction = dot_model("sm_90", "fp8e4m3")
    parts = [instruction.dot(a[:, k : k + 64], b[k : k + 64]) for k in range(0, 256, 64)]
    acc = rng.standard_normal((20, 20)).astype(np.float32)
    passed = (((acc + parts[0]) + parts[1]) + parts[2]) + parts[3]
    spelled = (acc + (parts[0] + parts[1])) + (parts[2] + parts[3])
    for acc_passed, expected in ((True, passed), (False, spelled)):
        model = triton_dot(
            "sm_90", "fp8e4m3", **TILE, max_num_imprecise_acc=64, acc_passed=acc_passed
        )
        assert np.array_equal(bits(model.dot(a, b, acc)), bits(expected))
    assert not np.array_equal(passed, spelled)
    assert folds(0)
    assert not folds(64)


def test_blocks_and_one_long_call_give_the_same_bits():
    rng = np.random.default_rng(1)
    for options in ({}, {"max_num_imprecise_acc": 96}, {"BLOCK_M": 32}):
        model = triton_dot("sm_90", "fp8e5m2", **TILE | options)
        a, b = (operand(rng, s, FORMATS["fp8e5m2"], "window", 6) for s in ((9, 512), (512, 9)))
        acc = np.zeros((9, 9), np.float32)
        for k in range(0, 512, 128):
            acc = model.dot(a[:, k : k + 128], b[k : k + 128], acc)
        assert np.array_equal(bits(acc), bits(model.dot(a, b)))


# Per format a large value, and a small one that a sum with the large one loses.
EXTREMES = {"fp16": (2.0**15, 2.0**-24), "tf32": (2.0**60, 2.0**-60)}
EXTREMES |= {"fp8e5m2": (2.0**15, 2.0**-16)}


def leaves(model, K):
    """FPRev: how many products lie under the lowest common ancestor of k = i and j, for all j."""
    fmt = FORMATS[model.a_format]
    large, small = EXTREMES[fmt.name]
    a = np.full((K - 1, K), small)
    a[:, 0] = large
    a[np.arange(K - 1), np.arange(1, K)] = -large
    b = np.ones((K, 1))
    got = model.dot(a.astype(fmt.storage), b.astype(fmt.storage))
    return [K - round(float(x) / small) for x in widen(got)[:, 0]]


def test_order_of_k_is_the_instructions():
    for model, K, L in (
        (dot_model("sm_90", "fp16", instruction="mma"), 64, 16),
        (dot_model("sm_80", "fp16"), 32, 8),
        (dot_model("sm_90", "tf32"), 32, 8),
        (dot_model(None, "fp16"), 16, 1),
    ):
        assert leaves(model, K) == [L * (k // L + 1) for k in range(1, K)]
    upcast = triton_dot("sm_90", "fp8e5m2", **TILE | {"BLOCK_M": 16})
    first = {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29}
    expected = [16 if k in first else 32 for k in range(1, 32)]
    assert leaves(upcast, 32) == expected
    ampere = triton_dot("sm_80", "fp8e5m2", **TILE)
    steps = ({0, 1, 4, 5, 8, 9, 12, 13}, {16, 17, 20, 21, 24, 25, 28, 29})
    expected = [8 if k in steps[0] else 16 if k in steps[1] else 0 for k in range(1, 32)]
    got = leaves(ampere, 32)
    assert [x if x <= 16 else 0 for x in got] == expected
    assert {x for x in got if x > 16} == {24, 32}


def test_kwidth_orders_are_permutations():
    assert kwidth_order(16, 16, 64) == tuple(range(16))
    assert kwidth_order(32, 32, 64) == tuple(range(8))
    assert sorted(kwidth_order(8, 16, 64)) == list(range(32))
    assert set(kwidth_order(8, 16, 64)[:16]) == set(EMULATION_ORDER[:16])
    model = triton_dot("sm_80", "fp16", **TILE, loaded_bits=8)
    assert model.order == kwidth_order(8, 16, 128)
    assert triton_dot("sm_90", "fp16", **TILE, loaded_bits=8).order == ()


def test_a_block_of_half_a_permuted_group():
    assert sorted(kwidth_order(8, 16, 16)) == list(range(16))
    first = {8 * t + e for t in range(4) for e in range(4)}
    assert set(kwidth_order(4, 16, 32)[:16]) == first
    short = TILE | {"BLOCK_M": 16, "BLOCK_K": 16}
    assert triton_dot("sm_90", "fp16", **short, loaded_bits=8).order == kwidth_order(8, 16, 16)
    with pytest.raises(NoModel, match="BLOCK_K: got 16, expected a multiple of 32"):
        triton_dot("sm_80", "fp16", **short, loaded_bits=8)
    with pytest.raises(NoModel, match=r"BLOCK_K: got 16 .* expected 32 or a multiple of 64"):
        triton_dot("sm_90", "bf16", **short, loaded_bits=4)


def test_microscales_in_the_format_of_the_dot():
    codes = np.array([0, 1, 127, 254, 255], np.uint8)
    assert factors(codes)[:4].tolist() == [2.0**-127, 2.0**-126, 1, 2.0**127]
    assert np.isnan(factors(codes)[4])
    assert computed_factors(codes, "bf16", False)[:4].tolist() == [0, 2.0**-126, 1, 2.0**127]
    assert np.isnan(computed_factors(codes, "bf16", False)[4])
    assert computed_factors(codes, "fp16", True)[1:].tolist() == [0, 1, np.inf, np.inf]
    assert computed_format("sm_90", "e2m1", "bf16") == "bf16"
    assert computed_format("sm_80", "fp16", "bf16") == "fp16"
    assert computed_format("sm_100", "e2m1", "e2m1") is None


def test_emulated_fp8_mma_adds_c_once_at_the_end():
    model = dot_model("sm_90", "fp8e5m2", instruction="mma")
    rng = np.random.default_rng(2)
    a, b = (operand(rng, s, FORMATS["fp8e5m2"], "wide") for s in ((8, 64), (64, 8)))
    acc = rng.standard_normal((8, 8)).astype(np.float32)
    low = [4 * t + e + h for h in (0, 16) for t in range(4) for e in (0, 1)]
    half = dot_model("sm_90", "fp16", instruction="mma")
    expected = acc
    for k in (0, 32):
        chain = None
        for shift in (0, 2):
            ks = [k + i + shift for i in low]
            chain = half.dot(a[:, ks].astype(np.float16), b[ks].astype(np.float16), chain)
        expected = expected + chain
    assert np.array_equal(bits(model.dot(a, b, acc)), bits(expected))


def tf32_pieces(x):
    """The leading piece rounded half away to 11 bits, the rest cut to 11; in float64."""
    m, e = np.frexp(x)
    high = np.ldexp(np.copysign(np.floor(np.abs(m) * 2**11 + 0.5), m), e - 11)
    m, e = np.frexp(x - high)
    return [high, np.ldexp(np.trunc(m * 2**11), e - 11)]


def bf16_pieces(x):
    """Three pieces, each the remainder rounded to nearest; in float64."""
    out = []
    for _ in range(3):
        out.append(widen(x.astype(np.float32).astype(FORMATS["bf16"].storage)))
        x = x - out[-1]
    return out


LAST = [(1, 0), (0, 1), (0, 0)]
SPLITS = {
    "tf32x3": ("tf32", tf32_pieces, LAST),
    "bf16x3": ("bf16", bf16_pieces, LAST),
    "bf16x6": ("bf16", bf16_pieces, [(1, 1), (2, 0), (0, 2), *LAST]),
}


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("precision", SPLITS)
def test_a_split_is_one_chain_from_zero_per_block_over_pairs_of_pieces(precision, target):
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((6, 64), (64, 6)))
    model = triton_dot(target, "fp32", input_precision=precision, **TILE | {"BLOCK_K": 32})
    name, pieces, order = SPLITS[precision]
    fmt, acc_fmt = FORMATS[name], FORMATS["fp32"]
    acc = np.zeros((6, 6), np.float32)
    for k in (0, 32):
        x, y = pieces(widen(a[:, k : k + 32])), pieces(widen(b[k : k + 32]))
        part = np.zeros((6, 6))
        for i, j in order:
            part = fused_chain(x[i], y[j], part, model.unit, fmt, fmt, acc_fmt)
        acc = acc + part.astype(np.float32)
    assert np.array_equal(model.dot(a, b), acc)
    whole = triton_dot(target, "fp32", input_precision=precision, **TILE).dot(a, b)
    assert not np.array_equal(whole, acc)


def test_split_operands_keep_infinities_and_lose_no_nan():
    a = np.array([[np.inf, 1, 0, 0], [np.nan, 1, 0, 0]], np.float32)
    b = np.ones((4, 1), np.float32)
    for precision in ("tf32x3", "bf16x3", "bf16x6"):
        got = triton_dot("sm_90", "fp32", input_precision=precision, **TILE).dot(a, b)
        assert np.isposinf(got[0, 0])
        assert bits(got)[1, 0] == 0x7FFFFFFF


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("sm_91", "fp16"), "target: got 'sm_91'"),
        (("sm_90", "fp12"), "format: got 'fp12'"),
        (("sm_75", "bf16", "fp32", "mma"), "in_format: got 'bf16'"),
        (("sm_80", "fp8e4m3"), "in_format: got 'fp8e4m3'"),
        (("sm_90", "bf16", "fp16"), "acc_format: got 'fp16' for bf16"),
        (("sm_90", "fp16", "bf16"), "acc_format: got 'bf16'"),
        (("sm_90", "int8", "fp32"), "acc_format: got 'fp32' for int8"),
        (("sm_80", "fp16", "fp32", "wgmma"), "instruction: got 'wgmma' on sm_80"),
        (("sm_90", "fp16", "fp32", "tcgen05"), "instruction: got 'tcgen05' on sm_90"),
        (("sm_90", "fp16", "fp32", "hmma"), "instruction: got 'hmma'"),
        (("sm_90", "fp32", "fp32", "wgmma"), "in_format: got 'fp32'"),
        ((None, "fp16", "fp32", "mma"), "instruction: got 'mma' without a target"),
        (("sm_90", ("fp16", "bf16")), "in_format: got \\('fp16', 'bf16'\\)"),
        (("sm_90", "int32"), "in_format: got 'int32'"),
        ((90, "fp16"), "target: got 90"),
    ],
)
def test_models_that_do_not_exist_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        dot_model(*arguments)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"in_format": "fp8e4m3", "target": "sm_80"}, "Triton refuses it"),
        ({"in_format": "int8", "target": "sm_75"}, "Triton refuses it"),
        ({"in_format": "fp8e4m3", "max_num_imprecise_acc": 256}, "got 256, expected 0 .. BLOCK_K"),
        ({"in_format": "fp8e4m3", "max_num_imprecise_acc": -1}, "got -1"),
        ({"in_format": "fp32", "input_precision": "tf64"}, "input_precision: got 'tf64'"),
        ({"in_format": "fp8e4m3", "BLOCK_N": 8}, "BLOCK_N: got 8"),
        ({"in_format": "fp8e5m2", "target": "sm_80", "BLOCK_K": 16}, "BLOCK_K: got 16"),
        ({"target": "h100"}, "target: got 'h100'"),
    ],
)
def test_dots_that_triton_refuses_are_refused(options, text):
    arguments = {"target": "sm_90", "in_format": "fp16", **TILE} | options
    with pytest.raises(ValueError, match=text):
        triton_dot(**arguments)


half = partial(np.zeros, dtype=np.float16)


@pytest.mark.parametrize(
    ("a", "b", "acc", "text"),
    [
        (np.zeros((2, 4), np.float32), half((4, 2)), None, "a: got dtype float32"),
        (np.zeros((2, 4), ">f2"), half((4, 2)), None, "a: got dtype >f2"),
        (half((2, 4)), half((3, 2)), None, "expected one K"),
        (half(4), half((4, 2)), None, "at least two axes"),
        ([[1.0]], half((1, 2)), None, "a: got list"),
        (half((2, 4)), half((4, 2)), np.zeros((3, 2), np.float32), "acc|shape"),
        (half((2, 4)), half((4, 2)), np.zeros((2, 2), np.float64), "acc: got dtype float64"),
        (half((2, 2, 4)), half((3, 4, 2)), None, "shape"),
    ],
)
def test_wrong_operands_are_named(a, b, acc, text):
    for target in (None, "sm_90"):
        with pytest.raises(ValueError, match=text):
            dot_model(target, "fp16").dot(a, b, acc)


@pytest.mark.parametrize("target", [None, "sm_80", "sm_90"])
def test_floats_of_two_formats_that_are_not_fp8_have_no_dot(target):
    with pytest.raises(ValueError, match="expected one format or two fp8 formats"):
        triton_dot(target, ("fp16", "bf16"), **TILE)
