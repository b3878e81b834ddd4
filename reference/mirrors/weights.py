"""Products with weights of 8 or 4 bits, whose scales belong to columns or to groups of rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.mirrors.call import MirrorCall, StatedLaunch
from gemmproof.reference.mirrors.launch import MirrorLaunch
from gemmproof.reference.mirrors.memory import Addresses
from gemmproof.reference.mirrors.shares import state_shares


def state_weight_only(call: MirrorCall) -> list[StatedLaunch]:
    """matmul_w8 and matmul_w4: shares of K, in tiles of the transposed result.

    A step's weights of 4 bits are fetched at once, in words of four rows that lie 32 apart; those
    of 8 bits group by group. Scales and zero points are fetched once where they are of columns,
    else for each group that has a row in the share; their rows are of the group's number.
    """
    group, per_word = (call.integer(name) for name in ("GROUP", "PER_WORD"))
    # words are of no product's shape
    whole = replace(
        call.tensors["b"], shape=(call.tensors["a"].shape[1], call.tensors["b"].shape[1])
    )
    given = [name for name in ("scale", "zero") if name in call.tensors]

    def work(
        mem: Addresses, launch: MirrorLaunch, tile: tuple[int, int], begin: int, end: int
    ) -> None:
        m = tile[0] * launch.BLOCK_M + np.arange(launch.BLOCK_M, dtype=np.int64)
        n = tile[1] * launch.BLOCK_N + np.arange(launch.BLOCK_N, dtype=np.int64)

        def load_of_columns(row: int, inside: Array) -> None:
            for name in given:
                down, right = call.tensors[name].strides
                mem.load(name, row * down + n * right, inside, 0.0)

        def load_weights(rows: Array, inside: Array) -> None:
            offs = np.add.outer(n * launch.stride_bn, rows * launch.stride_bk)
            mem.load("b", offs, np.logical_and.outer(n < launch.N, inside), 0.0)

        def load_activations(k: Array) -> None:
            offs = np.add.outer(k * launch.stride_ak, m * launch.stride_am)
            mem.load("a", offs, np.logical_and.outer(k < end, m < launch.M), 0.0)

        if group == 0:
            load_of_columns(0, n < launch.N)
        width = min(group or launch.BLOCK_K, launch.BLOCK_K)
        for start in range(begin, end, launch.BLOCK_K):
            if per_word > 1:
                words = launch.BLOCK_K // per_word
                rows = start // launch.BLOCK_K * words + np.arange(words, dtype=np.int64)
                load_weights(rows, np.ones(words, bool))
            for first in range(start, start + launch.BLOCK_K, width):
                k = first + np.arange(width, dtype=np.int64)
                load_activations(k)
                if group > 0:
                    load_of_columns(first // group, (n < launch.N) & (first < end))
                if per_word == 1:
                    load_weights(k, k < end)
        offs = np.add.outer(n * launch.stride_cn, m * launch.stride_cm)
        inside = np.logical_and.outer(n < launch.N, m < launch.M)
        mem.store("c", offs, mem.zeros(launch.BLOCK_N, launch.BLOCK_M), inside)

    return state_shares(replace(call, tensors={**call.tensors, "b": whole}), work)
