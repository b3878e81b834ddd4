"""Problems of a first user: atomics on bits of floats, launch metadata, endless loops."""

import time

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher, result_of

from gemmproof.reference.simulation import LimitExceeded
from gemmproof.reference.simulator import run, simulate


@triton.jit
def swap_if_same(memory, expected, new, old, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(old + at, tl.atomic_cas(memory + at, tl.load(expected + at), tl.load(new + at)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compare_and_swap_compares_the_bits_of_floats(dtype):
    memory = torch.tensor([0.0, torch.nan, 1.0, 2.0], dtype=dtype)
    expected = torch.tensor([-0.0, torch.nan, 1.0, 3.0], dtype=dtype)
    tensors = memory, expected, torch.full((4,), 9.0, dtype=dtype)
    old = result_of(swap_if_same, (1,), 4, tensors=tensors, shape=(4,), dtype=dtype)
    np.testing.assert_array_equal(old, [0.0, np.nan, 1.0, 2.0])
    assert memory.tolist() == [0.0, 9.0, 9.0, 2.0]


@triton.jit
def update_bits(memory, mask, _, OP: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    if OP == "and":
        tl.atomic_and(memory + at, tl.load(mask + at))
    elif OP == "or":
        tl.atomic_or(memory + at, tl.load(mask + at))
    else:
        tl.atomic_xor(memory + at, tl.load(mask + at))


@pytest.mark.parametrize("word", ["and", "or", "xor"])
def test_bitwise_atomics_work_on_the_bits_of_floats(word):
    x, y = torch.randn(2, 8)
    bits = getattr(torch, f"bitwise_{word}")(x.view(torch.int32), y.view(torch.int32))
    result_of(update_bits, (1,), word, 8, tensors=[x, y])
    assert torch.equal(x.view(torch.int32), bits)


def wrong_metadata(grid, metadata, args):
    raise ValueError("only a profiler asks")


@triton.jit(launch_metadata=wrong_metadata)
def double(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) * 2)


def test_launch_metadata_is_computed_only_for_a_hook():
    x = torch.randn(16)
    call = launcher(double, (1,), 16, shape=x.shape, dtype=x.dtype, make=torch.empty)
    assert torch.equal(simulate(call, x), 2 * x)

    def hook(metadata):
        metadata.get()

    triton.knobs.runtime.launch_enter_hook.add(hook)
    try:
        with pytest.raises(ValueError, match="only a profiler asks"):
            run(call, x)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(hook)


@triton.jit
def wait_for(flag, out, HOW: tl.constexpr):
    if HOW == "cas":
        while tl.atomic_cas(flag, 1, 1) != 1:
            pass
    elif HOW == "add":
        while tl.atomic_add(flag, 0) != 1:
            pass
    else:
        polls = 0
        while tl.load(flag, volatile=True) != 1 and polls < 5000:
            polls += 1
    tl.store(out + tl.program_id(0), 1.0)


@pytest.mark.parametrize("how", ["cas", "add"])
def test_a_loop_that_no_program_can_end_is_reported_at_once(how):
    began = time.monotonic()
    with pytest.raises(LimitExceeded, match=r"programs 0, 1, 2 wait for ever"):
        run(launcher(wait_for, (3,), how), torch.zeros(1, dtype=torch.int32))
    assert time.monotonic() - began < 5


def test_a_loop_that_counts_its_polls_may_end():
    flag = torch.zeros(1, dtype=torch.int32)
    assert result_of(wait_for, (3,), "count", tensors=[flag], shape=(3,)).tolist() == [1, 1, 1]


@triton.jit
def add_rows(x, many, out, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    if row >= tl.load(many):
        return
    tl.store(out + at, tl.load(out + at) + tl.load(x + row * N + at))


def test_a_branch_on_an_input_orders_no_programs():
    tensors = torch.ones(8, 16), torch.tensor([8], dtype=torch.int32)
    seen = run(launcher(add_rows, (8,), 16, shape=(16,), dtype=torch.float32), *tensors)
    assert "race" in {fault.kind for fault in seen.faults}
