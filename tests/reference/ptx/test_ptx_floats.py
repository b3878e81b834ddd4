"""The float instructions of PTX against rationals that are rounded once."""

import math

import numpy as np
import pytest
import torch
from tests.reference.ptx.ptx_asm import NAN, ODD, SCALARS, canonical, check, run
from tests.support.lanes import first_of_each
from tests.support.rational import EXACT, check_rounded_once, draw, same_bits

from gemmproof.reference.ptx import UnknownAsm


def _draw_operands(dtype, count):
    """Three operands with near exponents, so that sums cancel, and then with all exponents."""
    near = [draw(dtype, count, seed, spread=2) for seed in range(3)]
    near[2][: count // 2] = -(near[0][: count // 2] * near[1][: count // 2])
    far = [draw(dtype, count, seed) for seed in range(3, 6)]
    return [np.concatenate(pair) for pair in zip(near, far, strict=True)]


def _odd_pairs(name):
    return [v.ravel() for v in np.meshgrid(*[ODD.astype(SCALARS[name])] * 2)]


@pytest.mark.parametrize("mode", first_of_each(["rn", "rz", "rm", "rp"]))
@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("op", EXACT)
def test_float_arithmetic_is_rounded_once(op, name, mode):
    args = _draw_operands(SCALARS[name], 150)[: {"fma": 3, "rcp": 1, "sqrt": 1}.get(op, 2)]
    if name in ("f16", "bf16") and (mode != "rn" or op in ("div", "rcp", "sqrt")):
        with pytest.raises(UnknownAsm, match=op):
            run(f"{op}.{mode}.{name}", *args, out=SCALARS[name])
        return
    if op == "sqrt":
        args = [np.abs(args[0])]
    check_rounded_once(run(f"{op}.{mode}.{name}", *args, out=SCALARS[name]), op, args, mode)


def test_zeros_of_exact_sums_have_the_sign_of_the_direction():
    a = np.array([1, 0, -0.0, 0, -0.0], np.float32)
    b = np.array([-1, 0, -0.0, -0.0, 0], np.float32)
    plus, minus = np.float32([0, 0, -0.0, 0, 0]), np.float32([-0.0, 0, -0.0, -0.0, -0.0])
    for mode, expected in (("rn", plus), ("rz", plus), ("rp", plus), ("rm", minus)):
        for asm in ("add.{}.f32 $0, $1, $2;", "fma.{}.f32 $0, $1, 0f3f800000, $2;"):
            check(asm.format(mode), a, b, gives=expected)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("op", "count"), [("add", 2), ("sub", 2), ("mul", 2), ("fma.rn", 3)])
def test_pairs_are_two_of_the_scalar(op, count, name):
    args = [draw(SCALARS[name], 64, seed) for seed in range(count)]
    single = run(f"{op}.{name}", *args, out=SCALARS[name])
    if name == "f32":  # two of them in a register of 64 bits
        check(f"{op}.f32x2", *(x.view(np.int64) for x in args), gives=single.view(np.int64))
    else:
        check(f"{op}.{name}x2", *args, gives=single, pack=2)


@pytest.mark.parametrize("name", SCALARS)
def test_nan_is_canonical_and_infinities_follow_ieee(name):
    a, b = _odd_pairs(name)
    wide = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        check(f"add.{name}", a, b, gives=canonical(wide[0] + wide[1], name))
        check(f"mul.{name}", a, b, gives=canonical(wide[0] * wide[1], name))
        exact = wide[0] * wide[1] + wide[0]
    check(f"fma.rn.{name} $0, $1, $2, $1;", a, b, gives=canonical(exact, name))


def test_a_product_that_overflows_only_when_rounded_meets_an_infinity():
    minus = np.full(1, -np.inf)
    check("fma.rn.f64 $0, $1, $1, $2;", np.full(1, 1e300), minus, gives=minus)


