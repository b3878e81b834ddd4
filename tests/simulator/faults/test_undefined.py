"""How far undefined lanes and offsets that left their type are carried, and where they end."""

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import run


@triton.jit
def undefined_kernel(x_ptr, o_ptr, n, F: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, mask=i < n)  # lanes from n on are undefined
    y = tl.load(x_ptr + i)
    tl.store(o_ptr + i, F(x, y, i < n))


@triton.jit
def times_zero(x, y, ok):
    return x * 0


@triton.jit
def picked(x, y, ok):
    return tl.where(ok, x, 0)


@triton.jit
def picked_wrongly(x, y, ok):
    return tl.where(~ok, x, 0)


@triton.jit
def and_false(x, y, ok):
    return ((x > 0) & ok).to(tl.int32)


@triton.jit
def or_true(x, y, ok):
    return ((x > 0) | ~ok).to(tl.int32)


@triton.jit
def or_false(x, y, ok):
    return ((x > 0) | ok).to(tl.int32)


@triton.jit
def integer_and_zero(x, y, ok):
    return x.to(tl.int32) & tl.where(ok, -1, 0)


@triton.jit
def summed(x, y, ok):
    return tl.sum(x, 0) + y * 0


@triton.jit
def summed_picked(x, y, ok):
    return tl.sum(tl.where(ok, x, 0), 0) + y * 0


@triton.jit
def cast_and_back(x, y, ok):
    return x.to(tl.int32).to(tl.float32) + y


@triton.jit
def shuffled(x, y, ok):
    return tl.reshape(tl.trans(tl.reshape(x, (4, 4))), (16,))


@triton.jit
def max_with(x, y, ok):
    return tl.maximum(x, y)


@triton.jit
def defined_condition(x, y, ok):
    return tl.where(x > 0, y, y)


@pytest.mark.parametrize(
    ("function", "lanes"),
    [
        (times_zero, 6), (picked, 0), (picked_wrongly, 6), (and_false, 0), (or_true, 0),
        (or_false, 6), (integer_and_zero, 0), (summed, 16), (summed_picked, 0),
        (cast_and_back, 6), (shuffled, 6), (max_with, 6), (defined_condition, 6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fill", ["nan", "ones", "zero", "large"])
def test_undefined_lanes_spread_as_far_as_they_decide(function, lanes, fill):
    """How many of 16 stored lanes are undefined, whatever the undefined memory holds."""

    def wrapper(x):
        o = torch.empty(16)
        undefined_kernel[(1,)](x, o, 10, function, 16)
        return o

    seen = run(wrapper, torch.arange(1.0, 17.0), fill=fill)
    found = {f.kind: f.lanes for f in seen.faults}
    assert found == ({"undefined_stored": lanes} if lanes else {})


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

    def wrapper(a, b):
        c = torch.empty((32, 32), dtype=torch.int32 if dtype == torch.int8 else torch.float32)
        undefined_dot_kernel[(1,)](a, b, c, 20, zero_b, 32)
        return c

    a, b = torch.ones((32, 32), dtype=dtype), torch.ones((32, 32), dtype=dtype)
    kinds = [f.kind for f in run(wrapper, a, b).faults]
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
def offset_kernel(x_ptr, o_ptr, big, F: tl.constexpr):
    i = tl.arange(0, 4)
    tl.store(o_ptr + i, tl.load(x_ptr + F(i, big)))


@triton.jit
def straight(i, big):
    return i * big  # 3 * 2**30 leaves int32


@triton.jit
def cancels(i, big):
    return i * big - i * big + i


@triton.jit
def halves(i, big):
    return (i * big) // big


@triton.jit
def shifted_back(i, big):
    return ((i + 4) * big) >> 30


@triton.jit
def wide(i, big):
    return (i.to(tl.int64) * big) // big


@triton.jit
def hashed(i, big):
    return ((i * big) ^ (i * big)) + i


@triton.jit
def narrowed(i, big):
    return (i.to(tl.int64) * 4 * big).to(tl.int32) + i


@triton.jit
def clamped_away(i, big):
    return tl.where(i < 2, i * big // big, i)


@pytest.mark.parametrize(
    ("function", "kinds"),
    [
        (straight, {"wrapped_offset"}), (cancels, set()), (halves, {"wrapped_offset"}),
        (shifted_back, {"wrapped_offset"}), (narrowed, {"wrapped_offset"}),
        (wide, set()), (hashed, set()), (clamped_away, set()),
    ],
)  # fmt: skip
def test_a_wrap_is_accused_where_it_reaches_an_address(function, kinds):
    """Offsets that left int32 and came back the same address nothing wrong."""

    def wrapper(x):
        o = torch.empty(4)
        offset_kernel[(1,)](x, o, 2**30, function)
        return o

    seen = run(wrapper, torch.arange(8.0))
    assert {f.kind for f in seen.faults} - {"out_of_bounds", "undefined_stored"} == kinds
    if not kinds:
        assert seen.faults == []
        assert seen.result.tolist() == [0.0, 1.0, 2.0, 3.0]
