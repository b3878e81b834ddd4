"""Kernels of unusual habits: split-K, odd wrappers, batches, persistent ones with few programs."""

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.check import check
from gemmproof.engine.judge import judge
from gemmproof.engine.observe import observe
from gemmproof.kernels import matmul_persistent
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Survey, corners
from gemmproof.properties.contract import Contract, KernelUnderTest


@triton.jit
def split_k_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    SPLIT_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M, BLOCK_M), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BLOCK_M * SPLIT_K)):
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
        offs_k += BLOCK_M * SPLIT_K
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.atomic_add(c_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def split_k(a, b):
    """Three programs a tile add their share onto zeros, in fp32; the cast is torch's."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), 3)
    split_k_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), 16, 3)
    return c.to(a.dtype)


@triton.jit
def wrapped_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Offsets wrap modulo M and N, and tiles of a group are taken in a rotated order."""
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_in_group = GROUP_M * tl.cdiv(N, BLOCK_M)
    first_pid_m = pid // num_pid_in_group * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + pid % group_size_m
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_M + tl.arange(0, BLOCK_M)) % N
    offs_k = tl.arange(0, BLOCK_M)
    a_ptrs = a_ptr + offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_M), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_M)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_M, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_M, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_M * stride_ak
        b_ptrs += BLOCK_M * stride_bk
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_M + tl.arange(0, BLOCK_M)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def into(c, a, b):
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)
    wrapped_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), 16, 3)
    return c


def fp8_out(a, b):
    return into(a.new_empty(a.shape[0], b.shape[1], dtype=torch.float8_e4m3fn), a, b)


def fp32_out(a, b):
    return into(a.new_empty(a.shape[0], b.shape[1], dtype=torch.float32), a, b)


def column_major_out(a, b):
    return into(torch.empty((b.shape[1], a.shape[0]), device=a.device, dtype=a.dtype).t(), a, b)


def transposed_problem(a, b):
    return into(a.new_empty(b.shape[1], a.shape[0]), b.t(), a.t()).t()


def padded_operands(a, b):
    """Copies into whole tiles of zeros, and returns a view of a larger result."""
    (M, K), N = a.shape, b.shape[1]
    up = [-(-side // 16) * 16 for side in (M, N, K)]
    wide_a, wide_b = a.new_zeros(up[0], up[2]), b.new_zeros(up[2], up[1])
    wide_a[:M, :K] = a
    wide_b[:K, :N] = b
    return into(a.new_empty(up[0], up[1]), wide_a, wide_b)[:M, :N]


def small_by_torch(a, b):
    if a.shape[0] < 8 or a.shape[1] == 0:
        return (a.float() @ b.float()).to(a.dtype)
    return into(a.new_empty(a.shape[0], b.shape[1]), a, b)


ODD = [
    split_k,
    fp8_out,
    fp32_out,
    column_major_out,
    transposed_problem,
    padded_operands,
    small_by_torch,
]


@pytest.mark.parametrize("launch", ODD, ids=lambda f: f.__name__)
def test_a_right_kernel_of_odd_habits_is_not_accused(launch):
    report = check(KernelUnderTest(launch.__name__, launch), max_examples=40)
    assert report.findings == ()
    assert report.verdict == "pass"


@triton.jit
def batched_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK_M: tl.constexpr):
    offs = tl.arange(0, BLOCK_M)
    pid = tl.program_id(0).to(tl.int64)
    offs_m, offs_n = tl.program_id(1) * BLOCK_M + offs, tl.program_id(2) * BLOCK_M + offs
    acc = tl.zeros((BLOCK_M, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_M):
        a_ptrs = a_ptr + pid * sa[0] + offs_m[:, None] * sa[1] + (k + offs)[None, :] * sa[2]
        b_ptrs = b_ptr + pid * sb[0] + (k + offs)[:, None] * sb[1] + offs_n[None, :] * sb[2]
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & ((k + offs)[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=((k + offs)[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + pid * sc[0] + offs_m[:, None] * sc[1] + offs_n[None, :] * sc[2]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def batched(stride_of_b):
    def bmm(a, b):
        (batch, M, K), N = a.shape, b.shape[2]
        c = a.new_empty(batch, M, N)
        strides = (stride_of_b(b), *b.stride()[1:])
        grid = (batch, triton.cdiv(M, 16), triton.cdiv(N, 16))
        batched_kernel[grid](a, b, c, M, N, K, a.stride(), strides, c.stride(), 16)
        return c

    return bmm


def test_a_batched_kernel_passes_and_one_that_forgets_a_batch_stride_does_not():
    contract = Contract(batched=True)
    right_one = KernelUnderTest("bmm", batched(lambda b: b.stride(0)), contract)
    assert check(right_one, max_examples=40).findings == ()
    report = check(KernelUnderTest("bmm", batched(lambda b: 0), contract))
    assert [f for f in report.findings if f.cause is None and f.operand == "b"]
    assert "a batch stride of 0" in report.findings[0].message
    assert report.findings[0].case.batch == 2


@triton.jit
def walking_kernel(c_ptr, N, tiles, NUM_SMS: tl.constexpr, STEP: tl.constexpr):
    # column tiles of c get zeros, as the product of a and b with K = 0 asks for
    for tile in range(tl.program_id(0), tiles, STEP):
        offs_n = tile * 16 + tl.arange(0, 16)
        tl.store(c_ptr + offs_n, tl.zeros((16,), tl.float32), mask=offs_n < N)


def walking(slip):
    def launch(a, b):
        sms = torch.cuda.get_device_properties(a.device).multi_processor_count
        (M, _), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=torch.float32)
        if M * N:
            walking_kernel[(sms,)](c, M * N, triton.cdiv(M * N, 16), sms, sms + slip)
        return c

    return launch


def test_few_multiprocessors_make_a_persistent_kernel_walk():
    contract = Contract(max_side=40, multiples=(1, 1, 64))  # K = 0 is all there is
    assert check(KernelUnderTest("walk", walking(0), contract), max_examples=60).verdict == "pass"
    report = check(KernelUnderTest("walk", walking(1), contract), max_examples=60)
    first = report.findings[0]
    assert (first.property, first.fault) == ("stores_each_element_once", "never_stored")
    assert first.case.sms in (1, 7)


def test_our_persistent_kernel_is_run_with_few_multiprocessors_and_its_mirror_is_told():
    made = corners(Contract(), Survey(asks_sms=True), "fp16")
    assert {case.sms for case in made} == {None, 1, 7}
    from gemmproof.reference.mirrors import mirror_for
    from gemmproof.reference.simulator import run

    kernel = KernelUnderTest("p", matmul_persistent, mirror=mirror_for("matmul_persistent"))
    case = Case(200, 300, 20, config=4, sms=7)
    outcome = observe(kernel, case, Simulator(None, run))
    assert outcome.asked_sms
    assert outcome.calls[0].run.launches[0].grid[0] == 7
    assert judge(outcome).findings == ()
