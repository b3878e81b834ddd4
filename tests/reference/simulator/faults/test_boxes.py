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
    assert (fault.operand, fault.axis) == ("a", "M")
    assert fault.where.line == line(copy, "source.load")
    assert fault.got == (
        "rows 20..31 of a (M=20) are read by 1 program through a tensor descriptor of block"
        " [16, 16] at offsets [16, 0] of shape [32, 16] with strides [16, 1], where a has [20, 16]"
        " with strides [16, 1]"
    )


BROKEN_RULES = {
    "other strides than the operand's": (
        (20, 16, torch.zeros(20, 24)[:, :16]),
        "out_of_bounds",
        "with strides [16, 1], where a has [20, 16] with strides [24, 1]",
    ),
    "a stride off 16 bytes": (
        (20, 18, torch.zeros(20, 16)),
        "bad_descriptor",
        "a stride of 72 bytes along axis 0, of shape [20, 16] with strides [18, 1] and block"
        " [16, 16]",
    ),
    "a base off 16 bytes": (
        (20, 16, torch.zeros(321)[1:].view(20, 16)),
        "bad_descriptor",
        "a base 4 bytes past a multiple of 16, of shape [20, 16]",
    ),
}


@pytest.mark.parametrize("name", BROKEN_RULES)
def test_the_rules_of_the_copy_engine_are_told_with_the_descriptor(name):
    arguments, kind, got = BROKEN_RULES[name]
    fault = the(copied(*arguments), kind)
    assert got in fault.got
    assert kind == "out_of_bounds" or fault.expected == "a multiple of 16 bytes"


@triton.jit
def hinted(x_ptr, y_ptr):
    i = tl.arange(0, 16)
    at = tl.multiple_of(x_ptr + i, 16)
    tl.store(y_ptr + i, tl.load(at))


def test_a_false_hint_on_a_pointer_shows_no_address():
    def wrapper(x):
        y = torch.empty(16, device=x.device)
        hinted[(1,)](x[1:], y)
        return y

    x = torch.zeros(17)
    fault = the(run(wrapper, x), "false_hint")
    assert "tl.multiple_of(16) of a pointer 0 bytes into" in fault.got
    assert str(x.data_ptr())[:6] not in fault.got
    assert "4-byte aligned" in fault.got
