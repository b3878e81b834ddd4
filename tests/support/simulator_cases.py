"""A call of one of the kernels of both witnesses: its case, its operands, its output."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "int8": torch.int8}
LAYOUTS = ("row", "column", "padded", "sliced", "misaligned", "expanded_rows", "expanded_columns")
MAP_NORESERVE = 0x4000  # Linux; the mmap module names it from Python 3.13 on


@dataclass(frozen=True, slots=True)
class Case:
    """One call: wrapper, sizes, tile, order of tiles, layouts, and what the operands hold.

    `PARTS` is how many programs share a tile, or how many persistent ones there are.
    """

    kernel: str
    M: int
    N: int
    K: int
    dtype: str
    a: str = "row"
    b: str = "row"
    out: str = "row"
    BLOCK_M: int = 16
    BLOCK_N: int = 16
    BLOCK_K: int = 16
    GROUP_M: int = 2
    PARTS: int = 3
    fill: str = "integers"
    seed: int = 0


def make_view(layout: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A (rows, columns) view, in the named layout, of memory that holds 99 everywhere."""
    if layout == "column":
        return make_view("row", columns, rows, dtype).T
    if layout.startswith("expanded") and rows and columns:
        shape = (1, columns) if layout == "expanded_rows" else (rows, 1)
        return make_view("row", *shape, dtype).expand(rows, columns)
    parent = torch.full((2 * rows + 3, 3 * columns + 40), 99, dtype=dtype)
    if layout == "padded":
        return parent[1 : rows + 1, 3 : columns + 3]
    if layout == "sliced":
        return parent[1 : 1 + 2 * rows : 2, 3 : 3 + 3 * columns : 3]
    if layout == "misaligned":
        return parent.flatten()[1 : 1 + rows * columns].view(rows, columns)
    return torch.full((rows, columns), 99, dtype=dtype)


def reserve(rows: int, columns: int, strides: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
    """A view of address space of which only the pages in use take memory."""
    extent = (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE
    memory = mmap.mmap(-1, extent * dtype.itemsize, flags=flags)
    return torch.frombuffer(memory, dtype=dtype).as_strided((rows, columns), strides)


def fill(x: torch.Tensor, seed: int, kind: str = "integers") -> torch.Tensor:
    """x with small integers, whose sums are exact in every order, or with normal numbers."""
    rng = np.random.default_rng(seed)
    whole = x
    for axis, stride in enumerate(x.stride()):
        if stride == 0:
            x = x.narrow(axis, 0, 1)
    if kind == "normal" and x.is_floating_point():
        values = rng.standard_normal(tuple(x.shape)).astype(np.float32)
    else:
        low, high = (-3, 4) if x.is_floating_point() else (-128, 128)
        values = rng.integers(low, high, tuple(x.shape))
    x.copy_(torch.from_numpy(values))
    return whole


def operands_of(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """The operands a (M, K) and b (K, N), with a leading batch axis for batched kernels."""
    dtype = DTYPES[case.dtype]
    if case.kernel == "batched":
        a, b = torch.empty((2, case.M, case.K)), torch.empty((2, case.K, case.N))
        a, b = a.to(dtype), b.to(dtype)
        a = a.transpose(1, 2).contiguous().transpose(1, 2) if case.a == "column" else a
    else:
        a = make_view(case.a, case.M, case.K, dtype)
        b = make_view(case.b, case.K, case.N, dtype)
    return fill(a, case.seed, case.fill), fill(b, case.seed + 1, case.fill)


def output_of(a: torch.Tensor, *shape: int) -> torch.Tensor:
    """New memory for a product of the operand's type; that of int8 is int32."""
    return torch.empty(shape, device=a.device, dtype=torch.int32 if is_int8(a) else a.dtype)


def sums_of(a: torch.Tensor, *shape: int, make: Any = torch.empty) -> torch.Tensor:
    """New memory for sums that several programs join."""
    return make(shape, device=a.device, dtype=torch.int32 if is_int8(a) else torch.float32)


def is_int8(a: torch.Tensor) -> bool:
    return a.dtype == torch.int8


def tiles_of(case: Case) -> tuple[int, int]:
    """The grid of one program for each tile of c."""
    return triton.cdiv(case.M, case.BLOCK_M), triton.cdiv(case.N, case.BLOCK_N)


def launch(
    kernel: Any, grid: Any, case: Case, a: torch.Tensor, b: torch.Tensor, c: Any, **how: Any
) -> None:
    """Launch the kernel on operands, sizes, all strides, the case's tile, and its own arguments."""
    kernel[grid](
        a, b, c, case.M, case.N, case.K, *a.stride(), *b.stride(), *c.stride(),
        BM=case.BLOCK_M, BN=case.BLOCK_N, BK=case.BLOCK_K,
        ACC=tl.int32 if is_int8(a) else tl.float32, **how,
    )  # fmt: skip
