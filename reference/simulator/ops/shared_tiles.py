"""Programs that share tiles: their dots are one product of larger matrices, bit for bit.

In a grid of tiles the programs of a row load the same block of a, those of a column the same block
of b. An output element depends on its row of a, its column of b and its own accumulator alone, so
the blocks can be stacked and multiplied at once, which numpy does with longer inner loops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from gemmproof.reference.dot import DotModel
from gemmproof.reference.formats import FORMATS, nan_of, to_fp32


@dataclass(frozen=True, slots=True)
class Shared:
    """The distinct blocks (n, *block) that programs loaded, and the one of each program."""

    blocks: np.ndarray
    of: np.ndarray


def product(model: DotModel, a: Shared, b: Shared, acc: np.ndarray | None) -> np.ndarray | None:
    """model.dot for programs (P, M, K) x (P, K, N) of shared blocks, or None where it does not pay.

    Every pair of a block of a and a block of b must belong to exactly one program.
    """
    rows, columns = len(a.blocks), len(b.blocks)
    M, K = a.blocks.shape[1:]
    N = b.blocks.shape[2]
    if len(a.of) != rows * columns:
        return None
    order = _order(a.of * columns + b.of, b.of * rows + a.of)
    if order is None:
        return None
    tall = a.blocks.reshape(rows * M, K)
    wide = b.blocks.transpose(1, 0, 2).reshape(K, columns * N)
    # axes of a program's matrix in the stacked one: (row, m, column, n) from (row, column, m, n)
    by_rows = isinstance(order, np.ndarray) or order == "rows"
    axes = (0, 2, 1, 3) if by_rows else (1, 2, 0, 3)
    shape = (rows, columns, M, N) if by_rows else (columns, rows, M, N)
    start = None
    if acc is not None:
        whole = np.broadcast_to(acc, (rows * columns, M, N))
        whole = whole[order] if isinstance(order, np.ndarray) else whole
        start = whole.reshape(shape).transpose(axes).reshape(rows * M, columns * N)
    dot = _fused_chain if _products_exact(model) else model.dot
    stacked = dot(tall, wide, start).reshape(rows, M, columns, N)
    c: np.ndarray = stacked.transpose(np.argsort(axes)).reshape(rows * columns, M, N)
    if not isinstance(order, np.ndarray):
        return c
    result = np.empty_like(c)
    result[order] = c
    return result


def _products_exact(model: DotModel) -> bool:
    """Whether this is the IEEE chain onto fp32 of formats whose products are fp32 numbers."""
    small = ("fp16", "fp8e4m3", "fp8e5m2")
    formats = model.a_format in small and model.b_format in small
    return model.target is None and model.acc_format == "fp32" and formats


def _fused_chain(a: np.ndarray, b: np.ndarray, acc: np.ndarray | None) -> np.ndarray:
    """The IEEE chain of a (M, K) and b (K, N) onto acc (M, N), one pass over acc for each k.

    torch multiplies and adds in one pass where numpy takes two. With exact products a fused and a
    separate rounding are the same, so the bits are those of DotModel.dot.
    """
    c = np.zeros((len(a), b.shape[1]), np.float32) if acc is None else acc.copy()
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        total = torch.from_numpy(c)
        columns = torch.from_numpy(np.ascontiguousarray(to_fp32(a).T))[:, :, None].unbind()
        lines = torch.from_numpy(to_fp32(np.ascontiguousarray(b)))[:, None, :].unbind()
        for column, line in zip(columns, lines, strict=True):
            torch.addcmul(total, column, line, out=total)
    if c.size and np.isnan(c.max()):  # max hands NaN on
        c[np.isnan(c)] = nan_of(FORMATS["fp32"])
    return c


def _order(by_rows: np.ndarray, by_columns: np.ndarray) -> np.ndarray | str | None:
    """How programs run through the pairs of blocks: "rows" or "columns" first, or a permutation.

    None where some pair belongs to no program or to several.
    """
    natural = np.arange(len(by_rows))
    if np.array_equal(by_rows, natural):
        return "rows"
    if np.array_equal(by_columns, natural):
        return "columns"
    order = np.argsort(by_rows, kind="stable")
    return order if np.array_equal(by_rows[order], natural) else None
