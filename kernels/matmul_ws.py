"""Persistent programs on Hopper whose warps differ: one fetches, two groups multiply and store."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .arguments import num_sms, prepare
from .descriptors import SHARED_MEMORY, find_product
from .matmul_tma import matmul_tma

# Triton renamed them after 3.7
copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
copy_out = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global

#: Of results; those of a and b are the two of 16 bits.
FORMATS = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}
BLOCK_M, BLOCK_K, GROUP_M = 128, 64, 8
#: Columns of a tile: the first of which there are more tiles than half the multiprocessors.
BLOCKS_N = (128, 64)
#: Bytes set aside for barriers, of which each slot has two of 8 bytes.
BARRIERS = 256
#: Warps of a group that multiplies, and registers of its threads and of those that fetch.
GROUP_WARPS, GROUP_REGISTERS, FETCH_REGISTERS = 4, 240, 24


@gluon.jit
def find_tile(tile_id, M, N, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr):
    """The first row and column of a tile, in the order of `matmul_grouped`."""
    num_pid_m = gl.cdiv(M, BLOCK_M)
    num_pid_in_group = GROUP_M * gl.cdiv(N, BLOCK_N)
    first_pid_m = (tile_id // num_pid_in_group) * GROUP_M
    group_size_m = gl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_in_group = tile_id % num_pid_in_group
    start_m = (first_pid_m + pid_in_group % group_size_m) * BLOCK_M
    return start_m, (pid_in_group // group_size_m) * BLOCK_N


@gluon.jit
def fetch(
    a_desc, b_desc, a_bufs, b_bufs, full, empty, M, N, K,
    A_IS_T: gl.constexpr, B_IS_T: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, SLOTS: gl.constexpr, NUM_SMS: gl.constexpr,
):  # fmt: skip
    """Fill one slot after the other: both halves of a's tile, and b's, arrive at one barrier."""
    HALF_M: gl.constexpr = BLOCK_M // 2
    step = 0
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    for tile_id in range(gl.program_id(0), tiles, NUM_SMS):
        start_m, start_n = find_tile(tile_id, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        for start_k in range(0, K, BLOCK_K):
            slot = step % SLOTS
            # the first round finds the slots empty
            mbarrier.wait(empty.index(slot), (step // SLOTS + 1) & 1)
            ready = full.index(slot)
            mbarrier.expect(ready, 2 * a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            for half in gl.static_range(2):
                rows = start_m + half * HALF_M
                place = a_bufs.index(2 * slot + half)
                if A_IS_T:
                    copy_in(a_desc, [start_k, rows], ready, place)
                else:
                    copy_in(a_desc, [rows, start_k], ready, place)
            if B_IS_T:
                copy_in(b_desc, [start_n, start_k], ready, b_bufs.index(slot))
            else:
                copy_in(b_desc, [start_k, start_n], ready, b_bufs.index(slot))
            step += 1


@gluon.jit
def multiply(
    half: gl.constexpr, c_desc, a_bufs, b_bufs, c_buf, full, empty, M, N, K,
    A_IS_T: gl.constexpr, B_IS_T: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, SLOTS: gl.constexpr,
    NUM_SMS: gl.constexpr, INSTRUCTION: gl.constexpr,
):  # fmt: skip
    """One half of the rows of each tile; a slot is empty once both groups have read it."""
    HALF_M: gl.constexpr = BLOCK_M // 2
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=INSTRUCTION
    )
    step = 0
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    for tile_id in range(gl.program_id(0), tiles, NUM_SMS):
        start_m, start_n = find_tile(tile_id, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = warpgroup_mma_init(gl.zeros((HALF_M, BLOCK_N), gl.float32, LAYOUT))
        first = step
        for _ in range(0, K, BLOCK_K):
            slot = step % SLOTS
            mbarrier.wait(full.index(slot), (step // SLOTS) & 1)
            a = a_bufs.index(2 * slot + half)
            b = b_bufs.index(slot)
            acc = warpgroup_mma(
                a.permute((1, 0)) if A_IS_T else a, b.permute((1, 0)) if B_IS_T else b, acc,
                is_async=True,
            )  # fmt: skip
            # one product stays in flight: the one before it has been read to the end
            acc = warpgroup_mma_init(warpgroup_mma_wait(1, deps=(acc,)))
            mbarrier.arrive(empty.index((step + SLOTS - 1) % SLOTS), pred=step > first)
            step += 1
        total = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((step + SLOTS - 1) % SLOTS))

        # once the tile before has left shared memory
        tma.store_wait(0)
        c_buf.store(total.to(c_desc.dtype))
        fence_async_shared()
        copy_out(c_desc, [start_m + half * HALF_M, start_n], c_buf)
    tma.store_wait(0)


@gluon.jit
def matmul_ws_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    A_IS_T: gl.constexpr, B_IS_T: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, SLOTS: gl.constexpr,
    NUM_SMS: gl.constexpr, INSTRUCTION: gl.constexpr,
    WORKER_WARPS: gl.constexpr, WORKER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """C = A B for K > 0; program p takes tiles p + i NUM_SMS, in the order of `matmul_grouped`.

    A_IS_T, B_IS_T: the descriptor is of the transpose. What lies outside of a matrix is fetched as
    0 and not stored, which the copy engine sees to.
    """
    a_bufs = gl.allocate_shared_memory(
        a_desc.dtype,
        [2 * SLOTS, a_desc.block_type.shape[0], a_desc.block_type.shape[1]],
        a_desc.layout,
    )
    b_bufs = gl.allocate_shared_memory(
        b_desc.dtype, [SLOTS, b_desc.block_type.shape[0], b_desc.block_type.shape[1]], b_desc.layout
    )
    c_bufs = gl.allocate_shared_memory(
        c_desc.dtype, [2, c_desc.block_type.shape[0], c_desc.block_type.shape[1]], c_desc.layout
    )
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=2)
    fence_async_shared()

    gl.warp_specialize(
        [
            (multiply, (
                0, c_desc, a_bufs, b_bufs, c_bufs.index(0), full, empty, M, N, K, A_IS_T, B_IS_T,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SLOTS, NUM_SMS, INSTRUCTION,
            )),
            (multiply, (
                1, c_desc, a_bufs, b_bufs, c_bufs.index(1), full, empty, M, N, K, A_IS_T, B_IS_T,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SLOTS, NUM_SMS, INSTRUCTION,
            )),
            (fetch, (
                a_desc, b_desc, a_bufs, b_bufs, full, empty, M, N, K, A_IS_T, B_IS_T,
                BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SLOTS, NUM_SMS,
            )),
        ],
        WORKER_WARPS,
        WORKER_REGISTERS,
    )  # fmt: skip


def matmul_ws(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """As `matmul_tma`, for fp16 and bf16 on a Hopper GPU; for all else it is `matmul_tma`.

    It is written in Gluon, of which neither Triton's interpreter nor the tile simulator sees
    anything: it is judged on a GPU alone.
    """
    a, b, c = prepare("matmul_ws", a, b, out_dtype, out, input_precision)
    product = find_product(a, b, c)
    is_hopper = a.is_cuda and torch.cuda.get_device_capability(a.device)[0] == 9
    is_known = a.element_size() == 2 and c.dtype in FORMATS
    if c.numel() == 0 or product is None or not (is_hopper and is_known):
        return matmul_tma(a, b, c.dtype, out=c, input_precision=input_precision)
    _launch(*product)
    return c


def _launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, a_is_t: bool, b_is_t: bool) -> None:
    sms, (M, N), half = num_sms(a.device), c.shape, BLOCK_M // 2
    counts = {n: triton.cdiv(M, BLOCK_M) * triton.cdiv(N, n) for n in BLOCKS_N}
    BLOCK_N = next((n for n, tiles in counts.items() if 2 * tiles > sms), BLOCKS_N[-1])
    with torch.cuda.device_of(c):
        matmul_ws_kernel[(min(sms, counts[BLOCK_N]),)](
            _describe(a, a_is_t, [half, BLOCK_K]),
            _describe(b, b_is_t, [BLOCK_K, BLOCK_N]),
            _describe(c, False, [half, BLOCK_N]),
            M, N, a.shape[1], a_is_t, b_is_t, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
            SLOTS=count_slots(BLOCK_N, c.element_size()),
            NUM_SMS=sms,
            INSTRUCTION=(16, BLOCK_N, 16),
            WORKER_WARPS=(GROUP_WARPS, 1),
            WORKER_REGISTERS=(GROUP_REGISTERS, FETCH_REGISTERS),
            num_warps=GROUP_WARPS,
        )  # fmt: skip


def count_slots(BLOCK_N: int, c_bytes: int) -> int:
    """The tiles of a and b that an SM has room for, beside one of c of so many bytes an element."""
    left = SHARED_MEMORY - BLOCK_M * BLOCK_N * c_bytes - BARRIERS
    return left // ((BLOCK_M + BLOCK_N) * BLOCK_K * 2)


def _describe(x: torch.Tensor, is_t: bool, block: list[int]) -> TensorDescriptor:
    """A descriptor of a matrix or, with the block's sides exchanged, of its transpose."""
    block = block[::-1] if is_t else block
    layout = gl.NVMMASharedLayout.get_default_for(block, FORMATS[x.dtype])
    return TensorDescriptor.from_tensor(x.T if is_t else x, block, layout)
