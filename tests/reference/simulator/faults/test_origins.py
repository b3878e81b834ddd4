"""Undefined lanes: their origin when stored, and the decisions that depend on them."""

import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import FILLS, launcher
from tests.support.simulator_masks import M, N, faults_of, kernel, line, matmul, the

from gemmproof.reference.simulator import run


@pytest.mark.parametrize("fill", FILLS)
def test_undefined_lanes_in_the_output_name_their_origin(fill):
    """Masked without `other`: the operand, the axis and the load's line, whatever memory holds."""
    seen = faults_of(matmul(A="no other"), fill=fill)
    fault = the(seen, "undefined_stored")
    assert (fault.operand, fault.axis, fault.access) == ("a", "K", "load")
    loaded = line(kernel, "mask=(rm < M) & (ak < K))")
    assert fault.where.line == loaded
    assert (fault.lanes, fault.follows) == (M * N, "")
    assert f"rows 0..{M - 1}, columns 0..{N - 1} of c" in fault.got


def test_undefined_lanes_that_follow_from_a_stray_load_say_so():
    seen = faults_of(matmul(A="M"), "padded")
    assert the(seen, "undefined_stored").follows == "out_of_bounds"


def test_reading_an_unwritten_workspace():
    """A buffer from torch.empty that only half of the programs fill."""

    @triton.jit
    def fill(w_ptr, S: tl.constexpr):
        tl.store(w_ptr + tl.program_id(0) * S + tl.arange(0, S), 1.0)

    @triton.jit
    def copy(w_ptr, c_ptr, S: tl.constexpr):
        i = tl.program_id(0) * S + tl.arange(0, S)
        tl.store(c_ptr + i, tl.load(w_ptr + i))

    def wrapper(a):
        w, c = torch.empty(64, device=a.device), torch.empty(64, device=a.device)
        fill[(3,)](w, 16)
        copy[(4,)](w, c, 16)
        return c

    fault = the(run(wrapper, torch.zeros(4)), "undefined_stored")
    assert (fault.operand, fault.lanes) == ("w_ptr", 16)
    assert "uninitialised" in fault.got
    assert fault.where.line == line(copy, "tl.store")


def test_split_k_onto_an_uninitialised_output():
    """Atomics add to uninitialized memory."""

    @triton.jit
    def add(c_ptr, S: tl.constexpr):
        tl.atomic_add(c_ptr + tl.arange(0, S), 1.0)

    def wrapper(make):
        return launcher(add, (3,), 16, shape=(16,), dtype=torch.float32, make=make)

    fault = the(run(wrapper(torch.empty)), "undefined_stored")
    assert (fault.operand, fault.access, fault.lanes) == ("c", "atomic", 16)
    seen = run(wrapper(torch.zeros))
    assert seen.faults == []
    assert (seen.result == 3).all()


@triton.jit
def deciding_kernel(x_ptr, c_ptr, n, HOW: tl.constexpr):
    """What is loaded beyond n is undefined, and decides what HOW says."""
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i, mask=i < n)
    if HOW == "an address":
        tl.store(c_ptr + x, 1)
    elif HOW == "a mask":
        tl.store(c_ptr + i, 1, mask=x > 0)
    elif HOW == "a branch":
        if tl.sum(x, 0) > 3:
            tl.store(c_ptr + i, 1)
        else:
            tl.store(c_ptr + i, 2)
    else:
        total = i
        for _ in range(tl.load(x_ptr + n, mask=n < 3)):
            total += 1
        tl.store(c_ptr + i, total)


DECISIONS = {
    "an address": "c_ptr + x, 1",
    "a mask": "mask=x > 0",
    "a branch": "if tl.sum(x, 0) > 3",
    "a loop bound": "in range(tl.load",
}


@pytest.mark.parametrize("what", DECISIONS)
def test_a_decision_taken_by_an_undefined_lane(what):
    wrapper = launcher(deciding_kernel, (1,), 10, what)
    fault = the(run(wrapper, torch.arange(16, dtype=torch.int32), fill="zero"), "undefined_used")
    assert fault.access == what
    assert fault.where.line == line(deciding_kernel, DECISIONS[what])
