"""Dot products as tensor cores and FMA units compute them."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gemmproof.reference.arithmetic import Array, fma_fp64, sum_to_odd
from gemmproof.reference.formats import Format
from gemmproof.reference.provenance import Heartbeat

# -- chains of fused multiply-adds ---------------------------------------------------------------
# Elements of the accumulator worked on at once, so that it and its scratch stay in a 512 KiB cache.
FMA_CHUNK = 1 << 15

Step = Callable[[Array, Array, Array], None]


def fma_chain(
    a: Array, b: Array, acc: Array, a_fmt: Format, b_fmt: Format, acc_fmt: Format
) -> Array:
    """Compute acc = RN(a[k] * b[k] + acc) for k = 0 .. K-1, in acc_fmt, without a library's matmul.

    a (P, M, K), b (P, K, N), P of either may be 1; float32 values of the two formats (float64 if
    either is fp64). acc (P, M, N) in acc_fmt's storage; it is not changed. NaN is canonical.
    """
    make_step, work, size = _step_for(a, b, a_fmt, b_fmt, acc_fmt)
    with np.errstate(all="ignore"):
        out = acc.astype(work)
        a, b = a.astype(work, copy=False), b.astype(work, copy=False)
        for programs, rows in chunks(out.shape, size):
            part = out[programs, rows]
            contiguous = part.flags.c_contiguous
            part = part if contiguous else np.ascontiguousarray(part)
            a_k = np.moveaxis(a if len(a) == 1 else a[programs], -1, 0)[:, :, rows, None]
            a_k = np.ascontiguousarray(a_k)
            b_k = b if len(b) == 1 else b[programs]
            step = make_step(part)
            for k in range(a.shape[-1]):
                step(part, a_k[k], b_k[:, k, None, :])
            if not contiguous:
                out[programs, rows] = part
        result = out.astype(acc_fmt.storage, copy=False)
        if out.size and np.isnan(out.max()):  # max propagates NaN
            result[np.isnan(out)] = acc_fmt.nan
    return result


def chunks(shape: tuple[int, ...], size: int = FMA_CHUNK) -> Iterator[tuple[slice, slice]]:
    """Yield slices of (P, M) of an array (P, M, N) that hold about `size` elements each."""
    P, M, N = shape
    rows = max(1, min(M, size // max(1, N)))
    programs = max(1, size // max(1, M * N)) if rows == M else 1
    for p in range(0, P, programs):
        for m in range(0, M, rows):
            Heartbeat.give()
            yield slice(p, p + programs), slice(m, m + rows)


def _step_for(
    a: Array, b: Array, a_fmt: Format, b_fmt: Format, acc_fmt: Format
) -> tuple[Callable[[Array], Step], Any, int]:
    if acc_fmt.name == "fp64":
        return _step_fma_fp64, np.float64, FMA_CHUNK // 4
    if acc_fmt.name == "fp16":
        return _step_odd(np.float16), np.float32, FMA_CHUNK // 4
    in_range = _products_in_range(a, b, a_fmt, b_fmt)
    if in_range and a_fmt.p + b_fmt.p <= 24:
        return _step_fp32, np.float32, FMA_CHUNK
    return (_step_fp64 if in_range else _step_odd(np.float32)), np.float64, FMA_CHUNK // 4


def exponents(x: Array, fmt: Format) -> Array:
    """Return e of float32 values m * 2**(e - p + 1), emin for subnormals and zeros; int32."""
    field = (np.ascontiguousarray(x).view(np.int32) >> 23) & 0xFF
    return np.maximum(field - 127, fmt.emin)


def exponent_range(x: Array, fmt: Format) -> tuple[int, int]:
    """Return the least and the greatest exponent of the nonzero finite float32 values of x."""
    e = exponents(x, fmt)
    used = (x != 0) & (e < 128)
    return int(e.min(where=used, initial=fmt.emax)), int(e.max(where=used, initial=fmt.emin))


def _products_in_range(a: Array, b: Array, a_fmt: Format, b_fmt: Format) -> bool:
    """Return whether every finite product is below 2**127 and a multiple of 2**-149."""
    high, low = 0, 0
    for x, fmt in ((a, a_fmt), (b, b_fmt)):
        # narrow formats are in range whatever the data
        least, top = exponent_range(x, fmt) if fmt.emax > 63 else (fmt.emin, fmt.emax)
        high += top + 1
        low += least - fmt.p + 1
    return high <= 127 and low >= -149


def _step_fp32(like: Array) -> Step:
    """The product is exact in fp32, so a multiply and an add round once.

    A single matrix takes its products from a matrix product of depth 1, which has nothing to round
    or to reorder and half the cost of broadcasting. A library may give +0 for -0 there, which only
    an acc of -0 would show: x + 0 is x, and sums that cancel are +0.
    """
    product = np.empty_like(like)
    minus_zero = np.signbit(like) & (like == 0)
    if len(like) == 1 and not minus_zero.any():

        def single(acc: Array, a: Array, b: Array) -> None:
            np.dot(a[0], b[0], out=product[0])
            np.add(acc, product, out=acc)

        return single

    def step(acc: Array, a: Array, b: Array) -> None:
        np.multiply(a, b, out=product)
        np.add(acc, product, out=acc)

    return step


def _step_fp64(like: Array) -> Step:
    """The product is exact in fp64; rounding the fp64 sum errs only where it is a tie of fp32.

    Below 2**-126 the sum is exact, because the product and acc are multiples of 2**-149.
    """
    product, total = np.empty_like(like), np.empty_like(like)
    low, tie = np.empty(like.shape, np.int64), np.empty(like.shape, np.bool_)
    narrow = np.empty(like.shape, np.float32)

    def step(acc: Array, a: Array, b: Array) -> None:
        np.multiply(a, b, out=product)
        np.add(acc, product, out=total)
        np.bitwise_and(total.view(np.int64), 0x1FFFFFFF, out=low)
        np.equal(low, 0x10000000, out=tie)
        narrow[...] = total
        if tie.any():
            narrow[tie] = sum_to_odd(acc[tie], product[tie])
        acc[...] = narrow

    return step


def _step_odd(target: type) -> Callable[[Array], Step]:
    """Any finite operands: the sum is first rounded to odd, in at least 2 p + 2 bits.

    fp16 and fp8 products are exact in fp32 (24 = 2 * 11 + 2 bits), all others in fp64.
    """

    def make(like: Array) -> Step:
        product = np.empty_like(like)

        def step(acc: Array, a: Array, b: Array) -> None:
            np.multiply(a, b, out=product)
            acc[...] = sum_to_odd(acc, product).astype(target)

        return step

    return make


def _step_fma_fp64(_: Array) -> Step:
    def step(acc: Array, a: Array, b: Array) -> None:
        acc[...] = fma_fp64(a, b, acc)

    return step


# -- fused dot-product-add of tensor cores -------------------------------------------------------
# Elements of the accumulator processed at once: many for the overhead, few for the cache.
_FDPA_CHUNK = 1 << 16

# Operands are prepared for so many k at once, so that memory does not grow with K.
_SLAB = 512

# The exponent of a float32, in its bits.
_EXPONENT = np.int32(0x7F800000)

# Every nonzero addend of the narrow arithmetic has at least this exponent.
_LOW = -101


@dataclass(frozen=True, slots=True)
class Unit:
    """One accumulating unit.

    fused: L products and c at once, cut to F fraction bits below the largest exponent, which is at
    least e_zero; the sum keeps `fraction` bits, rounded by `rounding`. fma: one product at a time,
    IEEE. integer: exact, saturating after every L products when `saturates`.
    """

    kind: Literal["fused", "fma", "integer"]
    L: int = 1
    F: int = 0
    fraction: int = 23
    rounding: Literal["rz", "rne"] = "rne"
    e_zero: int = 0
    saturates: bool = False


def fused_chain(
    a: Array, b: Array, acc: Array, unit: Unit, a_fmt: Format, b_fmt: Format, acc_fmt: Format
) -> Array:
    """Chain the fused step over ascending k, L at a time, starting from acc.

    a (P, M, K), b (P, K, N) float32 values of their formats, P of either may be 1; acc (P, M, N)
    in acc_fmt's storage, fp32 or fp16. Returns a new array like acc.
    """
    with np.errstate(all="ignore"):
        out = acc.astype(np.float32)
        narrow = _fits_narrow(a, b, out, unit, a_fmt, b_fmt, acc_fmt)
        slab = max(unit.L, _SLAB // unit.L * unit.L)
        for k in range(0, a.shape[-1], slab):
            x, y = a[..., k : k + slab], b[..., k : k + slab, :]
            powers = (_power(x, a_fmt, -8), _power(y, b_fmt, 1)) if narrow else None
            for programs, rows in chunks(out.shape, _FDPA_CHUNK):
                x_part, y_part = _cut(x, programs, rows), _cut(y, programs)
                part = out[programs, rows].copy()
                if powers and np.isfinite(part).all():
                    x_power, y_power = _cut(powers[0], programs, rows), _cut(powers[1], programs)
                    if _narrow(x_part, y_part, x_power, y_power, part, unit, acc_fmt):
                        out[programs, rows] = part
                        continue
                start = out[programs, rows]
                out[programs, rows] = _wide(x_part, y_part, start, unit, a_fmt, b_fmt, acc_fmt)
        nan = np.isnan(out)
        result = out.astype(acc_fmt.storage)
        if nan.any():
            result[nan] = acc_fmt.nan
    return result


def _cut(x: Array, programs: slice, rows: slice = slice(None)) -> Array:
    return x[:, rows] if len(x) == 1 else x[programs, rows]


def _fits_narrow(
    a: Array, b: Array, acc: Array, unit: Unit, a_fmt: Format, b_fmt: Format, acc_fmt: Format
) -> bool:
    """Return whether float32 and int32 hold every intermediate of the whole chain.

    With lo, hi the extreme exponents of nonzero products, all values are multiples of
    2**(min(lo, e_acc) - max(F, 23)) and sums stay below K 2**(hi + 2) + |acc|.
    """
    low, high = 0, 0
    for x, fmt in ((a, a_fmt), (b, b_fmt)):
        if not np.isfinite(x).all():
            return False
        least, top = exponent_range(x, fmt)
        low += least
        high += top
    size = np.abs(acc)
    if not np.isfinite(size).all():
        return False
    acc_low = float(size.min(where=size > 0, initial=1.0))
    floor = _LOW + max(unit.F, 23)
    overflow = max(high, -126) + 3 + a.shape[-1].bit_length()
    return (
        unit.F <= 29
        and unit.L < 128
        and low >= floor
        and acc_low >= 2.0**floor
        and float(size.max(initial=0.0)) < 2.0**125
        and (overflow <= 126 or acc_fmt.name == "fp16")
    )


def _narrow(
    a: Array, b: Array, power_a: Array, power_b: Array, acc: Array, unit: Unit, acc_fmt: Format
) -> bool:
    """Update acc (float32) in place; False, acc then garbage, when an fp16 accumulator overflows.

    A product of two 11-bit significands is exact in float32, scaled by 1/q it is below 2**(F + 2),
    and a cast to int32 is the cut toward zero. The largest exponent of a block comes from one
    matrix product of the powers 256**e: a sum of at most 127 terms keeps the top digit, whose
    exponent in float64, divided by 8, is e. power_a is 2**-8 and power_b 2 times those powers.
    """
    F, L, K = unit.F, unit.L, a.shape[-1]
    group = min(L, 8, 1 << (29 - F))  # so many scaled products are below 2**31 together
    a_k = np.ascontiguousarray(np.moveaxis(a, -1, 0))[..., None]
    b_k = np.moveaxis(b, -2, 0)[:, :, None, :]
    shape = acc.shape
    top, total = np.empty(shape), np.empty(shape)
    high = 1 if sys.byteorder == "little" else 0
    digit = top.view(np.int32)[..., high::2]
    e_max, cut, units, scale_code = (np.empty(shape, np.int32) for _ in range(4))
    scale, scaled = scale_code.view(np.float32), np.empty(shape, np.float32)
    products = np.empty((group, *shape), np.float32)
    acc_code, total_code = acc.view(np.int32), total.view(np.int64)
    # exponents stay in place, biased by 127 in bits 23 to 30, as float32 has them
    floor = np.int32((max(unit.e_zero, _LOW) + 127) << 23)
    reciprocal = np.uint32((254 + F) << 23).view(np.int32)
    for k in range(0, K, L):
        stop = min(k + L, K)
        np.matmul(power_a[..., k:stop], power_b[..., k:stop, :], out=top)
        np.bitwise_and(digit, _EXPONENT, out=e_max)
        np.bitwise_and(acc_code, _EXPONENT, out=cut)
        if acc_fmt.name == "fp16":
            np.maximum(cut, np.int32((acc_fmt.emin + 127) << 23), out=cut, where=acc != 0)
        np.maximum(e_max, cut, out=e_max)
        np.maximum(e_max, floor, out=e_max)
        np.subtract(reciprocal, e_max, out=scale_code)
        np.multiply(acc, scale, out=scaled)
        np.copyto(cut, scaled, casting="unsafe")
        np.copyto(total, cut)
        for start in range(k, stop, group):
            ks = slice(start, min(start + group, stop))
            some = products[: ks.stop - start]
            np.multiply(a_k[ks], b_k[ks], out=some)
            np.multiply(some, scale, out=some)
            np.add.reduce(some, axis=0, dtype=np.int32, out=units)
            np.add(total, units, out=total)
        np.subtract(e_max, np.int32(F << 23), out=scale_code)
        if unit.rounding == "rz":
            np.bitwise_and(total_code, np.int64(-1 << (52 - unit.fraction)), out=total_code)
            np.copyto(acc, total, casting="unsafe")
            np.multiply(acc, scale, out=acc)
        else:
            np.multiply(total, scale, out=total)
            np.copyto(acc, total.astype(acc_fmt.storage))
            np.add(acc, 0.0, out=acc)  # a negative sum that underflows is +0
            if acc_fmt.name == "fp16" and not np.isfinite(acc).all():
                return False
    return True


def _power(x: Array, fmt: Format, bias: int) -> Array:
    """Return 256**e times 2**bias as float64, 0 for zeros."""
    code = (8 * exponents(x, fmt).astype(np.int64) + 1023 + bias) << 52
    code[x == 0] = 0
    return code.view(np.float64)


def _wide(
    a: Array, b: Array, acc: Array, unit: Unit, a_fmt: Format, b_fmt: Format, acc_fmt: Format
) -> Array:
    """Run the chain in float64, for any operands; return the new accumulator as float32."""
    K = a.shape[-1]
    a64, b64, c = a.astype(np.float64), b.astype(np.float64), acc.astype(np.float64)
    special = not (np.isfinite(a64).all() and np.isfinite(b64).all())
    a_e, b_e = _product_exponents(a, a_fmt), _product_exponents(b, b_fmt)
    a_fin, b_fin = (np.where(np.isfinite(x), x, 0.0) for x in (a64, b64))
    for k in range(0, K, unit.L):
        ks = range(k, min(k + unit.L, K))
        c_fin = np.where(np.isfinite(c), c, 0.0)
        _, e = np.frexp(c_fin)
        e = np.where(c_fin == 0, unit.e_zero, np.maximum(e - 1, acc_fmt.emin))
        e_max = np.maximum(e, unit.e_zero)
        for i in ks:
            np.maximum(e_max, a_e[..., :, i, None] + b_e[..., i, None, :], out=e_max)
        scale = np.ldexp(1.0, unit.F - e_max)
        total = np.trunc(c_fin * scale)
        for i in ks:
            total += np.trunc(a_fin[..., :, i, None] * b_fin[..., i, None, :] * scale)
        new = _round(np.ldexp(total, e_max - unit.F), unit, acc_fmt)
        if special or not np.isfinite(c).all():
            # finite products stay below 2**256 in float64: only special operands show here
            ieee = c.copy()
            for i in ks:
                ieee += a64[..., :, i, None] * b64[..., i, None, :]
            new = np.where(np.isfinite(ieee), new, ieee)
        c = new
    return c.astype(np.float32)


def _product_exponents(x: Array, fmt: Format) -> Array:
    e = exponents(x, fmt)
    e[(x == 0) | ~np.isfinite(x)] = -(1 << 20)
    return e


def _round(value: Array, unit: Unit, acc_fmt: Format) -> Array:
    """Round exact float64 sums as the unit does; Inf on overflow, no negative zero."""
    if unit.rounding == "rne":
        return value.astype(acc_fmt.storage).astype(np.float64) + 0.0
    _, e = np.frexp(value)
    step = np.maximum(e - 1, acc_fmt.emin) - unit.fraction
    cut = np.ldexp(np.trunc(np.ldexp(value, -step)), step)
    limit = 2.0 ** (acc_fmt.emax + 1)
    return np.where(np.abs(cut) >= limit, np.copysign(np.inf, cut), cut) + 0.0
