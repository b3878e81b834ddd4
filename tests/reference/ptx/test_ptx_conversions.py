"""Conversions of PTX against rationals, ml_dtypes and the formats themselves."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from tests.reference.ptx.ptx_asm import (
    NAN,
    ODD,
    SCALARS,
    canonical,
    check,
    draw_integers,
    integer_dtype,
    run,
)
from tests.support.rational import ROUNDINGS, draw, round_exactly, same_bits

PAIRED = {name: SCALARS[name] for name in ("f16", "bf16")}


@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize(
    ("to", "of"), [("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64")]
)
def test_floats_to_narrower_floats(to, of, mode):
    edges = np.array([65519, 65520, 2.0**-25, 3e-8, np.inf], SCALARS[of])
    x = np.concatenate([draw(SCALARS[of], 200, 0), draw(SCALARS[of], 200, 1, spread=18), edges])
    expected = [
        round_exactly(Fraction(v), SCALARS[to], mode) if math.isfinite(v) else v
        for v in x.astype(np.float64).tolist()
    ]
    check(f"cvt.{mode}.{to}.{of}", x, gives=np.array(expected, SCALARS[to]))


@pytest.mark.parametrize("name", PAIRED)
def test_floats_to_wider_floats(name):
    x = np.arange(65536, dtype=np.uint16).view(PAIRED[name])
    check(f"cvt.f32.{name}", x, gives=canonical(x.astype(np.float32), "f32"))


@pytest.mark.parametrize(
    ("modifier", "rule"),
    [("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil),
     ("sat", lambda y: np.clip(y, 0, 1) + np.float32(0))],
)  # fmt: skip
def test_integral_floats_and_the_unit_interval(modifier, rule):
    y = np.array([0.5, 1.5, -0.5, -1.2, 2.7, 1e10, np.inf], np.float32)
    check(f"cvt.{modifier}.f32.f32", y, gives=rule(y))


@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("of", ["f32", "f64", "f16"])
def test_floats_to_integers_clamp(to, of, mode):
    edges = np.array([0.5, 1.5, -0.5, 127.5, 255.5, np.inf, -np.inf, np.nan], SCALARS[of])
    x = np.concatenate([draw(SCALARS[of], 100, 0, spread=9), draw(SCALARS[of], 60, 1), edges])
    size, info = int(to[1:]), np.iinfo(integer_dtype(to))
    out = info.dtype if size > 8 else np.dtype(info.dtype.kind + "4")
    got = run(f"cvt.{mode}i.{to}.{of}", x, out=out).tolist()
    for value, y in zip(x.astype(np.float64).tolist()[:-1], got[:-1], strict=True):
        whole = ROUNDINGS[mode](value) if math.isfinite(value) else math.copysign(2**70, value)
        assert y == int(min(max(whole, info.min), info.max))
    assert got[-1] % 2**size == (1 << (size - 1) if of == "f64" or size == 64 else 0)


@pytest.mark.parametrize("mode", ROUNDINGS)
@pytest.mark.parametrize("of", ["s32", "u32", "s64", "u64", "s16"])
@pytest.mark.parametrize("to", ["f32", "f64", "f16"])
def test_integers_to_floats_are_rounded_once(to, of, mode):
    dtype = integer_dtype(of)
    x = draw_integers(150, 3, dtype)
    if dtype.itemsize == 8:  # a tie at 53 bits that a second rounding would break wrongly
        x = np.concatenate([x, np.array([2**62 + 2**38, 2**62 + 2**38 + 1, 2**60 - 1], dtype)])
    expected = [round_exactly(Fraction(v), SCALARS[to], mode) if v else 0.0 for v in x.tolist()]
    check(f"cvt.{mode}.{to}.{of}", x, gives=np.array(expected, SCALARS[to]))


def test_integers_to_integers():
    x, y = draw_integers(60, 0, np.int32), draw_integers(60, 1, np.int32)
    for mnemonic, expected in (
        ("cvt.s64.s32", x.astype(np.int64)),
        ("cvt.u32.u8", x & 255),
        ("cvt.s32.s8", x.astype(np.int8).astype(np.int32)),
        ("cvt.s8.s32", x.astype(np.int8).astype(np.int32)),
        ("cvt.sat.u8.s32", np.clip(x, 0, 255)),
        ("cvt.sat.s16.u32", np.clip(x.view(np.uint32), 0, 32767).view(np.int32)),
    ):
        check(mnemonic, x, gives=expected)
    low, high = (np.clip(v, -128, 127).astype("i1").view("u1").astype("u4") for v in (y, x))
    packed = low | high << np.uint32(8) | np.uint32(0x56780000)
    check("cvt.pack.sat.s8.s32.b32 $0, $1, $2, 0x12345678;", x, y, gives=packed)


def test_halves_in_the_low_bits_of_wide_registers():
    halves = draw(np.float16, 20, 0)
    check("cvt.f32.f16", halves, gives=halves.astype(np.float32), constraints="=r,r")
    check("cvt.rn.f16.f32", halves.astype(np.float32), gives=halves.view("u2").astype("u4"))


def test_tf32():
    x = np.concatenate([draw(np.float32, 500, 0), np.float32([np.nan, np.inf, 3.4028e38])])
    finite = np.isfinite(x)
    code = x.view(np.uint32)[finite].astype(np.uint64)
    even, away = code + 0xFFF + (code >> 13 & 1), code + 0x1000
    for mode, expected in (("rn", even), ("rna", away), ("rz", code)):
        got = run(f"cvt.{mode}.tf32.f32", x, out=np.uint32)
        same_bits(got[finite], (expected & 0xFFFFE000).astype(np.uint32))
        assert got[500:502].tolist() == [NAN["f32"], 0x7F800000]
    check("cvt.rna.satfinite.tf32.f32", x[501:], gives=np.full(2, 0x7F7FE000, np.uint32))


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_pairs_out_of_two_floats_put_the_first_high(name, mode):
    a, b = draw(np.float32, 200, 0, spread=12), draw(np.float32, 200, 1, spread=12)
    got = run(f"cvt.{mode}.{name}x2.f32", a, b, out=np.uint32)
    for half, x in ((got >> 16, a), (got, b)):
        expected = [round_exactly(Fraction(float(v)), PAIRED[name], mode) for v in x]
        same_bits(half.astype(np.uint16).view(PAIRED[name]), np.array(expected))


def test_pairs_are_rectified_and_finite():
    a, b = np.full(1, 1e9, np.float32), np.full(1, -2.0, np.float32)
    check("cvt.rn.relu.satfinite.f16x2.f32", a, b, gives=np.array([0x7BFF0000], np.uint32))


@pytest.mark.parametrize(
    ("name", "dtype", "top"),
    [("e4m3", ml_dtypes.float8_e4m3fn, 448), ("e5m2", ml_dtypes.float8_e5m2, 57344)],
)
def test_bytes_of_eight_bit_floats(name, dtype, top):
    x = np.concatenate(
        [draw(np.float32, 400, 0, spread=10), ODD, np.float32([1e9, -1e9, 464, 465])]
    )
    b = x[::-1].copy()

    def narrow(v):
        with np.errstate(invalid="ignore"):
            y = np.clip(v, -top, top).astype(dtype).view(np.uint8)
        return np.where(np.isnan(v), np.uint8(0x7F), y)

    asm = f"{{.reg .b16 t; cvt.rn.satfinite.{name}x2.f32 t, $1, $2; cvt.u32.u16 $0, t;}}"
    check(asm, x, b, gives=(narrow(x).astype(np.int32) << 8) | narrow(b))
    with np.errstate(over="ignore"):
        halves = x.astype(np.float16)
    expected = narrow(halves.astype(np.float32)).view(dtype)
    check(f"cvt.rn.satfinite.{name}x2.f16x2", halves, gives=expected, pack=2, constraints="=h,r")
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    wide = canonical(codes.astype(np.float16), "f16")
    check(f"cvt.rn.f16x2.{name}x2", codes, gives=wide, pack=2, constraints="=r,h")


def test_four_bit_floats():
    grid = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    x = np.array([0.24, 0.25, 0.26, 0.75, 2.5, 3.5, 5, 5.1, 1e9, -2.4, -np.inf, np.nan], np.float32)
    codes = []
    for v in x.tolist():
        size = min(abs(v), 6.0) if v == v else 6.0
        best = min(range(8), key=lambda k: (abs(grid[k] - size), k & 1))
        codes.append(best | (8 if v < 0 else 0))
    asm = "{.reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $2; cvt.u32.u8 $0, t;}"
    check(asm, x, np.ones_like(x), gives=np.array([c << 4 | 2 for c in codes], np.int32))
    every = np.arange(256, dtype=np.uint8)
    asm = "{.reg .b8 t; cvt.u8.u32 t, $1; cvt.rn.f16x2.e2m1x2 $0, t;}"
    signed = np.array([*grid, -0.0, *(-v for v in grid[1:])], np.float16)
    pairs = np.stack([signed[every & 15], signed[every >> 4]], axis=1)
    check(asm, every, gives=pairs.view(np.uint32)[:, 0], constraints="=r,r")


def test_scales_of_eight_exponent_bits():
    codes = np.arange(256, dtype=np.uint8)
    scales = canonical(np.append(np.ldexp(1.0, np.arange(-127, 128)), np.nan), "bf16")
    check("cvt.rn.bf16x2.ue8m0x2", codes, gives=scales, pack=2, constraints="=r,h")
