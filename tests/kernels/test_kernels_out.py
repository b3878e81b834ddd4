"""Results in a view of other memory: nothing around it is written, no view that overlaps is taken.

The copy engine stores 16 bytes at once, so that it cannot be used where rows end within them.
"""

import itertools
import warnings

import numpy as np
import pytest
import torch
from scripts.gpu.huge import PRODUCTS

from gemmproof import kernels
from gemmproof.kernels.checks import _overlaps_itself, may_overlap
from gemmproof.kernels.descriptors import find_layouts
from gemmproof.reference.simulator import run

# -- rows ----------------------------------------------------------------------------------------
FP8 = torch.float8_e4m3fn
HALF = torch.float16


def multiply_batch(a, b, out):
    return kernels.bmm(a[None], b[None], out=out[None])[0]


def multiply_rows(a, b, out):
    ends = torch.tensor([0, 5, a.shape[0]], dtype=torch.int32, device=a.device)
    return kernels.grouped_gemm(a, b.expand(2, *b.shape), ends, out=out)


def scale(a, b, out):
    ones = torch.ones(1, device=a.device)
    return kernels.matmul_scaled(a, b, ones, ones, out_dtype=HALF, out=out)


def scale_blocks(a, b, out):
    ones = (torch.ones(n, 1, device=a.device) for n in (a.shape[0], 1))
    return kernels.matmul_block_scaled(a, b, *ones, out_dtype=HALF, out=out)


def plain(name):
    return lambda a, b, out: kernels.KERNELS[name](a, b, out=out)


CALLS = {
    **{name: (plain(name), HALF) for name in kernels.KERNELS if name != "matmul_ws"},
    "matmul_fused": (lambda a, b, out: kernels.matmul_fused(a, b, out=out), HALF),
    "bmm": (multiply_batch, HALF),
    "grouped_gemm": (multiply_rows, HALF),
    "matmul_scaled": (scale, FP8),
    "matmul_block_scaled": (scale_blocks, FP8),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("columns", [20, 24])
def test_what_is_beside_a_result_is_left_alone(name, columns):
    call, dtype = CALLS[name]
    a = torch.randint(-3, 4, (16, 32)).to(dtype)
    b = torch.randint(-3, 4, (32, 32)).to(dtype)
    b = (b.T.contiguous().T if dtype == FP8 else b)[:, :columns]
    memory = torch.full((16, 64), 9.0, dtype=HALF)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that pointers are used
        seen = run(call, a, b, memory[:, :columns], target="sm_90")
    assert seen.faults == []
    assert torch.equal(memory[:, :columns].double(), a.double() @ b.double())
    assert (memory[:, columns:] == 9).all()


def test_every_kernel_that_takes_out_is_called():
    assert {*CALLS} >= {*kernels.KERNELS, *PRODUCTS} - {"matmul_ws", "matmul_w8", "matmul_w4"} - {
        name for name in PRODUCTS if name not in dir(kernels)
    }


@pytest.mark.parametrize(("columns", "fits"), [(20, False), (24, True), (8, True), (1, False)])
def test_rows_that_are_stored_end_at_a_multiple_of_16_bytes(columns, fits):
    x = torch.zeros(16, 64, dtype=HALF)[:, :columns]
    assert find_layouts(x) == (True, False)
    assert find_layouts(x, is_stored=True) == (fits, False)
    assert find_layouts(x.T, is_stored=True) == (False, fits)


# -- overlaps ------------------------------------------------------------------------------------
NUMBERS = torch.zeros(4096, dtype=torch.float16)


def list_addresses(x):
    """The numbers in memory of the elements of a view."""
    axes = (np.arange(n) * s for n, s in zip(x.shape, x.stride(), strict=True))
    total = sum(np.ix_(*axes))
    return x.storage_offset() + total.ravel()


def draw_view(rng, rank):
    shape, strides = rng.integers(1, 5, rank), rng.integers(0, 14, rank)
    return NUMBERS.as_strided(shape.tolist(), strides.tolist(), int(rng.integers(0, 40)))


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
    parent = NUMBERS[:480].view(6, 8, 10)
    for order in itertools.permutations(range(3)):
        for cut in itertools.product((0, 1), repeat=3):
            x = parent[:3, :4, :5].permute(order)
            y = parent[3 * cut[0] :, 4 * cut[1] :, 5 * cut[2] :][:3, :4, :5].permute(order)
            assert may_overlap(x, y) == (not any(cut))
            assert not _overlaps_itself(x)
