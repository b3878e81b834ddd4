"""The simulator's integers and booleans against Python's."""

import operator

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from simulator_lanes import (
    INTEGERS,
    compute,
    limits,
    name_of,
    outcome,
    pairs,
    samples,
    tensor,
    wrapped,
)

from gemmproof.reference.simulator import CompileError, run

OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def test_integers_of_mixed_sign_do_not_divide():
    with pytest.raises(CompileError, match="signedness"):
        outcome("x // y", tensor([1], tl.int32), tensor([1], tl.uint32), tl.int32)


def test_a_literal_out_of_range_is_refused():
    """uint8 + (-1) and int8 + 200 do not compile."""
    for dtype, literal, words in ((tl.uint8, -1, "negative"), (tl.int8, 200, "out of range")):
        x = tensor([1], dtype)
        with pytest.raises(CompileError, match=words):
            outcome(f"x + {literal}", x, x, dtype)


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
@pytest.mark.parametrize("op", ["+", "-", "*"])
def test_integers_wrap_at_their_width(dtype, op):
    """Against Python's integers, cut to the width."""
    exact = OPERATORS[op]
    x, y = pairs(samples(dtype, 1))
    got = compute(f"x {op} y", tensor(x, dtype), tensor(y, dtype), dtype)
    assert got.tolist() == [wrapped(exact(p, q), dtype) for p, q in zip(x, y, strict=True)]


def c_divide(p, q):
    return abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_division_is_cut_toward_zero_and_the_remainder_has_the_dividends_sign(dtype):
    """C's rules, 8-bit types exhaustively."""
    low, high = limits(dtype)
    values = list(range(low, high + 1)) if dtype.int_bitwidth == 8 else samples(dtype, 2)
    x, y = pairs(values, [q for q in values if q])
    left, right = tensor(x, dtype), tensor(y, dtype)
    quotient = compute("x // y", left, right, dtype)
    rest = compute("x % y", left, right, dtype)
    both = list(zip(x, y, strict=True))
    assert quotient.tolist() == [wrapped(c_divide(p, q), dtype) for p, q in both]
    assert rest.tolist() == [wrapped(p - c_divide(p, q) * q, dtype) for p, q in both]


@pytest.mark.parametrize("op", ["//", "%"])
def test_division_by_zero_is_undefined(op):
    """No exception; the lane is one that nothing defined, and only that lane."""
    seen = outcome(f"x {op} y", tensor([7, 7], tl.int32), tensor([0, 2], tl.int32), tl.int32)
    (fault,) = seen.faults
    assert (fault.kind, fault.lanes) == ("undefined_stored", 1)
    assert "division by zero" in fault.got
    assert seen.result[1] == OPERATORS[op](7, 2)


@triton.jit
def ceil_quotient(x, y):
    return tl.cdiv(x, y)


def test_cdiv_is_c_division_of_the_sum():
    """(x + y - 1) / y, cut toward zero, as Triton's standard library has it."""
    x, y = pairs([-9, -8, -1, 0, 1, 7, 8, 9], [1, 2, 3, 8])
    got = compute(ceil_quotient, tensor(x, tl.int32), tensor(y, tl.int32), tl.int32)
    assert got.tolist() == [c_divide(p + q - 1, q) for p, q in zip(x, y, strict=True)]


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_shifts_inside_the_width(dtype):
    """Left wraps, right keeps the sign of signed types."""
    x, y = pairs(samples(dtype, 3), list(range(dtype.int_bitwidth)))
    left, right = tensor(x, dtype), tensor(y, dtype)
    both = list(zip(x, y, strict=True))
    got = compute("x << y", left, right, dtype)
    assert got.tolist() == [wrapped(p << q, dtype) for p, q in both]
    got = compute("x >> y", left, right, dtype)
    assert got.tolist() == [p >> q for p, q in both]


