"""Wrappers in the forms in which production code calls a GEMM, each with its flaws."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, OneOf, Operand


@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, d_ptr, M, N, K, alpha, beta,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, stride_d,
    READS_C: tl.constexpr, BIAS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = alpha a b + beta c + d, d a row; with SUMS, d gets the sums of c's rows of one tile."""
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=a_mask, other=0.0)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc = tl.dot(a, b.to(a.dtype), acc)
    acc *= alpha
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if READS_C:
        acc += beta * tl.load(c_ptrs, mask=mask, other=0.0).to(tl.float32)
    if BIAS:
        acc += tl.load(d_ptr + offs_n * stride_d, mask=offs_n < N, other=0.0).to(tl.float32)[None]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)
    if SUMS:
        tl.store(d_ptr + offs_m, tl.sum(acc, 1), mask=offs_m < M)


def launch(a, b, c, d=None, alpha=1.0, beta=0.0, sums=False, reads_c=None, stride_d=None):
    (M, K), N = a.shape, b.shape[1]
    step = 0 if d is None else d.stride(0) if stride_d is None else stride_d
    block = 16 if not sums else triton.next_power_of_2(max(N, 16))
    gemm_kernel[(triton.cdiv(M, block), triton.cdiv(N, block))](
        a, b, c, c if d is None else d, M, N, K, alpha, beta,
        *a.stride(), *b.stride(), *c.stride(), step,
        READS_C=beta != 0 if reads_c is None else reads_c, BIAS=d is not None and not sums,
        SUMS=sums, BLOCK=block,
    )  # fmt: skip
    return c


def new_like(a, b, dtype=None):
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=dtype or a.dtype)


def into_out(a, b, out):
    """As torch.mm(a, b, out=out)."""
    return launch(a, b, out)


def into_out_silently(a, b, out):
    launch(a, b, out)


def out_ignored(a, b, out):
    return launch(a, b, new_like(a, b))


def out_taken_for_dense(a, b, out):
    dense = torch.as_strided(out, out.shape, (out.shape[1], 1))
    launch(a, b, dense)
    return out


def gemm(a, b, c, alpha, beta):
    """c = alpha a b + beta c, as in BLAS: with beta = 0 c need not be set."""
    launch(a, b, c, alpha=alpha, beta=beta)


def gemm_that_always_reads_c(a, b, c, alpha, beta):
    launch(a, b, c, alpha=alpha, beta=beta, reads_c=True)


def gemm_without_alpha(a, b, c, alpha, beta):
    launch(a, b, c, beta=beta)


def beta_applied_to_the_product(a, b, c, alpha, beta):
    launch(a, b, c, alpha=alpha * beta if beta else alpha, beta=1.0 if beta else 0.0)


def c_added_though_beta_is_forgotten(a, b, c, alpha, beta):
    launch(a, b, c, alpha=alpha, beta=1.0 if beta else 0.0)


def alpha_applied_to_c_too(a, b, c, alpha, beta):
    launch(a, b, c, alpha=alpha, beta=alpha * beta)


def with_out_dtype(a, b, out_dtype=None):
    return launch(a, b, new_like(a, b, out_dtype))


def with_bias(a, b, bias=None):
    return launch(a, b, new_like(a, b), bias)


def first_bias_for_all(a, b, bias=None):
    return launch(a, b, new_like(a, b), None if bias is None else bias[:1].expand_as(bias))


def bias_needed(a, b, bias=None):
    return launch(a, b, new_like(a, b), bias.contiguous())


def bias_taken_for_dense(a, b, bias=None):
    return launch(a, b, new_like(a, b), bias, stride_d=1)


def with_row_sums(a, b):
    c, sums = new_like(a, b, torch.float32), torch.empty_like(a[:, 0], dtype=torch.float32)
    launch(a, b, c, sums, sums=True)
    return c, sums


def row_sums_doubled(a, b):
    c, sums = with_row_sums(a, b)
    return c, 2 * sums


def row_sums_only(a, b):
    return with_row_sums(a, b)[1]


class Linear(torch.nn.Module):
    """As torch.nn.Linear: the weight is N x K."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x):
        return with_bias(x, self.weight.t(), self.bias)


ANY = Contract(layouts="any")
FAMILY = Family(
    "out=, results in place, alpha and beta",
    KernelUnderTest(
        "gemm",
        gemm,
        ANY,
        operands={
            "c": Operand("fp16", ("M", "N"), use="updated", layouts="any"),
            "alpha": OneOf(1.0, 0.5),
            "beta": OneOf(1.0, 0.0, -2.0),
        },
        spec=lambda a, b, c, alpha, beta: alpha * (a @ b) + beta * c if beta else alpha * (a @ b),
    ),
    """
R calling_forms:gemm_that_always_reads_c EXACT operand_read c - 1 1 1 beta=0.0
R calling_forms:gemm_without_alpha EXACT operand_forgotten alpha - 1 1 1 alpha=0.5 lane=default
R calling_forms:beta_applied_to_the_product EXACT wrong_value c - 1 1 1 beta=-2.0
R calling_forms:c_added_though_beta_is_forgotten EXACT operand_forgotten beta - 1 1 1 beta=-2.0
R calling_forms:alpha_applied_to_c_too EXACT operand_multiplied c - 1 1 1 alpha=0.5
""",
    also=(
        KernelUnderTest(
            "into_out",
            into_out,
            ANY,
            operands={"out": Operand("fp32", ("M", "N"), use="written", layouts="any")},
        ),
        KernelUnderTest(
            "with_bias",
            with_bias,
            ANY,
            operands={"bias": Operand("fp16", "N", optional=True, layouts="any")},
            spec=lambda a, b, bias: a @ b if bias is None else a @ b + bias,
        ),
        KernelUnderTest(
            "with_row_sums",
            with_row_sums,
            Contract(N="1..128", layouts="any"),  # as wide a tile as has room in shared memory
            spec=lambda a, b: (a @ b, (a @ b).sum(1)),
        ),
        KernelUnderTest(
            "with_out_dtype",
            with_out_dtype,
            operands={"out_dtype": OneOf(None, torch.float32, torch.bfloat16)},
        ),
    ),
)
