"""Kernels whose limits a solver decides, and some whose limits are not what they seem."""

import triton
import triton.language as tl
from tiled import launch


@triton.jit
def limited_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    MASK_K: tl.constexpr, ROWS: tl.constexpr, COLUMN: tl.constexpr, DOUBLED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows, columns = offs_m.to(tl.int64), offs_n.to(tl.int64)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK)
        inner = offs_k.to(tl.int64)
        a_mask, b_mask = offs_m[:, None] < M, offs_n[None, :] < N
        if MASK_K:
            a_mask, b_mask = a_mask & (offs_k[None, :] < K), b_mask & (offs_k[:, None] < K)
        a_ptrs = a_ptr + rows[:, None] * stride_am + inner[None, :] * stride_ak
        b_ptrs = b_ptr + inner[:, None] * stride_bk + columns[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if DOUBLED:  # the intermediate wraps at half of what the offset does
        row = offs_m * 2 * stride_cm // 2
    elif ROWS:
        row = offs_m * stride_cm
    else:
        row = rows * stride_cm
    shifted = offs_n + 1 if COLUMN else offs_n
    tl.store(c_ptr + row[:, None] + shifted[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


def run(a, b, mask_k=True, rows=False, column=False, doubled=False):
    words = {"MASK_K": mask_k, "ROWS": rows, "COLUMN": column, "DOUBLED": doubled}
    return launch(limited_kernel, a, b, **words)


def rows_of_c_in_32_bits(a, b):
    return run(a, b, rows=True)


def doubled_rows_of_c(a, b):
    return run(a, b, doubled=True)


def without_k_mask(a, b):
    return run(a, b, mask_k=False)


def without_k_mask_and_one_column_off(a, b):
    return run(a, b, mask_k=False, column=True)
