"""Kernels that drawn programs led to, each for a fault that the simulator had."""

import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import run


@triton.jit
def constant_kernel(o_ptr):
    x = tl.full((4,), 3, tl.int32)
    tl.store(o_ptr, tl.sum(x))
    tl.store(o_ptr + 1, tl.max(tl.cumsum(x + tl.arange(0, 4))))


def test_reductions_of_constants():
    """What is known before the launch is reduced in it, as everything else."""

    def wrapper():
        o = torch.empty(2, dtype=torch.int32)
        constant_kernel[(1,)](o)
        return o

    seen = run(wrapper)
    assert seen.faults == []
    assert seen.result.tolist() == [12, 18]
