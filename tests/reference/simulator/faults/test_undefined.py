"""The propagation of undefined lanes and overflowed offsets, and its ends."""

import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import FILLS, empty_launcher, expression

from gemmproof.reference.simulator import run


@triton.jit
def undefined_kernel(x_ptr, o_ptr, n, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, mask=i < n)  # lanes from n on are undefined
    y = tl.load(x_ptr + i)
    tl.store(o_ptr + i, F(x, y, i < n))


# an expression in x, of whose 16 lanes 6 are undefined, in y, and in ok, true where x is defined
# -> how many of its lanes are undefined
SPREAD = {
    "x * 0": 6,
    "tl.where(ok, x, 0)": 0,
    "tl.where(~ok, x, 0)": 6,
    "((x > 0) & ok).to(tl.int32)": 0,
    "((x > 0) | ~ok).to(tl.int32)": 0,
    "((x > 0) | ok).to(tl.int32)": 6,
    "x.to(tl.int32) & tl.where(ok, -1, 0)": 0,
    "tl.sum(x, 0) + y * 0": 16,
    "tl.sum(tl.where(ok, x, 0), 0) + y * 0": 0,
    "x.to(tl.int32).to(tl.float32) + y": 6,
    "tl.reshape(tl.trans(tl.reshape(x, (4, 4))), (16,))": 6,
    "tl.maximum(x, y)": 6,
    "tl.where(x > 0, y, y)": 6,
}


@pytest.mark.parametrize("text", SPREAD)
@pytest.mark.parametrize("fill", FILLS)
def test_undefined_lanes_spread_as_far_as_they_decide(text, fill):
    """Whatever the undefined memory holds."""
    wrapper = empty_launcher(undefined_kernel, (1,), 10, expression(text, "x, y, ok"), 16)
    seen = run(wrapper, torch.arange(1.0, 17.0), fill=fill)
    lanes = SPREAD[text]
    assert {f.kind: f.lanes for f in seen.faults} == ({"undefined_stored": lanes} if lanes else {})


@triton.jit
def undefined_dot_kernel(a_ptr, b_ptr, c_ptr, k, ZERO_B: tl.constexpr, S: tl.constexpr):
    i, j = tl.arange(0, S)[:, None], tl.arange(0, S)[None, :]
    a = tl.load(a_ptr + i * S + j, mask=j < k)
    b = tl.load(b_ptr + i * S + j, mask=i < k + S * (1 - ZERO_B), other=0)
    tl.store(c_ptr + i * S + j, tl.dot(a, b))


@pytest.mark.parametrize(
    ("dtype", "zero_b", "bad"),
    [
        (torch.float16, False, True),
        (torch.float16, True, True),  # NaN times 0 is NaN
        (torch.int8, False, True),
        (torch.int8, True, False),  # any integer times 0 is 0
    ],
)
def test_undefined_lanes_in_a_dot(dtype, zero_b, bad):
    """Zeros of the partner save integers, not floats."""
    out = torch.int32 if dtype == torch.int8 else torch.float32
    wrapper = empty_launcher(undefined_dot_kernel, (1,), 20, zero_b, 32, shape=(32, 32), dtype=out)
    ones = torch.ones((32, 32), dtype=dtype)
    kinds = [f.kind for f in run(wrapper, ones, ones.clone()).faults]
    assert kinds == (["undefined_stored"] if bad else [])


@triton.jit
def undefined_row_kernel(a_ptr, b_ptr, c_ptr, m, S: tl.constexpr):
    i, j = tl.arange(0, S)[:, None], tl.arange(0, S)[None, :]
    a = tl.load(a_ptr + i * S + j, mask=i < m)
    b = tl.load(b_ptr + i * S + j)
    tl.store(c_ptr + i * S + j, tl.dot(a, b), mask=i < m)


def test_undefined_rows_that_are_not_stored_are_no_fault():
    """A row mask without `other` is right when the store has the same mask."""

    def wrapper(a, b):
        c = torch.empty((32, 32))[:20]
        undefined_row_kernel[(1,)](a, b, c, 20, 32)
        return c

    assert run(wrapper, torch.ones((32, 32)).half(), torch.ones((32, 32)).half()).faults == []


@triton.jit
def hinted_row_kernel(a_ptr, b_ptr, c_ptr, m, k, S: tl.constexpr):
    i, j = tl.arange(0, S), tl.arange(0, S)[None, :]
    rows = tl.max_contiguous(tl.multiple_of(i % m, S), S)[:, None]  # false of rows from m on
    a = tl.load(a_ptr + rows * S + j, mask=j < k)
    b = tl.load(b_ptr + i[:, None] * S + j)
    tl.store(c_ptr + i[:, None] * S + j, tl.dot(a, b), mask=i[:, None] < m)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8])
def test_an_output_of_a_dot_has_the_origins_of_its_own_terms(dtype):
    """The hint is false of rows that are not stored; the columns of all rows are undefined."""
    out = torch.int32 if dtype == torch.int8 else torch.float32
    wrapper = empty_launcher(hinted_row_kernel, (1,), 3, 20, 32, shape=(32, 32), dtype=out)
    ones = torch.ones((32, 32), dtype=dtype)
    kinds = [f.kind for f in run(wrapper, ones, ones.clone()).faults]
    assert kinds == ["undefined_stored", "never_stored"]


@triton.jit
def offset_kernel(x_ptr, o_ptr, big, F: tl.constexpr):
    i = tl.arange(0, 4)
    tl.store(o_ptr + i, tl.load(x_ptr + F(i, big)))


# an offset of i in 0..3 and big = 2**30, where 2 * big leaves int32 -> whether that is a fault
WRAPS = {
    "i * big": True,
    "i * big - i * big + i": False,
    "(i * big) // big": True,
    "((i + 4) * big) >> 30": True,
    "(i.to(tl.int64) * 4 * big).to(tl.int32) + i": True,
    "(i.to(tl.int64) * big) // big": False,
    "((i * big) ^ (i * big)) + i": False,
    "tl.where(i < 2, i * big // big, i)": False,
}


@pytest.mark.parametrize("text", WRAPS)
def test_an_overflow_is_reported_where_it_reaches_an_address(text):
    """Offsets that leave int32 and come back address the right elements."""
    wrapper = empty_launcher(offset_kernel, (1,), 2**30, expression(text, "i, big"), shape=(4,))
    seen = run(wrapper, torch.arange(8.0))
    kinds = {f.kind for f in seen.faults} - {"out_of_bounds", "undefined_stored"}
    assert kinds == ({"wrapped_offset"} if WRAPS[text] else set())
    if not WRAPS[text]:
        assert seen.faults == []
        assert seen.result.tolist() == [0.0, 1.0, 2.0, 3.0]


@triton.jit
def hinted_often(x_ptr, c_ptr, n, S: tl.constexpr):
    """Ten hints that are false in lanes beyond n only, which are not stored."""
    i = tl.arange(0, S)
    near = tl.where(i < n, i, 0)
    total = tl.zeros((S,), tl.float32)
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 0), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 1), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 2), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 3), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 4), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 5), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 6), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 7), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 8), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 9), S))
    tl.store(c_ptr + i, total, mask=i < n)


def test_false_hints_in_lanes_that_are_not_stored_are_no_findings_however_many_there_are():
    """More origins of undefined lanes than a block has bits: none is mistaken for another kind."""
    x = torch.arange(5, dtype=torch.float32)
    seen = run(empty_launcher(hinted_often, (1,), 5, 16, shape=(5,)), x)
    assert seen.faults == []
    assert torch.equal(seen.result, 10 * x)
