"""Kernels whose limits a solver decides, and some whose limits are not what they seem."""

import triton
import triton.language as tl
from tests.corpora.tiled import launch


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
    if DOUBLED:  # the intermediate wraps at half the size at which the offset does
        row = offs_m * 2 * stride_cm // 2
    elif ROWS:
        row = offs_m * stride_cm
    else:
        row = rows * stride_cm
    shifted = offs_n + 1 if COLUMN else offs_n
    tl.store(c_ptr + row[:, None] + shifted[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


def run(a, b, mask_k=True, rows=False, column=False, doubled=False):
    constants = {"MASK_K": mask_k, "ROWS": rows, "COLUMN": column, "DOUBLED": doubled}
    return launch(limited_kernel, a, b, **constants)


def rows_of_c_in_32_bits(a, b):
    return run(a, b, rows=True)


def doubled_rows_of_c(a, b):
    return run(a, b, doubled=True)


def without_k_mask(a, b):
    return run(a, b, mask_k=False)


def without_k_mask_and_one_column_off(a, b):
    return run(a, b, mask_k=False, column=True)


@triton.jit
def advancing_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK_M: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    num_n = tl.cdiv(N, BLOCK)
    pid_m, pid_n = tl.program_id(0) // num_n, tl.program_id(0) % num_n
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n, offs_k = pid_n * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
    b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
    acc = tl.zeros((BLOCK_M, BLOCK), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK)):
        left = K - k * BLOCK
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < left) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK * sa[1]
        b_ptrs += BLOCK * sb[0]
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def advanced_by_trips(a, b):
    rows = 16 if a.shape[0] <= 16 else 64
    grid = (triton.cdiv(a.shape[0], rows) * triton.cdiv(b.shape[1], 16),)
    return launch(advancing_kernel, a, b, grid=grid, BLOCK_M=rows)
