"""Wrong kernels, each of which a prover that forgets one thing would prove."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, launch_column, plain, product, store


@triton.jit
def while_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    k = 0
    while (k < K) & (k != 32):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        k += BLOCK
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def while_loop_ends_in_the_middle(a, b):
    """Its condition holds again behind the trip at which it ends."""
    return launch(while_kernel, a, b)


def products_in_half(a, b):
    return launch_column(a, b, products=tl.float16)


def doubled_by_torch(a, b):
    c = plain(a, b)
    c.mul_(2)
    return c


def operand_doubled_by_torch(a, b):
    a.mul_(2)
    return plain(a, b)


def returned_transposed(a, b):
    return plain(a, b).t()


def returned_as_other_bits(a, b):
    return plain(a, b).view(torch.bfloat16)


@triton.jit
def double_kernel(a_ptr, M, K, sa, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
    mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
    tl.store(ptrs, tl.load(ptrs, mask) * 2, mask)


def operand_doubled_by_a_kernel(a, b):
    M, K = a.shape
    double_kernel[triton.cdiv(M, 16), triton.cdiv(K, 16)](a, M, K, a.stride(), BLOCK=16)
    return plain(a, b)


@triton.jit
def flawed_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, BLOCK: tl.constexpr, order=None
):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    if FLAW == "odd_strips_alone":
        pid_n = pid_n | 1
    if FLAW == "divided_by_no_strips":
        pid = pid_m + pid_n * tl.num_programs(0)
        pid_m, pid_n = pid % tl.num_programs(0), pid_n % (N // BLOCK)
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    rows = offs_m
    if FLAW == "undefined_rows_decide_masks":
        rows = tl.load(order + offs_m, mask=offs_m < M)
    acc = product(a_ptr, b_ptr, rows, offs_n, M, N, 0, K, sa, sb, BLOCK)
    if FLAW == "read_as_pairs":
        wide = a_ptr.to(tl.pointer_type(tl.int32))
        first = tl.load(wide + offs_m * sa[0], mask=offs_m < M, other=0)
        acc += (first * 0).to(tl.float32)[:, None]
    if FLAW == "rows_counted_by_inner_loops":
        row = 0
        for i in range(0, 3):
            n = 0
            while n < i:
                n += 1
            row += n
            mask = (row <= i * n) & (M > 0) & (K > 0)
            seen = tl.load(a_ptr + row * sa[0].to(tl.int64), mask=mask)
            acc += (seen * 0).to(tl.float32)
    if FLAW == "every_lane_stores_one_column":
        ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * 0
        tl.store(ptrs, acc.to(c_ptr.dtype.element_ty), mask=offs_m[:, None] < M)
    elif FLAW == "half_of_it_zeroed":
        c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
        tl.atomic_add(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))
    else:
        store(c_ptr, acc, offs_m, offs_n, M, N, sc)


flawed = partial(launch, flawed_kernel)
read_as_pairs = partial(flawed, FLAW="read_as_pairs")  # of four bytes, counted as if they had two
every_lane_stores_one_column = partial(flawed, FLAW="every_lane_stores_one_column")
divided_by_no_strips = partial(flawed, FLAW="divided_by_no_strips")
odd_strips_alone = partial(flawed, FLAW="odd_strips_alone")
# the rows 0, 1 and 3: no multiple of the trip
rows_counted_by_inner_loops = partial(flawed, FLAW="rows_counted_by_inner_loops")


def undefined_rows_decide_masks(a, b):
    order = torch.arange(a.shape[0], device=a.device)
    return flawed(a, b, order=order, FLAW="undefined_rows_decide_masks")


def half_of_it_zeroed(a, b):
    c = torch.ones((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    c[: a.shape[0] // 2].zero_()
    return flawed(a, b, c=c, FLAW="half_of_it_zeroed")


@triton.jit
def exchange_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    x_ptr, y_ptr = a_ptr, b_ptr
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(x_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(y_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        x_ptr, y_ptr = y_ptr, x_ptr
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def operands_exchanged_by_trips(a, b):
    return launch(exchange_kernel, a, b)


def summed_by_torch(a, b):
    """The second half of the workspace is never stored."""
    w = torch.empty((2, a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    flawed(a, b, c=w, sc=(w.stride(1), w.stride(2)), FLAW="")
    return w.sum(0).to(a.dtype)


def copied_by_torch(a, b):
    """The kernel reads memory that nothing defined."""
    w = torch.empty_like(a)
    return plain(w.float().to(a.dtype), b)


def rounded_on_the_way(a, b):
    return plain(a, b, dtype=torch.float32).to(torch.bfloat16).to(a.dtype)


def read_as_half(a, b):
    """The operand's bits, as another type of as many."""
    return plain(a.view(torch.bfloat16), b.view(torch.bfloat16), dtype=torch.float16)


def single_precision_by_default(a, b):
    """fp32 operands, which tt.dot rounds to tf32 where nothing else is asked for."""
    return plain(a, b)


@triton.jit
def branch_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    if pid_m * BLOCK >= M:
        return
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    if (pid_n + 1) * BLOCK <= N:
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=offs_m[:, None] < M)
    else:
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def branches(a, b):
    """Right: more programs than rows, and a store for whole tiles."""
    grid = (triton.cdiv(a.shape[0], 16) + 1, triton.cdiv(b.shape[1], 16))
    return launch(branch_kernel, a, b, grid=grid)


@triton.jit
def late_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    a_ptrs = a_ptr + offs_m[:, None] * sa[0] + lanes[None, :] * sa[1]
    at = 0
    for k in range(0, K, BLOCK):
        offs_k = at + lanes
        at = tl.minimum(k + BLOCK, 4096)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptrs, a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK * sa[1]
    first = a_ptrs - tl.cdiv(K, BLOCK) * BLOCK * sa[1]
    rows = (offs_m[:, None] < M) & (lanes[None, :] < K)
    acc += tl.sum(tl.load(first, rows, 0.0).to(tl.float32) * 0, axis=1)[:, None]
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def carried_from_trip_to_trip(a, b):
    """Right: an index of the trip before, and a pointer that is used behind the loop."""
    return launch(late_kernel, a, b)


@triton.jit
def undefined_scale_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, zero_ptr, WAY: tl.constexpr, BLOCK: tl.constexpr
):
    """The scale of every element is undefined, though no operand of its operation is."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    if WAY == "quotient":
        scale = tl.arange(1, BLOCK + 1) // tl.load(zero_ptr + tl.arange(0, BLOCK) * 0)
    elif WAY == "histogram":
        scale = tl.histogram(tl.arange(0, BLOCK) + BLOCK, BLOCK)
    else:
        clock = tl.inline_asm_elementwise(
            "mov.u32 $0, %clock;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
        scale = tl.arange(0, BLOCK) + clock
    store(c_ptr, acc * (scale * 0 + 1)[:, None], offs_m, offs_n, M, N, sc)


def _scale(a, b, way):
    zero = torch.zeros(1, device=a.device, dtype=torch.int32)
    return launch(undefined_scale_kernel, a, b, zero, WAY=way)


scaled_by_a_quotient_by_0 = partial(_scale, way="quotient")
scaled_by_counts_beyond_the_bins = partial(_scale, way="histogram")
scaled_by_a_clock = partial(_scale, way="clock")
