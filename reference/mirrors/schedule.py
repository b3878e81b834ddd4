"""Tile orders: which tiles of C a program computes, one after the other.

An order is an int array (tiles, 2) of (pid_m, pid_n), stated by enumeration rather than by the
index arithmetic that a kernel uses to compute it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Order = NDArray[np.int64]


@lru_cache(maxsize=64)
def order_grouped(num_pid_m: int, num_pid_n: int, GROUP_M: int) -> Order:
    """Bands of GROUP_M rows from the top, the last perhaps lower; in a band down the columns.

    This is also what `tl.swizzle2d` makes of the tiles numbered row by row.
    """
    if GROUP_M < 1:
        raise ValueError(f"grouped: got {GROUP_M=}, expected at least 1")
    tiles = [
        (m, n)
        for top in range(0, num_pid_m, GROUP_M)
        for n in range(num_pid_n)
        for m in range(top, min(top + GROUP_M, num_pid_m))
    ]
    order = np.array(tiles, np.int64).reshape(-1, 2)
    order.flags.writeable = False  # the cache hands the same array to everyone
    return order


def persistent(order: Order, pid: int, NUM_SMS: int) -> Order:
    """The share of program `pid`: every NUM_SMS-th tile of the order, from its own number on."""
    if NUM_SMS < 1:
        raise ValueError(f"persistent: got {NUM_SMS=}, expected at least 1")
    return order[pid::NUM_SMS]
