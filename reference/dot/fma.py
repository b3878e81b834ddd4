"""The IEEE accumulator: one fused multiply-add per k, ascending, each rounded to nearest once."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.arithmetic.errorfree import sum_to_odd
from gemmproof.reference.arithmetic.fma_fp64 import fma_fp64
from gemmproof.reference.formats import Format
from gemmproof.reference.sign_of_life import SignOfLife

# Elements of the accumulator worked on at once, so that it and its scratch stay in a 512 KiB cache.
_CHUNK = 1 << 15

Step = Callable[[Array, Array, Array], None]


def fma_chain(
    a: Array, b: Array, acc: Array, a_fmt: Format, b_fmt: Format, acc_fmt: Format
) -> Array:
    """acc = RN(a[k] * b[k] + acc) for k = 0 .. K-1, in acc_fmt, without a library's matmul.

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


def chunks(shape: tuple[int, ...], size: int = _CHUNK) -> Iterator[tuple[slice, slice]]:
    """Slices of (P, M) of an array (P, M, N) that hold about `size` elements each."""
    P, M, N = shape
    rows = max(1, min(M, size // max(1, N)))
    programs = max(1, size // max(1, M * N)) if rows == M else 1
    for p in range(0, P, programs):
        for m in range(0, M, rows):
            SignOfLife.give()
            yield slice(p, p + programs), slice(m, m + rows)


def _step_for(
    a: Array, b: Array, a_fmt: Format, b_fmt: Format, acc_fmt: Format
) -> tuple[Callable[[Array], Step], Any, int]:
    if acc_fmt.name == "fp64":
        return _step_fma_fp64, np.float64, _CHUNK // 4
    if acc_fmt.name == "fp16":
        return _step_odd(np.float16), np.float32, _CHUNK // 4
    in_range = _products_in_range(a, b, a_fmt, b_fmt)
    if in_range and a_fmt.p + b_fmt.p <= 24:
        return _step_fp32, np.float32, _CHUNK
    return (_step_fp64 if in_range else _step_odd(np.float32)), np.float64, _CHUNK // 4


def exponents(x: Array, fmt: Format) -> Array:
    """Exponent e of float32 values m * 2**(e - p + 1), emin for subnormals and zeros; int32."""
    field = (np.ascontiguousarray(x).view(np.int32) >> 23) & 0xFF
    return np.maximum(field - 127, fmt.emin)


def exponent_range(x: Array, fmt: Format) -> tuple[int, int]:
    """The least and the greatest exponent of the nonzero finite float32 values of x."""
    e = exponents(x, fmt)
    used = (x != 0) & (e < 128)
    return int(e.min(where=used, initial=fmt.emax)), int(e.max(where=used, initial=fmt.emin))


def _products_in_range(a: Array, b: Array, a_fmt: Format, b_fmt: Format) -> bool:
    """Whether every finite product is below 2**127 and a multiple of 2**-149."""
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

        def one(acc: Array, a: Array, b: Array) -> None:
            np.dot(a[0], b[0], out=product[0])
            np.add(acc, product, out=acc)

        return one

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
