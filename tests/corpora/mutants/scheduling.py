"""Class H: kernels whose programs do not share out the tiles one to one."""

import torch
import triton
import triton.language as tl


@triton.jit
def _compute(
    a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One tile of c; nothing is read or stored for a tile that lies outside of c."""
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        offs_k = k * BLOCK_K + tl.arange(0, BLOCK_K).to(tl.int64)
        a_ptrs = a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1]
        b_ptrs = b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1]
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


@triton.jit
def grouped_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = pid // num_pid_in_group * GROUP_M
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    if FLAW == "not_clamped":
        group_size_m = GROUP_M
    pid_m = first_pid_m + pid % num_pid_in_group % group_size_m
    pid_n = pid % num_pid_in_group // group_size_m
    if FLAW == "wrong_divisor":
        pid_n = pid % num_pid_in_group // GROUP_M
    if FLAW == "rows_for_columns":
        pid_n = pid % num_pid_m
    _compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK_M, BLOCK_N, BLOCK_K)


def _launch_grouped(a, b, flaw):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)
    grouped_kernel[grid](
        a, b, c, M, N, K, a.stride(), b.stride(), c.stride(),
        FLAW=flaw, GROUP_M=2, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
    )  # fmt: skip
    return c


def last_group_not_clamped(a, b):
    return _launch_grouped(a, b, "not_clamped")


def columns_divided_by_the_full_group(a, b):
    return _launch_grouped(a, b, "wrong_divisor")


def column_taken_from_the_rows(a, b):
    return _launch_grouped(a, b, "rows_for_columns")


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, NUM_SMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_tiles = tl.cdiv(M, BLOCK_M) * num_pid_n
    last, step = num_tiles, NUM_SMS
    if FLAW == "last_dropped":
        last = num_tiles - 1
    if FLAW == "rounded_down":
        last = num_tiles // NUM_SMS * NUM_SMS
    if FLAW == "steps_overlap":
        step = NUM_SMS - 1 if NUM_SMS > 1 else 1
    for tile in tl.range(tl.program_id(0), last, step):
        pid_m, pid_n = tile // num_pid_n, tile % num_pid_n
        _compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK_M, BLOCK_N, BLOCK_K)


def _launch_persistent(a, b, flaw):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sms = torch.cuda.get_device_properties(a.device).multi_processor_count
    persistent_kernel[(sms,)](
        a, b, c, M, N, K, a.stride(), b.stride(), c.stride(),
        FLAW=flaw, NUM_SMS=sms, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16,
    )  # fmt: skip
    return c


def last_tile_dropped(a, b):
    return _launch_persistent(a, b, "last_dropped")


def tail_wave_dropped(a, b):
    return _launch_persistent(a, b, "rounded_down")


def persistent_steps_overlap(a, b):
    return _launch_persistent(a, b, "steps_overlap")


@triton.jit
def reversed_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The grid is rounded up to a multiple of 8; programs without a tile should leave."""
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_tiles = num_pid_m * tl.cdiv(N, BLOCK_N)
    if pid > num_tiles:
        return
    tile = (num_tiles + pid) % num_tiles
    pid_m, pid_n = tile % num_pid_m, tile // num_pid_m
    _compute(a_ptr, b_ptr, c_ptr, pid_m, pid_n, M, N, K, sa, sb, sc, BLOCK_M, BLOCK_N, BLOCK_K)


def early_exit_one_too_late(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    if c.numel():
        tiles = triton.cdiv(M, 16) * triton.cdiv(N, 16)
        reversed_kernel[(triton.cdiv(tiles, 8) * 8,)](
            a, b, c, M, N, K, a.stride(), b.stride(), c.stride(),
            BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
        )  # fmt: skip
    return c
