"""One tile of C: the K loop that fills an accumulator, with masked or with wrapped edges."""

from __future__ import annotations

import numpy as np

from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import Addresses


def compute_tile(mem: Addresses, tile: tuple[int, int], launch: MirrorLaunch, wraps: bool) -> None:
    """Compute and store the tile (pid_m, pid_n).

    k past the end is masked and reads as zero. So are rows and columns, unless `wraps`: then they
    are read from the start again. Neither are stored.
    """
    m = tile[0] * launch.BLOCK_M + np.arange(launch.BLOCK_M, dtype=np.int64)
    n = tile[1] * launch.BLOCK_N + np.arange(launch.BLOCK_N, dtype=np.int64)
    inside_m, inside_n = m < launch.M, n < launch.N
    read_m, mask_m = (m % launch.M, np.ones_like(inside_m)) if wraps else (m, inside_m)
    read_n, mask_n = (n % launch.N, np.ones_like(inside_n)) if wraps else (n, inside_n)
    acc = mem.zeros(launch.BLOCK_M, launch.BLOCK_N)
    for start in range(0, launch.K, launch.BLOCK_K):
        k = start + np.arange(launch.BLOCK_K, dtype=np.int64)
        inside_k = k < launch.K
        a = mem.load(
            "a",
            np.add.outer(read_m * launch.stride_am, k * launch.stride_ak),
            np.logical_and.outer(mask_m, inside_k),
            0.0,
        )
        b = mem.load(
            "b",
            np.add.outer(k * launch.stride_bk, read_n * launch.stride_bn),
            np.logical_and.outer(inside_k, mask_n),
            0.0,
        )
        acc = acc + mem.dot(a, b, None) if launch.promote else mem.dot(a, b, acc)
    mem.store(
        "c",
        np.add.outer(m * launch.stride_cm, n * launch.stride_cn),
        acc,
        np.logical_and.outer(inside_m, inside_n),
    )
