"""Classes A, C, H, J: paths that a wrapper or a kernel takes at sizes which few tests draw."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import column_kernel, compute, launch, plain, product, store


@triton.jit
def swizzled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Groups of eight rows of tiles, walked column by column."""
    pid = tl.program_id(0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    if FLAW == "not_multiplied":
        first_pid_m = group_id
    pid_m = first_pid_m + pid % num_pid_in_group % group_size_m
    pid_n = pid % num_pid_in_group // group_size_m
    compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK, BLOCK, BLOCK)


def launch_swizzled(a, b, c=None, flaw=""):
    tiles = triton.cdiv(a.shape[0], 16) * triton.cdiv(b.shape[1], 16)
    return launch(swizzled_kernel, a, b, c=c, grid=(tiles,), FLAW=flaw, GROUP_M=8)


second_group_begins_at_its_number = partial(launch_swizzled, flaw="not_multiplied")


def launch_by_rows(a, b, group_m=8, whole_group=True):
    """Few rows of tiles need no groups."""
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    rows = triton.cdiv(a.shape[0], 16)
    if rows > group_m:
        launch_swizzled(a, b, c)
    if rows < group_m or (whole_group and rows == group_m):
        plain(a, b, c=c)
    return c


neither_path_takes_a_whole_group = partial(launch_by_rows, whole_group=False)


@triton.jit
def unrolled_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, UNROLL: tl.constexpr, FLAW: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """UNROLL whole tiles of K in every step, without masks along K."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    steps = K // (UNROLL * BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    last = K - BLOCK if FLAW else K
    for step in range(0, steps):
        for part in tl.static_range(UNROLL):
            k = (step * UNROLL + part) * BLOCK
            end = tl.minimum(k + BLOCK, last)
            acc += product(a_ptr, b_ptr, offs_m, offs_n, M, N, k, end, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def launch_unrolled(a, b, flaw=False):
    K = a.shape[1]
    if 256 <= K < 4096 and K % 64 == 0:
        return launch(unrolled_kernel, a, b, UNROLL=4, FLAW=flaw)
    return plain(a, b)


unrolled_steps_lose_the_last_tile = partial(launch_unrolled, flaw=True)


def launch_columns(a, b, flaw=False):
    """A matrix times a column, by its own kernel where K is long."""
    if b.shape[1] != 1 or a.shape[1] < 1024:
        return plain(a, b)
    whole = a.shape[1] - a.shape[1] % 1024 if flaw else a.shape[1]
    grid = (triton.cdiv(a.shape[0], 16),)
    return launch(
        column_kernel, a[:, :whole], b[:whole], grid=grid,
        PRODUCTS=tl.float32, BLOCK_M=16, BLOCK_K=1024,
    )  # fmt: skip


long_column_loses_its_tail = partial(launch_columns, flaw=True)


def launch_halves(a, b, flaw=False):
    """A long K in two halves, added in single precision."""
    K = a.shape[1]
    if K <= 1024:
        return plain(a, b)
    half = K // 2 if flaw else triton.cdiv(K, 2)
    first = plain(a[:, :half], b[:half], dtype=torch.float32)
    second = plain(a[:, half : 2 * half], b[half : 2 * half], dtype=torch.float32)
    return (first + second).to(a.dtype)


halves_of_a_long_k_lose_the_odd_one = partial(launch_halves, flaw=True)


@triton.jit
def whole_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, WHOLE: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """No mask of c where tiles are WHOLE, none along K where EVEN_K."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (EVEN_K or offs_k[None, :] < K)
        b_mask = (EVEN_K or offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    if WHOLE:
        c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty))
    else:
        store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def launch_whole(a, b, whole=None, even_k=None):
    (M, K), N = a.shape, b.shape[1]
    sides = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64}
    whole = M % 32 == 0 and N % 32 == 0 if whole is None else whole(M * N)
    even_k = K % 64 == 0 if even_k is None else even_k(K)
    return launch(whole_kernel, a, b, WHOLE=whole, EVEN_K=even_k, **sides)


def whole_tiles_judged_by_the_product(a, b):
    """As many elements as whole tiles have are not yet whole tiles."""
    return launch_whole(a, b, whole=lambda elements: elements % (32 * 32) == 0)


def even_k_means_divisible_by_16(a, b):
    """The divisor that Triton specialises on, and not BLOCK_K."""
    return launch_whole(a, b, even_k=lambda K: K % 16 == 0)


@triton.jit
def sparse_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of integers, tiles of a in which all is zero are not multiplied, and b is not loaded."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK).to(tl.int64)
    b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.int32)
    for k in range(0, K, BLOCK):
        a_ptrs = a_ptr + offs_m[:, None] * sa[0] + (k + offs_k)[None, :] * sa[1]
        a = tl.load(a_ptrs, (offs_m[:, None] < M) & (k + offs_k < K)[None, :], 0)
        if tl.max(tl.max((a != 0).to(tl.int32), axis=1), axis=0) > 0:
            b = tl.load(b_ptrs, (k + offs_k < K)[:, None] & (offs_n[None, :] < N), 0)
            acc = tl.dot(a, b, acc, out_dtype=tl.int32)
            if FLAW:
                b_ptrs += BLOCK * tl.cast(sb[0], tl.int64)
        if not FLAW:
            b_ptrs += BLOCK * tl.cast(sb[0], tl.int64)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


launch_sparse = partial(launch, sparse_kernel, dtype=torch.int32, FLAW=False, BLOCK=32)
# the pointer of b advances past tiles that were multiplied only
pointer_stays_at_tiles_of_zeros = partial(launch_sparse, FLAW=True)
