"""Tile orders: which tiles of C a program computes, one after the other.

An order is a tuple of (pid_m, pid_n), stated by enumeration rather than by the index arithmetic
that a kernel uses to compute it.
"""

from __future__ import annotations

from functools import lru_cache

from gemmproof.reference.mirrors.access import Pid
from gemmproof.reference.mirrors.launch import MirrorLaunch

Order = tuple[tuple[int, int], ...]


@lru_cache(maxsize=64)
def order_grouped(num_pid_m: int, num_pid_n: int, GROUP_M: int) -> Order:
    """Bands of GROUP_M rows from the top, the last perhaps lower; in a band down the columns.

    `tl.swizzle2d` maps tiles numbered row by row to the same order.
    """
    if GROUP_M < 1:
        raise ValueError(f"grouped: got {GROUP_M=}, expected at least 1")
    return tuple(
        (m, n)
        for top in range(0, num_pid_m, GROUP_M)
        for n in range(num_pid_n)
        for m in range(top, min(top + GROUP_M, num_pid_m))
    )


def persistent(order: Order, pid: int, NUM_SMS: int) -> Order:
    """The share of program `pid`: every NUM_SMS-th tile of the order, starting at tile `pid`."""
    if NUM_SMS < 1:
        raise ValueError(f"persistent: got {NUM_SMS=}, expected at least 1")
    return order[pid::NUM_SMS]


def own_tile(launch: MirrorLaunch, pid: Pid) -> Order:
    """Tile (i, j) for program (i, j)."""
    return ((pid[0], pid[1]),)


def grouped_tile(launch: MirrorLaunch, pid: Pid) -> Order:
    """The tile at position pid of the grouped order."""
    return _grouped(launch)[pid[0] : pid[0] + 1]


def swizzled_tile(launch: MirrorLaunch, pid: Pid) -> Order:
    """The tile that the swizzle gives to the program's row-major number; the grid is (N, M)."""
    number = pid[1] * launch.num_pid_n + pid[0]
    return _grouped(launch)[number : number + 1]


def persistent_tiles(launch: MirrorLaunch, pid: Pid) -> Order:
    """Every NUM_SMS-th tile of the grouped order."""
    return persistent(_grouped(launch), pid[0], launch.NUM_SMS)


def _grouped(launch: MirrorLaunch) -> Order:
    return order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
