"""As many programs as multiprocessors, each walking its share of the tiles of C."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .arguments import KEY, count_fetched, launch, make_configs, num_sms, prepare, time_config
from .descriptors import SHARED_MEMORY

CONFIGS = make_configs(
    (128, 256, 64, 8, 3),
    (128, 128, 64, 4, 3),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
    (16, 64, 128, 4, 4),
    GROUP_M=8,
)


def keep_fitting(
    configs: list[triton.Config], nargs: dict[str, Any], **options: Any
) -> list[triton.Config]:
    """The configurations that fit an SM.

    A tile of c may pass through shared memory while the operands of the next one are fetched.
    """
    size, c_size = nargs["a_ptr"].element_size(), nargs["c_ptr"].element_size()
    kept = []
    for config in configs:
        tile = config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"]
        if count_fetched(config) * size + tile * c_size < SHARED_MEMORY:
            kept.append(config)
    return kept


@triton.autotune(
    configs=CONFIGS,
    key=[*KEY, "NUM_SMS"],
    prune_configs_by={"early_config_prune": keep_fitting},
    do_bench=time_config,
)
@triton.jit
def matmul_persistent_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    NUM_SMS: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROMOTE: tl.constexpr,
):
    """C = A B for A (M, K), B (K, N), C (M, N) of any strides; program p takes tiles p + i NUM_SMS.

    Bands of GROUP_M rows of tiles follow each other; inside a band the tiles go down its columns.
    """
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    k_tiles = tl.cdiv(K, BLOCK_K)

    for tile_id in tl.range(tl.program_id(0), num_pid_m * num_pid_n, NUM_SMS, flatten=True):
        first_pid_m = (tile_id // num_pid_in_group) * GROUP_M
        group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
        pid_in_group = tile_id % num_pid_in_group
        pid_m = first_pid_m + pid_in_group % group_size_m
        pid_n = pid_in_group // group_size_m

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_DTYPE)
        for k in range(0, k_tiles):
            # Counted anew in each step: what the flattened loop carries, the compiler no longer
            # knows to be a multiple of the tile, and then it does not fetch b ahead.
            # 64 bits because an index times a stride can pass 2**31.
            offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
            offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
            offs_k = (k * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
            a = tl.load(
                a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
                mask=(offs_m[:, None] < M) & (offs_k[None, :] < K),
                other=0.0,
            )
            b = tl.load(
                b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
                mask=(offs_k[:, None] < K) & (offs_n[None, :] < N),
                other=0.0,
            )
            if PROMOTE:
                # Hopper's and Ada's fp8 units keep 13 fraction bits of a running sum: each block
                # is summed from zero and added in fp32. The limit keeps the compiler from fusing.
                acc += tl.dot(a, b, max_num_imprecise_acc=BLOCK_K)
            else:
                acc = tl.dot(a, b, acc, input_precision=INPUT_PRECISION, out_dtype=ACC_DTYPE)

        offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        tl.store(
            c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
            acc.to(c_ptr.dtype.element_ty),
            mask=(offs_m[:, None] < M) & (offs_n[None, :] < N),
        )


def matmul_persistent(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """As `matmul`: the same arguments, formats, result and errors."""
    a, b, c = prepare("matmul_persistent", a, b, out_dtype, out, input_precision)
    launch_persistent(a, b, c, input_precision)
    return c


def launch_persistent(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str
) -> None:
    """Launch the kernel for operands and a result that were checked."""
    sms = num_sms(a.device)
    kernel = matmul_persistent_kernel
    launch(kernel, lambda m, n: (min(sms, m * n),), a, b, c, input_precision, NUM_SMS=sms)
