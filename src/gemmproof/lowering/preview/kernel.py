"""The kernel of a preview: one tl.dot of a tile in a loop over K, of whole tiles and dense rows."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from gemmproof.lowering.preview.dot import Dot
from gemmproof.reference.formats import FNUZ, FORMATS

_DTYPES = {fmt.name: fmt.dtype for fmt in (*FORMATS.values(), *FNUZ)}
_SIDE = 1 << 16  # of the operands: 16 divides it, and so it is of any real product's strides


@triton.jit
def dot_kernel(  # type: ignore[no-untyped-def]
    a_ptr, b_ptr, c_ptr, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    ACC: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr,
):  # fmt: skip
    """c = a @ b in tiles, where they divide M, N and K."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        acc = tl.dot(
            a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=ACC
        )
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :], acc)


def launch(dot: Dot) -> None:
    """The dot on operands that are not there: nothing but their types and strides is of matter."""
    dtype = getattr(torch, _DTYPES[dot.dtype])
    acc = getattr(torch, _DTYPES[dot.accumulator])
    a, b = (torch.empty(16, dtype=dtype, device="cuda") for _ in range(2))
    c = torch.empty(16, dtype=acc, device="cuda")
    strides = [1 if name == "column" else _SIDE for name in (dot.a, dot.b)]
    across = [_SIDE if name == "column" else 1 for name in (dot.a, dot.b)]
    options: dict[str, Any] = {"num_warps": dot.warps}
    if dot.stages is not None:
        options["num_stages"] = dot.stages
    dot_kernel[(1,)](
        a, b, c, _SIDE, strides[0], across[0], strides[1], across[1], _SIDE, *dot.tile,
        getattr(tl, _DTYPES[dot.accumulator]), dot.precision, dot.imprecise, **options,
    )  # fmt: skip
