"""Tile orders, exhaustively where the number of tiles is small."""

import itertools

import numpy as np
import pytest

from gemmproof.reference.mirrored_launch import MirrorLaunch
from gemmproof.reference.mirrors import MIRRORS, order_grouped, persistent

SIZES = list(itertools.product(range(8), range(8)))


def row_major(num_pid_m: int, num_pid_n: int) -> list[tuple[int, int]]:
    """Row after row of tiles, each from left to right."""
    return list(np.ndindex(num_pid_m, num_pid_n))


def launch(num_pid_m: int, num_pid_n: int, GROUP_M: int, NUM_SMS: int) -> MirrorLaunch:
    """A launch with that many tiles of 16 x 32, the last ones ragged."""
    M, N = max(16 * num_pid_m - 3, 0), max(32 * num_pid_n - 5, 0)
    return MirrorLaunch(M, N, 1, 1, 1, N, 1, N, 1, 16, 32, 16, GROUP_M, NUM_SMS)


@pytest.mark.parametrize("GROUP_M", range(1, 10))
def test_orders_visit_every_tile_once(GROUP_M):
    """Grouped orders are bijections for every grid up to 7 x 7."""
    for size in SIZES:
        assert sorted(order_grouped(*size, GROUP_M)) == row_major(*size)


@pytest.mark.parametrize("name", MIRRORS)
@pytest.mark.parametrize("GROUP_M", [1, 2, 3, 8])
def test_programs_of_a_grid_share_out_the_tiles(name, GROUP_M):
    """Over the launched grid each tile belongs to one program, whatever NUM_SMS."""
    mirror = MIRRORS[name]
    for size, NUM_SMS in itertools.product(SIZES, (1, 2, 7, 60)):
        given = launch(*size, GROUP_M, NUM_SMS)
        (specified,) = mirror.state(given)
        tiles = [tile for pid in specified.pids() for tile in mirror.tiles(given, pid)]
        assert sorted(tiles) == row_major(*size)


def test_the_grouped_order_is_triton_s_documented_swizzle():
    """The 4 x 4 example in the documentation of `tl.swizzle2d`, GROUP_M = 2."""
    number = np.empty((4, 4), int)
    number[tuple(np.transpose(order_grouped(4, 4, 2)))] = np.arange(16)
    assert number.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], [9, 11, 13, 15]]


def test_a_group_of_one_row_is_row_major_and_of_all_rows_column_major():
    """The two ends of GROUP_M."""
    for size in SIZES:
        assert order_grouped(*size, 1) == tuple(row_major(*size))
        assert order_grouped(*size, 8) == tuple((m, n) for n, m in row_major(*size[::-1]))


def test_a_persistent_program_steps_by_the_number_of_programs():
    """Tiles p, p + NUM_SMS, p + 2 NUM_SMS, ... of the order."""
    order = tuple(row_major(3, 4))
    assert persistent(order, 1, 5) == ((0, 1), (1, 2), (2, 3))
    assert persistent(order, 4, 5) == ((1, 0), (2, 1))


def test_orders_refuse_a_group_or_a_step_of_zero():
    """One line with the value."""
    with pytest.raises(ValueError, match=r"grouped: got GROUP_M=0, expected at least 1"):
        order_grouped(2, 2, 0)
    with pytest.raises(ValueError, match=r"persistent: got NUM_SMS=0, expected at least 1"):
        persistent(order_grouped(2, 2, 1), 0, 0)
