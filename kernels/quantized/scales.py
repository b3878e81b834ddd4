"""Shared by scaled products: checks of scales and a bias, and the scaling of a tile of sums."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..checks import check_out, join_names
from ..descriptors import ALIGNMENT, describe_layout, has_engine

#: Elements of a tile along K: a row of 128 bytes, the widest swizzle of shared memory. Sums of so
#: many in fp8 are added in fp32.
BLOCK_K = 128

#: Formats of a result: a scaled sum is no number of 8 bits, nor an integer.
OUT_DTYPES = BIAS_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def check_vector(
    where: str,
    name: str,
    x: torch.Tensor,
    shapes: tuple[tuple[int, ...], ...],
    device: torch.device,
    formats: tuple[torch.dtype, ...] = (torch.float32,),
) -> torch.Tensor:
    """Scales or a bias as the kernel may read them.

    Raises TypeError for a wrong type, format or device, ValueError for a shape that is none of
    `shapes`.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{where}: got {name} of {type(x).__name__}, expected torch.Tensor")
    if x.layout != torch.strided:
        raise TypeError(f"{where}: got {name} with {x.layout}, expected torch.strided")
    if x.dtype not in formats:
        raise TypeError(f"{where}: got {name} of {x.dtype}, expected {join_names(formats)}")
    if x.device != device:
        raise TypeError(f"{where}: got {name} on {x.device}, expected {device}")
    if not has_shape(x, shapes):
        expected = " or ".join(map(str, shapes))
        raise ValueError(f"{where}: got {name} of shape {tuple(x.shape)}, expected {expected}")
    return x.resolve_neg()


def has_shape(x: torch.Tensor, shapes: tuple[tuple[int, ...], ...]) -> bool:
    """Return whether x has one of the shapes: a single condition, for a tracer of sizes."""
    matches = False
    for shape in shapes:
        if len(shape) == x.dim():
            same = True
            for n, m in zip(x.shape, shape, strict=True):
                same = same & (n == m)
            matches = matches | same
    return matches


def as_matrix(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Return a view with two dimensions: missing ones are inserted at `axis`, 0 or -1.

    A reshape decides between strides, and for a tracer of sizes each is a separate path.
    """
    while x.dim() < 2:
        x = x.unsqueeze(axis)
    return x


def make_result(
    where: str,
    out: torch.Tensor | None,
    out_dtype: torch.dtype,
    a: torch.Tensor,
    b: torch.Tensor,
    **matrices: torch.Tensor,
) -> torch.Tensor:
    """c (M, N) to be overwritten, which shares no memory with a, b or the other matrices."""
    if out_dtype not in OUT_DTYPES:
        raise TypeError(f"{where}: got out_dtype={out_dtype}, expected {join_names(OUT_DTYPES)}")
    shape = (a.shape[0], b.shape[1])
    if out is None:
        return torch.empty(shape, dtype=out_dtype, device=a.device)
    check_out(where, out, shape, out_dtype, a=a, b=b, **matrices)
    return out


def explain_pointers(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> str:
    """Describe in one line what descriptors cannot address."""
    if not has_engine(a.device):
        return f"got {torch.cuda.get_device_name(a.device)}, expected a GPU with a copy engine"
    given = ", ".join(describe_layout(name, x) for name, x in (("a", a), ("b", b), ("c", c)))
    return (
        f"got {given}, expected dense rows of a, columns of b and rows of c, each after a"
        f" multiple of {ALIGNMENT} bytes, and those of c of such a length"
    )


@triton.jit
def scale_tile(
    acc,
    start_m,
    start_n,
    M,
    N,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    stride_sa,
    stride_sb,
    stride_bias,
    A_PER_ROW: tl.constexpr,
    B_PER_COLUMN: tl.constexpr,
):
    """The sums of rows from start_m and columns from start_n, scaled, plus the bias, in fp32.

    Without A_PER_ROW or B_PER_COLUMN there is one scale for all; bias_ptr may be None. What a
    compiler may fuse is fused, so that every one gives the same bits.
    """
    c = acc.to(tl.float32)
    offs_m = start_m + tl.arange(0, acc.shape[0])
    offs_n = start_n + tl.arange(0, acc.shape[1])
    # 64 bits because an index times a stride can pass 2**31
    if A_PER_ROW:
        scale_a_ptrs = scale_a_ptr + offs_m.to(tl.int64) * stride_sa
        c *= tl.load(scale_a_ptrs, mask=offs_m < M, other=0.0)[:, None]
    else:
        c *= tl.load(scale_a_ptr)
    if B_PER_COLUMN:
        scale_b_ptrs = scale_b_ptr + offs_n.to(tl.int64) * stride_sb
        scale_b = tl.load(scale_b_ptrs, mask=offs_n < N, other=0.0)[None, :]
    else:
        scale_b = tl.load(scale_b_ptr)
    if bias_ptr is not None:
        bias_ptrs = bias_ptr + offs_n.to(tl.int64) * stride_bias
        bias = tl.load(bias_ptrs, mask=offs_n < N, other=0.0).to(tl.float32)
        c = tl.fma(c, scale_b, bias[None, :])
    else:
        c *= scale_b
    return c
