"""One tile of C: the K loop that fills an accumulator, with masked or with wrapped edges."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import Addresses, Operand


def compute_tile(
    mem: Addresses,
    tile: tuple[int, int],
    launch: MirrorLaunch,
    wraps: bool = False,
    *,
    rows: int | None = None,
    follows: Callable[[int], None] = lambda step: None,
) -> None:
    """Compute and store the tile (pid_m, pid_n); the first `rows`, where they are fewer than M."""
    acc = multiply_tile(mem, tile, launch, wraps, follows)
    m, n = _indices(tile, launch)
    offs_c = np.add.outer(m * launch.stride_cm, n * launch.stride_cn)
    mask_c = np.logical_and.outer(
        m < (launch.M if rows is None else rows), n < launch.N + launch.spare
    )
    for part in range(launch.SUBTILES):
        width = launch.BLOCK_N // launch.SUBTILES
        columns = np.s_[..., part * width : (part + 1) * width]
        mem.store("c", offs_c[columns], acc[columns] if acc.ndim else acc, mask_c[columns])


def multiply_tile(
    mem: Addresses,
    tile: tuple[int, int],
    launch: MirrorLaunch,
    wraps: bool = False,
    follows: Callable[[int], None] = lambda step: None,
) -> Array:
    """The sums of the tile (pid_m, pid_n).

    k past the end is masked and reads as zero. So are rows and columns, unless `wraps`: then they
    are read from the start again. What is fetched of a transpose is turned. `follows` what is
    fetched in each step along K.
    """
    m, n = _indices(tile, launch)
    inside_m, inside_n = m < launch.M, n < launch.N
    read_m, mask_m = (m % launch.M, np.ones_like(inside_m)) if wraps else (m, inside_m)
    read_n, mask_n = (n % launch.N, np.ones_like(inside_n)) if wraps else (n, inside_n)
    acc = mem.zeros(launch.BLOCK_M, launch.BLOCK_N)
    for start in range(0, launch.K, launch.BLOCK_K):
        k = start + np.arange(launch.BLOCK_K, dtype=np.int64)
        inside_k = k < launch.K
        offs_a = np.add.outer(read_m * launch.stride_am, k * launch.stride_ak)
        offs_b = np.add.outer(k * launch.stride_bk, read_n * launch.stride_bn)
        a = _load(mem, "a", offs_a, np.logical_and.outer(mask_m, inside_k), launch.a_is_t)
        b = _load(mem, "b", offs_b, np.logical_and.outer(inside_k, mask_n), launch.b_is_t)
        follows(start // launch.BLOCK_K)
        acc = acc + mem.dot(a, b, None) if launch.promote else mem.dot(a, b, acc)
    return acc


def _indices(tile: tuple[int, int], launch: MirrorLaunch) -> tuple[Array, Array]:
    """The rows and the columns of a tile, also past the end."""
    m = tile[0] * launch.BLOCK_M + np.arange(launch.BLOCK_M, dtype=np.int64)
    n = tile[1] * launch.BLOCK_N + np.arange(launch.BLOCK_N, dtype=np.int64)
    return m, n


def _load(mem: Addresses, operand: Operand, offs: Array, mask: Array, is_t: bool) -> Array:
    return mem.load(operand, offs.T, mask.T, 0.0).T if is_t else mem.load(operand, offs, mask, 0.0)
