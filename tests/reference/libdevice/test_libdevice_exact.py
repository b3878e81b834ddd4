"""The exact parts of libdevice: roundings, conversions, integers, bits, and the fast functions."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from tests.support.rational import (
    EXACT,
    ROUNDINGS,
    check_rounded_once,
    draw,
    map_rows,
    round_exactly,
    same_bits,
)

from gemmproof.reference.libdevice import function_of

MODES = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}
ODD = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan], np.float32)


def test_powers_of_two_and_integers():
    x = draw(np.float32, 50, 0, spread=3)
    n = np.arange(-160, 140, 6, dtype=np.int32)
    small = (n % 9 - 4).astype(np.int32)
    for symbols, powers, rule in (
        ("__nv_ldexpf __nv_scalbnf __ocml_ldexp_f32", n, lambda v, k: v * Fraction(2) ** k),
        ("__nv_powif __ocml_pown_f32", small, lambda v, k: v**k),
    ):
        rows = zip(x.tolist(), powers.tolist(), strict=True)
        exact = [round_exactly(rule(Fraction(v), k), np.float32) for v, k in rows]
        for symbol in symbols.split():
            same_bits(function_of(symbol)(x, powers), np.array(exact))
    y = np.array([1, 1.5, 2, -0.75, 2.0**-149, 0, np.nan, np.inf], np.float32)
    low, high = -(2**31), 2**31 - 1
    assert function_of("__nv_ilogbf")(y).tolist() == [0, 0, 1, -1, -149, low, low, high]
    assert function_of("__nv_ilogb")(y.astype("f8")).tolist() == [0, 0, 1, -1, -149, low, low, high]
    assert function_of("__nv_logbf")(y)[:6].tolist() == [0, 0, 1, -1, -149, -np.inf]


@pytest.mark.parametrize("end", MODES)
@pytest.mark.parametrize(("letter", "dtype"), [("f", np.float32), ("d", np.float64)])
@pytest.mark.parametrize("op", EXACT)
def test_directed_roundings_are_exact(op, letter, dtype, end):
    x, y, z = (draw(dtype, 120, seed, spread=60) for seed in range(3))
    x[:40], z[:40] = draw(dtype, 40, 7), -x[:40] * y[:40]
    args = {"fma": (x, y, z), "rcp": (y,), "sqrt": (np.abs(y),)}.get(op, (x, y))
    symbol = f"__nv_{letter}{op}_{end}"
    if op == "fma":
        symbol = f"__nv_fma{'f' if letter == 'f' else ''}_{end}"
    check_rounded_once(function_of(symbol)(*args), op, args, MODES[end])


@pytest.mark.parametrize("end", MODES)
@pytest.mark.parametrize(
    ("name", "dtype"), [("int", "i4"), ("uint", "u4"), ("ll", "i8"), ("ull", "u8")]
)
def test_conversions_of_integers(name, dtype, end):
    whole = ROUNDINGS[MODES[end]]
    info = np.iinfo(dtype)
    x = np.append(draw(np.float64, 60, 0, spread=70), [0.5, 1.5, -0.5, 2.5, -3e9, 4e9, 1e30])
    integers = np.random.default_rng(4).integers(info.min, info.max, 80, dtype)
    for source, real in (("double", x), ("float", x.astype(np.float32))):
        expected = map_rows(lambda v: min(max(whole(v), info.min), info.max), dtype, real)
        same_bits(function_of(f"__nv_{source}2{name}_{end}")(real).view(dtype), expected)
        nan = function_of(f"__nv_{source}2{name}_{end}")(np.full(1, np.nan, real.dtype))
        top = 0 if source == "float" and info.bits == 32 else 2 ** (info.bits - 1)
        assert int(nan[0]) % 2**info.bits == top
        exact = [round_exactly(Fraction(v), real.dtype, MODES[end]) for v in integers.tolist()]
        signless = integers.view(f"i{info.bits // 8}")
        same_bits(function_of(f"__nv_{name}2{source}_{end}")(signless), np.array(exact))


@pytest.mark.parametrize("end", MODES)
def test_doubles_to_floats(end):
    x = np.append(draw(np.float64, 60, 0, spread=70), [0.5, -3e9, 4e9, 1e30])
    exact = [round_exactly(Fraction(v), np.float32, MODES[end]) for v in x.tolist()]
    same_bits(function_of(f"__nv_double2float_{end}")(x), np.array(exact))


def test_roundings_to_integers():
    x = np.array([0.49999997, 0.5, -0.5, 1.5, 2.5, -2.5, 8388609.0, 1e30, -0.2], np.float32)
    fractions = map(Fraction, x.tolist())
    away = [math.copysign(math.floor(abs(v) + Fraction(1, 2)), v) for v in fractions]
    even = [math.copysign(round(v), v) for v in x.tolist()]
    for symbol in ("__nv_roundf", "__ocml_round_f32"):
        same_bits(function_of(symbol)(x), away)
    for symbol in ("__nv_rintf", "__nv_nearbyintf", "__triton_hip_rint", "__ocml_nearbyint_f32"):
        same_bits(function_of(symbol)(x), even)
    for name, rule in (("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc)):
        assert function_of(f"__nv_{name}f")(x).tolist() == [rule(v) for v in x.tolist()]
    top = 2**63 - 1
    assert function_of("__nv_llrintf")(x).tolist() == [min(int(v), top) for v in even]
    assert function_of("__nv_llroundf")(x).tolist() == [min(int(v), top) for v in away]
    assert function_of("__triton_hip_llrint")(x.astype(np.float64)).tolist()[:5] == [0, 0, 0, 2, 2]


def _draw_integers(dtype, seed):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    edges = [info.min, info.min + 1, -1, 0, 1, info.max]
    return np.concatenate([np.array(edges, dtype), rng.integers(info.min, info.max, 60, dtype)])


@pytest.mark.parametrize(
    ("dtype", "end", "absolute"), [("i4", "", "__nv_abs"), ("i8", "ll", "__nv_llabs")]
)
def test_bits_of_integers(dtype, end, absolute):
    x = _draw_integers(dtype, 0)
    unsigned, width = x.view(f"u{x.itemsize}"), 8 * x.itemsize
    for symbols, rule in (
        (f"__nv_popc{end} __ockl_popcount_u{width}", int.bit_count),
        (f"__nv_clz{end} __ockl_clz_u{width}", lambda v: width - v.bit_length()),
        (f"__nv_ffs{end}", lambda v: (v & -v).bit_length()),
    ):
        for symbol in symbols.split():
            assert function_of(symbol)(x).tolist() == map_rows(rule, "i4", unsigned).tolist()
    reverse = map_rows(lambda v: int(f"{v:0{width}b}"[::-1], 2), dtype, unsigned)
    same_bits(function_of(f"__nv_brev{end}")(x), reverse)
    for symbol in (absolute, "__triton_hip_iabs"):
        same_bits(function_of(symbol)(x), map_rows(abs, dtype, x))


def _signed24(v):
    return (v + 2**23) % 2**24 - 2**23


# By symbol: the dtype as which its operands are read, and the rule in Python's integers.
INTEGER = {
    "mulhi": ("i4", lambda p, q: p * q >> 32),
    "mul64hi": ("i8", lambda p, q: p * q >> 64),
    "umulhi": ("u4", lambda p, q: p * q >> 32),
    "umul64hi": ("u8", lambda p, q: p * q >> 64),
    "umul24": ("u4", lambda p, q: p % 2**24 * (q % 2**24)),
    "mul24": ("i4", lambda p, q: _signed24(p) * _signed24(q)),
    "sad": ("i4", lambda p, q, r: abs(p - q) + r),
    "usad": ("u4", lambda p, q, r: abs(p - q) + r),
    "hadd": ("i4", lambda p, q: (p + q) >> 1),
    "uhadd": ("u4", lambda p, q: (p + q) >> 1),
    "rhadd": ("i4", lambda p, q: (p + q + 1) >> 1),
    "urhadd": ("u4", lambda p, q: (p + q + 1) >> 1),
}


@pytest.mark.parametrize("name", INTEGER)
def test_products_and_sums_of_integers(name):
    read_as, rule = INTEGER[name]
    signed = f"i{read_as[1]}"
    a, b, c = (_draw_integers(signed, seed) for seed in range(3))
    args = (a, b[::-1].copy(), c)[: rule.__code__.co_argcount]
    views = [v.view(read_as) for v in args]
    for given in (args, views):  # integers of either signedness
        same_bits(function_of(f"__nv_{name}")(*given), map_rows(rule, signed, *views))


def test_a_permutation_of_bytes():
    a, b = _draw_integers("i4", 0), _draw_integers("i4", 1)
    selected = function_of("__nv_byte_perm")(a, b, np.full_like(a, 0x7531))
    same_bits(selected, np.stack([a, b], axis=1).view("u1")[:, 1::2].copy().view("i4")[:, 0])


def test_views_of_bits():
    x = np.array([1.5, -0.0, np.inf], np.float32)
    codes = [struct.unpack("<i", struct.pack("<f", v))[0] for v in x.tolist()]
    for symbol in ("float_as_int", "float_as_uint"):
        assert function_of(f"__nv_{symbol}")(x).tolist() == codes
    for symbol in ("int_as_float", "uint_as_float"):
        same_bits(function_of(f"__nv_{symbol}")(np.array(codes, np.int32)), x)
    d = np.array([math.pi, -2.0, 5e-324])
    wide = [struct.unpack("<q", struct.pack("<d", v))[0] for v in d.tolist()]
    assert function_of("__nv_double_as_longlong")(d).tolist() == wide
    same_bits(function_of("__nv_longlong_as_double")(np.array(wide)), d)
    low, high = function_of("__nv_double2loint")(d), function_of("__nv_double2hiint")(d)
    joined = zip(high.tolist(), low.tolist(), strict=True)
    assert [(h << 32) + v % 2**32 for h, v in joined] == wide
    same_bits(function_of("__nv_hiloint2double")(high, low), d)


@pytest.mark.parametrize(
    ("single", "double", "expected"),
    [("__nv_isnanf", "__nv_isnand", [0, 0, 0, 0, 0, 0, 1]),
     ("__nv_isinff", "__nv_isinfd", [0, 0, 0, 0, 1, 1, 0]),
     ("__nv_finitef", "__nv_isfinited", [1, 1, 1, 1, 0, 0, 0]),
     ("__nv_signbitf", "__nv_signbitd", [0, 1, 0, 1, 0, 1, 0]),
     ("__ocml_isnan_f32", "__ocml_isnan_f64", [0, 0, 0, 0, 0, 0, 1])],
)  # fmt: skip
def test_tests_of_floats(single, double, expected):
    assert function_of(single)(ODD).tolist() == expected
    assert function_of(double)(ODD.astype(np.float64)).tolist() == expected


def test_signs_and_neighbours():
    assert function_of("__nv_saturatef")(ODD).tolist() == [0, 0, 1, 0, 1, 0, 0]
    two = np.full_like(ODD, 2)
    same_bits(function_of("__nv_copysignf")(two, ODD)[:6], [2, -2, 2, -2, 2, -2])
    up = function_of("__nv_nextafterf")(ODD[:3], two[:3])
    same_bits(up, [2.0**-149, 2.0**-149, 1 + 2.0**-23])
    assert function_of("__nv_nextafter")(np.ones(1), np.full(1, 2.0))[0] == 1 + 2.0**-52
    same_bits(function_of("__nv_fabsf")(ODD)[:6], [0, 0, 1, 1, np.inf, np.inf])


def test_the_fast_functions():
    x = np.array([0.3, 1.7, 9.5], np.float32)
    for name in ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10"):
        same_bits(function_of(f"__nv_fast_{name}f")(x), function_of(f"__nv_{name}f")(x))
    same_bits(function_of("__nv_fast_powf")(x, x), function_of("__nv_powf")(x, x))
    same_bits(function_of("__triton_hip_fast_tanhf")(x), function_of("__nv_tanhf")(x))
    same_bits(function_of("__nv_frsqrt_rn")(x), function_of("__nv_rsqrtf")(x))
    minus, huge = np.float32([-2]), np.float32([2.0**127])
    assert function_of("__nv_powf")(minus, -minus)[0] == 4
    assert np.isnan(function_of("__nv_fast_powf")(minus, -minus)[0])
    assert function_of("__nv_fast_fdividef")(huge, huge)[0] == 0
    assert function_of("__triton_hip_fast_fdividef")(huge, huge)[0] == 1
