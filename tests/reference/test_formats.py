"""Formats: every constant, every narrow code, and one rounding only."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from tests.support.rational import spacing

from gemmproof.reference import arithmetic
from gemmproof.reference.arithmetic import bits, round_to, widen
from gemmproof.reference.formats import FORMATS, format_named

FLOATS = ("fp16", "bf16", "tf32", "fp32", "fp64", "fp8e4m3", "fp8e5m2")
NARROW = ("fp16", "bf16", "fp8e4m3", "fp8e5m2")


def nearest_even(x, fmt):
    """The definition: the multiple of the local spacing nearest to x, ties to the even multiple."""
    value = Fraction(x)
    step = spacing(value, fmt.p, fmt.emin)
    rounded = round(value / step) * step
    return float(rounded) if abs(rounded) <= Fraction(fmt.max) else float("nan")


@pytest.mark.parametrize("name", [n for n in FLOATS if n != "tf32"])
def test_constants_agree_with_the_dtype(name):
    fmt = FORMATS[name]
    info = ml_dtypes.finfo(fmt.storage)
    assert float(info.max) == fmt.max
    assert float(info.smallest_subnormal) == fmt.eta
    assert float(info.eps) == 2 * fmt.u
    assert arithmetic.format_of(fmt.storage) is fmt
    assert np.isnan(fmt.nan.astype(np.float64))


@pytest.mark.parametrize("bits_", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["", "u"])
def test_integer_formats_know_their_range(sign, bits_):
    fmt = FORMATS[f"{sign}int{bits_}"]
    assert (fmt.max, fmt.u, fmt.eta) == (np.iinfo(fmt.name).max, 0.0, 1.0)


@pytest.mark.parametrize("name", NARROW)
def test_every_code_survives_widening_and_rounding(name):
    fmt = FORMATS[name]
    codes = np.arange(2 ** (8 * fmt.itemsize), dtype=f"u{fmt.itemsize}")
    x = codes.view(fmt.storage)
    wide = widen(x)
    number = ~np.isnan(wide)
    assert np.array_equal(wide[number], x[number].astype(np.float64))
    assert np.array_equal(widen(arithmetic.to_fp32(x)), wide, equal_nan=True)
    for source in (wide, arithmetic.to_fp32(x)):
        assert np.array_equal(bits(round_to(source, fmt))[number], codes[number])
        assert (bits(round_to(source, fmt))[~number] == bits(np.array([fmt.nan]))).all()


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("name", [*NARROW, "tf32", "fp32"])
def test_rounding_is_nearest_even_from_the_exact_value(name, source):
    fmt = FORMATS[name]
    rng = np.random.default_rng(7)
    # values on the grid, midpoints, and midpoints off by less than fp32 or fp64 can hold together
    m = rng.integers(1, 2 ** (fmt.p + 1), 600).astype(np.float64)
    e = rng.integers(fmt.emin - fmt.p - 1, fmt.emax - fmt.p + 2, 600)
    off = rng.choice([0.0, 1.0, -1.0], 600) * 2.0 ** -rng.integers(1, 45, 600)
    x = np.ldexp(m / 2 * rng.choice([-1.0, 1.0], 600) * (1 + off), e)
    with np.errstate(over="ignore"):
        x = x.astype(source)
    x = x[np.isfinite(x)]
    got = round_to(x, fmt).astype(np.float64)
    expected = np.array([nearest_even(float(v), fmt) for v in x])
    over = np.isnan(expected)
    assert np.array_equal(got[~over], expected[~over])
    assert not np.isfinite(got[over]).any()
    assert np.array_equal(np.signbit(got[~over]), np.signbit(x[~over]))


def test_double_rounding_does_not_happen():
    for x, name, expected in (
        (1 + 2.0**-8 + 2.0**-40, "bf16", 1.0078125),
        (2**62 + 2**54 + 1, "bf16", 2.0**62 + 2.0**55),
        (-(2**62) - 2**54, "bf16", -(2.0**62)),
        (np.int32(2**24 + 1), "fp32", 2.0**24),
        (np.int32(2**24 + 3), "fp32", 2.0**24 + 4),
    ):
        assert float(round_to(np.array([x]), name)[0]) == expected


@pytest.mark.parametrize("name", FLOATS)
def test_overflow_and_saturation(name):
    fmt = FORMATS[name]
    x = np.array([np.inf, -np.inf, fmt.max, np.nan])
    plain = round_to(x, fmt).astype(np.float64)
    full = round_to(x, fmt, saturate=True).astype(np.float64)
    assert full[:3].tolist() == [fmt.max, -fmt.max, fmt.max]
    assert np.isnan(full[3])
    assert np.isnan(plain[3])
    assert plain[2] == fmt.max
    assert np.isinf(plain[:2]).all() == fmt.has_inf
    if name != "fp64":
        past = np.array([1.5 * fmt.max, -1.5 * fmt.max])
        assert not np.isfinite(round_to(past, fmt).astype(np.float64)).any()
        assert round_to(past, fmt, saturate=True).astype(np.float64).tolist() == [fmt.max, -fmt.max]


def test_tf32_truncates_and_rounds_half_away():
    x = np.array([1 + 0.75 * 2.0**-10, -(1 + 0.5 * 2.0**-10), 3.4028235e38], np.float32)
    assert arithmetic.truncate_tf32(x).tolist() == [1.0, -1.0, FORMATS["tf32"].max]
    assert arithmetic.round_tf32_rna(x).tolist() == [1 + 2.0**-10, -(1 + 2.0**-10), np.inf]
    payload = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    assert bits(arithmetic.truncate_tf32(payload)).tolist() == [0x7F800000, 0xFFFFE000]
    assert np.isnan(arithmetic.round_tf32_rna(payload)).all()


@pytest.mark.parametrize("name", FLOATS)
def test_scalars_and_strided_views_keep_their_shape(name):
    x = np.exp2(np.arange(24, dtype=np.float32) % 7).reshape(4, 6)[::2, ::3]
    assert round_to(x, name).astype(np.float64).tolist() == x.tolist()
    for value in (np.float32(2.0), np.array(np.nan), np.float64(2.0)):
        y = round_to(value, name)
        assert y.shape == ()
        assert y.dtype == FORMATS[name].storage
        assert widen(y).shape == ()
    for convert in (arithmetic.truncate_tf32, arithmetic.round_tf32_rna):
        assert convert(x).tolist() == x.tolist()
        assert convert(np.array(np.nan, np.float32)).shape == ()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: format_named("fp12"), "got 'fp12'"),
        (lambda: arithmetic.format_of(np.complex64), "got complex64"),
        (lambda: arithmetic.format_of(np.dtype(">f4")), ">f4"),
        (lambda: round_to(np.ones(2), "int8"), "got format int8"),
        (lambda: arithmetic.truncate_tf32(np.ones(2)), "got dtype float64"),
        (lambda: arithmetic.round_tf32_rna(np.ones(2)), "got dtype float64"),
        (lambda: arithmetic.to_fp32(np.ones(2)), "got fp64"),
        (lambda: widen(np.array([2**63 - 1])), "beyond 2\\*\\*53"),
        (lambda: widen(np.array([2**64 - 1], np.uint64)), "beyond 2\\*\\*53"),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()
