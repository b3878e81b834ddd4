"""Products whose blocks of 128 along K have scales, fetched beside each block."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gemmproof.reference.mirrors.call import MirrorCall, StatedLaunch
from gemmproof.reference.mirrors.memory import Addresses
from gemmproof.reference.mirrors.schedule import order_grouped
from gemmproof.reference.mirrors.tile import compute_tile

#: Columns of b that share a scale.
COLUMNS = 128


def state_block_scaled(call: MirrorCall, b_is_given_t: bool = False) -> list[StatedLaunch]:
    """Tiles in grouped order: persistent programs by descriptors, b's of b^T, else a program each.

    With a block go a's scales of the rows of the tile, and the one of b. `b_is_given_t`: the
    operand b is the transpose of what the wrapper is given.
    """
    b = call.tensors["b"]
    if b_is_given_t:
        b = replace(b, shape=b.shape[::-1], strides=b.strides[::-1])
    is_described = "C_BYTES" in call.constants  # by pointers nothing is tuned by it
    product = replace(call, tensors={**call.tensors, "b": b})
    launch = replace(product.launch, b_is_t=is_described)
    order = order_grouped(launch.num_pid_m, launch.num_pid_n, launch.GROUP_M)
    programs = min(launch.NUM_SMS, len(order)) if is_described else len(order)
    (down_a, right_a), (down_b, right_b) = (call.tensors[f"scale_{x}"].strides for x in "ab")

    def load_scales(mem: Addresses, tile: tuple[int, int], k: int) -> None:
        m = tile[0] * launch.BLOCK_M + np.arange(launch.BLOCK_M, dtype=np.int64)
        column = tile[1] * launch.BLOCK_N // COLUMNS
        mem.load("scale_a", m * down_a + k * right_a, m < launch.M, 0.0)
        mem.load("scale_b", np.array(k * down_b + column * right_b), np.array(True), 0.0)

    def run(mem: Addresses) -> None:
        for tile in order[mem.pid[0] :: programs]:
            compute_tile(mem, tile, launch, follows=partial(load_scales, mem, tile))

    return [StatedLaunch((programs, 1, 1), run)]
