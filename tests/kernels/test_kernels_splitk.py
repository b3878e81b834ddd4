"""matmul_splitk: how K is shared out, in which order it is added up, and what it compiles to."""

import math

import pytest
import torch
from tests.kernels.calls import integers, multiply, run_quietly
from tests.kernels.compiled import capture_launches
from tests.kernels.every_call import empty
from tests.support.lanes import first_of_each

from gemmproof.kernels import matmul_splitk
from gemmproof.kernels.arguments import DEFAULT_OUT_DTYPE
from gemmproof.kernels.matmul_splitk import STEPS
from gemmproof.reference.simulator import run

SMS = 132
BLOCK_K = 128  # of 16-bit operands


def launch(M, N, K):
    """The run on the simulator, whose result is right, and the shares into which K went."""
    a, b = integers(M, K), integers(K, N)
    seen = run_quietly(matmul_splitk, a, b)
    assert torch.equal(seen.result.double(), multiply(a, b))
    return seen, seen.launches[0].grid[1]


@pytest.mark.parametrize(
    ("M", "N", "K"), [(1, 8, 4096), (16, 40, 1030), (17, 65, 2048), (64, 64, 1537), (70, 130, 600)]
)
def test_there_is_a_program_for_each_share_and_none_too_many(M, N, K):
    """As many as the multiprocessors allow, each of STEPS steps or more, and all of K."""
    seen, shares = launch(M, N, K)
    tiles = seen.launches[0].grid[0]
    steps = math.ceil(K / BLOCK_K)
    assert shares == seen.launches[1].constexprs.get("shares", shares)
    assert tiles * shares <= max(tiles, SMS)
    assert 1 < shares <= math.ceil(steps / STEPS)


@pytest.mark.parametrize(("M", "N", "K"), [(5, 7, 0), (5, 7, 3), (3, 9, STEPS * BLOCK_K)])
def test_a_single_share_is_stored_as_the_result(M, N, K):
    seen, shares = launch(M, N, K)
    assert (len(seen.launches), shares) == (1, 1)


def test_shares_are_added_from_the_first_on():
    """Sums of fp32 in another order have other bits: 2^24 + 1 - 2^24 is 0, 2^24 - 2^24 + 1 is 1."""
    K = 3 * STEPS * 64
    a, b = torch.zeros(1, K), torch.ones(K, 1)
    a[0, 0], a[0, STEPS * 64], a[0, -1] = 2.0**24, 1.0, -(2.0**24)
    seen = run(matmul_splitk, a, b, target="sm_90")
    assert seen.launches[0].grid[1] == 3
    assert seen.result.item() == 0.0
    a[0, STEPS * 64], a[0, -1] = -(2.0**24), 1.0
    assert run(matmul_splitk, a, b, target="sm_90").result.item() == 1.0


@pytest.mark.parametrize("dtype", DEFAULT_OUT_DTYPE, ids=str)
def test_every_format_goes_into_an_out_of_any_strides(dtype):
    M, N, K = 9, 33, 1100
    a, b = integers(M, K, torch.int8).to(dtype), integers(K, N, torch.int8).to(dtype)
    memory = torch.zeros(2 * M, 3 * N, dtype=DEFAULT_OUT_DTYPE[dtype])
    seen = run_quietly(matmul_splitk, a, b, out=memory[::2, ::3])
    assert seen.launches[0].grid[1] > 1
    assert torch.equal(memory[::2, ::3].double(), multiply(a, b, memory.dtype))
    assert not memory[1::2].any()


@pytest.mark.parametrize(
    ("gpu", "overlaps"),
    first_of_each([("sm_80", False), ("sm_90", True), ("sm_100", True)], lambda row: row[1]),
)
def test_the_sums_wait_for_the_shares_that_they_overlap(gpu, overlaps):
    """If the second launch may begin early, nothing is read before the wait."""
    with capture_launches(gpu) as launches:
        matmul_splitk(empty(8, 4096), empty(4096, 64))
    shares, sums = launches
    assert (shares.options.launch_pdl, sums.options.launch_pdl) == (False, overlaps)
    first, second = (launch.compile().asm["ptx"] for launch in launches)
    assert ("griddepcontrol.launch_dependents" in first) == overlaps
    assert ("griddepcontrol.wait" in second) == overlaps
    if overlaps:
        assert "ld.global" in second.partition("griddepcontrol.wait")[2]
        assert "ld.global" not in second.partition("griddepcontrol.wait")[0]


def test_a_single_share_lets_nothing_begin_early():
    with capture_launches("sm_90") as launches:
        matmul_splitk(empty(8, 64), empty(64, 64))
    (only,) = launches
    assert "griddepcontrol" not in only.compile().asm["ptx"]
