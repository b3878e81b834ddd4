"""Control flow that differs between programs: each gets its own answer."""

import time

import numpy as np
import pytest
import triton
import triton.language as tl
from tests.support.simulator_lanes import result_of


@triton.jit
def branches(o, n):
    pid = tl.program_id(0)
    if pid % 3 == 0:
        x = pid * 10
    elif pid < n:
        x = pid + 100
    else:
        x = -pid
    y = x if pid % 2 == 0 else x + 1
    tl.store(o + pid, y)


@triton.jit
def collatz(o, n):
    pid = tl.program_id(0)
    x, steps = pid + 1, 0
    while x != 1:
        if x % 2 == 0:
            x = x // 2
        else:
            x *= 3
            x += 1
        steps += 1
    tl.store(o + pid, steps)


@triton.jit
def triangle(o, n):
    pid = tl.program_id(0)
    total = 0
    for i in range(pid):
        for j in range(i, pid, 2):
            total += i * j
    tl.store(o + pid, total)


@triton.jit
def early(o, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    if pid % 2 == 1:
        tl.store(o + pid, 1)
        return
    tl.store(o + pid, 2)


@triton.jit
def inner_return(x, n):
    if x > n:
        return n
    return x


@triton.jit
def middle(x, n):
    return inner_return(x, n) + inner_return(2 * x, n)


@triton.jit
def nested(o, n):
    pid = tl.program_id(0)
    tl.store(o + pid, middle(pid, n))


@triton.jit
def static_ranges(o, n, S: tl.constexpr):
    pid = tl.program_id(0)
    total = 0
    for i in tl.static_range(S):
        for j in tl.static_range(1, S, 2):
            if i % 2 == 0:
                total += i * j + pid
    tl.store(o + pid, total)


@triton.jit
def persistent(o, n, S: tl.constexpr):
    for tile in tl.range(tl.program_id(0), n, S, num_stages=2, flatten=True):
        tl.store(o + tile, tl.program_id(0) * 100 + tile)


@triton.jit
def counting_down(o, n):
    pid = tl.program_id(0)
    total = 0
    for i in range(n, pid, -2):
        total += i
    tl.store(o + pid, total)


def collatz_steps(x):
    steps = 0
    while x != 1:
        x, steps = (x // 2 if x % 2 == 0 else 3 * x + 1), steps + 1
    return steps


def c_triangle(p):
    return sum(i * j for i in range(p) for j in range(i, p, 2))


def expected_branch(p, n):
    x = p * 10 if p % 3 == 0 else (p + 100 if p < n else -p)
    return x if p % 2 == 0 else x + 1


@pytest.mark.parametrize(
    ("kernel", "grid", "args", "expected"),
    [
        (branches, 64, (30,), lambda p: expected_branch(p, 30)),
        (collatz, 64, (0,), lambda p: collatz_steps(p + 1)),
        (triangle, 40, (0,), c_triangle),
        (early, 64, (41,), lambda p: 0 if p >= 41 else 2 - p % 2),
        (nested, 64, (50,), lambda p: min(p, 50) + min(2 * p, 50)),
        (static_ranges, 64, (0, 5), lambda p: sum(i * j + p for i in (0, 2, 4) for j in (1, 3))),
        (persistent, 7, (60, 7), lambda p: p % 7 * 100 + p if p < 60 else 0),
        (persistent, 64, (10, 64), lambda p: p * 101 if p < 10 else 0),
        (counting_down, 64, (61,), lambda p: sum(range(61, p, -2))),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_programs_that_decide_differently(kernel, grid, args, expected):
    """if, while, for, early return, helpers: each program's own answer."""
    got = result_of(kernel, (grid,), *args)
    done = 64 if kernel is persistent else grid
    assert got[:done].tolist() == [expected(p) for p in range(done)]


def test_many_different_trip_counts_end_in_time():
    """150 programs, each with a different trip count."""

    @triton.jit
    def own_count(o):
        pid = tl.program_id(0)
        i = 0
        while i < pid:
            i += 1
        tl.store(o + pid, i)

    started = time.monotonic()
    got = result_of(own_count, (150,), shape=(150,))
    assert got.tolist() == list(range(150))
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("programs", [1, 4, 300])
def test_long_loops_without_stores_are_no_deadlock(programs):
    """A thousand decisions between two stores, in more than one part of the grid."""
    TURNS = 500

    @triton.jit
    def long(o, n):
        pid = tl.program_id(0)
        i, odd = 0, 0
        while i < n + pid % 2:
            if i % 2 == 1:
                odd += 1
            i += 1
        tl.store(o + pid, odd * 10000 + i)

    got = result_of(long, (programs,), TURNS, shape=(programs,))
    assert got.tolist() == [(TURNS + p % 2) // 2 * 10000 + TURNS + p % 2 for p in range(programs)]


def test_three_axes_of_a_grid():
    """x runs fastest; num_programs gives the sizes."""

    @triton.jit
    def axes(o):
        x, y, z = tl.program_id(0), tl.program_id(axis=1), tl.program_id(2)
        at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
        tl.store(o + at, x + 10 * y + 100 * z)

    got = result_of(axes, (4, 3, 5), shape=(5, 3, 4))
    z, y, x = np.indices((5, 3, 4))
    assert (got == x + 10 * y + 100 * z).all()
