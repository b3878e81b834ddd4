"""One tile of C: the K loop that fills an accumulator, with masked or with wrapped edges."""

from __future__ import annotations

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import MirrorMemory


def masked_tile(mem: MirrorMemory, tile: tuple[int, int], launch: MirrorLaunch) -> None:
    """Compute and store a tile; rows, columns and k past the end are masked and read as zero."""
    m, n = _rows_and_columns(tile, launch)
    inside_m, inside_n = m < launch.M, n < launch.N
    _accumulate_and_store(mem, tile, launch, m, n, inside_m, inside_n)


def wrapped_tile(mem: MirrorMemory, tile: tuple[int, int], launch: MirrorLaunch) -> None:
    """Compute and store a tile; rows and columns past the end are read from the start again.

    Only k past the end is masked and reads as zero. Wrapped rows and columns are not stored.
    """
    m, n = _rows_and_columns(tile, launch)
    everywhere_m, everywhere_n = np.ones(m.shape, bool), np.ones(n.shape, bool)
    _accumulate_and_store(mem, tile, launch, m % launch.M, n % launch.N, everywhere_m, everywhere_n)


def _accumulate_and_store(
    mem: MirrorMemory,
    tile: tuple[int, int],
    launch: MirrorLaunch,
    m: Array,
    n: Array,
    mask_m: Array,
    mask_n: Array,
) -> None:
    acc = mem.zeros(launch.BLOCK_M, launch.BLOCK_N)
    for start in range(0, launch.K, launch.BLOCK_K):
        k = start + np.arange(launch.BLOCK_K, dtype=np.int64)
        inside_k = k < launch.K
        a = mem.load(
            "a",
            np.add.outer(m * launch.stride_am, k * launch.stride_ak),
            np.logical_and.outer(mask_m, inside_k),
            0.0,
        )
        b = mem.load(
            "b",
            np.add.outer(k * launch.stride_bk, n * launch.stride_bn),
            np.logical_and.outer(inside_k, mask_n),
            0.0,
        )
        acc = acc + mem.dot(a, b, None) if launch.promote else mem.dot(a, b, acc)

    m, n = _rows_and_columns(tile, launch)
    mem.store(
        "c",
        np.add.outer(m * launch.stride_cm, n * launch.stride_cn),
        acc,
        np.logical_and.outer(m < launch.M, n < launch.N),
    )


def _rows_and_columns(tile: tuple[int, int], launch: MirrorLaunch) -> tuple[Array, Array]:
    pid_m, pid_n = int(tile[0]), int(tile[1])
    m = pid_m * launch.BLOCK_M + np.arange(launch.BLOCK_M, dtype=np.int64)
    n = pid_n * launch.BLOCK_N + np.arange(launch.BLOCK_N, dtype=np.int64)
    return m, n
