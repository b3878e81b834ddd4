"""Shared parts of the wrappers: configurations, checks of arguments, and the launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from .checks import check_operand, check_out, join_names
from .descriptors import SHARED_MEMORY

#: Result format when the caller names none. fp8 products keep the whole fp32 accumulator:
#: their own formats stop at 448 and 57344, which a handful of products exceeds.
DEFAULT_OUT_DTYPE = {
    torch.float16: torch.float16,
    torch.bfloat16: torch.bfloat16,
    torch.float32: torch.float32,
    torch.float8_e4m3fn: torch.float32,
    torch.float8_e5m2: torch.float32,
    torch.int8: torch.int32,
}
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
FLOAT_OUT = (torch.float16, torch.bfloat16, torch.float32, *FP8)
INT_OUT = (torch.int32,)
#: Largest M, N or K: the index one past the last tile (at most 256 wide) still fits in 32 bits.
MAX_SIZE = 2**31 - 257
#: CUDA's limit on the number of programs along the second axis of a grid.
MAX_GRID_Y = 65535
#: Number of persistent programs without a GPU, as under Triton's interpreter.
SMS_WITHOUT_GPU = 8
Arguments = Mapping[str, Any]  # of a launch, by parameter, as a tuner gives them to its hooks
#: Autotune key. Strides decide which loads vectorise: a choice for one layout is for no other.
KEY = [
    *("M", "N", "K", "INPUT_PRECISION"),
    *("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn"),
]
#: Milliseconds of launches in a tuner's graph, which is replayed ten times.
TUNED_MS = 5
#: For `make_configs`, shared by matmul_grouped and matmul_swizzled.
TILES = (
    (128, 256, 64, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 128, 64, 4, 3),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
    (16, 64, 128, 4, 4),
)


def time_config(launch: Callable[[], Any], quantiles: Any) -> Any:
    """Return the milliseconds of a configuration by a captured graph, as a tuner expects.

    From Python a launch takes longer than a small product, and all would be alike. What was queued
    before may still read c, which is timed on a separate stream.
    """
    torch.cuda.synchronize()
    return triton.testing.do_bench_cudagraph(launch, rep=TUNED_MS, quantiles=quantiles)


def make_configs(*tiles: tuple[int, int, int, int, int], **constants: int) -> list[triton.Config]:
    """Configurations from (BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) each."""
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, **constants}, num_warps=w, num_stages=s
        )
        for m, n, k, w, s in tiles
    ]


def keep_fitting(
    configs: list[triton.Config], nargs: Arguments, **options: Any
) -> list[triton.Config]:
    """The configurations that fit an SM: of elements of 4 bytes not all do."""
    size = nargs["a_ptr"].element_size()
    return [x for x in configs if count_fetched(x) * size < SHARED_MEMORY]


def count_fetched(config: triton.Config) -> int:
    """Elements of a and b in all stages."""
    m, n, k = (config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")
    return int(config.num_stages * (m + n) * k)


def prepare(
    where: str,
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None,
    out: torch.Tensor | None,
    input_precision: str,
    axes: tuple[str, str] = ("M K", "K N"),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The operands of these axes as the kernel may read them, and c to be overwritten.

    c has the axes of a, N in place of K.
    Raises TypeError for a wrong type, format or device, ValueError for a wrong shape or overlap.
    """
    dtype = check_product(where, a, b, out_dtype, out, input_precision, axes)
    shape = (*a.shape[:-1], b.shape[-1])
    c = torch.empty(shape, dtype=dtype, device=a.device) if out is None else out
    # A view that negates lazily (such as the imaginary part of a conjugate) holds the wrong sign.
    return a.resolve_neg(), b.resolve_neg(), c


