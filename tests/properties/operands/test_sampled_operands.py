"""Operands as large as a result of more than 2**31 elements: only their addresses are judged."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from gemmproof import Contract, KernelUnderTest, Operand, check
from gemmproof.properties.cases.case import Case

CASE = Case(49152, 49152, 1)


@triton.jit
def residual_kernel(
    a_ptr, b_ptr, r_ptr, order_ptr, c_ptr, M, N, K, WIDE: tl.constexpr, B: tl.constexpr
):  # fmt: skip
    """Compute c = a b + residual, its rows in an order that is in memory."""
    rm = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    rn = tl.program_id(1) * B + tl.arange(0, B)
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for k in range(0, K):
        a = tl.load(a_ptr + rm * K + k, mask=rm < M, other=0).to(tl.float32)
        b = tl.load(b_ptr + k * N + rn, mask=rn < N, other=0).to(tl.float32)
        acc += a[:, None] * b[None, :]
    row = tl.load(order_ptr + rm, mask=rm < M, other=0)
    row = row if WIDE else row.to(tl.int32)
    acc += tl.load(r_ptr + row[:, None] * N + rn[None, :], mask=mask, other=0)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


def add_residual(a, b, residual, order, wide=True):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = triton.cdiv(M, 16), triton.cdiv(N, 16)
    residual_kernel[grid](a, b, residual, order, c, M, N, K, wide, 16)
    return c


def add_in_32_bits(a, b, residual, order):
    return add_residual(a, b, residual, order, wide=False)


def add_through_places(a, b, places):
    """Store each element of c at the index, counted from 1, that an equally large operand has."""
    (M, _), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    places_kernel[(triton.cdiv(M * N, 128),)](places, c, M * N, 128)
    return c


@triton.jit
def places_kernel(places_ptr, c_ptr, n, B: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    index = tl.load(places_ptr + i, mask=i < n, other=1)
    tl.store(c_ptr + index.to(tl.int64) - 1, 0.0, mask=i < n)


def judge(wrapper, operands, spec):
    kernel = KernelUnderTest("add", wrapper, Contract(huge=True), operands=operands, spec=spec)
    return check(kernel, case=CASE)


@pytest.mark.parametrize(("wrapper", "count"), [(add_residual, 0), (add_in_32_bits, 1)])
def test_the_offset_into_a_residual_of_2_31_elements(wrapper, count):
    operands = {
        "residual": Operand("fp16", ("M", "N")),
        "order": Operand("int64", "M", values=lambda rng, shape, M, N, K: rng.permutation(M)),
    }
    report = judge(wrapper, operands, lambda a, b, residual, order: a @ b + residual[order])
    assert [(f.property, f.operand, f.axis) for f in report.findings] == [
        ("offsets_fit", "residual", "M")
    ] * count
    assert report.note is None


def test_elements_of_so_large_an_operand_are_not_taken_for_zeros():
    places = Operand("int32", ("M", "N"), values=lambda rng, shape, M, N, K: 1 + rng.integers(9))
    report = judge(add_through_places, {"places": places}, lambda a, b, places: 0 * (a @ b))
    assert (report.verdict, report.findings) == ("pass", ())
