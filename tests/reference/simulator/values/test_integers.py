"""The simulator's integers and booleans against Python's."""

import operator

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support import simulator_lanes
from tests.support.lanes import first_of_each
from tests.support.simulator_lanes import (
    compute,
    get_name,
    limits,
    pairs,
    samples,
    store_rows,
    tensor,
    wrap,
)

from gemmproof.reference.simulation import CompileError

COMPARISONS = {
    "x < y": operator.lt, "x <= y": operator.le, "x > y": operator.gt, "x >= y": operator.ge,
    "x == y": operator.eq, "x != y": operator.ne,
}  # fmt: skip
EXACT = COMPARISONS | {
    "x + y": operator.add, "x - y": operator.sub, "x * y": operator.mul, "x & y": operator.and_,
    "x | y": operator.or_, "x ^ y": operator.xor, "~x": lambda p, _: ~p, "-x": lambda p, _: -p,
    "tl.minimum(x, y)": min, "tl.maximum(x, y)": max,
}  # fmt: skip


def assert_exact(text, exact, dtype, x, y, out=None):
    """On every lane `text` is what Python's `exact` gives, cut to the width of the result."""
    out = out or dtype
    got = compute(text, tensor(x, dtype), tensor(y, dtype), out)
    assert got.tolist() == [wrap(exact(p, q), out) for p, q in zip(x, y, strict=True)]


def test_integers_of_mixed_sign_do_not_divide():
    with pytest.raises(CompileError, match="signedness"):
        simulator_lanes.run_lanes("x // y", tensor([1], tl.int32), tensor([1], tl.uint32), tl.int32)


def test_a_literal_out_of_range_is_refused():
    """uint8 + (-1) and int8 + 200 do not compile."""
    for dtype, literal, message in ((tl.uint8, -1, "negative"), (tl.int8, 200, "out of range")):
        x = tensor([1], dtype)
        with pytest.raises(CompileError, match=message):
            simulator_lanes.run_lanes(f"x + {literal}", x, x, dtype)


@pytest.mark.parametrize(
    "dtype", first_of_each(simulator_lanes.INTEGERS, lambda x: x.primitive_bitwidth), ids=get_name
)
@pytest.mark.parametrize("text", EXACT)
def test_integers_wrap_at_their_width(dtype, text):
    """Arithmetic, bits, comparisons, minimum and maximum."""
    out = tl.int1 if text in COMPARISONS else dtype
    assert_exact(text, EXACT[text], dtype, *pairs(samples(dtype, 1)), out)


def c_divide(p, q):
    return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)


@pytest.mark.parametrize("dtype", simulator_lanes.INTEGERS, ids=get_name)
def test_division_truncates_and_the_remainder_has_the_dividends_sign(dtype):
    """C's rules, 8-bit types exhaustively."""
    low, high = limits(dtype)
    values = list(range(low, high + 1)) if dtype.int_bitwidth == 8 else samples(dtype, 2)
    x, y = pairs(values, [q for q in values if q])
    assert_exact("x // y", c_divide, dtype, x, y)
    assert_exact("x % y", lambda p, q: p - c_divide(p, q) * q, dtype, x, y)


@pytest.mark.parametrize(("op", "exact"), [("//", operator.floordiv), ("%", operator.mod)])
def test_division_by_zero_is_undefined(op, exact):
    """No exception; the lane that divides by zero is undefined, and only that lane."""
    seen = simulator_lanes.run_lanes(
        f"x {op} y", tensor([7, 7], tl.int32), tensor([0, 2], tl.int32), tl.int32
    )
    (fault,) = seen.faults
    assert (fault.kind, fault.lanes) == ("undefined_stored", 1)
    assert "division by zero" in fault.got
    assert seen.result[1] == exact(7, 2)


def test_cdiv_is_c_division_of_the_sum():
    """(x + y - 1) / y, cut toward zero, as in Triton's standard library."""
    x, y = pairs([-9, -8, -1, 0, 1, 7, 8, 9], [1, 2, 3, 8])
    assert_exact("tl.cdiv(x, y)", lambda p, q: c_divide(p + q - 1, q), tl.int32, x, y)


@pytest.mark.parametrize("dtype", simulator_lanes.INTEGERS, ids=get_name)
def test_shifts_inside_the_width(dtype):
    """Left wraps, right keeps the sign of signed types."""
    x, y = pairs(samples(dtype, 3), list(range(dtype.int_bitwidth)))
    assert_exact("x << y", operator.lshift, dtype, x, y)
    assert_exact("x >> y", operator.rshift, dtype, x, y)


def test_comparison_across_types_happens_in_the_common_type():
    """int32 -1 with uint32 1 is the largest uint32, as in C."""
    got = compute("x < y", tensor([-1], tl.int32), tensor([1], tl.uint32), tl.int1)
    assert got.tolist() == [False]
    got = compute("x < y", tensor([-1], tl.int32), tensor([1], tl.int64), tl.int1)
    assert got.tolist() == [True]


@pytest.mark.parametrize("dtype", [tl.uint32, tl.uint64], ids=get_name)
def test_umulhi_is_the_upper_half(dtype):
    exact = lambda p, q: p * q >> dtype.int_bitwidth  # noqa: E731
    assert_exact("tl.umulhi(x, y)", exact, dtype, *pairs(samples(dtype, 5)))


def test_true_division_of_integers_is_fp32():
    x, y = [7, -7, 2**31 - 1, 1], [2, 2, 3, 3]
    got = compute("x / y", tensor(x, tl.int32), tensor(y, tl.int32), tl.float32)
    wide = [np.float32(p) / np.float32(q) for p, q in zip(x, y, strict=True)]
    assert got.tolist() == wide


@triton.jit
def boolean_kernel(o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    even, low = i % 2 == 0, i < 5
    logic = (even & low).to(tl.int32), (even | low).to(tl.int32), (even ^ low).to(tl.int32)
    numbers = (~even).to(tl.int32), even * 2 + low, even.to(tl.float32) * 3
    words = even and low, not low, even or low, (2 <= i) & (i < 6), even.logical_and(low)
    sums = tl.sum(low.to(tl.int32), axis=0), tl.sum(low, axis=0)
    store_rows(o_ptr, logic + numbers + words + sums, N)


def test_booleans():
    """Logic, promotion to numbers, and Python's operators for them."""
    got = simulator_lanes.result_of(boolean_kernel, (1,), 8, shape=(13, 8), make=torch.empty)
    i = np.arange(8)
    even, low = i % 2 == 0, i < 5
    expected = [
        even & low, even | low, even ^ low, ~even, even * 2 + low, even * 3,
        even & low, ~low, even | low, (i >= 2) & (i < 6), even & low, 0 * i + 5, 0 * i + 5,
    ]  # fmt: skip
    assert got.tolist() == [x.astype(int).tolist() for x in expected]
