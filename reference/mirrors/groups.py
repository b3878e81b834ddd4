"""Products of groups of rows, each with a matrix of its own; the kernel reads where they begin."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from gemmproof.reference.mirrors.call import MirrorCall, Part, StatedLaunch, look
from gemmproof.reference.mirrors.memory import Addresses
from gemmproof.reference.mirrors.schedule import order_grouped
from gemmproof.reference.mirrors.tile import compute_tile


def state_grouped_gemm(call: MirrorCall) -> list[StatedLaunch]:
    """Persistent programs; the tiles of one group after those of another, each in grouped order.

    A program reads all bounds first, then for each tile the two of its group. By descriptors, which
    know of no groups, it reads rows of a up to the matrix's end, and stores its group's alone.
    """
    launch = call.launch
    offsets, b = call.tensors["offsets"], call.tensors["b"]
    assert offsets.values is not None
    (stride,), of_groups = offsets.strides, list(pairwise(offsets.values.tolist()))
    is_described = "B_IS_T" in call.constants
    order = [
        (group, tile)
        for group, (begin, end) in enumerate(of_groups)
        for tile in order_grouped(
            -(-(end - begin) // launch.BLOCK_M), launch.num_pid_n, launch.GROUP_M
        )
    ]
    tiles = (launch.M // launch.BLOCK_M + len(of_groups)) * launch.num_pid_n

    def read_bounds(mem: Addresses, groups: np.ndarray, inside: np.ndarray) -> None:
        for number in (groups, groups + 1):
            mem.load("offsets", number * stride, inside, 0.0)

    def run(mem: Addresses) -> None:
        all_groups = np.arange(call.integer("BLOCK_G"), dtype=np.int64)
        read_bounds(mem, all_groups, all_groups < len(of_groups))
        for group, tile in order[mem.pid[0] :: launch.NUM_SMS]:
            read_bounds(mem, np.array(group, np.int64), np.array(True))
            begin, end = of_groups[group]
            parts = {
                "a": Part("a", begin * launch.stride_am),
                "b": Part("b", group * b.strides[0], is_described),
                "c": Part("c", begin * launch.stride_cm),
            }
            last = launch.M if is_described else end
            own = replace(launch, M=last - begin)
            compute_tile(look(mem, **parts), tile, own, rows=end - begin)

    return [StatedLaunch((min(launch.NUM_SMS, tiles), 1, 1), run)]
