"""Tensors of other kinds that a wrapper makes: reinterpreted, sparse, jagged."""

import pytest
import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, plain_kernel

from gemmproof.engine.kernel_check import check
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.prove import prove
from gemmproof.reference.simulator import run

META = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32}
A, B = torch.arange(60.0).reshape(6, 10), torch.arange(70.0).reshape(10, 7)


def plain(a, b, **more):
    return launch(plain_kernel, a, b, **META, **more)


def bytes_as_fp8(a, b):
    """Torch's dtype is not used: the kernel learns the format from Triton's."""
    a, b = (triton.reinterpret(x.view(torch.int8), tl.float8e4nv) for x in (a, b))
    return plain(a, b, c=torch.empty((a.shape[0], b.shape[1]), device="cuda", dtype=torch.float16))


def into_bytes(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.int16)
    plain(a, b, c=triton.reinterpret(c, tl.float16))
    return c.view(torch.float16)


@pytest.mark.parametrize(("wrapper", "dtype"), [(bytes_as_fp8, "fp8e4m3"), (into_bytes, "fp16")])
def test_a_reinterpreted_tensor_has_the_elements_of_its_type(wrapper, dtype):
    kernel = KernelUnderTest("mine", wrapper, Contract(formats=(dtype,)))
    assert check(kernel, max_examples=4).verdict == "pass"
    assert {proof.status for proof in prove(kernel).verdicts} >= {"proved"}


@triton.jit
def csr_kernel(rows, columns, values, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    m = tl.program_id(0)
    offs_n = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(tl.load(rows + m), tl.load(rows + m + 1)):
        b = tl.load(b_ptr + tl.load(columns + i) * N + offs_n, mask=offs_n < N, other=0.0)
        acc += tl.load(values + i) * b
    tl.store(c_ptr + m * N + offs_n, acc, mask=offs_n < N)


def sparse_rows(a, b):
    a = a.to_sparse_csr()
    assert (a.layout, a.is_cuda, a.values().is_cuda) == (torch.sparse_csr, True, True)
    c = torch.empty((a.shape[0], b.shape[1]), device=b.device)
    parts = a.crow_indices(), a.col_indices(), a.values()
    csr_kernel[(a.shape[0],)](*parts, b, c, b.shape[1], BLOCK=16)
    return c


def sparse_coordinates(a, b):
    a = torch.sparse_coo_tensor(*(a.to_sparse().indices(), a.to_sparse().values()), a.shape)
    return plain(a.coalesce().to_dense(), b)


def jagged(a, b):
    offsets = torch.tensor([0, 2, a.shape[0]], device=a.device)
    parts = torch.nested.nested_tensor_from_jagged(a, offsets)
    assert (parts.is_nested, parts.is_cuda, parts.offsets().is_cuda) == (True, True, True)
    c = plain(parts.values(), b)
    return torch.nested.nested_tensor_from_jagged(c, parts.offsets()).values()


def jagged_of_a_list(a, b):
    return plain(torch.nested.as_nested_tensor([a[:2], a[2:]], layout=torch.jagged).values(), b)


@pytest.mark.parametrize("wrapper", [sparse_rows, sparse_coordinates, jagged, jagged_of_a_list])
def test_tensors_that_are_not_dense(wrapper):
    seen = run(wrapper, A, B)
    assert torch.equal(seen.result, A @ B)
    assert (seen.faults, seen.host_work) == ([], [])
