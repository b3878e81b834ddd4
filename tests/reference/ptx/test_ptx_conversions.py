"""Conversions of PTX against rationals, struct, ml_dtypes and the formats themselves."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from ptx_asm import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    I32,
    I64,
    LETTERS,
    NAN,
    ODD,
    SCALARS,
    U32,
    ask,
    same_bits,
    words,
)
from rational import drawn, rounded


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    ("to", "of"),
    [("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64")],
)
def test_floats_to_narrower_floats(to, of, mode):
    x = np.concatenate([drawn(SCALARS[of], 200, 0), drawn(SCALARS[of], 200, 1, spread=18)])
    x = np.concatenate([x, np.array([65519, 65520, 2.0**-25, 3e-8, np.inf], SCALARS[of])])
    got = ask(f"cvt.{mode}.{to}.{of} $0, $1;", x, out=SCALARS[to])
    for value, y in zip(x.astype(F64).tolist(), got, strict=True):
        wanted = rounded(Fraction(value), SCALARS[to], mode) if math.isfinite(value) else value
        same_bits(y[None], np.array([wanted], SCALARS[to]))


def test_floats_to_wider_floats_and_integral_floats():
    x = np.arange(65536, dtype=np.uint16)
    for name, dtype in (("f16", F16), ("bf16", BF16)):
        got = ask(f"cvt.f32.{name} $0, $1;", x.view(dtype), out=F32)
        wanted = x.view(dtype).astype(np.float32)
        nan = np.isnan(wanted)
        same_bits(got[~nan], wanted[~nan])
        assert (got.view(np.uint32)[nan] == NAN[F32]).all()
    y = np.array([0.5, 1.5, -0.5, -1.2, 2.7, 1e10, np.inf], np.float32)
    for mode, rule in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        same_bits(ask(f"cvt.{mode}.f32.f32 $0, $1;", y, out=F32), rule(y))
    same_bits(ask("cvt.sat.f32.f32 $0, $1;", y, out=F32), np.clip(y, 0, 1) + np.float32(0))


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("of", ["f32", "f64", "f16"])
def test_floats_to_integers_clamp(to, of, mode):
    rule = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]
    x = np.concatenate([drawn(SCALARS[of], 100, 0, spread=9), drawn(SCALARS[of], 60, 1)])
    x = np.concatenate([x, np.array([0.5, 1.5, -0.5, 127.5, 255.5, np.inf, -np.inf], SCALARS[of])])
    size = int(to[1:])
    low, high = (-(2 ** (size - 1)), 2 ** (size - 1) - 1) if to[0] == "s" else (0, 2**size - 1)
    dtype = np.dtype(f"{'i' if to[0] == 's' else 'u'}{max(size, 16) // 8}")
    out = dtype if size > 8 else np.dtype(dtype.kind + "4")
    constraints = f"={LETTERS[out.itemsize]},{LETTERS[x.itemsize]}"
    got = ask(f"cvt.{mode}.{to}.{of} $0, $1;", x, out=out, constraints=constraints)
    for value, y in zip(x.astype(F64).tolist(), got.tolist(), strict=True):
        whole = rule(value) if math.isfinite(value) else math.copysign(2**70, value)
        assert y == int(min(max(whole, low), high))
    nan = ask(f"cvt.{mode}.{to}.{of} $0, $1;", x[:1] * SCALARS[of].type(np.nan), out=out,
              constraints=constraints)  # fmt: skip
    top = 1 << (size - 1) if of == "f64" or size == 64 else 0
    assert int(nan[0]) % 2**size == top


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("of", ["s32", "u32", "s64", "u64", "s16"])
def test_integers_to_floats_are_rounded_once(of, mode):
    dtype = np.dtype(f"{'i' if of[0] == 's' else 'u'}{int(of[1:]) // 8}")
    x = words(150, 3, dtype)
    if dtype.itemsize == 8:  # a tie at 53 bits that a second rounding would break wrongly
        x = np.concatenate([x, np.array([2**62 + 2**38, 2**62 + 2**38 + 1, 2**60 - 1], dtype)])
    for name in ("f32", "f64", "f16"):
        got = ask(f"cvt.{mode}.{name}.{of} $0, $1;", x, out=SCALARS[name])
        for value, y in zip(x.tolist(), got, strict=True):
            wanted = rounded(Fraction(value), SCALARS[name], mode) if value else 0.0
            same_bits(y[None], np.array([wanted], SCALARS[name]))


def test_integers_to_integers():
    x = words(60, 0, np.int32)
    same_bits(ask("cvt.s64.s32 $0, $1;", x, out=I64), x.astype(np.int64))
    same_bits(ask("cvt.u32.u8 $0, $1;", x, out=I32), x & 255)
    same_bits(ask("cvt.s32.s8 $0, $1;", x, out=I32), x.astype(np.int8).astype(np.int32))
    same_bits(ask("cvt.s8.s32 $0, $1;", x, out=I32), x.astype(np.int8).astype(np.int32))
    same_bits(ask("cvt.sat.u8.s32 $0, $1;", x, out=I32), np.clip(x, 0, 255))
    same_bits(ask("cvt.sat.s16.u32 $0, $1;", x, out=I32), np.clip(x.view(U32), 0, 32767).view(I32))
    halves = drawn(F16, 20, 0)  # in the low bits of registers of 32
    same_bits(ask("cvt.f32.f16 $0, $1;", halves, out=F32, constraints="=r,r"), halves.astype(F32))
    got = ask("cvt.rn.f16.f32 $0, $1;", halves.astype(F32), out=U32)
    same_bits(got, halves.view(np.uint16).astype(np.uint32))
    b = words(60, 1, np.int32)
    got = ask("cvt.pack.sat.s8.s32.b32 $0, $1, $2, 0x12345678;", x, b, out=U32)
    bytes_ = [
        np.clip(v, -128, 127).astype(np.int8).view(np.uint8).astype(np.uint32) for v in (b, x)
    ]
    same_bits(got, bytes_[0] | bytes_[1] << np.uint32(8) | np.uint32(0x56780000))


def test_tf32():
    x = np.concatenate([drawn(F32, 500, 0), np.array([np.nan, np.inf, 3.4028e38], F32)])
    code = x.view(np.uint32).astype(np.uint64)
    finite = np.isfinite(x)
    nearest = np.array([struct.unpack("<I", struct.pack("<f", v))[0] for v in x[finite]], np.uint64)
    even = (nearest + 0xFFF + (nearest >> 13 & 1)) & 0xFFFFE000
    away = (code[finite] + 0x1000) & 0xFFFFE000
    for mode, wanted in (("rn", even), ("rna", away), ("rz", code[finite] & 0xFFFFE000)):
        got = ask(f"cvt.{mode}.tf32.f32 $0, $1;", x, out=U32)
        same_bits(got[finite], wanted.astype(np.uint32))
        assert got[500] == NAN[F32]
        assert got[501] == 0x7F800000
    top = ask("cvt.rna.satfinite.tf32.f32 $0, $1;", x[501:], out=U32)
    assert top.tolist() == [0x7F7FE000] * 2


def test_pairs_out_of_two_floats_put_the_first_high():
    a, b = drawn(F32, 200, 0, spread=12), drawn(F32, 200, 1, spread=12)
    for name, dtype in (("f16", F16), ("bf16", BF16)):
        for mode in ("rn", "rz"):
            got = ask(f"cvt.{mode}.{name}x2.f32 $0, $1, $2;", a, b, out=U32)
            high, low = (got >> 16).astype(np.uint16), got.astype(np.uint16)
            for half, x in ((high, a), (low, b)):
                wanted = [rounded(Fraction(float(v)), dtype, mode) for v in x]
                same_bits(half.view(dtype), np.array(wanted, dtype))
    got = ask("cvt.rn.relu.satfinite.f16x2.f32 $0, $1, $2;", np.full(1, 1e9, F32), -a[:1] ** 2,
              out=U32)  # fmt: skip
    assert got[0] == 0x7BFF0000


@pytest.mark.parametrize(("name", "dtype", "top"), [("e4m3", E4M3, 448), ("e5m2", E5M2, 57344)])
def test_bytes_of_eight_bit_floats(name, dtype, top):
    x = np.concatenate([drawn(F32, 400, 0, spread=10), ODD, np.array([1e9, -1e9, 464, 465], F32)])
    b = x[::-1].copy()

    def narrow(v):
        with np.errstate(invalid="ignore"):
            y = np.clip(v, -top, top).astype(dtype).view(np.uint8)
        return np.where(np.isnan(v), 0x7F, y)

    asm = f"{{.reg .b16 t; cvt.rn.satfinite.{name}x2.f32 t, $1, $2; cvt.u32.u16 $0, t;}}"
    same_bits(ask(asm, x, b, out=I32), (narrow(x).astype(np.int32) << 8) | narrow(b))
    with np.errstate(over="ignore"):
        halves = x.astype(np.float16)
    got = ask(f"cvt.rn.satfinite.{name}x2.f16x2 $0, $1;", halves, out=dtype, pack=2,
              constraints="=h,r")  # fmt: skip
    same_bits(got.view(np.uint8), narrow(halves.astype(np.float32)).astype(np.uint8))
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    back = ask(f"cvt.rn.f16x2.{name}x2 $0, $1;", codes, out=F16, pack=2, constraints="=r,h")
    wide = codes.astype(np.float32)
    nan = np.isnan(wide)
    same_bits(back[~nan], wide[~nan].astype(np.float16))
    assert (back.view(np.uint16)[nan] == 0x7FFF).all()


def test_four_bit_floats():
    grid = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    x = np.array([0.24, 0.25, 0.26, 0.75, 2.5, 3.5, 5, 5.1, 1e9, -2.4, -np.inf, np.nan], np.float32)
    codes = []
    for v in x.tolist():
        size = min(abs(v), 6.0) if v == v else 6.0
        best = min(range(8), key=lambda k: (abs(grid[k] - size), k & 1))
        codes.append(best | (8 if v < 0 else 0))
    asm = "{.reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $2; cvt.u32.u8 $0, t;}"
    one = np.ones_like(x)
    same_bits(ask(asm, x, one, out=I32), np.array([c << 4 | 2 for c in codes], np.int32))
    every = np.arange(256, dtype=np.uint8)
    asm = "{.reg .b8 t; cvt.u8.u32 t, $1; cvt.rn.f16x2.e2m1x2 $0, t;}"
    got = ask(asm, every, out=U32, constraints="=r,r").view(np.float16).reshape(-1, 2)
    signed = np.array(grid + [-v for v in grid], np.float16)
    signed[8] = -0.0
    same_bits(got[:, 0].copy(), signed[every & 15])
    same_bits(got[:, 1].copy(), signed[every >> 4])


def test_scales_of_eight_exponent_bits():
    codes = np.arange(256, dtype=np.uint8)
    got = ask("cvt.rn.bf16x2.ue8m0x2 $0, $1;", codes, out=BF16, pack=2, constraints="=r,h")
    same_bits(got[:255], np.ldexp(1.0, codes[:255].astype(int) - 127).astype(BF16))
    assert got.view(np.uint16)[255] == 0x7FFF
