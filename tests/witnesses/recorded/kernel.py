"""The Triton kernel whose outputs are recorded, and its launch on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from tests.witnesses.recorded.cases import M, N, Recorded

from gemmproof.properties.cases.data import TORCH_DTYPES, as_tensor

ACC = {"fp32": tl.float32, "fp16": tl.float16, "int32": tl.int32}


@triton.jit
def recorded_dot(
    a_ptr, b_ptr, c_ptr, out_ptr, K,
    M: tl.constexpr, N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr,
    ADD: tl.constexpr, INIT: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, N)
    c_offs = offs_m[:, None] * N + offs_n[None, :]
    if INIT:  # noqa: SIM108 - Triton compiles the one branch that it takes
        acc = tl.load(c_ptr + c_offs)
    else:
        acc = tl.zeros((BLOCK_M, N), ACC)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + offs_m[:, None] * K + offs_k[None, :])
        b = tl.load(b_ptr + offs_k[:, None] * N + offs_n[None, :])
        if UPCAST:
            a = a.to(tl.float16)
            b = b.to(tl.float16)
        if ADD:
            acc += tl.dot(
                a, b, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=ACC
            )
        else:
            acc = tl.dot(
                a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=ACC
            )
    tl.store(out_ptr + c_offs, acc)


def tensor(x: np.ndarray, fmt: str, device: str) -> torch.Tensor:
    """A storage array as a torch tensor of the same bits."""
    return as_tensor(np.ascontiguousarray(x), fmt).to(device)


def launch(case: Recorded, a: Any, b: Any, c: Any) -> torch.Tensor:
    """The product of `case` for tensors on one device; (M, N) in the accumulator's format."""
    out = torch.empty((M, N), dtype=TORCH_DTYPES[case.acc_format], device=a.device)
    recorded_dot[(M // case.BLOCK_M,)](
        a, b, c, out, case.K,
        M=M, N=N, BLOCK_M=case.BLOCK_M, BLOCK_K=case.BLOCK_K, ACC=ACC[case.acc_format],
        PRECISION=case.precision, IMPRECISE=case.max_num_imprecise_acc,
        ADD=case.spelling == "add", INIT=case.init, UPCAST=case.upcast, num_warps=case.num_warps,
    )  # fmt: skip
    return out