def check_product(
    where: str,
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None,
    out: torch.Tensor | None,
    input_precision: str,
    axes: tuple[str, str] = ("M K", "K N"),
) -> torch.dtype:
    """The format of the result; raises what `prepare` does."""
    check_operands(where, a, b, axes=axes)
    if input_precision not in ("ieee", "tf32"):
        raise ValueError(
            f"{where}: got input_precision={input_precision!r}, expected 'ieee' or 'tf32'"
        )
    if input_precision == "tf32" and a.dtype != torch.float32:
        raise TypeError(
            f"{where}: got input_precision='tf32' for {a.dtype}, expected it for torch.float32 only"
        )
    dtype = DEFAULT_OUT_DTYPE[a.dtype] if out_dtype is None else out_dtype
    allowed = INT_OUT if a.dtype == torch.int8 else FLOAT_OUT
    if dtype not in allowed:
        raise TypeError(
            f"{where}: got out_dtype={dtype} for {a.dtype}, expected {join_names(allowed)}"
        )
    if out is not None:
        check_out(where, out, (*a.shape[:-1], b.shape[-1]), dtype, a=a, b=b)
    return dtype


def check_operands(
    where: str,
    a: torch.Tensor,
    b: torch.Tensor,
    formats: tuple[torch.dtype, ...] = tuple(DEFAULT_OUT_DTYPE),
    axes: tuple[str, str] = ("M K", "K N"),
) -> None:
    """Raise TypeError or ValueError unless a and b have these axes and one of the formats."""
    axes_a, axes_b = (x.split() for x in axes)
    check_operand(where, "a", a, formats, len(axes_a))
    check_operand(where, "b", b, formats, len(axes_b))
    if a.dtype != b.dtype:
        raise TypeError(f"{where}: got a of {a.dtype} and b of {b.dtype}, expected one format")
    if a.device != b.device:
        raise TypeError(f"{where}: got a on {a.device} and b on {b.device}, expected one device")
    sizes = dict(zip(axes_a, a.shape, strict=True))
    if any(sizes.get(axis, n) != n for axis, n in zip(axes_b, b.shape, strict=True)):
        expected = " and ".join(f"({x.replace(' ', ', ')})" for x in axes)
        raise ValueError(
            f"{where}: got a {tuple(a.shape)} and b {tuple(b.shape)}, expected {expected}"
        )
    if any(n > MAX_SIZE for n in (*a.shape, *b.shape)):
        raise ValueError(
            f"{where}: got a {tuple(a.shape)} and b {tuple(b.shape)}, "
            f"expected sizes up to {MAX_SIZE}"
        )


def launch(
    kernel: Any,
    grid: Callable[[int, int], tuple[int, ...]],
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    input_precision: str,
    **constants: int,
) -> None:
    """Launch an autotuned kernel for c = a @ b on grid(tiles along M, tiles along N) programs.

    The kernel takes the sizes of c and K. c^T = b^T @ a^T is computed instead where the grid's
    second axis might exceed CUDA's limit.
    """
    if c.numel() == 0:
        return

    def programs(meta: dict[str, int]) -> tuple[int, ...]:
        M, N = c.shape[-2:]
        return grid(triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))

    smallest = {x: min(f.kwargs[x] for f in kernel.configs) for x in ("BLOCK_M", "BLOCK_N")}
    if max(programs(smallest)[1:], default=1) > MAX_GRID_Y:
        a, b, c = b.mT, a.mT, c.mT
    with torch.cuda.device_of(c):
        kernel[programs](
            a, b, c, *c.shape, a.shape[-1], *a.stride(), *b.stride(), *c.stride(),
            ACC_DTYPE=tl.int32 if a.dtype == torch.int8 else tl.float32,
            INPUT_PRECISION=input_precision,
            PROMOTE=a.dtype in FP8,
            **constants,
        )  # fmt: skip


def num_sms(device: torch.device) -> int:
    """Multiprocessors of `device`; of the current GPU for CPU tensors, SMS_WITHOUT_GPU if none."""
    facts = _find_facts(device)
    return SMS_WITHOUT_GPU if facts is None else facts.multi_processor_count


def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have on that GPU; Hopper's if there is none."""
    facts = _find_facts(device)
    return getattr(facts, "shared_memory_per_block_optin", SHARED_MEMORY)


def _find_facts(device: torch.device) -> Any:
    """Return torch's properties of `device`, for the CPU of the current GPU; None without one."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device)
    try:
        return torch.cuda.get_device_properties("cuda")
    except (AssertionError, RuntimeError):  # torch without CUDA, or CUDA without a GPU
        return None
