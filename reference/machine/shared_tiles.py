"""Programs that share tiles: their dots are one product of larger matrices, bit for bit.

In a grid of tiles the programs of a row load the same block of a, those of a column the same block
of b. An output element depends on its row of a, its column of b and its own accumulator alone, so
the blocks can be stacked and multiplied at once, which numpy does with longer inner loops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.dot import DotModel


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
    order = np.argsort(a.of * columns + b.of, kind="stable")
    pairs = (a.of * columns + b.of)[order]
    if len(pairs) != rows * columns or not np.array_equal(pairs, np.arange(rows * columns)):
        return None
    M, K = a.blocks.shape[1:]
    N = b.blocks.shape[2]
    tall = a.blocks.reshape(rows * M, K)
    wide = b.blocks.transpose(1, 0, 2).reshape(K, columns * N)
    start = None
    if acc is not None:
        whole = np.broadcast_to(acc, (rows * columns, M, N))[order]
        grid = whole.reshape(rows, columns, M, N).transpose(0, 2, 1, 3)
        start = grid.reshape(rows * M, columns * N)
    c = model.dot(tall, wide, start).reshape(rows, M, columns, N).transpose(0, 2, 1, 3)
    result = np.empty((rows * columns, M, N), c.dtype)
    result[order] = c.reshape(rows * columns, M, N)
    return result
