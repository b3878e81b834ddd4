"""Block pointers and tensor descriptors: values, clipped edges, and hardware requirements."""

import pytest
import torch
import triton
import triton.language as tl
from tests.corpora.no_false_alarm.windows import descriptors_made_by_the_host
from tests.support.simulator_lanes import integers
from tests.support.simulator_masks import lay_out

from gemmproof.reference.simulator import run

S = 16


@triton.jit
def pointer_kernel(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, S: tl.constexpr, CHECK: tl.constexpr
):
    """CHECK has the axes of a that are checked, and the padding."""
    m, n = tl.program_id(0) * S, tl.program_id(1) * S
    a_block = tl.make_block_ptr(a, (M, K), (sam, sak), (m, 0), (S, S), (1, 0))
    b_block = tl.make_block_ptr(
        base=b, shape=(K, N), strides=(sbk, sbn), offsets=(0, n), block_shape=(S, S), order=(1, 0)
    )
    acc = tl.zeros((S, S), tl.float32)
    for _ in range(0, K, S):
        x = tl.load(a_block, boundary_check=CHECK[0], padding_option=CHECK[1])
        y = tl.load(b_block, boundary_check=(0, 1), padding_option=CHECK[1])
        acc += tl.dot(x, y)
        a_block = tl.advance(a_block, (0, S))
        b_block = tl.advance(b_block, (S, 0))
    c_block = tl.make_block_ptr(c, (M, N), (scm, scn), (m, n), (S, S), (1, 0))
    tl.store(c_block, acc.to(c.type.element_ty), boundary_check=(0, 1))


def by_pointer(padding, a_checked=(0, 1)):
    def wrapper(a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device)
        strides = (*a.stride(), *b.stride(), *c.stride())
        grid = (triton.cdiv(M, S), triton.cdiv(N, S))
        pointer_kernel[grid](a, b, c, M, N, K, *strides, S, (a_checked, padding))
        return c

    return wrapper


@pytest.mark.triton("block_pointers")
@pytest.mark.parametrize("layout", ["row", "column", "padded"])
@pytest.mark.parametrize(("M", "N", "K"), [(37, 45, 29), (16, 16, 32), (1, 3, 2)], ids=str)
def test_block_pointers(M, N, K, layout):
    a, b = lay_out(layout, M, K), lay_out(layout, K, N)
    seen = run(by_pointer("zero"), a, b)
    assert seen.faults == []
    assert (seen.result.double() == a.double() @ b.double()).all()


@pytest.mark.triton("block_pointers")
def test_a_block_pointer_that_checks_too_little():
    """K of a is not checked: the axis and the line."""
    a, b = lay_out("padded", 37, 29), lay_out("padded", 29, 45)
    faults = [f for f in run(by_pointer("zero", (0,)), a, b).faults if f.kind == "out_of_bounds"]
    fault = [(f.operand, f.axis, f.access, f.expected) for f in faults]
    assert fault == [("a", "K", "load", "columns 0..28")]
    assert faults[0].got.startswith("columns 29..31 ")


@pytest.mark.triton("block_pointers")
def test_padding_that_is_not_chosen_is_undefined():
    """Without padding_option what is beyond the edge is undefined; NaN padding is NaN."""
    a, b = integers(37, 29), integers(29, 45, seed=1)
    kinds = {f.kind for f in run(by_pointer(""), a, b, fill="zero").faults}
    assert kinds == {"undefined_stored"}
    assert run(by_pointer("nan"), a, b).result.isnan().all()
    whole = integers(32, 32), integers(32, 16, seed=1)
    assert run(by_pointer(""), *whole).faults == []


@triton.jit
def device_kernel(a, b, c, M, N, K, sa, sb, sc, S: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [M, K], [sa, 1], [S, S])
    y = tl.make_tensor_descriptor(b, shape=[K, N], strides=[sb, 1], block_shape=[S, S])
    z = tl.make_tensor_descriptor(c, [M, N], [sc, 1], [S, S])
    m, n = tl.program_id(0) * S, tl.program_id(1) * S
    acc = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        acc = tl.dot(x.load([m, k]), tl.load_tensor_descriptor(y, [k, n]), acc)
    z.store([m, n], acc.to(tl.float16))


def by_device_descriptor(a, b):
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, S), triton.cdiv(N, S))
    device_kernel[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), S)
    return c


@pytest.mark.parametrize("wrapper", [by_device_descriptor, descriptors_made_by_the_host])
@pytest.mark.parametrize(("M", "N", "K"), [(37, 48, 32), (5, 8, 24), (64, 32, 16)], ids=str)
def test_descriptors(wrapper, M, N, K):
    """Ragged edges are filled with zeros and clipped."""
    a, b = integers(M, K), integers(K, N, seed=1)
    seen = run(wrapper, a, b)
    assert seen.faults == []
    assert (seen.result.double() == a.double() @ b.double()).all()


@pytest.mark.parametrize(
    ("M", "N", "K", "operands"), [(37, 48, 29, ("a",)), (37, 45, 32, ("b", "c"))], ids=str
)
def test_a_descriptor_whose_rows_are_not_aligned(M, N, K, operands):
    """Row strides must be multiples of 16 bytes: which operand, and its stride."""
    seen = run(by_device_descriptor, integers(M, K), integers(K, N, seed=1))
    faults = [f for f in seen.faults if f.kind == "bad_descriptor"]
    assert {f.operand for f in faults} == set(operands)
    assert all("stride" in f.got and "16 bytes" in f.expected for f in faults)


def test_a_descriptor_of_a_misaligned_base():
    """A view that begins one element late."""
    parent = torch.zeros(37 * 32 + 8).half()
    a = parent[1 : 1 + 37 * 32].view(37, 32)
    faults = run(by_device_descriptor, a, integers(32, 16)).faults
    assert [(f.kind, f.operand) for f in faults] == [("bad_descriptor", "a")]
