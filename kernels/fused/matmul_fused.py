"""A product and its epilogue in one kernel: alpha, beta, a bias, an activation, a residual."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import warnings
from typing import Any

import torch
import triton
import triton.language as tl

from ..arguments import Arguments, num_sms, prepare, time_config
from ..checks import join_names
from ..descriptors import (
    ALIGNMENT,
    NO_ENGINE,
    SHARED_MEMORY,
    describe,
    describe_layout,
    find_layouts,
    has_engine,
)
from ..matmul_tma import ROW_BYTES
from .epilogues import FORMATS, Epilogue, count_tiles, finish, launch_epilogue, make_epilogue
from .pointers import launch_pointers

WHERE = "matmul_fused"
# (BLOCK_M, BLOCK_N, num_warps, GROUP_M) and (num_stages, SUBTILES), of which the first that fits is
# tried: parts of a tile need registers and shared memory for themselves alone.
TILES = {
    (128, 256, 8, 2): ((4, 2), (4, 4), (3, 4)),
    (256, 128, 8, 2): ((4, 2), (4, 4), (3, 4)),
    (128, 128, 8, 8): ((4, 2),),
    (64, 128, 4, 8): ((6, 2),),
    (64, 64, 4, 8): ((8, 1),),
}


def set_blocks(nargs: Arguments) -> None:
    """Give the descriptors the blocks of a configuration."""
    m, n, k = (nargs[f"BLOCK_{axis}"] for axis in "MNK")
    nargs["a_desc"].block_shape = [k, m] if nargs["A_IS_T"] else [m, k]
    nargs["b_desc"].block_shape = [n, k] if nargs["B_IS_T"] else [k, n]
    for name in ("c_desc", "residual_desc", "out_desc"):
        if nargs[name] is not None:
            nargs[name].block_shape = [m, n // nargs["SUBTILES"]]


CONFIGS = [
    triton.Config(
        {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": ROW_BYTES // 2, "GROUP_M": g, "SUBTILES": parts},
        num_warps=warps,
        num_stages=stages,
        pre_hook=set_blocks,
    )
    for (m, n, warps, g), variants in TILES.items()
    for stages, parts in variants
]


def keep_fitting(
    configs: list[triton.Config], nargs: Arguments, **options: Any
) -> list[triton.Config]:
    """Return for each tile the first configuration that fits an SM with the operands of this call.

    c and the residual are fetched one after the other, into the same memory.
    """
    given = {**nargs, **options}
    added = max(given["C_BYTES"], given["RESIDUAL_BYTES"]) + given["OUT_BYTES"]
    kept: dict[tuple[int, int], triton.Config] = {}
    for config in configs:
        m, n, parts = (config.kwargs[name] for name in ("BLOCK_M", "BLOCK_N", "SUBTILES"))
        if config.num_stages * (m + n) * ROW_BYTES + m * n // parts * added < SHARED_MEMORY:
            kept.setdefault((m, n), config)
    return list(kept.values())


@triton.jit
def store_columns(
    acc,
    start_m,
    start_n,
    bias_ptr,
    c_desc,
    residual_desc,
    out_desc,
    N,
    stride_bias,
    alpha,
    beta,
    ACTIVATION: tl.constexpr,
    SUBTILES: tl.constexpr,
):
    """Finish and store a tile part by part, from the left; each reads c before it is written."""
    rows: tl.constexpr = acc.shape[0]
    columns: tl.constexpr = acc.shape[1]
    if SUBTILES > 1:
        half: tl.constexpr = columns // 2
        left, right = tl.split(tl.permute(tl.reshape(acc, (rows, 2, half)), (0, 2, 1)))
        store_columns(
            left, start_m, start_n, bias_ptr, c_desc, residual_desc, out_desc,
            N, stride_bias, alpha, beta, ACTIVATION, SUBTILES // 2,
        )  # fmt: skip
        store_columns(
            right, start_m, start_n + half, bias_ptr, c_desc, residual_desc, out_desc,
            N, stride_bias, alpha, beta, ACTIVATION, SUBTILES // 2,
        )  # fmt: skip
    else:
        bias, c, residual = None, None, None
        if bias_ptr is not None:
            # 64 bits because an index times a stride can pass 2**31
            offs_n = (start_n + tl.arange(0, columns)).to(tl.int64)
            bias = tl.load(bias_ptr + offs_n * stride_bias, mask=offs_n < N, other=0.0)[None, :]
        if c_desc is not None:
            c = c_desc.load([start_m, start_n])
        if residual_desc is not None:
            residual = residual_desc.load([start_m, start_n])
        out = finish(acc, bias, c, residual, alpha, beta, ACTIVATION)
        out_desc.store([start_m, start_n], out.to(out_desc.dtype))


@triton.autotune(
    configs=CONFIGS,
    # the bytes too, which Triton does not see in descriptors
    key=[
        *("M", "N", "K", "A_IS_T", "B_IS_T", "NUM_SMS", "ACTIVATION"),
        *("BIAS_BYTES", "C_BYTES", "RESIDUAL_BYTES", "OUT_BYTES"),
    ],
    prune_configs_by={"early_config_prune": keep_fitting},
    do_bench=time_config,
)
@triton.jit
def matmul_fused_kernel(
    a_desc,
    b_desc,
    bias_ptr,
    c_desc,
    residual_desc,
    out_desc,
    M,
    N,
    K,
    stride_bias,
    alpha,
    beta,
    A_IS_T: tl.constexpr,
    B_IS_T: tl.constexpr,
    BIAS_BYTES: tl.constexpr,
    C_BYTES: tl.constexpr,
    RESIDUAL_BYTES: tl.constexpr,
    OUT_BYTES: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SUBTILES: tl.constexpr,
    NUM_SMS: tl.constexpr,
):
    """`finish` of A B; bias, c and residual are None where absent. The rest as in `matmul_tma`.

    The BYTES are read by the tuner alone. Tiles follow each other in one loop, so that the next
    one's operands are fetched while this one is finished and stored.
    """
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    k_tiles = tl.cdiv(K, BLOCK_K)

    for tile_id in tl.range(tl.program_id(0), num_pid_m * num_pid_n, NUM_SMS, flatten=True):
        first_pid_m = (tile_id // num_pid_in_group) * GROUP_M
        group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
        pid_in_group = tile_id % num_pid_in_group
        start_m = (first_pid_m + pid_in_group % group_size_m) * BLOCK_M
        start_n = (pid_in_group // group_size_m) * BLOCK_N

        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, k_tiles):
            start_k = k * BLOCK_K
            a = a_desc.load([start_k, start_m]).T if A_IS_T else a_desc.load([start_m, start_k])
            b = b_desc.load([start_n, start_k]).T if B_IS_T else b_desc.load([start_k, start_n])
            acc = tl.dot(a, b, acc)

        store_columns(
            acc, start_m, start_n, bias_ptr, c_desc, residual_desc, out_desc,
            N, stride_bias, alpha, beta, ACTIVATION, SUBTILES,
        )  # fmt: skip


def matmul_fused(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """out = activation(alpha * (a @ b) + beta * c + bias) + residual, in fp32 and rounded once.

    a (M, K) and b (K, N) of fp16, bf16 or fp32; bias (N,), c and residual (M, N) of any of these,
    in any strides. activation: None, "relu", "gelu" (by erf), "gelu_tanh" or "silu". beta = 0
    reads no c. out_dtype, out, input_precision and errors as in `matmul`; out may be c or residual
    itself, which is then updated in place, or share no memory with any operand.

    Where the copy engine cannot address an operand, a warning says why in one line, and pointers
    are used; so they are for fp32 and for an empty K.
    """
    is_new = out is None
    a, b, out = prepare(WHERE, a, b, out_dtype, out, input_precision)
    if a.dtype not in FORMATS:
        raise TypeError(f"{WHERE}: got a of {a.dtype}, expected {join_names(FORMATS)}")
    epilogue = make_epilogue(WHERE, out, bias, c, residual, alpha, beta, activation, is_new)
    if out.numel() == 0:
        return out
    if a.dtype == torch.float32 or a.shape[1] == 0:
        launch_pointers(a, b, epilogue, input_precision)
        return out
    (a_rows, a_columns), (b_rows, b_columns) = map(find_layouts, (a, b))
    fits = (a_rows | a_columns) & (b_rows | b_columns)
    for x in (epilogue.c, epilogue.residual, out):
        if x is not None:
            fits &= find_layouts(x, is_stored=x is out)[0]
    if has_engine(a.device) and fits:
        _launch(a, b, epilogue, not a_rows, not b_rows)
        return out
    warnings.warn(f"{WHERE}: {_explain(a, b, epilogue)}; pointers are used", stacklevel=2)
    launch_pointers(a, b, epilogue, input_precision)
    return out


def _explain(a: torch.Tensor, b: torch.Tensor, epilogue: Epilogue) -> str:
    """Describe in one line what descriptors cannot address."""
    if not has_engine(a.device):
        return f"got {torch.cuda.get_device_name(a.device)}, {NO_ENGINE}"
    added = (("c", epilogue.c), ("residual", epilogue.residual), ("out", epilogue.out))
    given = ", ".join(
        describe_layout(name, x) for name, x in (("a", a), ("b", b), *added) if x is not None
    )
    return (
        f"got {given}, expected dense rows (or columns, of a and b), each after a multiple"
        f" of {ALIGNMENT} bytes, and those of out of such a length"
    )


def _launch(
    a: torch.Tensor, b: torch.Tensor, epilogue: Epilogue, a_is_t: bool, b_is_t: bool
) -> None:
    out = epilogue.out
    M, N = out.shape
    sms = num_sms(a.device)
    added = {"c_desc": epilogue.c, "residual_desc": epilogue.residual, "out_desc": out}
    given = {
        "a_desc": describe(a, a_is_t),
        "b_desc": describe(b, b_is_t),
        **{name: None if x is None else describe(x, False) for name, x in added.items()},
        "bias_ptr": epilogue.bias,
        "M": M,
        "N": N,
        "K": a.shape[1],
        "stride_bias": 0 if epilogue.bias is None else epilogue.bias.stride(0),
        "A_IS_T": a_is_t,
        "B_IS_T": b_is_t,
        "NUM_SMS": sms,
    }
    configs = keep_fitting(CONFIGS, epilogue.constants) if epilogue.in_place else CONFIGS

    def programs(meta: dict[str, int]) -> tuple[int]:
        return (min(sms, count_tiles(out, meta)),)

    launch_epilogue(matmul_fused_kernel, configs, programs, epilogue, given)
