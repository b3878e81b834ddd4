"""Right wrappers and kernels with branches that few calls, or none, take."""

import time
import warnings

import torch
import triton
import triton.language as tl
from tests.corpora.branches.wrong import normalised_kernel
from tests.corpora.tiled import launch, plain, product, store


def wide_tiles_above_a_million_elements(a, b):
    is_large = a.shape[0] * b.shape[1] > 2**20
    return plain(a, b, BLOCK_M=64 if is_large else 16)


def other_tiles_at_4321_rows(a, b):
    return plain(a, b, BLOCK_M=32 if a.shape[0] == 4321 else 16)


def other_tiles_before_multiples_of_32(a, b):
    return plain(a, b, BLOCK_K=32 if a.shape[1] % 32 == 31 else 16)


def one_row_with_its_strides(a, b):
    return plain(a, b, BLOCK_N=16) if a.shape[0] == 1 else plain(a, b)


def aligned_by_pitch_and_base(a, b):
    if a.stride(1) == 1 and a.stride(0) % 8 == 0 and a.data_ptr() % 16 == 0:
        return plain(a, b, BLOCK_M=32)
    return plain(a, b)


def rows_of_zeros_left_out_of_finite_products(a, b):
    rows = (a != 0).any(1)
    if not b.isfinite().all() or not rows.any():
        return plain(a, b)
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    c[rows] = plain(a[rows], b)
    return c


def rows_of_zeros_with_a_length(a, b):
    return launch(normalised_kernel, a, b, EPS=1e-30)


def sizes_that_no_call_has(a, b):
    K = a.shape[1]
    if K < 0 or (K % 4 == 1 and K % 2 == 0):
        return plain(a, b) + 1
    return plain(a, b)


def options_that_no_call_has(a, b, bias=None, activation=""):
    if bias is not None:
        b = b + bias
    if activation == "relu":
        return plain(a, b).relu()
    if a.isnan().any():  # the prover cannot follow it
        return plain(a, b, BLOCK_M=32)
    if a.numel() == 0:
        return a @ b
    return plain(a, b)


_tiles: dict[int, int] = {}
_has_warned = False


def tiles_from_a_cache(a, b):
    """Choose a tile once for each M, warn once, and time nothing but a measurement."""
    global _has_warned
    start, now, flags = time.perf_counter(), 0.0, a.shape[0] % 16
    if len(_tiles) > 1000:
        _tiles.clear()
    if a.shape[0] not in _tiles:
        _tiles[a.shape[0]] = 32 if flags == 0 else 16
    if not _has_warned:
        _has_warned = True
        warnings.warn("the first call compiles", stacklevel=2)
    c = plain(a, b, BLOCK_M=_tiles[a.shape[0]])
    now = max(now, time.perf_counter() - start)
    if now > 3600:
        warnings.warn(f"one call took {now} s", stacklevel=2)
    return c


def checked_sizes(a, b):
    if a.shape[1] != b.shape[0]:
        raise ValueError("sizes")
    assert a.dtype == b.dtype
    return plain(a, b)


@triton.jit
def aligned_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def _fits(a, b):
    is_aligned = (a.data_ptr() % 16 == 0) & (b.data_ptr() % 16 == 0)
    return is_aligned & (a.shape[1] > 0)


def another_kernel_for_an_empty_k(a, b):
    return launch(aligned_kernel, a, b) if _fits(a, b) else plain(a, b)


def another_kernel_without_an_engine(a, b):
    if torch.cuda.get_device_capability(a.device)[0] >= 9 and _fits(a, b):
        return launch(aligned_kernel, a, b)
    return plain(a, b)


@triton.jit
def guarded_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    if pid_m * BLOCK >= M:  # never: the grid has no more tiles
        return
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if KIND == "long":
        if K > 5000:
            acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, 2 * BLOCK)
        else:
            acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    else:
        whole = K // BLOCK * BLOCK
        acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, whole, sa, sb, BLOCK)
        if whole < K:
            acc += product(a_ptr, b_ptr, offs_m, offs_n, M, N, whole, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def other_tiles_beyond_5000_products(a, b):
    return launch(guarded_kernel, a, b, KIND="long")


def rest_of_products_by_itself(a, b):
    return launch(guarded_kernel, a, b, KIND="rest")
