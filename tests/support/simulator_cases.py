"""A call of one of the kernels of both witnesses: its case, its operands, its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.language as tl

DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "int8": torch.int8}
LAYOUTS = ("row", "column", "padded", "sliced", "expanded_rows", "expanded_columns")


@dataclass(frozen=True, slots=True)
class Case:
    """One call: wrapper, sizes, tile, order of tiles, layouts, and what the operands hold."""

    kernel: str
    M: int
    N: int
    K: int
    dtype: str
    a: str = "row"
    b: str = "row"
    BLOCK_M: int = 16
    BLOCK_N: int = 16
    BLOCK_K: int = 16
    GROUP_M: int = 2
    PARTS: int = 3
    fill: str = "integers"
    seed: int = 0


def _view(layout: str, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    if layout == "column":
        return _view("row", columns, rows, dtype).T
    if 0 in (rows, columns):
        return torch.empty((rows, columns), dtype=dtype)
    if layout == "expanded_rows":
        return _view("row", 1, columns, dtype).expand(rows, columns)
    if layout == "expanded_columns":
        return _view("row", rows, 1, dtype).expand(rows, columns)
    parent = torch.full((2 * rows + 2, 3 * columns + 8), 77, dtype=dtype)
    if layout == "padded":
        return parent[:rows, :columns]
    if layout == "sliced":
        return parent[1 : 1 + 2 * rows : 2, 2 : 2 + 3 * columns : 3]
    return torch.full((rows, columns), 77, dtype=dtype)


def _filled(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    """Small integers, whose sums are exact in every order, or normal numbers."""
    rng = np.random.default_rng(seed)
    for axis, stride in enumerate(x.stride()):
        if stride == 0:
            x = x.narrow(axis, 0, 1)
    if kind == "normal" and x.is_floating_point():
        values = rng.standard_normal(tuple(x.shape)).astype(np.float32)
    else:
        low, high = (-3, 4) if x.is_floating_point() else (-128, 128)
        values = rng.integers(low, high, tuple(x.shape))
    return x.copy_(torch.from_numpy(values))


def operands_of(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """The operands a (M, K) and b (K, N), with a leading batch axis for batched kernels."""
    dtype = DTYPES[case.dtype]
    if case.kernel == "batched":
        a, b = torch.empty((2, case.M, case.K)), torch.empty((2, case.K, case.N))
        a, b = a.to(dtype), b.to(dtype)
        a = a.transpose(1, 2).contiguous().transpose(1, 2) if case.a == "column" else a
    else:
        a = _view(case.a, case.M, case.K, dtype)
        b = _view(case.b, case.K, case.N, dtype)
    _filled(a, case.fill, case.seed), _filled(b, case.fill, case.seed + 1)
    return a, b


def output_of(a: torch.Tensor, M: int, N: int, make: Any = torch.empty) -> torch.Tensor:
    dtype = torch.int32 if a.dtype == torch.int8 else a.dtype
    return make((M, N), device=a.device, dtype=dtype)


def acc_of(a: torch.Tensor) -> Any:
    return tl.int32 if a.dtype == torch.int8 else tl.float32
