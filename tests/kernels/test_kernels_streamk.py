"""matmul_streamk: which tiles are whole, how the others are shared out, and what it compiles to."""

import math
from unittest.mock import patch

import pytest
import torch
from tests.kernels.calls import integers, multiply, run_quietly
from tests.support.lanes import first_of_each

from gemmproof.kernels import matmul_streamk
from gemmproof.kernels.arguments import DEFAULT_OUT_DTYPE
from gemmproof.kernels.matmul_streamk import BLOCK_M, BLOCK_N, ROW_BYTES
from gemmproof.reference.simulator import run

STREAMK = "gemmproof.kernels.matmul_streamk"


@pytest.mark.parametrize("b_is_t", first_of_each([False, True]))
@pytest.mark.parametrize(
    ("M", "N", "K", "sms"),
    [
        (128, 128, 64, 132),  # a single step
        (40, 72, 520, 132),  # one tile, cut into steps
        (300, 264, 200, 4),  # 9 tiles: two waves and one left
        (256, 256, 192, 4),  # none left
        (600, 392, 328, 7),  # 20 tiles, 6 left
        (136, 520, 64, 9),  # more tiles left than steps for each program
    ],
)
def test_whole_tiles_first_and_the_steps_of_the_rest_in_equal_shares(M, N, K, sms, b_is_t):
    a, b = integers(M, K), integers(K, N, is_t=b_is_t)
    with patch(f"{STREAMK}.num_sms", lambda device: sms):
        seen = run_quietly(matmul_streamk, a, b)
    assert torch.equal(seen.result.double(), multiply(a, b))
    tiles = math.ceil(M / BLOCK_M) * math.ceil(N / BLOCK_N)
    assert seen.launches[0].grid[0] == sms
    assert len(seen.launches) == (2 if tiles % sms else 1)
    if tiles % sms:
        assert seen.launches[1].grid[0] == tiles % sms


def test_steps_are_added_from_the_first_on():
    """Sums of fp32 in another order have other bits: 2^24 + 1 - 2^24 is 0, 2^24 - 2^24 + 1 is 1."""
    K, step = 96, ROW_BYTES // 4  # three steps, a program each
    a, b = torch.zeros(4, K), torch.ones(K, 4)
    for values, expected in (((2.0**24, 1, -(2.0**24)), 0), ((2.0**24, -(2.0**24), 1), 1)):
        for index, value in zip((0, step, 2 * step), values, strict=True):
            a[0, index] = value
        seen = run(matmul_streamk, a, b, target="sm_90", kwargs={"input_precision": "tf32"})
        assert len(seen.launches) == 2
        assert seen.result[0, 0].item() == expected


@pytest.mark.parametrize("dtype", DEFAULT_OUT_DTYPE, ids=str)
def test_every_format_goes_into_an_out_of_either_order(dtype):
    a, b = integers(48, 272, dtype=torch.int8).to(dtype), integers(272, 80, torch.int8, True)
    b, result = b.to(dtype), DEFAULT_OUT_DTYPE[dtype]
    for out in (torch.zeros(48, 80, dtype=result), torch.zeros(80, 48, dtype=result).T):
        options = {"out": out, "input_precision": "tf32" if dtype == torch.float32 else "ieee"}
        seen = run_quietly(matmul_streamk, a, b, **options)
        assert len(seen.launches) == 2
        assert torch.equal(out.double(), multiply(a, b, result))


def test_what_no_descriptor_can_say_is_read_by_pointers():
    a, b = integers(24, 7), integers(7, 16)
    with pytest.warns(
        UserWarning, match=r"^matmul_streamk: got a \(.*\) with strides .* pointers are used$"
    ):
        seen = run(matmul_streamk, a, b, target="sm_90")
    assert len(seen.launches) == 1
    assert torch.equal(seen.result.double(), multiply(a, b))
