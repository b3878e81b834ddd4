"""Small kernels that together make every operation that Triton's language can make: on values.

Tests run them from the TTIR of the installed Triton and from recordings of older ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import store_rows
from tests.witnesses.ttir.ttir_cases import case

RNG = np.random.default_rng(0)
I = np.arange(16, dtype=np.int32)
INTS = RNG.integers(-99, 99, 16, dtype=np.int32)
OTHERS = RNG.integers(1, 9, 16, dtype=np.int32)
FLOATS = RNG.uniform(0.5, 2, 16).astype(np.float32)
SIGNED = FLOATS * np.where(I % 2, -1, 1).astype(np.float32)
SQUARE = RNG.integers(-3, 4, (16, 16)).astype(np.float32)


def each(*rows: Any) -> np.ndarray:
    """Results of 16 lanes, one row each."""
    return np.stack([np.asarray(row) for row in rows])


def in_double(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The function of float32 arrays, computed in double and rounded once."""
    return lambda *args: function(*(a.astype(np.float64) for a in args)).astype(np.float32)


def unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint32)


# -- integers, floats, casts ---------------------------------------------------------------------
@case(
    [INTS, OTHERS],
    lambda x, y: each(
        x + y, x - y, x * y, np.trunc(x / y), np.fmod(x, y), unsigned(x) // unsigned(y),
        unsigned(x) % unsigned(y), x << y, x >> y, unsigned(x) >> y, x & y, x | y, x ^ y, ~x,
        np.minimum(x, y), np.maximum(x, y), np.minimum(unsigned(x), unsigned(y)),
        np.maximum(unsigned(x), unsigned(y)), np.abs(x),
        unsigned(x).astype(np.uint64) * unsigned(y) >> 32,
        np.where((x < y) & (x != 3), x, y), np.where(unsigned(x) > unsigned(y), -x, y),
    ).astype(np.int64),
)  # fmt: skip
@triton.jit
def integers(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 16)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    u, v = x.to(tl.uint32), y.to(tl.uint32)
    arithmetic = x + y, x - y, x * y, x // y, x % y, u // v, u % v
    bits = x << y, x >> y, u >> v, x & y, x | y, x ^ y, ~x
    extremes = tl.minimum(x, y), tl.maximum(x, y), tl.minimum(u, v), tl.maximum(u, v), tl.abs(x)
    others = tl.umulhi(u, v), tl.where((x < y) & (x != 3), x, y), tl.where(u > v, -x, y)
    store_rows(o_ptr, arithmetic + bits + extremes + others, 16)


def erf(x: np.ndarray) -> np.ndarray:
    return torch.erf(torch.from_numpy(x)).numpy()


@case(
    [SIGNED, FLOATS],
    in_double(lambda x, y: each(
        x + y, x - y, x * y, x / y, x / y, x / y, np.fmod(x, y), -x, np.abs(x), np.sqrt(y),
        np.sqrt(y), 1 / np.sqrt(y), np.exp(x), np.exp2(x), np.log(y), np.log2(y), np.sin(x),
        np.cos(x), erf(x), np.floor(x), np.ceil(x), x * y + x, np.clip(x, -1, 1), np.fmin(x, y),
        np.fmax(x, y), np.minimum(x, y), np.maximum(x, y), np.clip(x, -1, 1),
        np.where(x <= y, x, 0),
    )),
)  # fmt: skip
@triton.jit
def floats(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 16)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    quotients = x / y, tl.math.div_rn(x, y), tl.fdiv(x, y), x % y
    powers = -x, tl.abs(x), tl.sqrt(y), tl.sqrt_rn(y), tl.rsqrt(y), tl.exp(x), tl.exp2(x)
    functions = tl.log(y), tl.log2(y), tl.sin(x), tl.cos(x), tl.erf(x), tl.floor(x), tl.ceil(x)
    numbers = tl.fma(x, y, x), tl.clamp(x, -1.0, 1.0), tl.minimum(x, y), tl.maximum(x, y)
    least = tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
    largest = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    clamped = tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL)
    with_nan = least, largest, clamped, tl.where(x <= y, x, 0.0)
    exact = x + y, x - y, x * y
    store_rows(o_ptr, exact + quotients + powers + functions + numbers + with_nan, 16)


@case([SIGNED, FLOATS], lambda x, y: x / y, needs="approximate_division")
@triton.jit
def quick_division(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 16)
    tl.store(o_ptr + i, tl.fdiv(tl.load(x_ptr + i), tl.load(y_ptr + i), approx=True))


