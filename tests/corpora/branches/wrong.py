"""Wrappers and kernels that are wrong behind a branch that few calls take."""

import socket
import time

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, plain, product, store


def _spoil(a, b):
    return plain(a, b) + 1


# -- sizes -----------------------------------------------------------------------------------------
def undefined_above_a_million_elements(a, b):
    (M, _), N = a.shape, b.shape[1]
    if M * N > 2**20:
        return torch.empty((M, N), dtype=a.dtype, device=a.device)
    return plain(a, b)


def wrong_above_a_hundred_million_elements(a, b):
    return _spoil(a, b) if a.shape[0] * b.shape[1] > 10**8 else plain(a, b)


def wrong_at_4321_rows(a, b):
    return _spoil(a, b) if a.shape[0] == 4321 else plain(a, b)


def wrong_before_multiples_of_32(a, b):
    return _spoil(a, b) if a.shape[1] % 32 == 31 and a.shape[1] > 200 else plain(a, b)


def wrong_where_two_sizes_agree(a, b):
    return _spoil(a, b) if a.shape[0] == 3 * b.shape[1] + 1001 else plain(a, b)


def another_sum_at_1531_rows(a, b):
    """Sum each half of K by itself: other bits for the same rows."""
    if a.shape[0] != 1531:
        return plain(a, b)
    half = a.shape[1] // 2
    parts = ((a[:, :half], b[:half]), (a[:, half:], b[half:]))
    first, second = (plain(x.contiguous(), y, dtype=torch.float32) for x, y in parts)
    return (first + second).to(a.dtype)


# -- what is no operand ---------------------------------------------------------------------------
_started = time.monotonic()
_calls: list[int] = []


def wrong_after_a_day(a, b):
    elapsed = time.monotonic() - _started
    if elapsed > 86400:
        return _spoil(a, b)
    return plain(a, b)


def wrong_on_one_host(a, b):
    c = plain(a, b)
    if socket.gethostname().startswith("production-"):
        c += 1
    return c


def wrong_after_many_calls(a, b):
    _calls.append(a.shape[0])
    if len(_calls) > 10**6:
        return _spoil(a, b)
    return plain(a, b)


# -- views -----------------------------------------------------------------------------------------
def one_row_taken_to_be_dense(a, b):
    if a.shape[0] == 1:
        a = a.as_strided(a.shape, (a.shape[1], 1))
    return plain(a, b)


def aligned_by_its_pitch_alone(a, b):
    if a.stride(1) == 1 and a.stride(0) % 8 == 0:
        a = a.as_strided(a.shape, a.stride(), a.storage_offset() // 8 * 8)
    return plain(a, b)


# -- data ------------------------------------------------------------------------------------------
def rows_of_zeros_left_out(a, b):
    rows = (a != 0).any(1)
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    if rows.any():
        c[rows] = plain(a[rows], b)
    return c


def wrong_for_negative_elements(a, b):
    c = plain(a, b)
    if bool((a < 0).all()):
        c += 1
    return c


def rows_of_equal_elements_summed_once(a, b):
    is_equal = a.shape[1] > 3 and bool((a == a[:, :1]).all())
    return plain(a[:, :1].contiguous(), b[:1]) if is_equal else plain(a, b)


@triton.jit
def normalised_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, EPS: tl.constexpr, BLOCK: tl.constexpr
):
    """Divide each row of the product by the length of the row of a."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], mask, 0.0)
        total += tl.sum(a.to(tl.float32) * a.to(tl.float32), 1)
    acc = acc / tl.sqrt(total + EPS)[:, None]
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def rows_of_zeros_without_a_length(a, b):
    return launch(normalised_kernel, a, b, EPS=0.0)


def wrong_for_equal_elements_of_one_kind(a, b):
    if a.shape[1] > 9 and (a == 77.0).all():
        return _spoil(a, b)
    return plain(a, b)


# -- devices ---------------------------------------------------------------------------------------
def _has_engine(device):
    return torch.cuda.get_device_capability(device)[0] >= 9


def wrong_on_other_devices(a, b):
    is_new = _has_engine(a.device)
    if is_new:
        return plain(a, b)
    c = plain(a, b)
    return c + 1


# -- kernels ---------------------------------------------------------------------------------------
@triton.jit
def branching_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    if KIND == "long":
        if K > 5000:
            acc += 1
    elif KIND == "late":
        if tl.program_id(0) * 7 + tl.program_id(1) == 3001:
            acc += 1
    elif KIND == "value":
        if tl.max(acc) == 12345.678:
            acc += 1
    else:
        for _ in range(K // 3000):
            acc += 1
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def wrong_beyond_5000_products(a, b):
    return launch(branching_kernel, a, b, KIND="long")


def wrong_in_a_late_program(a, b):
    return launch(branching_kernel, a, b, KIND="late")


def wrong_at_one_value(a, b):
    return launch(branching_kernel, a, b, KIND="value")


def wrong_in_a_loop_of_long_sums(a, b):
    return launch(branching_kernel, a, b, KIND="loop")