def test_flushing_saturating_and_rectifying():
    tiny = np.array([1e-40, -1e-40, 3e-38, -2.0, 0.25, np.nan, np.inf], np.float32)
    flushed = np.array([0.0, -0.0, 3e-38, -2.0, 0.25, np.nan, np.inf])
    check("mul.ftz.f32", tiny, np.ones_like(tiny), gives=canonical(flushed, "f32"))
    half = run("mul.ftz.f32 $0, $1, 0f3e800000;", tiny, out=np.float32)
    assert half[2] == 0  # a result below the normal numbers goes, too
    third = tiny[2:3]
    check("mul.f32 $0, $1, 0f3e800000;", third, gives=third / np.float32(4))
    unit = np.array([1e-40, 0.0, 3e-38, 0.0, 0.25, 0.0, 1.0], np.float32)
    check("add.sat.f32 $0, $1, 0f00000000;", tiny, gives=unit)
    x = np.array([-3, 2, np.nan, -0.0], np.float16)
    got = run("fma.rn.relu.f16 $0, $1, $1, $1; neg.f16 $0, $0;", x, out=np.float16)
    assert got[0] == -6
    expected = canonical(np.array([0, 4, np.nan, 0]), "f16")
    check("{.reg .b16 o; mov.b16 o, 0x3C00; fma.rn.relu.f16 $0, $1, o, $1;}", x, gives=expected)


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_take_the_number_and_order_zeros(op, name):
    a, b = _odd_pairs(name)
    wide = a.astype(np.float64), b.astype(np.float64)
    pick = {"min": min, "max": max}[op]
    expected = []
    for row in zip(*(v.tolist() for v in wide), strict=True):
        numbers = [v for v in row if not math.isnan(v)] or [math.nan]
        expected.append(pick(numbers, key=lambda v: (v, math.copysign(1, v))))
    check(f"{op}.{name}", a, b, gives=canonical(np.array(expected), name))
    if name != "f64":
        spread = run(f"{op}.NaN.{name}", a, b, out=a.dtype)
        assert (np.isnan(spread.astype(np.float64)) == np.isnan(wide[0]) | np.isnan(wide[1])).all()
        size = getattr(np, f"f{op}")(*map(np.abs, wide))
        signed = np.where(np.signbit(a) ^ np.signbit(b), -size, size)
        check(f"{op}.xorsign.abs.{name}", a, b, gives=canonical(signed, name))


def test_signs():
    x = np.array([1.5, -2, 0.0, -0.0, -np.inf], np.float16)
    check("abs.f16", x, gives=np.abs(x))
    check("neg.f16", x, gives=-x)
    pairs = np.array([1.5, -2], SCALARS["bf16"])
    check("neg.bf16x2", pairs, gives=-pairs, pack=2)
    nan = np.array([0xFFC00001], np.uint32).view(np.float32)
    check("abs.f32", nan, gives=np.array([NAN["f32"]], np.uint32))
    check("copysign.f32", np.float32([-1]), np.float32([3]), gives=np.float32([-3]))


APPROXIMATE = {
    "ex2.approx": (torch.exp2, "f32 f16"),
    "lg2.approx": (torch.log2, "f32"),
    "sin.approx": (torch.sin, "f32"),
    "cos.approx": (torch.cos, "f32"),
    "rsqrt.approx": (torch.rsqrt, "f32"),
    "sqrt.approx": (torch.sqrt, "f32"),
    "rcp.approx": (torch.reciprocal, "f32"),
    "tanh.approx": (torch.tanh, "f32 f16 bf16"),
    "ex2.approx.ftz": (torch.exp2, "bf16"),
}


@pytest.mark.parametrize(
    ("op", "name"), [(op, name) for op, (_, names) in APPROXIMATE.items() for name in names.split()]
)
def test_approximations_are_the_rounded_real_function(op, name):
    x = np.concatenate([draw(SCALARS[name], 100, 0, spread=3), ODD.astype(SCALARS[name])])
    x = np.abs(x) if op[:3] in ("lg2", "sqr", "rsq") else x
    real = APPROXIMATE[op][0](torch.from_numpy(x.astype(np.float64))).numpy()
    with np.errstate(over="ignore"):
        real = real.astype(np.float32) if name == "bf16" else real
    check(f"{op}.{name}", x, gives=canonical(real, name))


def test_division_of_the_fast_kind():
    a = np.array([1, 3, np.inf, -1], np.float32)
    b = np.array([3, 2.0**127, 2.0**127, 2.0**126], np.float32)
    got = run("div.approx.f32", a, b, out=np.float32)
    same_bits(got[[0, 1, 3]], [np.float32(1) / np.float32(3), 0, -(2.0**-126)])
    assert np.isnan(got[2])  # 2**127 has a flushed reciprocal, and infinity times 0 is NaN
    assert run("div.full.f32", a, b, out=np.float32)[1] == np.float32(3 / 2**127)
