"""The float instructions of PTX against rationals that are rounded once."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from ptx_asm import BF16, F16, F32, F64, NAN, ODD, SCALARS, U32, ask, same_bits
from rational import drawn, rounded

from gemmproof.reference.ptx import UnknownAsm

EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
}


def _all_draws(t, count):
    """Three operands with all exponents, and three with near ones so that sums cancel."""
    near = [drawn(t, count, seed, spread=2) for seed in range(3)]
    near[2][: count // 2] = -(near[0][: count // 2] * near[1][: count // 2])
    far = [drawn(t, count, seed) for seed in range(3, 6)]
    return [np.concatenate(pair) for pair in zip(near, far, strict=True)]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", [*SCALARS])
@pytest.mark.parametrize("op", [*EXACT])
def test_float_arithmetic_is_rounded_once(op, name, mode):
    halves = name in ("f16", "bf16")
    if halves and (mode != "rn" or op in ("div", "rcp")):
        with pytest.raises(UnknownAsm, match=op):
            ask(f"{op}.{mode}.{name} $0, $1, $2;", np.ones(1, SCALARS[name]), out=SCALARS[name])
        return
    dtype = SCALARS[name]
    args = _all_draws(dtype, 150)[: {"fma": 3, "rcp": 1}.get(op, 2)]
    dollars = ", ".join(f"${i}" for i in range(len(args) + 1))
    got = ask(f"{op}.{mode}.{name} {dollars};", *args, out=dtype)
    checked = 0
    for i, row in enumerate(zip(*(a.astype(np.float64).tolist() for a in args), strict=True)):
        if op in ("div", "rcp") and row[-1] == 0:
            continue
        exact = EXACT[op](*map(Fraction, row))
        if exact == 0:
            assert got[i] == 0
            continue
        same_bits(got[i : i + 1], rounded(exact, dtype, mode)[None])
        checked += 1
    assert checked > 200


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_roots_are_rounded_once(name, mode):
    dtype = SCALARS[name]
    x = np.abs(drawn(dtype, 200, 0))
    got = ask(f"sqrt.{mode}.{name} $0, $1;", x, out=dtype)
    for value, y in zip(x.astype(np.float64).tolist(), got, strict=True):
        if value == 0:
            continue
        # the root to 200 bits and a sticky one is on the same side of every boundary
        scaled = Fraction(value) * Fraction(4) ** 800
        root = Fraction(math.isqrt(int(scaled)), 2**800)
        sticky = root * root != Fraction(value)
        same_bits(y[None], rounded(root + sticky * Fraction(1, 2**802), dtype, mode)[None])


def test_zeros_of_exact_sums_have_the_sign_of_the_direction():
    a = np.array([1, 0, -0.0, 0, -0.0], np.float32)
    b = np.array([-1, 0, -0.0, -0.0, 0], np.float32)
    plus, minus = [0.0, 0, -0.0, 0, 0], [-0.0, 0, -0.0, -0.0, -0.0]
    for mode, wanted in (("rn", plus), ("rz", plus), ("rp", plus), ("rm", minus)):
        for asm in ("add.{}.f32 $0, $1, $2;", "fma.{}.f32 $0, $1, 0f3f800000, $2;"):
            same_bits(ask(asm.format(mode), a, b, out=F32), np.array(wanted, np.float32))


@pytest.mark.parametrize("name", ["f16x2", "bf16x2", "f32x2"])
def test_pairs_are_two_of_the_scalar(name):
    dtype = SCALARS[name[:-2]]
    a, b, c = (drawn(dtype, 64, seed) for seed in range(3))
    for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma.rn", 3)):
        args, dollars = (a, b, c)[:count], ", ".join(f"${i}" for i in range(count + 1))
        paired = [x.view(np.int64) if name == "f32x2" else x for x in args]
        letter = "l" if name == "f32x2" else "r"
        got = ask(
            f"{op}.{name} {dollars};", *paired, out=paired[0].dtype,
            pack=1 if name == "f32x2" else 2, constraints="=" + ",".join([letter] * (count + 1)),
        )  # fmt: skip
        same_bits(got.view(dtype), ask(f"{op}.{name[:-2]} {dollars};", *args, out=dtype))


@pytest.mark.parametrize("name", [*SCALARS])
def test_nan_is_canonical_and_infinities_follow_ieee(name):
    dtype = SCALARS[name]
    x = ODD.astype(dtype)
    a, b = (v.ravel() for v in np.meshgrid(x, x))
    with np.errstate(all="ignore"):
        wanted = {
            "add": a.astype(F64) + b.astype(F64),
            "mul": a.astype(F64) * b.astype(F64),
            "fma.rn": a.astype(F64) * b.astype(F64) + a.astype(F64),
        }
    for op, exact in wanted.items():
        third = ", $1" if op == "fma.rn" else ""
        got = ask(f"{op}.{name} $0, $1, $2{third};", a, b, out=dtype)
        nan = np.isnan(exact)
        codes = got.view(f"u{dtype.itemsize}")
        assert (codes[nan] == NAN[dtype]).all()
        same_bits(got[~nan], exact[~nan].astype(dtype))
    huge = np.full(1, 1e300)
    inf = ask("fma.rn.f64 $0, $1, $1, $2;", huge, np.full(1, -np.inf), out=F64)
    assert inf[0] == -np.inf  # the product overflows only when rounded


def test_flushing_saturating_and_rectifying():
    tiny = np.array([1e-40, -1e-40, 3e-38, -2.0, 0.25, np.nan, np.inf], np.float32)
    one = np.float32(1) + np.zeros_like(tiny)
    flushed = np.array([0.0, -0.0, 3e-38, -2.0, 0.25, np.nan, np.inf], np.float32)
    flushed.view(np.uint32)[5] = NAN[F32]
    same_bits(ask("mul.ftz.f32 $0, $1, $2;", tiny, one, out=F32), flushed)
    half = ask("mul.ftz.f32 $0, $1, 0f3e800000;", tiny, out=F32)
    assert half[2] == 0  # a result below the normal numbers goes, too
    assert ask("mul.f32 $0, $1, 0f3e800000;", tiny, out=F32)[2] == np.float32(3e-38) / 4
    unit = np.array([1e-40, 0.0, 3e-38, 0.0, 0.25, 0.0, 1.0], np.float32)
    same_bits(ask("add.sat.f32 $0, $1, 0f00000000;", tiny, out=F32), unit)
    x = np.array([-3, 2, np.nan, -0.0], np.float16)
    got = ask("fma.rn.relu.f16 $0, $1, $1, $1; neg.f16 $0, $0;", x, out=F16)
    assert got[0] == -6
    got = ask("{.reg .b16 o; mov.b16 o, 0x3C00; fma.rn.relu.f16 $0, $1, o, $1;}", x, out=F16)
    same_bits(got, np.array([0, 0x4400, 0x7FFF, 0], np.uint16).view(np.float16))


@pytest.mark.parametrize("name", [*SCALARS])
def test_extremes_take_the_number_and_order_zeros(name):
    dtype = SCALARS[name]
    a, b = (v.ravel() for v in np.meshgrid(ODD.astype(dtype), ODD.astype(dtype)))
    for op, pick in (("min", min), ("max", max)):
        got = ask(f"{op}.{name} $0, $1, $2;", a, b, out=dtype)
        for x, y, z in zip(a.tolist(), b.tolist(), got, strict=True):
            x, y = float(x), float(y)
            if math.isnan(x) and math.isnan(y):
                assert int(z.view(f"u{dtype.itemsize}")) == NAN[dtype]
                continue
            numbers = [v for v in (x, y) if not math.isnan(v)]
            wanted = pick(numbers, key=lambda v: (v, math.copysign(1, v)))
            same_bits(z[None], np.array([wanted]).astype(dtype))
        if name != "f64":
            spread = ask(f"{op}.NaN.{name} $0, $1, $2;", a, b, out=dtype)
            either = np.isnan(a.astype(F64)) | np.isnan(b.astype(F64))
            assert (np.isnan(spread.astype(F64)) == either).all()
            signed = ask(f"{op}.xorsign.abs.{name} $0, $1, $2;", a, b, out=dtype)
            flipped = np.signbit(a) ^ np.signbit(b)
            known = ~np.isnan(signed.astype(F64))
            assert (np.signbit(signed) == flipped)[known].all()
            size = (pick is min and np.fmin) or np.fmax
            same_bits(
                np.abs(signed)[known],
                size(np.abs(a.astype(F64)), np.abs(b.astype(F64)))[known].astype(dtype),
            )


def test_signs():
    x = np.array([1.5, -2, 0.0, -0.0, -np.inf], np.float16)
    same_bits(ask("abs.f16 $0, $1;", x, out=F16), np.abs(x))
    same_bits(ask("neg.f16 $0, $1;", x, out=F16), -x)
    pairs = np.array([1.5, -2], BF16)
    same_bits(ask("neg.bf16x2 $0, $1;", pairs, out=BF16, pack=2), -pairs)
    nan = np.array([0xFFC00001], np.uint32).view(np.float32)
    assert ask("abs.f32 $0, $1;", nan, out=U32)[0] == NAN[F32]
    assert ask("copysign.f32 $0, $1, $2;", -np.ones(1, F32), np.full(1, 3, F32), out=F32)[0] == -3


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


@pytest.mark.parametrize("op", APPROXIMATE)
def test_approximations_are_the_rounded_real_function(op):
    function, types = APPROXIMATE[op]
    for name in types.split():
        dtype = SCALARS[name]
        x = np.concatenate([drawn(dtype, 100, 0, spread=3), ODD.astype(dtype)])
        x = np.abs(x) if op[:3] in ("lg2", "sqr", "rsq") else x
        got = ask(f"{op}.{name} $0, $1;", x, out=dtype)
        real = function(torch.from_numpy(x.astype(np.float64))).numpy()
        with np.errstate(over="ignore"):
            wanted = real.astype(np.float32).astype(dtype) if name == "bf16" else real.astype(dtype)
        nan = np.isnan(real)
        assert (got.view(f"u{dtype.itemsize}")[nan] == NAN[dtype]).all()
        same_bits(got[~nan], wanted[~nan])


def test_division_of_the_fast_kind():
    a = np.array([1, 3, np.inf, -1], np.float32)
    b = np.array([3, 2.0**127, 2.0**127, 2.0**126], np.float32)
    got = ask("div.approx.f32 $0, $1, $2;", a, b, out=F32)
    same_bits(got[[0, 1, 3]], np.array([np.float32(1) / np.float32(3), 0, -(2.0**-126)], F32))
    assert np.isnan(got[2])  # 2**127 has a flushed reciprocal, and infinity times 0 is NaN
    assert ask("div.full.f32 $0, $1, $2;", a, b, out=F32)[1] == np.float32(3 / 2**127)
