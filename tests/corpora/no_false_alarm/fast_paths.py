"""Right kernels that take another path at whole tiles, beyond thresholds, and by keywords."""

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import compute, launch, plain


@triton.jit
def unmasked_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """No mask anywhere."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
    b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(K // BLOCK):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK * tl.cast(sa[1], tl.int64)
        b_ptrs += BLOCK * tl.cast(sb[0], tl.int64)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty))


def whole_tiles_by_the_bits_of_all_sides(a, b):
    """(M | N | K) & 31 is 0 where all three are multiples of 32."""
    (M, K), N = a.shape, b.shape[1]
    if (M | N | K) & 31 == 0:
        return launch(unmasked_kernel, a, b, BLOCK=32)
    return plain(a, b)


def enough_elements_for_wide_tiles(a, b):
    """The threshold is one of elements of c, and no promise of whole tiles."""
    if a.shape[0] * b.shape[1] >= 1 << 14:
        return plain(a, b, BLOCK_M=64, BLOCK_N=64)
    return plain(a, b)


def long_k_in_chunks(a, b):
    """Chunks of 1024, the last of them shorter, summed in single precision."""
    K = a.shape[1]
    c = torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    for k in range(0, K, 1024):
        c += plain(a[:, k : k + 1024], b[k : k + 1024], dtype=torch.float32)
    return c.to(a.dtype)


@triton.jit
def snake_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, GROUP_M: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    full = num_pid_m // GROUP_M * GROUP_M * num_pid_n
    group = pid // (GROUP_M * num_pid_n)
    within = pid - group * GROUP_M * num_pid_n
    # the rows of tiles beyond the last whole group go one after another
    size = tl.where(pid < full, GROUP_M, 1)
    pid_m = tl.where(pid < full, group * GROUP_M + within % size, (pid // num_pid_n))
    pid_n = tl.where(pid < full, within // size, pid % num_pid_n)
    pid_n = tl.where(group % 2 == 0, pid_n, num_pid_n - 1 - pid_n)
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def every_other_group_from_right_to_left(a, b):
    tiles = triton.cdiv(a.shape[0], 16) * triton.cdiv(b.shape[1], 16)
    return launch(snake_kernel, a, b, grid=(tiles,), GROUP_M=6)


def result_in_out(a, b, out=None, out_dtype=None):
    """`out` is written and returned; without it `out_dtype` is that of the result."""
    if out is None:
        out = a.new_empty(a.shape[0], b.shape[1], dtype=out_dtype or a.dtype)
    return plain(a, b, c=out)
