"""bmm whose weight all batches share: an expanded view (stride 0), or a matrix without a batch."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.families.family import Family

from gemmproof import Contract, KernelUnderTest, Operand


@triton.jit
def bmm_kernel(
    a_ptr, b_ptr, c_ptr, batch, M, N, K,
    stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn,
    stride_cb, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FLAW: tl.constexpr,
):  # fmt: skip
    pid, pid_b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    pid_m, pid_n = pid // num_pid_n, pid % num_pid_n
    if FLAW == "tiles_of_rows":
        pid_m, pid_n = pid // num_pid_m, pid % num_pid_m
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptr += pid_b * stride_ab
    if FLAW != "b_of_the_first":
        b_ptr += pid_b * stride_bb
    c_ptr += pid_b * (stride_ab if FLAW == "c_as_a" else stride_cb)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < k_left), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < k_left) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def bmm(a, b, FLAW="none"):
    """a (batch, M, K) times b (batch, K, N), either of which may be expanded, or b (K, N)."""
    batch, M, K = a.shape
    if b.dim() == 2:
        b = b.unsqueeze(0)
        # the new axis has the stride of a whole matrix until it is expanded
        b = b if FLAW == "not_expanded" else b.expand(batch, -1, -1)
    N = b.shape[2]
    strides = {"a": a.stride(), "b": b.stride()}
    if FLAW == "batches_dense":
        strides["b"] = (K * N, *b.stride()[1:])
    elif FLAW == "zero_is_unset":
        strides["b"] = (b.stride(0) or K * N, *b.stride()[1:])
    elif FLAW == "rows_flattened":
        strides["a"] = (M * a.stride(1), *a.stride()[1:])
    c = torch.empty((batch, M, N), device=a.device, dtype=a.dtype)
    programs = batch - 1 if FLAW == "last_batch" and batch > 1 else batch
    bmm_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 32), programs)](
        a, b, c, batch, M, N, K, *strides["a"], *strides["b"], *c.stride(),
        BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, FLAW=FLAW,
    )  # fmt: skip
    return c


stride_of_the_batch_taken_for_dense = partial(bmm, FLAW="batches_dense")
stride_zero_taken_for_unset = partial(bmm, FLAW="zero_is_unset")
matrix_of_the_first_batch = partial(bmm, FLAW="b_of_the_first")
rows_of_all_batches_flattened = partial(bmm, FLAW="rows_flattened")
result_steps_as_a_does = partial(bmm, FLAW="c_as_a")
tiles_counted_by_the_rows = partial(bmm, FLAW="tiles_of_rows")
last_batch_without_programs = partial(bmm, FLAW="last_batch")

flat_matrix_not_expanded = partial(bmm, FLAW="not_expanded")


def flat_matrix_transposed(a, b):
    K, N = b.shape
    return bmm(a, torch.as_strided(b, (K, N), (1, K)))


def flat_rows_of_a_step_over_n(a, b):
    """The batch folded into the rows, and unfolded as columns."""
    batch, M, K = a.shape
    c = bmm(a.reshape(1, batch * M, K), b)
    return c.view(M, batch, b.shape[1]).transpose(0, 1)


VIEWS = ("row", "column", "padded", "shared", "batch_inner")
FLAT = {"b": Operand("fp16", ("K", "N"), layouts=("row", "column", "padded"))}
EXPANDED = Family(
    "bmm, expanded operands among them",
    KernelUnderTest(
        "bmm", bmm, Contract(formats=("fp16",), batched=True, layouts=VIEWS)
    ),
    """
R shared_bmm:stride_of_the_batch_taken_for_dense BOUNDS out_of_bounds b - 1 1 1 batch=2 b=padded
R shared_bmm:stride_zero_taken_for_unset BOUNDS out_of_bounds b K 1 1 1 batch=2 b=shared
R shared_bmm:matrix_of_the_first_batch EXACT operand_strides b - 1 1 1 batch=2 lane=default
R shared_bmm:rows_of_all_batches_flattened BOUNDS out_of_bounds a M 1 1 1 batch=2 a=padded
R shared_bmm:result_steps_as_a_does BOUNDS out_of_bounds c batch 1 1 2 batch=2
R shared_bmm:tiles_counted_by_the_rows ONCE never_stored c N 1 33 1 batch=1
R shared_bmm:last_batch_without_programs ONCE never_stored c batch 1 1 1 batch=2
""",
)  # fmt: skip
FLAT_B = Family(
    "bmm with one matrix for the batch",
    KernelUnderTest(
        "bmm_flat",
        bmm,
        Contract(formats=("fp16",), batched=True, layouts=("row", "batch_inner")),
        operands=FLAT,
        spec=lambda a, b: a @ b,
    ),
    """
R shared_bmm:flat_matrix_not_expanded BOUNDS out_of_bounds b 0 1 1 1 batch=2
R shared_bmm:flat_matrix_transposed EXACT operand_strides b - 1 2 2 batch=1
R shared_bmm:flat_rows_of_a_step_over_n EXACT wrong_value c - 2 1 1 batch=2 lane=default
""",
)

FAMILIES = (EXPANDED, FLAT_B)
