"""Products whose last tiles are shared out step by step along K; a second launch adds them up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

import numpy as np

from gemmproof.reference.mirrors.call import MirrorCall, Part, StatedLaunch, look
from gemmproof.reference.mirrors.memory import Addresses
from gemmproof.reference.mirrors.schedule import order_grouped
from gemmproof.reference.mirrors.tile import compute_tile, multiply_tile

WORKSPACE = "w_ptr"


def state_streamk(
    call: MirrorCall, otherwise: Callable[[MirrorCall], list[StatedLaunch]]
) -> list[StatedLaunch]:
    """By descriptors; `otherwise` by pointers.

    As many tiles, in grouped order, are computed whole as NUM_SMS divides. Of the steps of those
    left, one after another, each program has as many, the last ones fewer or none. It leaves the
    sums of its p-th tile in the p-th of its two blocks of the workspace.
    """
    if "A_IS_T" not in call.constants:
        return otherwise(call)
    launch = call.launch
    programs = launch.NUM_SMS
    order = order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
    whole = len(order) - len(order) % programs
    k_tiles = -(-launch.K // launch.BLOCK_K)
    steps = [(tile, k) for tile in range(len(order) - whole) for k in range(k_tiles)]
    share = max(1, -(-len(steps) // programs))
    sides = launch.BLOCK_M, launch.BLOCK_N
    block = np.arange(math.prod(sides), dtype=np.int64).reshape(sides)
    blocks_of: dict[int, list[int]] = {}  # the sums of a tile, from the first k on
    work: dict[int, list[tuple[int, int, int, int]]] = {}
    for pid in range(programs):
        own = groupby(steps[pid * share : (pid + 1) * share], key=lambda step: step[0])
        for number, (tile, group) in enumerate(own):
            ks = [k for _, k in group]
            blocks_of.setdefault(tile, []).append(2 * pid + number)
            work.setdefault(pid, []).append((tile, 2 * pid + number, ks[0], ks[-1] + 1))

    def multiply(mem: Addresses) -> None:
        pid = mem.pid[0]
        for tile in order[:whole][pid::programs]:
            compute_tile(mem, tile, launch)
        for number, place, first, last in work.get(pid, ()):
            begin, end = first * launch.BLOCK_K, min(last * launch.BLOCK_K, launch.K)
            parts = {
                "a": Part("a", begin * launch.stride_ak),
                "b": Part("b", begin * launch.stride_bk),
            }
            acc = multiply_tile(
                look(mem, **parts), order[whole + number], replace(launch, K=end - begin)
            )
            mem.store(WORKSPACE, place * block.size + block, acc, np.ones_like(block, bool))

    def add(mem: Addresses) -> None:
        number, part, _ = mem.pid
        rows = part * ROWS + np.arange(ROWS, dtype=np.int64)
        total = mem.zeros(ROWS, launch.BLOCK_N)
        for place in blocks_of[number]:
            offs = place * block.size + block[rows]
            total = total + mem.load(WORKSPACE, offs, np.ones_like(offs, bool), 0.0)
        m = order[whole + number][0] * launch.BLOCK_M + rows
        n = order[whole + number][1] * launch.BLOCK_N + np.arange(launch.BLOCK_N, dtype=np.int64)
        offs = np.add.outer(m * launch.stride_cm, n * launch.stride_cn)
        mem.store("c", offs, total, np.logical_and.outer(m < launch.M, n < launch.N))

    stated = [StatedLaunch((programs, 1, 1), multiply)]
    if whole == len(order):
        return stated
    ROWS = call.integer("ROWS")
    return [*stated, StatedLaunch((len(order) - whole, launch.BLOCK_M // ROWS, 1), add)]