@pytest.mark.parametrize("dtype", INTEGERS, ids=name_of)
def test_bits_negation_and_comparison(dtype):
    """& | ^ ~ - and the six comparisons."""
    x, y = pairs(samples(dtype, 4))
    left, right = tensor(x, dtype), tensor(y, dtype)
    for op in ("&", "|", "^"):
        expected = [OPERATORS[op](p, q) for p, q in zip(x, y, strict=True)]
        assert compute(f"x {op} y", left, right, dtype).tolist() == expected
    assert compute("~x", left, right, dtype).tolist() == [wrapped(~p, dtype) for p in x]
    assert compute("-x", left, right, dtype).tolist() == [wrapped(-p, dtype) for p in x]
    for op in ("<", "<=", ">", ">=", "==", "!="):
        got = compute(f"x {op} y", left, right, tl.int1)
        assert got.tolist() == [OPERATORS[op](p, q) for p, q in zip(x, y, strict=True)]


def test_comparison_across_types_happens_in_the_common_type():
    """int32 -1 beside uint32 1 is the largest uint32, as in C."""
    got = compute("x < y", tensor([-1], tl.int32), tensor([1], tl.uint32), tl.int1)
    assert got.tolist() == [False]
    got = compute("x < y", tensor([-1], tl.int32), tensor([1], tl.int64), tl.int1)
    assert got.tolist() == [True]


@triton.jit
def high_product(x, y):
    return tl.umulhi(x, y)


@pytest.mark.parametrize("dtype", [tl.uint32, tl.uint64], ids=name_of)
def test_umulhi_is_the_upper_half(dtype):
    x, y = pairs(samples(dtype, 5))
    got = compute(high_product, tensor(x, dtype), tensor(y, dtype), dtype)
    bits = dtype.int_bitwidth
    assert got.tolist() == [p * q >> bits for p, q in zip(x, y, strict=True)]


def test_true_division_of_integers_is_fp32():
    x, y = [7, -7, 2**31 - 1, 1], [2, 2, 3, 3]
    got = compute("x / y", tensor(x, tl.int32), tensor(y, tl.int32), tl.float32)
    wide = [np.float32(p) / np.float32(q) for p, q in zip(x, y, strict=True)]
    assert got.tolist() == wide


@triton.jit
def boolean_kernel(o_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    even, low = i % 2 == 0, i < 5
    tl.store(o_ptr + i, (even & low).to(tl.int32))
    tl.store(o_ptr + N + i, (even | low).to(tl.int32))
    tl.store(o_ptr + 2 * N + i, (even ^ low).to(tl.int32))
    tl.store(o_ptr + 3 * N + i, (~even).to(tl.int32))
    tl.store(o_ptr + 4 * N + i, even * 2 + low)
    tl.store(o_ptr + 5 * N + i, even.to(tl.float32) * 3)
    tl.store(o_ptr + 6 * N + i, tl.sum(low.to(tl.int32), axis=0))
    tl.store(o_ptr + 7 * N + i, even and low)
    tl.store(o_ptr + 8 * N + i, not low)
    tl.store(o_ptr + 9 * N + i, even or low)
    tl.store(o_ptr + 10 * N + i, (2 <= i) & (i < 6))
    tl.store(o_ptr + 11 * N + i, even.logical_and(low))
    tl.store(o_ptr + 12 * N + i, tl.sum(low, axis=0))


def test_booleans():
    """Logic, promotion to numbers, and Python's words for them."""

    def wrapper(x):
        o = torch.empty((13, 8), dtype=torch.int32)
        boolean_kernel[(1,)](o, 8)
        return o

    seen = run(wrapper, torch.zeros(1))
    assert seen.faults == []
    i = np.arange(8)
    even, low = i % 2 == 0, i < 5
    expected = [
        even & low, even | low, even ^ low, ~even, even * 2 + low, even * 3, 0 * i + 5,
        even & low, ~low, even | low, (i >= 2) & (i < 6), even & low, 0 * i + 5,
    ]  # fmt: skip
    assert seen.result.numpy().tolist() == [x.astype(int).tolist() for x in expected]
