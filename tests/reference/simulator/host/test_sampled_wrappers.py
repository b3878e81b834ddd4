"""Wrappers and their results of more than 2**31 elements, which have a shape and no memory."""

import os
import resource
from contextlib import suppress

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.provenance import reserve
from gemmproof.reference.simulation import KernelError
from gemmproof.reference.simulator import run

M, N = 65536, 32769
GRID = (M, triton.cdiv(N, 1024))


@triton.jit
def rows_kernel(c_ptr, N, WIDE: tl.constexpr, B: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    i = tl.program_id(1) * B + tl.arange(0, B)
    tl.store(c_ptr + row * N + i, 1.0, mask=i < N)


def sample(wrapper):
    return run(wrapper, torch.ones(4, dtype=torch.float16), sampled=True)


HOST = {
    "sum": lambda c, n: c.sum() / c.numel(),
    "item": lambda c, n: n.item() // n.item(),
    "tolist": lambda c, n: 1 // n.tolist()[0],
    "cpu": lambda c, n: 1 // n.cpu(),
    "branch": lambda c, n: 1 / 0 if n == 0 else c,
    "equal": lambda c, n: 1 / 0 if torch.equal(n, torch.zeros_like(n)) else c,
    "nonzero": lambda c, n: torch.nonzero(n)[0],
    "matmul": lambda c, n: c @ c.T,
    "outer": lambda c, n: c + torch.arange(M)[:, None] * torch.arange(N),
    "repeat": lambda c, n: torch.ones(N).repeat(M, 1),
    "random": lambda c, n: torch.rand((M, N)),
    "arange": lambda c, n: torch.arange(M * N),
    "assert": lambda c, n: 1 / 0,
    "cast": lambda c, n: c.to(torch.float32).to(torch.float16),
    "copy": lambda c, n: c.clone().zero_().copy_(c),
    "alike": lambda c, n: torch.zeros_like(c, dtype=torch.int8),
    "planes": lambda c, n: c[None].expand(4, M, N).sum(0, keepdim=True)[0].T.contiguous(),
}


@pytest.mark.parametrize("name", HOST)
def test_a_wrapper_goes_on_with_shapes_and_ends_where_it_needs_elements(name):
    def wrapper(a):
        c = torch.empty((M, N), device=a.device, dtype=torch.float16)
        n = torch.zeros(1, dtype=torch.int32, device=a.device)
        rows_kernel[GRID](c, N, False, 1024)
        with suppress(ValueError):  # the end of a sampled call is no exception that wrappers catch
            return HOST[name](c, n)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen = sample(wrapper)
    assert [f.kind for f in seen.faults] == ["wrapped_offset"]
    whole = ("sum", "cast", "copy", "alike", "planes")
    assert (seen.result is None) == (name not in whole)
    if name == "planes":
        assert (seen.result.shape, seen.result.stride()) == ((N, M), (M, 1))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 2**19, f"{grown} KiB more"


def test_what_is_read_of_shapes_alone_is_not_known():
    def wrapper(a):
        if torch.ones((M, N)).sum() == 0:  # it is held here
            raise ValueError("zeros")

    assert sample(wrapper).result is None


def test_what_is_wrong_before_the_first_launch_is_the_wrappers_own():
    def refusing(a):
        raise ValueError("too large")

    with pytest.raises(ValueError, match="too large"):
        sample(refusing)

    def beyond(a):
        c = torch.empty((M, N), device=a.device)
        rows_kernel[(1, 70000)](c, N, True, 1024)

    with pytest.raises(KernelError, match="CUDA admits 65535"):
        sample(beyond)


def test_addresses_are_reserved_beyond_the_memory_of_the_machine():
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    kept = reserve(4 * memory)
    assert (len(kept), kept[0], kept[-1]) == (4 * memory, 0, 0)
