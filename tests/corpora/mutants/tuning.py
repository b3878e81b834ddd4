"""Classes G, O and P: faults across configurations, programs and calls."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, plain, product

CONFIGS = [
    triton.Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 32}, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 16}, num_warps=8),
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def tuned_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The tile of columns was 16 wide when this was written."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * 16 + tl.arange(0, BLOCK_N)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK_K)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


one_configuration_has_wider_tiles = partial(launch, tuned_kernel)


@triton.jit
def locked_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, SLICE, lock_ptr, count_ptr,
    RESET: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Slices of K add to a tile one after the other; the first to come stores."""
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(2) * SLICE
    end = tl.minimum(begin + SLICE, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
    tile = pid_m * tl.num_programs(1) + pid_n
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    while tl.atomic_cas(lock_ptr + tile, 0, 1) == 1:
        pass
    count = tl.load(count_ptr + tile)
    if count > 0:
        acc += tl.load(c_ptrs, mask=mask, other=0.0)
    tl.store(c_ptrs, acc, mask=mask)
    tl.debug_barrier()
    if RESET and count == tl.num_programs(2) - 1:
        tl.store(count_ptr + tile, 0)
    else:
        tl.store(count_ptr + tile, count + 1)
    tl.atomic_xchg(lock_ptr + tile, 0)


def _slice(a, parts):
    """The extent of K in each of these parts: whole tiles."""
    return triton.cdiv(triton.cdiv(a.shape[1], parts), 16) * 16


_LOCKS: dict[torch.device, torch.Tensor] = {}


def counters_not_reset_between_calls(a, b):
    """The counters of all tiles outlive the call."""
    if a.device not in _LOCKS:
        _LOCKS[a.device] = torch.zeros(2, 4096, device=a.device, dtype=torch.int32)
    locked = partial(launch, locked_kernel, dtype=torch.float32, depth=2, RESET=False)
    return locked(a, b, _slice(a, 2), *_LOCKS[a.device]).to(a.dtype)


@triton.jit
def unlocked_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, SLICE, BLOCK: tl.constexpr,
):  # fmt: skip
    """Slices of K load the tile, add, and store it, with no order between them."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.program_id(2) * SLICE
    end = tl.minimum(begin + SLICE, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc + tl.load(c_ptrs, mask=mask, other=0.0), mask=mask)


def slices_add_without_a_lock(a, b):
    c = torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    return launch(unlocked_kernel, a, b, _slice(a, 2), c=c, depth=2).to(a.dtype)


def split(a, b, parts=2):
    """Sums of `parts` slices of K, each rounded to fp32, then added by torch."""
    slice_k = _slice(a, parts)
    w = torch.empty((parts, a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    for part in range(parts):
        own = slice(part * slice_k, (part + 1) * slice_k)
        plain(a[:, own], b[own], c=w[part])
    return w.sum(0)


def split_chosen_by_m(a, b):
    """Few rows leave multiprocessors idle, so K is split: other bits for the same row."""
    return split(a, b, 3 if a.shape[0] <= 16 else 1)


_STRIDES = {}


def strides_kept_from_the_first_call(a, b):
    """A cache of launch arguments whose key lacks the strides."""
    key = (*a.shape, b.shape[1])
    sa, sb = _STRIDES.setdefault(key, (a.stride(), b.stride()))
    return plain(a, b, sa=sa, sb=sb, dtype=torch.float32).to(a.dtype)


_TURNED: dict[tuple[int, ...], torch.Tensor] = {}


def launch_prepared(a, b, version=True):
    """b is copied to columns once, as a weight that no call changes is."""
    key = (b.data_ptr(), *b.shape, *b.stride(), b._version if version else 0)
    if key not in _TURNED:
        _TURNED.clear()
        _TURNED[key] = b.t().contiguous()
    return plain(a, _TURNED[key].t())


# the optimizer's step changes the weight where it is
copy_of_b_kept_by_its_address = partial(launch_prepared, version=False)


@triton.jit
def adding_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Two slices of K are added onto c."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    begin = tl.program_id(2) * (K // 2)
    end = tl.where(tl.program_id(2) == 0, K // 2, K)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, begin, end, sa, sb, BLOCK_K)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.atomic_add(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def _launch_adding(a, b, kernel):
    c = torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    return launch(kernel, a, b, c=c, depth=2).to(a.dtype)


def _tune(**options):
    return triton.autotune(configs=CONFIGS, key=["M", "N", "K"], **options)(adding_kernel)


tuned_onto_zeros_each_time = partial(_launch_adding, kernel=_tune(reset_to_zero=["c_ptr"]))
# the tuner's trial runs leave their sums in c
trial_runs_add_to_the_result = partial(_launch_adding, kernel=_tune())
