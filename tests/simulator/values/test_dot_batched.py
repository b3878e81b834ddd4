"""tl.dot of batches, tile after tile in many programs, for every target."""

import pytest
import torch
import triton
import triton.language as tl
from simulator_lanes import integers, launcher

from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.simulator import run

B, M, N, K, BLOCK = 2, 96, 64, 64, 32


@triton.jit
def bmm_kernel(
    a_ptr, b_ptr, c_ptr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
    BLOCK: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, B)[:, None, None]
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :, None]
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, None, :]
    acc = tl.zeros((B, BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i * M * K + m * K + k)
        b = tl.load(b_ptr + i * K * N + k[None, :, None] * N + n)
        if ADD:
            acc += tl.dot(a, b)
        else:
            acc = tl.dot(a, b, acc)
    tl.store(c_ptr + i * M * N + m * N + n, acc)


def run_bmm(a, b, add, target):
    grid = (M // BLOCK, N // BLOCK)
    how = {"shape": (B, M, N), "dtype": torch.float32, "make": torch.empty}
    return run(launcher(bmm_kernel, grid, M, N, K, B, BLOCK, add, **how), a, b, target=target)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("target", [None, *TARGETS])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float8_e5m2], ids=str)
def test_batches_whose_programs_share_tiles(dtype, target, add):
    a, b = integers(B, M, K, dtype=dtype), integers(B, K, N, dtype=dtype, seed=1)
    seen = run_bmm(a, b, add, target)
    assert seen.faults == []
    assert seen.launches[0].tiles == ((BLOCK, BLOCK, BLOCK),)
    assert "dot" not in seen.launches[0].rounds
    assert (seen.result == a.float() @ b.float()).all()


@triton.jit
def widened_kernel(a_ptr, b_ptr, c_ptr, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)
    b = tl.load(b_ptr + i * BLOCK + j).to(tl.float16)
    tl.store(c_ptr + i * BLOCK + j, tl.dot(tl.load(a_ptr + i * BLOCK + j), b))


@pytest.mark.parametrize("target", TARGETS)
def test_a_dot_without_a_model_is_summed_by_the_ieee_chain(target):
    """int8 weights in one k step of an fp16 instruction: where L < 16 the order is not known."""
    a, b = integers(16, 16), integers(16, 16, dtype=torch.int8, seed=1)
    how = {"shape": (16, 16), "dtype": torch.float32, "make": torch.empty}
    seen = run(launcher(widened_kernel, (1,), 16, **how), a, b, target=target)
    assert seen.faults == []
    assert seen.launches[0].rounds == (("dot",) if target in ("sm_80", "sm_86", "sm_89") else ())
    assert (seen.result == a.float() @ b.float()).all()
