"""Outputs of kernels on the simulator: rows of blocks, and uninitialised memory."""

import torch
import triton
import triton.language as tl
from simulator_lanes import launcher


@triton.jit
def store_rows(o_ptr, blocks, N: tl.constexpr):
    """Store each block of a tuple, of N lanes or a scalar, as the next row of N elements."""
    for row in tl.static_range(len(blocks)):
        tl.store(o_ptr + row * N + tl.arange(0, N), blocks[row])


def empty_launcher(kernel, grid, *args, shape=(16,), dtype=torch.float32, **how):
    """As `launcher`, onto fp32 that nothing has defined."""
    return launcher(kernel, grid, *args, shape=shape, dtype=dtype, make=torch.empty, **how)
