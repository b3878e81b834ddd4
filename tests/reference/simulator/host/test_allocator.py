"""A kernel that makes tensor descriptors needs memory that only triton.set_allocator gives."""

import pytest
import torch
import triton
import triton.language as tl
from tests.support.wide import wide
from triton.runtime import _allocation

from gemmproof import KernelUnderTest, check
from gemmproof.properties.cases.case import Case
from gemmproof.reference.simulation import KernelError
from gemmproof.reference.simulator import run

CASE = Case(16, 16, 16, "fp16")


@triton.jit
def copy(x, o, S: tl.constexpr, DESCRIBES: tl.constexpr):
    if DESCRIBES:
        there = tl.make_tensor_descriptor(o, [S, S], [S, 1], [S, S])
        there.store([0, 0], tl.make_tensor_descriptor(x, [S, S], [S, 1], [S, S]).load([0, 0]))
    else:
        at = tl.arange(0, S)[:, None] * S + tl.arange(0, S)
        tl.store(o + at, tl.load(x + at))


def make_copy(x, describes=True):
    o = torch.empty_like(x)
    copy[1,](x, o, 16, describes)
    return o


def allocate(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8)


@triton.jit
def product(a, b, c, S: tl.constexpr):
    x = tl.make_tensor_descriptor(a, [S, S], [S, 1], [S, S])
    y = tl.make_tensor_descriptor(b, [S, S], [S, 1], [S, S])
    z = tl.make_tensor_descriptor(c, [S, S], [S, 1], [S, S])
    z.store([0, 0], tl.dot(x.load([0, 0]), y.load([0, 0])).to(tl.float16))


def forgetting(a, b):
    c = torch.empty_like(a)
    product[1,](a.contiguous(), b.contiguous(), c, 16)
    return c


def remembering(a, b):
    triton.set_allocator(allocate)
    return forgetting(a, b)


def once(a, b, _done=[]):  # noqa: B006 - what is meant
    if not _done:
        triton.set_allocator(allocate)
        _done.append(True)
    return forgetting(a, b)


@pytest.fixture
def no_allocator():
    """Nothing has called triton.set_allocator; afterwards what was there is there again."""
    before = _allocation._allocator.get()
    _allocation._allocator.set(_allocation._NULL_ALLOCATOR)
    yield
    _allocation._allocator.set(before)


def check_product(wrapper):
    kernel = KernelUnderTest("product", wrapper, wide(layouts="contiguous"))
    return check(kernel, case=CASE)


@pytest.mark.parametrize("target", [None, "sm_90", "sm_100", "sm_120"])
def test_a_missing_allocator_is_told_with_the_line_of_the_launch(no_allocator, target):
    x = torch.ones(16, 16)
    with pytest.raises(KernelError, match="nothing called triton") as caught:
        run(make_copy, x, target=target)
    assert str(caught.value.where).startswith("test_allocator.py:30")
    triton.set_allocator(allocate)
    assert torch.equal(run(make_copy, x, target=target).result, x)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "gfx942", "gfx950"])
def test_where_descriptors_become_pointers_none_is_needed(no_allocator, target):
    x = torch.ones(16, 16)
    assert torch.equal(run(make_copy, x, target=target).result, x)


def test_kernels_without_descriptors_need_none(no_allocator):
    x = torch.ones(16, 16)
    assert torch.equal(run(make_copy, x, kwargs={"describes": False}).result, x)


def test_a_check_finds_it_and_kernels_share_no_allocator(no_allocator, texts):
    assert check_product(remembering).verdict == "pass"
    report = check_product(forgetting)
    (finding,) = report.findings
    assert finding.property == "runs_to_completion"
    texts("descriptors without an allocator", finding.message, line=finding.where)
    assert finding.where.startswith("test_allocator.py:48")
    assert check_product(once).verdict == "pass"
    assert check_product(once).verdict == "pass"
    assert check_product(forgetting).verdict == "fail"


def test_what_a_module_set_when_it_was_imported_counts(no_allocator):
    def apart(a, b):
        return forgetting(a, b)

    triton.set_allocator(allocate)
    assert check_product(apart).verdict == "pass"
    assert check_product(apart).verdict == "pass"
