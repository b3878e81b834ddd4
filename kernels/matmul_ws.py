"""Persistent programs on Hopper whose warps differ: one fetches, two groups multiply in turns."""

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
from .fused import epilogues, matmul_fused
from .fused.epilogues import make_epilogue
from .matmul_tma import launch_tma

# Triton renamed them after 3.7
copy_in = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
copy_out = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global

#: The activations of `matmul_fused`, as a function that Gluon calls.
activate = gluon.jit(epilogues.activate.fn)

#: Formats of results; a and b have the two of 16 bits.
FORMATS = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float32: gl.float32}
BLOCK_M, BLOCK_K, GROUP_M = 128, 64, 2
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
    """Fill one slot after the other with a step of a tile: a's part and b's at one barrier."""
    step = 0
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    for tile_id in range(gl.program_id(0), tiles, NUM_SMS):
        start_m, start_n = find_tile(tile_id, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        for start_k in range(0, K, BLOCK_K):
            slot = step % SLOTS
            # the first round finds the slots empty
            mbarrier.wait(empty.index(slot), (step // SLOTS + 1) & 1)
            ready = full.index(slot)
            mbarrier.expect(ready, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            if A_IS_T:
                copy_in(a_desc, [start_k, start_m], ready, a_bufs.index(slot))
            else:
                copy_in(a_desc, [start_m, start_k], ready, a_bufs.index(slot))
            if B_IS_T:
                copy_in(b_desc, [start_n, start_k], ready, b_bufs.index(slot))
            else:
                copy_in(b_desc, [start_k, start_n], ready, b_bufs.index(slot))
            step += 1


@gluon.jit
def multiply(
    turn: gl.constexpr, c_desc, bias_ptr, a_bufs, b_bufs, c_buf, full, empty, order,
    M, N, K, stride_bias,
    A_IS_T: gl.constexpr, B_IS_T: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, SLOTS: gl.constexpr, NUM_SMS: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Every second tile of the program, from the first or the second on (turn 0 or 1).

    While one group finishes and stores its tile, the other one multiplies. A barrier of `full` is
    known by the parity of its round alone, so a group must not look at one before the other group
    has seen the rounds before: each waits for its turn.
    """
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16]
    )
    k_tiles = gl.cdiv(K, BLOCK_K)
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, BLOCK_N)
    for tile_id in range(gl.program_id(0) + turn * NUM_SMS, tiles, 2 * NUM_SMS):
        start_m, start_n = find_tile(tile_id, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        count = tile_id // NUM_SMS  # of the program's tiles before
        first = count * k_tiles
        acc = warpgroup_mma_init(gl.zeros((BLOCK_M, BLOCK_N), gl.float32, LAYOUT))
        mbarrier.wait(order.index(turn), (count // 2 + 1 + turn) & 1)
        for k in range(k_tiles):
            step = first + k
            slot = step % SLOTS
            mbarrier.wait(full.index(slot), (step // SLOTS) & 1)
            a, b = a_bufs.index(slot), b_bufs.index(slot)
            acc = warpgroup_mma(
                a.permute((1, 0)) if A_IS_T else a, b.permute((1, 0)) if B_IS_T else b, acc,
                is_async=True,
            )  # fmt: skip
            # one product stays in flight: the one before it has been read to the end
            acc = warpgroup_mma_init(warpgroup_mma_wait(1, deps=(acc,)))
            mbarrier.arrive(empty.index((step + SLOTS - 1) % SLOTS), pred=k > 0)
        mbarrier.arrive(order.index(1 - turn))
        x = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((first + k_tiles - 1) % SLOTS))

        if bias_ptr is not None:
            columns = start_n + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, LAYOUT))
            offs = columns.to(gl.int64) * stride_bias
            bias = gl.load(bias_ptr + offs, mask=columns < N, other=0.0)
            x += gl.expand_dims(bias.to(gl.float32), 0)
        # in halves, which need fewer registers
        left, right = x.reshape((BLOCK_M, 2, BLOCK_N // 2)).permute((0, 2, 1)).split()
        store(c_desc, c_buf, activate(left, ACTIVATION), start_m, start_n)
        store(c_desc, c_buf, activate(right, ACTIVATION), start_m, start_n + BLOCK_N // 2)
    tma.store_wait(0)


@gluon.jit
def store(c_desc, c_buf, x, row, column):
    """Hand a part of a tile to the copy engine, once the part before has left shared memory."""
    tma.store_wait(0)
    c_buf.store(x.to(c_desc.dtype))
    fence_async_shared()
    copy_out(c_desc, [row, column], c_buf)


@gluon.jit
def matmul_ws_kernel(
    a_desc, b_desc, c_desc, bias_ptr, M, N, K, stride_bias,
    A_IS_T: gl.constexpr, B_IS_T: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, SLOTS: gl.constexpr, NUM_SMS: gl.constexpr, ACTIVATION: gl.constexpr,
    WORKER_WARPS: gl.constexpr, WORKER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """C = activation(A B + bias) for K > 0; program p takes tiles p + i NUM_SMS.

    Tiles are in the order of `matmul_grouped`. A_IS_T, B_IS_T: the descriptor is of the transpose.
    What lies outside of a matrix is fetched as 0 and not stored, which the copy engine sees to.
    """
    a_bufs = gl.allocate_shared_memory(
        a_desc.dtype,
        [SLOTS, a_desc.block_type.shape[0], a_desc.block_type.shape[1]],
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
    order = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for turn in gl.static_range(2):
        mbarrier.init(order.index(turn), count=1)
    for slot in gl.static_range(SLOTS):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
    fence_async_shared()

    gl.warp_specialize(
        [
            (multiply, (
                0, c_desc, bias_ptr, a_bufs, b_bufs, c_bufs.index(0), full, empty, order,
                M, N, K, stride_bias, A_IS_T, B_IS_T, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, SLOTS, NUM_SMS, ACTIVATION,
            )),
            (multiply, (
                1, c_desc, bias_ptr, a_bufs, b_bufs, c_bufs.index(1), full, empty, order,
                M, N, K, stride_bias, A_IS_T, B_IS_T, BLOCK_M, BLOCK_N, BLOCK_K,
                GROUP_M, SLOTS, NUM_SMS, ACTIVATION,
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
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """activation(a @ b + bias) for fp16 and bf16 on a Hopper GPU, in fp32 and rounded once.

    bias (N,) and activation as in `matmul_fused`, which it is elsewhere if they are given; without
    them it is `matmul_tma` elsewhere. Arguments, formats, result and errors are those of these two.
    It is written in Gluon, of which neither Triton's interpreter nor the tile simulator sees
    anything: it is judged on a GPU alone.
    """
    a, b, c = prepare("matmul_ws", a, b, out_dtype, out, input_precision)
    if bias is None and activation is None:
        launch_ws(a, b, c, input_precision)
        return c
    product = _find_product(a, b, c)
    if product is None or product[2] is not c:
        return matmul_fused(
            a, b, bias, activation=activation, out_dtype=c.dtype, out=c,
            input_precision=input_precision,
        )  # fmt: skip
    epilogue = make_epilogue(
        "matmul_ws", c, bias, None, None, 1.0, 0.0, activation, is_new=out is None
    )
    _launch(*product, epilogue.bias, activation)
    return c


def launch_ws(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    """Launch the kernel, or that of `matmul_tma`, for operands and a result that were checked."""
    product = _find_product(a, b, c)
    if product is None:
        launch_tma(a, b, c, input_precision)
    else:
        _launch(*product)


def _find_product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool, bool] | None:
    """As `find_product`; None also for GPUs, formats and results that this kernel is not for."""
    is_hopper = a.is_cuda and torch.cuda.get_device_capability(a.device)[0] == 9
    is_known = a.element_size() == 2 and c.dtype in FORMATS
    return find_product(a, b, c) if is_hopper and is_known and c.numel() > 0 else None


def _launch(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, a_is_t: bool, b_is_t: bool,
    bias: torch.Tensor | None = None, activation: str | None = None,
) -> None:  # fmt: skip
    sms, (M, N) = num_sms(a.device), c.shape
    counts = {n: triton.cdiv(M, BLOCK_M) * triton.cdiv(N, n) for n in BLOCKS_N}
    BLOCK_N = next((n for n, tiles in counts.items() if 2 * tiles > sms), BLOCKS_N[-1])
    with torch.cuda.device_of(c):
        matmul_ws_kernel[(min(sms, counts[BLOCK_N]),)](
            _describe(a, a_is_t, [BLOCK_M, BLOCK_K]),
            _describe(b, b_is_t, [BLOCK_K, BLOCK_N]),
            _describe(c, False, [BLOCK_M, BLOCK_N // 2]),
            bias, M, N, a.shape[1], 0 if bias is None else bias.stride(0),
            a_is_t, b_is_t, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
            SLOTS=count_slots(BLOCK_N, c.element_size()),
            NUM_SMS=sms,
            ACTIVATION=activation,
            WORKER_WARPS=(GROUP_WARPS, 1),
            WORKER_REGISTERS=(GROUP_REGISTERS, FETCH_REGISTERS),
            num_warps=GROUP_WARPS,
        )  # fmt: skip


def count_slots(BLOCK_N: int, c_bytes: int) -> int:
    """The tiles of a and b that fit an SM next to one of c of so many bytes an element."""
    left = SHARED_MEMORY - BLOCK_M * BLOCK_N * c_bytes - BARRIERS
    return left // ((BLOCK_M + BLOCK_N) * BLOCK_K * 2)


def _describe(x: torch.Tensor, is_t: bool, block: list[int]) -> TensorDescriptor:
    """A descriptor of a matrix or, with the block's sides exchanged, of its transpose."""
    block = block[::-1] if is_t else block
    layout = gl.NVMMASharedLayout.get_default_for(block, FORMATS[x.dtype])
    return TensorDescriptor.from_tensor(x.T if is_t else x, block, layout)
