"""Queries of a compiled kernel: its code, registers and shared memory, for the target."""

import os

import pytest
import torch
import triton
from tests.corpora.tiled import plain_kernel

from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.prove import prove
from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator import compiled_code, run

A, B = torch.ones(6, 40, dtype=torch.float16), torch.ones(40, 7, dtype=torch.float16)
META = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}


def product(a, b):
    """Launch, and return c and the compiled kernel."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    strides = (*a.stride(), *b.stride(), *c.stride())
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    return c, plain_kernel[grid](a, b, c, M, N, K, *strides, **META)


def querying(a, b):
    c, kernel = product(a, b)
    target = triton.runtime.driver.active.get_current_target()
    binary = {"cuda": "cubin", "hip": "hsaco"}[target.backend]
    assert "tt.dot" in kernel.asm["ttgir"] or "warp_group_dot" in kernel.asm["ttgir"]
    assert {"source", "ttir", "llir", binary} <= {*kernel.asm}
    assert len(kernel.asm[binary]) > 1000
    assert kernel.n_regs > 8
    assert kernel.n_spills == 0
    assert kernel.shared == kernel.metadata.shared > 0
    assert kernel.metadata.target == target
    assert kernel.metadata.warp_size == target.warp_size
    assert kernel.metadata.num_warps == 4
    return c


def sizing_its_grid(a, b):
    """As the tutorial on fused softmax: a number of programs by occupancy."""
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    arguments = (a, b, c, a.shape[0], b.shape[1], a.shape[1])
    arguments += (*a.stride(), *b.stride(), *c.stride())
    kernel = plain_kernel.warmup(*arguments, **META, grid=(1,))
    kernel._init_handles()
    figures = triton.runtime.driver.active.utils.get_device_properties(0)
    blocks = figures["max_num_regs"] // (kernel.n_regs * figures["warpSize"] * 4)
    assert min(blocks, figures["max_shared_mem"] // kernel.metadata.shared) > 0
    kernel[(triton.cdiv(a.shape[0], 32), triton.cdiv(b.shape[1], 32), 1)](*arguments, 32, 32, 32)
    return c


@pytest.mark.parametrize(
    ("wrapper", "target"),
    [(querying, None), (querying, "gfx942"), (sizing_its_grid, "sm_80")],
)
def test_a_wrapper_may_query_what_was_compiled(wrapper, target):
    seen = run(wrapper, A, B, target=target)
    assert seen.faults == []
    assert (seen.result == 40).all()


def test_code_is_shared_by_sizes_and_not_by_types(monkeypatch):
    compiled = []
    ask = compiled_code._ask_child
    monkeypatch.setattr(compiled_code, "_compiled", {})
    monkeypatch.setattr(compiled_code, "_ask_child", lambda *a: compiled.append(a) or ask(*a))
    for a, b in ((A, B), (A[:, :1], B[:1]), (A.bfloat16(), B.bfloat16())):
        run(lambda a, b: [product(a, b)[1].n_regs, a][1], a, b)
    assert len(compiled) == 2


def test_a_compiler_that_dies_says_nothing_about_the_kernel(monkeypatch):
    monkeypatch.setattr(compiled_code, "_compiled", {})
    monkeypatch.setattr(compiled_code, "_compile", lambda *a: os.abort())
    with pytest.raises(Unsupported, match="plain_kernel cannot be compiled for 90 here: its pro"):
        run(querying, A, B)


def test_sizes_decide_the_code_so_nothing_is_proved():
    kernel = KernelUnderTest("querying", querying, Contract())
    assert {"its compiled code is queried" in x.why for x in prove(kernel).verdicts} == {True}