@case(
    [SIGNED, INTS],
    lambda x, y: each(
        x.astype(np.float16), x.astype(np.float16).astype(np.float64), np.trunc(x * 9),
        np.trunc(y / 4 + 30), y, unsigned(y), y.astype(np.int8), y.astype(np.uint8),
        x.view(np.int32), y != 0, I,
        torch.from_numpy(x).to(torch.float8_e5m2).float().numpy(),
        (x.astype(np.float16).view(np.int16) & ~0).view(np.float16),
    ).astype(np.float64),
)  # fmt: skip
@triton.jit
def casts(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, 16)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    floats = x.to(tl.float16), x.to(tl.float16).to(tl.float64)
    integers = (x * 9).to(tl.int32), (y * 0.25 + 30).to(tl.uint32).to(tl.int64), y.to(tl.float32)
    unsigned = y.to(tl.uint32).to(tl.float64)
    narrow = unsigned, y.to(tl.int8).to(tl.int64), y.to(tl.uint8).to(tl.int32)
    far = (x_ptr + i).to(tl.int64).to(tl.pointer_type(tl.float32))
    index = (far.to(tl.int64) - x_ptr.to(tl.int64)) // 4
    half = x.to(tl.float16).to(tl.int16, bitcast=True).to(tl.float16, bitcast=True)
    bits, small = (x.to(tl.int32, bitcast=True), y.to(tl.int1), index), x.to(tl.float8e5)
    last = small.to(tl.float32), half
    store_rows(o_ptr, floats + integers + narrow + bits + last, 16)


# -- shapes, reductions, regions -----------------------------------------------------------------
@case(
    [INTS],
    lambda x: each(
        x.reshape(4, 4).T.reshape(-1), np.stack([x, I], 1).reshape(-1)[:16],
        (x.reshape(8, 2) * [1, -1]).sum(1).repeat(2), x[15 - I], np.append(x[:8], x[:8] + 1)[::-1],
        np.bincount(np.abs(x) % 16, minlength=16),
        (x.reshape(4, 4)[:, :1] + x.reshape(4, 4)[:1]).reshape(-1), np.full(16, x[3] + 1),
    ).astype(np.int32),
)  # fmt: skip
@triton.jit
def shapes(x_ptr, o_ptr):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i)
    half = tl.gather(x, tl.arange(0, 8), 0)
    left, right = tl.split(tl.reshape(x, (8, 2)))
    both = tl.reshape(tl.broadcast_to((left - right)[:, None], (8, 2)), (16,))
    turned = tl.reshape(tl.trans(tl.reshape(x, (4, 4))), (16,))
    joined = turned, tl.interleave(half, tl.arange(0, 8)), both
    moved = tl.gather(x, 15 - i, 0), tl.cat(half, half + 1, can_reorder=True)
    j = tl.arange(0, 4)
    grid = tl.load(x_ptr + 4 * j)[:, None] + tl.load(x_ptr + j)[None, :]
    counted = tl.histogram(tl.abs(x) % 16, 16), tl.reshape(grid, (16,))
    store_rows(o_ptr, joined + moved + counted, 16)
    one = tl.load(x_ptr + 3 + tl.zeros((1,), tl.int32))
    if one > -1000:
        tl.store(o_ptr + 112 + i, x * 0 + (one + 1))


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@case(
    [INTS],
    lambda x: (
        x.sum(keepdims=True), x.max(keepdims=True), np.argmin(x, keepdims=True).astype(np.int32),
        np.cumsum(x, dtype=np.int32), np.maximum.accumulate(x[::-1])[::-1].copy(), np.sort(x),
        np.bitwise_xor.reduce(x, keepdims=True),
    ),
)  # fmt: skip
@triton.jit
def reductions(x_ptr, sum_ptr, max_ptr, at_ptr, run_ptr, back_ptr, sorted_ptr, xor_ptr):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i)
    tl.store(sum_ptr, tl.sum(x))
    tl.store(max_ptr, tl.reduce(x, 0, larger))
    tl.store(at_ptr, tl.argmin(x, 0))
    tl.store(run_ptr + i, tl.cumsum(x))
    tl.store(back_ptr + i, tl.associative_scan(x, 0, larger, reverse=True))
    tl.store(sorted_ptr + i, tl.sort(x))
    tl.store(xor_ptr, tl.xor_sum(x))


@triton.jit
def steps_down(x, y):
    if x > 40:
        return x - 40, y
    while x > 10:
        x -= 3
    return x, y + 1


@triton.jit
def exchange(a0, a1, b0, b1):
    return a1, a0, b0 + b1, b0 - b1


def _stepped(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    down = np.where(x > 10, x - 3 * -(-(x - 10) // 3), x)
    a, b = np.where(x > 40, x - 40, down), np.where(x > 40, y, y + 1)
    left, right = y.reshape(8, 2).T
    sums = np.stack([left + right, left - right], 1).reshape(-1)
    return a.astype(np.int32), b, x.reshape(8, 2)[:, ::-1].reshape(-1).copy(), sums


@case([INTS, OTHERS], _stepped)
@triton.jit
def maps(x_ptr, y_ptr, o_ptr, p_ptr, q_ptr, r_ptr):
    i = tl.arange(0, 16)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    a, b = tl.map_elementwise(steps_down, x, y)
    tl.store(o_ptr + i, a)
    tl.store(p_ptr + i, b)
    c, d = tl.map_elementwise(exchange, x, y, pack=2)
    tl.store(q_ptr + i, c)
    tl.store(r_ptr + i, d)
