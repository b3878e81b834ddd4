"""The fused step in Python integers, straight from its definition, and operands that stress it."""

from fractions import Fraction
from math import isinf, isnan, ldexp

import numpy as np

from gemmproof.reference.arithmetic import bits, round_to, truncate_tf32
from gemmproof.reference.formats import FORMATS

INF = float("inf")


def decode(x, fmt):
    """x = m * 2**(e - p + 1) with |m| < 2**p, e = emin for subnormals and zero; (m, e)."""
    if x == 0 or isnan(x) or isinf(x):
        return 0, fmt.emin
    numerator, denominator = x.as_integer_ratio()
    e = max(fmt.emin, abs(numerator).bit_length() - denominator.bit_length())
    m = Fraction(numerator, denominator) / Fraction(2) ** (e - fmt.p + 1)
    assert m.denominator == 1
    assert abs(m) < 2**fmt.p
    return m.numerator, e


def chop(m, exponent):
    """m * 2**exponent cut toward zero to an integer."""
    size = abs(m) << exponent if exponent >= 0 else abs(m) >> -exponent
    return size if m >= 0 else -size


def special_sum(a, b, c):
    """NaN or Inf if the operands make one, else 0."""
    total = c if isinf(c) or isnan(c) else 0.0
    for (x, _, _), (y, _, _) in zip(a, b, strict=True):
        if not (abs(x) < INF and abs(y) < INF):
            total += x * y
    return total


def fused_step(a, b, c, unit, a_fmt, b_fmt, acc_fmt):
    """One step over lists of (float, m, e) and the float c, all finite."""
    f = a_fmt.p + b_fmt.p - 2
    addends = [(x[1] * y[1], x[2] + y[2], f) for x, y in zip(a, b, strict=True) if x[1] and y[1]]
    if c:
        addends.append((*decode(c, acc_fmt), acc_fmt.p - 1))
    e_max = max([unit.e_zero, *(e for _, e, _ in addends)])
    total = sum(chop(m, unit.F - f + e - e_max) for m, e, f in addends)
    if total == 0:
        return 0.0
    lsb = e_max - unit.F
    E = max(abs(total).bit_length() - 1 + lsb, acc_fmt.emin)
    last = E - unit.fraction
    if last <= lsb:
        size = abs(total) << (lsb - last)
    else:
        size, rest = divmod(abs(total), 1 << (last - lsb))
        half = 1 << (last - lsb - 1)
        if unit.rounding == "rne" and (rest > half or (rest == half and size % 2)):
            size += 1
    if size * Fraction(2) ** last >= Fraction(2) ** (acc_fmt.emax + 1):
        return INF if total > 0 else -INF
    return ldexp(size, last) if total > 0 else 0.0 - ldexp(size, last)


def fused_chain(a, b, acc, unit, a_fmt, b_fmt, acc_fmt):
    """(M, K) by (K, N) onto (M, N), float64 values in and out."""
    rows = [[(float(x), *decode(float(x), a_fmt)) for x in row] for row in a]
    columns = [[(float(x), *decode(float(x), b_fmt)) for x in column] for column in b.T]
    finite = np.isfinite(a).all() and np.isfinite(b).all()
    out = np.empty((len(rows), len(columns)))
    for m, row in enumerate(rows):
        for n, column in enumerate(columns):
            c = float(acc[m, n])
            for k in range(0, len(row), unit.L):
                x, y = row[k : k + unit.L], column[k : k + unit.L]
                special = 0.0 if finite and abs(c) < INF else special_sum(x, y, c)
                c = special or fused_step(x, y, c, unit, a_fmt, b_fmt, acc_fmt)
            out[m, n] = c
    return out


STYLES = ("normal", "wide", "window", "cancel", "integer", "tiny", "huge", "sparse", "raw")


def operand(rng, shape, fmt, style, spread=8):
    """Values of `fmt`, as float64, in a style that stresses one part of the step."""
    top, bottom = fmt.emax, fmt.emin - fmt.p + 1
    sign = rng.choice([-1.0, 1.0], shape)
    e = {
        "normal": np.zeros(shape, int),
        "wide": rng.integers(max(bottom, -60), min(top, 60), shape),
        "window": rng.integers(-spread, spread + 1, shape),
        "cancel": rng.integers(-2, 3, shape),
        "integer": np.zeros(shape, int),
        "tiny": rng.integers(bottom, fmt.emin + 3, shape),
        "huge": rng.integers(top - 6, top, shape),
        "sparse": rng.integers(max(bottom, -20), min(top, 20), shape),
        "raw": np.zeros(shape, int),
    }[style]
    x = sign * np.ldexp(rng.uniform(1, 2, shape), np.clip(e, bottom, top - 1))
    if style == "normal":
        x = rng.standard_normal(shape)
    if style == "integer":
        x = np.rint(x * 6)
    if style == "sparse":
        x = x * (rng.random(shape) < 0.25)
    if style == "raw":
        code = rng.integers(0, 2 ** (8 * fmt.itemsize), shape, np.uint64)
        return code.astype(f"u{fmt.itemsize}").view(fmt.storage)
    return round_to(x, fmt, saturate=True)


def problem(rng, M, N, K, a_fmt, b_fmt, acc_fmt, style):
    """Storage arrays a (M, K), b (K, N), acc (M, N); pairs of opposite products under "cancel"."""
    a, b = operand(rng, (M, K), a_fmt, style), operand(rng, (K, N), b_fmt, style)
    if style == "cancel":
        half = K // 2
        a[:, half : 2 * half] = -a[:, :half]
        b[half : 2 * half] = np.where(rng.random((half, N)) < 0.8, b[:half], b[half : 2 * half])
    acc = operand(rng, (M, N), acc_fmt, style if style != "raw" else "wide", spread=16)
    if style == "raw":
        # one special in sixteen, or hardly any result would be a number
        a, b = (np.where(rng.random(x.shape) < 0.06, x, x.dtype.type(1)) for x in (a, b))
        acc = np.where(rng.random((M, N)) < 0.2, operand(rng, (M, N), acc_fmt, "raw"), acc)
    acc[rng.random((M, N)) < 0.3] = 0
    return a, b, acc


def read(x, name):
    """The float64 values that a unit sees of a storage array."""
    with np.errstate(invalid="ignore"):
        return (truncate_tf32(x) if name == "tf32" else x).astype(np.float64)


def same_bits(got, expected, acc_name):
    """Bitwise equality of a result and float64 values; NaN must be the device's."""
    code = bits(round_to(expected, FORMATS[acc_name]))
    return bits(got) == code
