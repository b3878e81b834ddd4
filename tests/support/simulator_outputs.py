"""Blocks that a kernel stores one after the other, each as a row of its output."""

import triton
import triton.language as tl


@triton.jit
def store_rows(o_ptr, blocks, N: tl.constexpr):
    """Store each block of a tuple, of N lanes or a scalar, as the next row of N elements."""
    for row in tl.static_range(len(blocks)):
        tl.store(o_ptr + row * N + tl.arange(0, N), blocks[row])
