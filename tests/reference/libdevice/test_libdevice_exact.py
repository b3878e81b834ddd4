"""What of libdevice is exact: roundings, conversions, integers, bits, and the fast functions."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from libdevice_calls import ROWS, call, same_bits
from rational import drawn, rounded


def test_powers_of_two_and_integers():
    x = drawn(np.float32, 50, 0, spread=3)
    n = np.arange(-160, 140, 6, dtype=np.int32)
    exact = [Fraction(float(v)) * Fraction(2) ** int(k) for v, k in zip(x, n, strict=True)]
    wanted = np.array([rounded(e, np.float32) for e in exact])
    same_bits(call("__nv_ldexpf", x, n), wanted)
    same_bits(call("__nv_scalbnf", x, n), wanted)
    same_bits(call("__ocml_ldexp_f32", x, n), wanted)
    small = (n % 9 - 4).astype(np.int32)
    exact = [
        rounded(Fraction(float(v)) ** int(k), np.float32) for v, k in zip(x, small, strict=True)
    ]
    same_bits(call("__nv_powif", x, small), np.array(exact))
    same_bits(call("__ocml_pown_f32", x, small), np.array(exact))
    y = np.array([1, 1.5, 2, -0.75, 2.0**-149, 0, np.nan, np.inf], np.float32)
    low, high = -(2**31), 2**31 - 1
    assert call("__nv_ilogbf", y).tolist() == [0, 0, 1, -1, -149, low, low, high]
    assert call("__nv_logbf", y)[:6].tolist() == [0, 0, 1, -1, -149, -np.inf]


@pytest.mark.parametrize("end", ["rn", "rz", "rd", "ru"])
@pytest.mark.parametrize(("letter", "dtype"), [("f", np.float32), ("d", np.float64)])
def test_directed_roundings_are_exact(letter, dtype, end):
    mode = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}[end]
    x, y, z = (drawn(dtype, 120, seed, spread=60) for seed in range(3))
    x[:40], z[:40] = drawn(dtype, 40, 7), -x[:40] * y[:40]
    fma = f"__nv_fma{'f' if letter == 'f' else ''}_{end}"
    rules = {
        f"__nv_{letter}add_{end}": (lambda a, b: a + b, (x, y)),
        f"__nv_{letter}sub_{end}": (lambda a, b: a - b, (x, y)),
        f"__nv_{letter}mul_{end}": (lambda a, b: a * b, (x, y)),
        f"__nv_{letter}div_{end}": (lambda a, b: a / b, (x, y)),
        f"__nv_{letter}rcp_{end}": (lambda a: 1 / a, (y,)),
        fma: (lambda a, b, c: a * b + c, (x, y, z)),
    }
    for symbol, (rule, args) in rules.items():
        got = call(symbol, *args)
        for i, row in enumerate(zip(*(a.tolist() for a in args), strict=True)):
            if all(math.isfinite(v) for v in row) and rule(*map(Fraction, row)) != 0:
                same_bits(got[i : i + 1], rounded(rule(*map(Fraction, row)), dtype, mode)[None])
    squares = np.abs(y)
    for value, root in zip(
        squares.tolist(), call(f"__nv_{letter}sqrt_{end}", squares), strict=True
    ):
        below, above = (Fraction(float(np.nextafter(root, dtype(v)))) for v in (0, np.inf))
        here, exact = Fraction(float(root)), Fraction(value)
        if end == "rn":
            assert ((below + here) / 2) ** 2 <= exact <= ((here + above) / 2) ** 2
        elif end == "ru":
            assert below**2 < exact <= here**2
        else:
            assert here**2 <= exact < above**2


@pytest.mark.parametrize("end", ["rn", "rz", "rd", "ru"])
def test_conversions(end):
    mode = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}[end]
    whole = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[end]
    x = np.concatenate(
        [drawn(np.float64, 60, 0, spread=70), [0.5, 1.5, -0.5, 2.5, -3e9, 4e9, 1e30]]
    )
    singles = [rounded(Fraction(v), np.float32, mode) for v in x.tolist()]
    same_bits(call(f"__nv_double2float_{end}", x), np.array(singles))
    for name, low, high in (
        ("int", -(2**31), 2**31), ("uint", 0, 2**32), ("ll", -(2**63), 2**63), ("ull", 0, 2**64),
    ):  # fmt: skip
        for source, real in (("double", x), ("float", x.astype(np.float32))):
            got = call(f"__nv_{source}2{name}_{end}", real)
            wanted = [min(max(whole(v), low), high - 1) for v in real.tolist()]
            assert [v % (high - low) for v in got.tolist()] == [v % (high - low) for v in wanted]
            nan = call(f"__nv_{source}2{name}_{end}", real[:1] * real.dtype.type(np.nan))
            top = 0 if source == "float" and high <= 2**32 else (high - low) // 2
            assert int(nan[0]) % (high - low) == top
        integers = np.random.default_rng(4).integers(
            low, high - 1, 80, f"{'u' if low == 0 else 'i'}8"
        )
        signless = integers.astype("i8" if high > 2**32 else "i4")
        for target, dtype in (("float", np.float32), ("double", np.float64)):
            if f"__nv_{name}2{target}_{end}" in {row[0] for row in ROWS}:
                exact = [rounded(Fraction(v), dtype, mode) for v in integers.tolist()]
                same_bits(call(f"__nv_{name}2{target}_{end}", signless), np.array(exact))


def test_roundings_to_integers():
    x = np.array([0.49999997, 0.5, -0.5, 1.5, 2.5, -2.5, 8388609.0, 1e30, -0.2], np.float32)
    away = [
        math.copysign(math.floor(abs(v) + Fraction(1, 2)), v) for v in map(Fraction, x.tolist())
    ]
    same_bits(call("__nv_roundf", x), away)
    same_bits(call("__ocml_round_f32", x), away)
    even = [math.copysign(round(v), v) for v in x.tolist()]
    for symbol in ("__nv_rintf", "__nv_nearbyintf", "__triton_hip_rint", "__ocml_nearbyint_f32"):
        same_bits(call(symbol, x), even)
    for name, rule in (("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc)):
        assert call(f"__nv_{name}f", x).tolist() == [rule(v) for v in x.tolist()]
    top = 2**63 - 1
    assert call("__nv_llrintf", x).tolist() == [min(int(v), top) for v in even]
    assert call("__nv_llroundf", x).tolist() == [min(int(v), top) for v in away]
    assert call("__triton_hip_llrint", x.astype(np.float64)).tolist()[:5] == [0, 0, 0, 2, 2]


def _edges(dtype, seed):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    edges = [info.min, info.min + 1, -1, 0, 1, info.max]
    return np.concatenate([np.array(edges, dtype), rng.integers(info.min, info.max, 60, dtype)])


@pytest.mark.parametrize(("dtype", "ends"), [("i4", ("", "32")), ("i8", ("ll", "64"))])
def test_bits_of_integers(dtype, ends):
    x = _edges(dtype, 0)
    width = 8 * x.itemsize
    text = [f"{v % 2**width:0{width}b}" for v in x.tolist()]
    assert call(f"__nv_popc{ends[0]}", x).tolist() == [t.count("1") for t in text]
    clz = [len(t) - len(t.lstrip("0")) for t in text]
    assert call(f"__nv_clz{ends[0]}", x).tolist() == clz
    assert call(f"__ockl_clz_u{ends[1]}", x).tolist() == clz
    assert call(f"__ockl_popcount_u{ends[1]}", x).tolist() == [t.count("1") for t in text]
    assert call(f"__nv_ffs{ends[0]}", x).tolist() == [
        t[::-1].find("1") + 1 if "1" in t else 0 for t in text
    ]
    reverse = call(f"__nv_brev{ends[0]}", x)
    assert [v % 2**width for v in reverse.tolist()] == [int(t[::-1], 2) for t in text]
    absolute = np.array([abs(v) % 2**width for v in x.tolist()], f"u{x.itemsize}").view(x.dtype)
    same_bits(call("__nv_abs" if dtype == "i4" else "__nv_llabs", x), absolute)
    same_bits(call("__triton_hip_iabs", x), absolute)


def test_products_and_sums_of_integers():
    def wrap(values, width):
        return np.array([v % 2**width for v in values], f"u{width // 8}").view(f"i{width // 8}")

    for width, mid in ((32, ""), (64, "64")):
        a, b = _edges(f"i{width // 8}", 0), _edges(f"i{width // 8}", 1)[::-1].copy()
        rows = list(zip(a.tolist(), b.tolist(), strict=True))
        unsigned = [(p % 2**width, q % 2**width) for p, q in rows]
        same_bits(call(f"__nv_mul{mid}hi", a, b), wrap([p * q >> width for p, q in rows], width))
        high = wrap([p * q >> width for p, q in unsigned], width)
        same_bits(call(f"__nv_umul{mid}hi", a, b), high)
        same_bits(call(f"__nv_umul{mid}hi", *(v.view(f"u{width // 8}") for v in (a, b))), high)
    a, b = _edges("i4", 0), _edges("i4", 1)[::-1].copy()
    c = _edges("i4", 2)
    rows = list(zip(a.tolist(), b.tolist(), strict=True))
    unsigned = [(p % 2**32, q % 2**32) for p, q in rows]
    cut = [(p % 2**24, q % 2**24) for p, q in rows]
    signed = [tuple(v - 2**24 if v >= 2**23 else v for v in row) for row in cut]
    same_bits(call("__nv_umul24", a, b), wrap([p * q for p, q in cut], 32))
    same_bits(call("__nv_mul24", a, b), wrap([p * q for p, q in signed], 32))
    thirds = c.tolist()
    for symbol, source in (("sad", rows), ("usad", unsigned)):
        sums = [abs(p - q) + r for (p, q), r in zip(source, thirds, strict=True)]
        same_bits(call(f"__nv_{symbol}", a, b, c), wrap(sums, 32))
    for prefix, source in (("", rows), ("u", unsigned)):
        same_bits(call(f"__nv_{prefix}hadd", a, b), wrap([(p + q) >> 1 for p, q in source], 32))
        half = [(p + q + 1) >> 1 for p, q in source]
        same_bits(call(f"__nv_{prefix}rhadd", a, b), wrap(half, 32))
    selected = call("__nv_byte_perm", a, b, np.full_like(a, 0x7531))
    packed = [struct.pack("<II", *row) for row in unsigned]
    assert [struct.pack("<i", v) for v in selected.tolist()] == [p[1::2] for p in packed]


def test_views_of_bits():
    x = np.array([1.5, -0.0, np.inf], np.float32)
    codes = [struct.unpack("<i", struct.pack("<f", v))[0] for v in x.tolist()]
    for symbol in ("float_as_int", "float_as_uint"):
        assert call(f"__nv_{symbol}", x).tolist() == codes
    for symbol in ("int_as_float", "uint_as_float"):
        same_bits(call(f"__nv_{symbol}", np.array(codes, np.int32)), x)
    d = np.array([math.pi, -2.0, 5e-324])
    wide = [struct.unpack("<q", struct.pack("<d", v))[0] for v in d.tolist()]
    assert call("__nv_double_as_longlong", d).tolist() == wide
    same_bits(call("__nv_longlong_as_double", np.array(wide)), d)
    low, high = call("__nv_double2loint", d), call("__nv_double2hiint", d)
    assert [
        (h << 32) + (v % 2**32) for h, v in zip(high.tolist(), low.tolist(), strict=True)
    ] == wide
    same_bits(call("__nv_hiloint2double", high, low), d)


def test_tests_signs_and_neighbours():
    x = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan], np.float32)
    d = x.astype(np.float64)
    for single, double, wanted in (
        ("__nv_isnanf", "__nv_isnand", [0, 0, 0, 0, 0, 0, 1]),
        ("__nv_isinff", "__nv_isinfd", [0, 0, 0, 0, 1, 1, 0]),
        ("__nv_finitef", "__nv_isfinited", [1, 1, 1, 1, 0, 0, 0]),
        ("__nv_signbitf", "__nv_signbitd", [0, 1, 0, 1, 0, 1, 0]),
        ("__ocml_isnan_f32", "__ocml_isnan_f64", [0, 0, 0, 0, 0, 0, 1]),
    ):
        assert call(single, x).tolist() == wanted
        assert call(double, d).tolist() == wanted
    assert call("__nv_saturatef", x).tolist() == [0, 0, 1, 0, 1, 0, 0]
    two = np.full_like(x, 2)
    same_bits(call("__nv_copysignf", two, x)[:6], [2, -2, 2, -2, 2, -2])
    up = call("__nv_nextafterf", x[:4], two[:4])
    same_bits(up[:3], [2.0**-149, 2.0**-149, 1 + 2.0**-23])
    assert call("__nv_nextafter", d[2:3], 2 * d[2:3])[0] == 1 + 2.0**-52
    same_bits(call("__nv_fabsf", x)[:6], [0, 0, 1, 1, np.inf, np.inf])


def test_the_fast_functions():
    x = np.array([0.3, 1.7, 9.5], np.float32)
    for name in ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10"):
        same_bits(call(f"__nv_fast_{name}f", x), call(f"__nv_{name}f", x))
    same_bits(call("__nv_fast_powf", x, x), call("__nv_powf", x, x))
    minus = np.array([-2.0], np.float32)
    assert call("__nv_powf", minus, -minus)[0] == 4
    assert np.isnan(call("__nv_fast_powf", minus, -minus)[0])
    huge = np.array([2.0**127], np.float32)
    assert call("__nv_fast_fdividef", huge, huge)[0] == 0
    assert call("__triton_hip_fast_fdividef", huge, huge)[0] == 1
    same_bits(call("__triton_hip_fast_tanhf", x), call("__nv_tanhf", x))
    same_bits(call("__nv_frsqrt_rn", x), call("__nv_rsqrtf", x))
