"""What the wrappers share: configurations, checks of arguments, and the launch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

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
#: Autotune key. Strides decide which loads vectorise, so a choice made for one layout is not reused
#: for another.
KEY = [
    *("M", "N", "K", "INPUT_PRECISION"),
    *("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm", "stride_cn"),
]
#: For `make_configs`, shared by matmul_grouped and matmul_swizzled.
TILES = (
    (128, 256, 64, 8, 3),
    (128, 128, 64, 8, 3),
    (128, 128, 64, 4, 3),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
    (16, 64, 128, 4, 4),
)


def make_configs(*tiles: tuple[int, int, int, int, int], **constants: int) -> list[triton.Config]:
    """Configurations from (BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages) each."""
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, **constants}, num_warps=w, num_stages=s
        )
        for m, n, k, w, s in tiles
    ]


def prepare(
    where: str,
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None,
    out: torch.Tensor | None,
    input_precision: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The operands (M, K) and (K, N) as the kernel may read them, and c (M, N) to be overwritten.

    Raises TypeError for a wrong type, format or device, ValueError for a wrong shape or overlap.
    """
    check_operands(where, a, b)
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
    shape = (a.shape[0], b.shape[1])
    c = torch.empty(shape, dtype=dtype, device=a.device) if out is None else out
    if out is not None:
        check_out(where, out, shape, dtype, a=a, b=b)
    # A view that negates lazily (such as the imaginary part of a conjugate) holds the wrong sign.
    return a.resolve_neg(), b.resolve_neg(), c


def check_operands(
    where: str,
    a: torch.Tensor,
    b: torch.Tensor,
    formats: tuple[torch.dtype, ...] = tuple(DEFAULT_OUT_DTYPE),
) -> None:
    """Raise TypeError or ValueError unless a (M, K) and b (K, N) are of one of the formats."""
    for name, x in (("a", a), ("b", b)):
        _check_operand(where, name, x, formats)
    if a.dtype != b.dtype:
        raise TypeError(f"{where}: got a of {a.dtype} and b of {b.dtype}, expected one format")
    if a.device != b.device:
        raise TypeError(f"{where}: got a on {a.device} and b on {b.device}, expected one device")
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"{where}: got a {tuple(a.shape)} and b {tuple(b.shape)}, expected (M, K) and (K, N)"
        )
    if max(*a.shape, *b.shape) > MAX_SIZE:
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

    c^T = b^T @ a^T is computed instead where the grid's second axis might exceed CUDA's limit.
    """
    if c.numel() == 0:
        return

    def programs(meta: dict[str, int]) -> tuple[int, ...]:
        M, N = c.shape
        return grid(triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))

    smallest = {x: min(f.kwargs[x] for f in kernel.configs) for x in ("BLOCK_M", "BLOCK_N")}
    if max(programs(smallest)[1:], default=1) > MAX_GRID_Y:
        a, b, c = b.T, a.T, c.T
    with torch.cuda.device_of(c):
        kernel[programs](
            a, b, c, *c.shape, a.shape[1], *a.stride(), *b.stride(), *c.stride(),
            ACC_DTYPE=tl.int32 if a.dtype == torch.int8 else tl.float32,
            INPUT_PRECISION=input_precision,
            PROMOTE=a.dtype in FP8,
            **constants,
        )  # fmt: skip


def num_sms(device: torch.device) -> int:
    """Multiprocessors of `device`; of the current GPU for CPU tensors, SMS_WITHOUT_GPU if none."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    try:
        return torch.cuda.get_device_properties("cuda").multi_processor_count
    except (AssertionError, RuntimeError):  # torch without CUDA, or CUDA without a GPU
        return SMS_WITHOUT_GPU


def _check_operand(
    where: str, name: str, x: torch.Tensor, formats: tuple[torch.dtype, ...]
) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{where}: got {name} of {type(x).__name__}, expected torch.Tensor")
    if x.layout != torch.strided:
        raise TypeError(f"{where}: got {name} with {x.layout}, expected torch.strided")
    if x.dtype not in formats:
        raise TypeError(f"{where}: got {name} of {x.dtype}, expected {join_names(formats)}")
    if x.dim() != 2:
        raise ValueError(f"{where}: got {name} of shape {tuple(x.shape)}, expected two dimensions")


def check_out(
    where: str,
    out: torch.Tensor,
    shape: tuple[int, int],
    dtype: torch.dtype,
    **operands: torch.Tensor,
) -> None:
    """Raise TypeError or ValueError unless `out` has the format, the shape and its own memory.

    The operands are matrices, the first of which says on which device `out` is to be.
    """
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"{where}: got out of {type(out).__name__}, expected torch.Tensor")
    if out.layout != torch.strided or out.is_neg():
        raise TypeError(
            f"{where}: got out with {out.layout} (negated: {out.is_neg()}), expected torch.strided"
        )
    if out.dtype != dtype:
        raise TypeError(f"{where}: got out of {out.dtype}, expected {dtype}")
    device = next(iter(operands.values())).device
    if out.device != device:
        raise TypeError(f"{where}: got out on {out.device}, expected {device}")
    if tuple(out.shape) != shape:
        raise ValueError(f"{where}: got out of shape {tuple(out.shape)}, expected {shape}")
    if _overlaps_itself(out):
        raise ValueError(
            f"{where}: got out with shape {shape} and strides {out.stride()}, "
            "expected one address per element"
        )
    for name, x in operands.items():
        if _may_overlap(out, x):
            raise ValueError(
                f"{where}: got out in the memory of {name}, expected memory of its own"
            )


def _overlaps_itself(x: torch.Tensor) -> bool:
    """Whether two elements share an address.

    i stride0 = j stride1 has the smallest solution (stride1 / g, stride0 / g), g the gcd.
    """
    if x.numel() == 0:
        return False
    (rows, columns), (stride0, stride1) = x.shape, x.stride()
    g = math.gcd(stride0, stride1)
    if g == 0:
        return x.numel() > 1
    return stride1 // g < rows and stride0 // g < columns


def _may_overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two views may share a byte; exact for views that share the pitch of their rows."""
    if x.numel() == 0 or y.numel() == 0:
        return False
    low_x, low_y = x.data_ptr(), y.data_ptr()
    if low_x + _extent(x) <= low_y or low_y + _extent(y) <= low_x:
        return False
    (pitch_x, width_x), (pitch_y, width_y) = _rows(x), _rows(y)
    if pitch_x != pitch_y:
        return True
    # Modulo the pitch the rows of each view are one arc: disjoint arcs never meet.
    return (low_y - low_x) % pitch_x < width_x or (low_x - low_y) % pitch_x < width_y


def _extent(x: torch.Tensor) -> int:
    """Bytes from the first to past the last element."""
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return (last + 1) * x.element_size()


def _rows(x: torch.Tensor) -> tuple[int, int]:
    """Pitch and width in bytes of the lines along the axis of the smaller stride."""
    (short, n), (pitch, _) = sorted(zip(x.stride(), x.shape, strict=True))
    return max(pitch, 1) * x.element_size(), ((n - 1) * short + 1) * x.element_size()


def join_names(dtypes: tuple[torch.dtype, ...]) -> str:
    """Formats as messages list them."""
    return " or ".join(str(dtype) for dtype in dtypes)
