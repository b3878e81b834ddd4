"""Unknown values of a sampled call decide no fault: memory that other programs may store to."""

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import run

M, N = 65536, 32769


def sample(wrapper):
    return run(wrapper, torch.ones(4, dtype=torch.float16), sampled=True)


@triton.jit
def table_kernel(table_ptr, M, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(table_ptr + i, i, mask=i < M)


@triton.jit
def gather_kernel(table_ptr, c_ptr, N, HOW: tl.constexpr, B: tl.constexpr):
    """Rows of c by a table: before the first row, if the table held zeros."""
    row, i = tl.program_id(0), tl.program_id(1) * B + tl.arange(0, B)
    place = tl.load(table_ptr + row).to(tl.int64) - 1
    if HOW == "address":
        tl.store(c_ptr + place * N + i, 1.0, mask=i < N)
    elif HOW == "mask":
        tl.store(c_ptr + row.to(tl.int64) * N + i - N, 1.0, mask=(i < N) & (place >= 0))
    elif HOW == "branch":
        if place < 0:
            tl.store(c_ptr - 1, 1.0)
    elif HOW == "turns":
        for _ in range(place, 0):
            tl.store(c_ptr - 1, 1.0)
    elif HOW == "wait":
        while tl.atomic_add(table_ptr, 0) == 0:
            pass
    elif HOW == "assert":
        tl.device_assert(place >= 0)


@pytest.mark.parametrize("how", ["address", "mask", "branch", "turns", "wait", "assert"])
@pytest.mark.parametrize("make", [torch.empty, torch.zeros])
def test_what_other_programs_store_decides_no_fault(how, make):
    def wrapper(a):
        table = make((M + 1,), device=a.device, dtype=torch.int32)
        c = torch.empty((M, N), device=a.device)
        table_kernel[(triton.cdiv(M, 4),)](table[1:], M, 4)
        gather_kernel[(M, triton.cdiv(N, 128))](table, c, N, how, 128)
        return c

    assert sample(wrapper).faults == []


@triton.jit
def largest(x, y):
    return tl.maximum(x, y)


@triton.jit
def flow_kernel(w_ptr, a_ptr, c_ptr, HOW: tl.constexpr, B: tl.constexpr):
    """Far outside of c, if what is loaded from w were the zeros that it holds."""
    i = tl.arange(0, B)
    x = tl.load(w_ptr + i)
    if HOW == "where":
        x = tl.where(x == 0, -1, 1)
    elif HOW == "gather":
        x = tl.gather(i, x, 0)
    elif HOW == "histogram":
        x = tl.histogram(x, B)
    elif HOW == "scan":
        x = tl.associative_scan(x, 0, largest)
    elif HOW == "sort":
        x = tl.sort(x)
    elif HOW == "sum":
        x = i + tl.sum(x, 0)
    elif HOW == "bitcast":
        x = x.to(tl.float32, bitcast=True).to(tl.int32)
    elif HOW == "dot":
        m = tl.reshape(tl.load(a_ptr + tl.arange(0, B * B)).to(tl.float16), (B, B))
        x = tl.sum(tl.dot(m, m), 1).to(tl.int32)
    elif HOW == "masked":
        x = tl.load(a_ptr + i, mask=x > 0, other=0)
    elif HOW == "indirect":
        x = tl.load(a_ptr + x)
    elif HOW == "exchanged":
        x = tl.atomic_xchg(w_ptr + i, x)
    elif HOW == "carried":
        x = i
        for _ in range(0, 100):
            x = x * 3 // 3
    elif HOW == "added":
        x = i
        for _ in range(0, 100):
            x += tl.load(w_ptr)
    tl.store(c_ptr + x - 1000000, i)


FLOWS = "where gather histogram scan sort sum bitcast dot masked indirect exchanged carried added"


@pytest.mark.parametrize("how", FLOWS.split())
def test_whatever_is_made_of_unknown_lanes_is_unknown(how):
    def wrapper(a):
        w, c = torch.zeros(16, dtype=torch.int32), torch.empty(16, dtype=torch.int32)
        flow_kernel[(1,)](w, a, c, how, 16)
        return c

    assert run(wrapper, torch.zeros(256, dtype=torch.int32), sampled=True).faults == []


@triton.jit
def walking_kernel(c_ptr, n, STEP: tl.constexpr):
    at, before = -STEP, 0
    for i in range(0, n, STEP):
        at += STEP
        tl.store(c_ptr + at, before)
        before = i


@pytest.mark.parametrize("n", [5, 64 * 7, 65 * 7, 7001, 12345])
def test_the_last_turns_of_a_long_loop_are_those_of_the_whole_loop(n):
    for missing in (0, 1):

        def wrapper(a, lacks=missing):
            c = torch.empty(((n - 1) // 7 * 7 + 1 - lacks,), device=a.device)
            walking_kernel[(1,)](c, n, 7)
            return c

        faults = sample(wrapper).faults
        assert [(f.kind, f.lanes) for f in faults] == [("out_of_bounds", 1)] * missing
