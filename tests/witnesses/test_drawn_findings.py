"""Kernels that drawn programs led to, each for a fault that the simulator had."""

import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import result_of


@triton.jit
def constant_kernel(o_ptr):
    x = tl.full((4,), 3, tl.int32)
    tl.store(o_ptr, tl.sum(x))
    tl.store(o_ptr + 1, tl.max(tl.cumsum(x + tl.arange(0, 4))))


def test_reductions_of_constants():
    """A block that is known before the launch is reduced like any other."""
    got = result_of(constant_kernel, (1,), shape=(2,), make=torch.empty)
    assert got.tolist() == [12, 18]


@triton.jit
def split_kernel(o_ptr):
    i = tl.arange(0, 4)
    one, other = tl.split(tl.join(i, i * 10))
    tl.store(o_ptr + i, one)
    tl.store(o_ptr + 4 + i, other)


def test_the_two_parts_of_a_split():
    """TTIR names their type once."""
    got = result_of(split_kernel, (1,), shape=(8,), make=torch.empty)
    assert got.tolist() == [0, 1, 2, 3, 0, 10, 20, 30]


@triton.jit
def fill_kernel(x_ptr, o_ptr):
    pid, i = tl.program_id(0), tl.arange(0, 4)
    x = tl.load(x_ptr + i, mask=i < 2, other=pid + i)
    tl.store(o_ptr + 4 * pid + i, x)


def test_programs_that_load_the_same_and_fill_in_their_own():
    """A block is loaded once for all programs only where their `other` is the same too."""
    x = torch.full((4,), -1, dtype=torch.int32)
    got = result_of(fill_kernel, (5,), tensors=[x], shape=(5, 4), make=torch.empty)
    assert got.tolist() == [[-1, -1, p + 2, p + 3] for p in range(5)]
