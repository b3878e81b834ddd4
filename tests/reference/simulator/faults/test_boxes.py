"""Faults of tensor descriptors in their terms: shape, strides, block and offsets, no lanes."""

import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_masks import line, the

from gemmproof.reference.simulator import run


@triton.jit
def copy(x_ptr, y_ptr, M, N, rows, stride, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, (rows, N), (stride, 1), (BLOCK, BLOCK))
    target = tl.make_tensor_descriptor(y_ptr, (M, N), (N, 1), (BLOCK, BLOCK))
    target.store([tl.program_id(0) * BLOCK, 0], source.load([tl.program_id(0) * BLOCK, 0]))


def copied(rows, stride, x):
    def wrapper(x):
        triton.set_allocator(lambda n, *_: torch.empty(n, dtype=torch.int8))
        y = torch.empty_like(x)
        copy[(2,)](x, y, *x.shape, rows, stride, BLOCK=16)
        return y

    return run(wrapper, x)


def test_a_descriptor_that_is_larger_than_its_operand():
    x = torch.arange(20 * 16, dtype=torch.float32).reshape(20, 16)
    assert copied(20, 16, x).faults == []
    fault = the(copied(32, 16, x), "out_of_bounds")
    assert (fault.access, fault.operand, fault.axis) == ("load", "a", "M")
    assert (fault.programs, fault.lanes, fault.expected) == (1, 12 * 16, "rows 0..19")
    assert fault.where.line == line(copy, "source.load")
    assert fault.got.startswith("rows 20..31 ")
    assert "shape [32, 16]" in fault.got


BROKEN_RULES = {
    "other strides than the operand's": (
        (20, 16, torch.zeros(20, 24)[:, :16]),
        "out_of_bounds",
        ("strides [16, 1]", "strides [24, 1]"),
    ),
    "a stride off 16 bytes": (
        (20, 18, torch.zeros(20, 16)),
        "bad_descriptor",
        ("72 bytes along axis 0", "strides [18, 1]", "block [16, 16]"),
    ),
    "a base off 16 bytes": (
        (20, 16, torch.zeros(321)[1:].view(20, 16)),
        "bad_descriptor",
        ("a base 4 bytes past", "shape [20, 16]"),
    ),
}


@pytest.mark.parametrize("name", BROKEN_RULES)
def test_the_rules_of_the_copy_engine_are_told_with_the_descriptor(name):
    arguments, kind, numbers = BROKEN_RULES[name]
    fault = the(copied(*arguments), kind)
    assert fault.operand == "a"
    assert all(number in fault.got for number in numbers)
    if kind == "out_of_bounds":
        assert (fault.access, fault.axis, fault.expected) == ("load", "K", "columns 0..15")
    else:
        assert (fault.access, fault.expected) == ("descriptor", "a multiple of 16 bytes")


@triton.jit
def hinted(x_ptr, y_ptr):
    i = tl.arange(0, 16)
    at = tl.multiple_of(x_ptr + i, 16)
    tl.store(y_ptr + i, tl.load(at))


def hint_one_beyond(x):
    y = torch.empty(16, device=x.device)
    hinted[(1,)](x[1:], y)
    return y


def test_a_false_hint_on_a_pointer_shows_no_address():
    x = torch.zeros(17)
    fault = the(run(hint_one_beyond, x), "false_hint")
    assert (fault.access, fault.operand, fault.lanes) == ("load", "a", 16)
    assert fault.where.line == line(hinted, "tl.multiple_of")
    assert "0 bytes into a" in fault.got
    assert str(x.data_ptr())[:6] not in fault.got
    assert "4-byte aligned" in fault.got
