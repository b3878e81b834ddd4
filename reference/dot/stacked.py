"""Many products of shared matrices as one product of larger ones, bit for bit.

In a grid of tiles the programs of a row load the same block of a, those of a column the same block
of b. An output element depends on its row of a, its column of b and its own accumulator alone, so
the blocks can be stacked and multiplied at once, which numpy does with longer inner loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from gemmproof.reference.arithmetic.conversions import to_fp32
from gemmproof.reference.dot.model import DotModel
from gemmproof.reference.formats import FORMATS


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The distinct blocks (n, *block) that programs loaded, and the one of each program."""

    blocks: np.ndarray
    of: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Stacking:
    """The order in which programs go through the pairs of a block of a and a block of b.

    `order` is "rows" or "columns" first, or the permutation that puts rows first.
    """

    rows: np.ndarray
    columns: np.ndarray
    order: str | np.ndarray

    @staticmethod
    def find(a: Shared, b: Shared) -> Stacking | None:
        """The layout, None where some pair belongs to no program or to several."""
        rows, columns = len(a.blocks), len(b.blocks)
        if len(a.of) != rows * columns:
            return None
        natural = np.arange(len(a.of))
        by_rows = a.of * columns + b.of
        if np.array_equal(by_rows, natural):
            return Stacking(a.of, b.of, "rows")
        if np.array_equal(b.of * rows + a.of, natural):
            return Stacking(a.of, b.of, "columns")
        order = np.argsort(by_rows, kind="stable")
        return Stacking(a.of, b.of, order) if np.array_equal(by_rows[order], natural) else None

    def fits(self, a: Shared, b: Shared) -> bool:
        """Whether the programs share other blocks in the same way."""
        return np.array_equal(self.rows, a.of) and np.array_equal(self.columns, b.of)


def multiply(
    model: DotModel,
    layout: Stacking,
    pairs: list[tuple[np.ndarray, np.ndarray]],
    acc: np.ndarray | None,
) -> np.ndarray:
    """model.dot for programs (P, M, K) x (P, K, N) of shared blocks, one pair after the other."""
    rows, M, _ = pairs[0][0].shape
    columns, _, N = pairs[0][1].shape
    tall = np.concatenate([a.reshape(rows * M, -1) for a, _ in pairs], axis=1)
    wide = np.concatenate([b.transpose(1, 0, 2).reshape(-1, columns * N) for _, b in pairs])
    # axes of a program's matrix in the stacked one: (row, m, column, n) from (row, column, m, n)
    order = layout.order
    by_rows = isinstance(order, np.ndarray) or order == "rows"
    axes = (0, 2, 1, 3) if by_rows else (1, 2, 0, 3)
    shape = (rows, columns, M, N) if by_rows else (columns, rows, M, N)
    start = None
    if acc is not None:
        whole = np.broadcast_to(acc, (rows * columns, M, N))
        whole = whole[order] if isinstance(order, np.ndarray) else whole
        start = whole.reshape(shape).transpose(axes).reshape(rows * M, columns * N)
    dot: Any = _fused_chain if _products_exact(model) else model.dot
    stacked = dot(tall, wide, start).reshape(rows, M, columns, N)
    c: np.ndarray = stacked.transpose(np.argsort(axes)).reshape(rows * columns, M, N)
    if not isinstance(order, np.ndarray):
        return c
    result = np.empty_like(c)
    result[order] = c
    return result


def _products_exact(model: DotModel) -> bool:
    """Whether this is the IEEE chain onto fp32 of formats whose products are fp32 numbers."""
    a, b = FORMATS[model.a_format], FORMATS[model.b_format]
    least = a.emin - a.p + b.emin - b.p + 2
    exact = a.p + b.p <= 24 and least >= -149 and a.emax + b.emax + 2 <= 128
    return model.target is None and model.acc_format == "fp32" and exact


def _as_fp32(x: np.ndarray) -> torch.Tensor:
    if x.dtype == np.float16:  # torch converts whole vectors of them
        return torch.from_numpy(np.ascontiguousarray(x)).float()
    return torch.from_numpy(to_fp32(np.ascontiguousarray(x)))


def _fused_chain(a: np.ndarray, b: np.ndarray, acc: np.ndarray | None) -> np.ndarray:
    """The IEEE chain of a (M, K) and b (K, N) onto acc (M, N), one pass over acc for each k.

    torch multiplies and adds in one pass where numpy takes two. With exact products a fused and a
    separate rounding are the same, so the bits are those of DotModel.dot.
    """
    c = np.zeros((len(a), b.shape[1]), np.float32) if acc is None else acc.copy()
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        add_product = torch.from_numpy(c).addcmul_
        columns = _as_fp32(a).T.contiguous()[:, :, None].unbind()
        lines = _as_fp32(b)[:, None, :].unbind()
        for column, line in zip(columns, lines, strict=True):
            add_product(column, line)
    if c.size and np.isnan(c.max()):  # max propagates NaN
        c[np.isnan(c)] = FORMATS["fp32"].nan
    return c
