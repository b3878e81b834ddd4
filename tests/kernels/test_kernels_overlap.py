"""The views of memory that the wrappers accept as a result: never one that overlaps."""

import itertools

import numpy as np
import pytest
import torch

from gemmproof.kernels.checks import _overlaps_itself, may_overlap

MEMORY = torch.zeros(4096, dtype=torch.float16)


def list_addresses(x):
    """The numbers in memory of the elements of a view."""
    axes = (np.arange(n) * s for n, s in zip(x.shape, x.stride(), strict=True))
    total = sum(np.ix_(*axes))
    return x.storage_offset() + total.ravel()


def draw_view(rng, rank):
    shape, strides = rng.integers(1, 5, rank), rng.integers(0, 14, rank)
    return MEMORY.as_strided(shape.tolist(), strides.tolist(), int(rng.integers(0, 40)))


@pytest.mark.parametrize("rank", [2, 3])
def test_no_view_that_overlaps_itself_is_taken_for_one_that_does_not(rank):
    """For two axes the answer is exact."""
    rng, outcomes = np.random.default_rng(0), set()
    for _ in range(3000):
        x = draw_view(rng, rank)
        places = list_addresses(x)
        is_so = len(set(places)) < len(places)
        answer = _overlaps_itself(x)
        assert answer == is_so if rank == 2 else answer >= is_so, (x.shape, x.stride())
        outcomes.add((answer, is_so))
    assert outcomes >= {(True, True), (False, False)}


@pytest.mark.parametrize("rank", [2, 3])
def test_no_views_that_share_memory_are_taken_for_apart(rank):
    rng, outcomes = np.random.default_rng(0), set()
    for _ in range(3000):
        x, y = draw_view(rng, rank), draw_view(rng, rank)
        is_so = bool(set(list_addresses(x)) & set(list_addresses(y)))
        answer = may_overlap(x, y)
        assert answer >= is_so, (x.shape, x.stride(), y.shape, y.stride())
        outcomes.add((answer, is_so))
    assert outcomes >= {(True, True), (False, False)}


def test_blocks_of_one_parent_are_told_apart():
    """In every order of its axes, cut along any of them."""
    parent = MEMORY[:480].view(6, 8, 10)
    for order in itertools.permutations(range(3)):
        for cut in itertools.product((0, 1), repeat=3):
            x = parent[:3, :4, :5].permute(order)
            y = parent[3 * cut[0] :, 4 * cut[1] :, 5 * cut[2] :][:3, :4, :5].permute(order)
            assert may_overlap(x, y) == (not any(cut))
            assert not _overlaps_itself(x)
