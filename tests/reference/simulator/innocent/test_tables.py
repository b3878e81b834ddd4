"""Correct kernels whose addresses come from memory: right results and no fault."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.corpora.families.moe_experts import EXPERTS, TOP_K, fused_moe
from tests.support.simulator_lanes import assert_innocent, integers


@triton.jit
def grouped_kernel(
    a_table, b_table, c_table, sizes_ptr, strides_ptr, groups, PROGRAMS: tl.constexpr,
    S: tl.constexpr,
):  # fmt: skip
    """Problems of different sizes, given as tables of addresses (Triton's tutorial 08)."""
    tile = tl.program_id(0)
    before = 0
    for g in range(groups):
        gm = tl.load(sizes_ptr + g * 3)
        gn = tl.load(sizes_ptr + g * 3 + 1)
        gk = tl.load(sizes_ptr + g * 3 + 2)
        tiles_n = tl.cdiv(gn, S)
        tiles = tl.cdiv(gm, S) * tiles_n
        while tile >= before and tile < before + tiles:
            lda = tl.load(strides_ptr + g * 3)
            ldb = tl.load(strides_ptr + g * 3 + 1)
            ldc = tl.load(strides_ptr + g * 3 + 2)
            a_ptr = tl.load(a_table + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_table + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_table + g).to(tl.pointer_type(tl.float32))
            at = tile - before
            rm = at // tiles_n * S + tl.arange(0, S)
            rn = at % tiles_n * S + tl.arange(0, S)
            acc = tl.zeros((S, S), tl.float32)
            for k in range(0, gk, S):
                rk = k + tl.arange(0, S)
                a_mask = (rm[:, None] < gm) & (rk[None, :] < gk)
                b_mask = (rk[:, None] < gk) & (rn[None, :] < gn)
                a = tl.load(a_ptr + rm[:, None] * lda + rk[None, :], mask=a_mask, other=0.0)
                b = tl.load(b_ptr + rk[:, None] * ldb + rn[None, :], mask=b_mask, other=0.0)
                acc += tl.dot(a, b)
            mask = (rm[:, None] < gm) & (rn[None, :] < gn)
            tl.store(c_ptr + rm[:, None] * ldc + rn[None, :], acc, mask=mask)
            tile += PROGRAMS
        before += tiles


@pytest.mark.parametrize("programs", [1, 4, 100])
def test_a_grouped_gemm_through_tables_of_addresses(programs):
    """The wrapper itself cuts a into problems; only the tables know them."""
    cuts = (5, 20, 0, 33)

    def wrapper(a, b):
        parts_a = [x.contiguous() for x in a.split(cuts)]
        parts_b = [(b * (g + 1)).contiguous() for g in range(len(cuts))]
        parts_c = [torch.empty((n, b.shape[1]), device=a.device) for n in cuts]
        address = lambda parts: torch.tensor([p.data_ptr() for p in parts], device="cuda")  # noqa: E731
        K, N = b.shape
        sizes = torch.tensor([(n, N, K) for n in cuts], dtype=torch.int32, device="cuda")
        strides = torch.tensor([(K, N, N)] * len(cuts), dtype=torch.int32, device="cuda")
        grouped_kernel[(programs,)](
            address(parts_a), address(parts_b), address(parts_c), sizes, strides, len(cuts),
            programs, 16,
        )  # fmt: skip
        return torch.cat(parts_c)

    a, b = integers(58, 21), integers(21, 40, seed=1)
    factor = torch.repeat_interleave(torch.arange(1, 5), torch.tensor(cuts))
    assert_innocent(wrapper, a, b, expected=(a.double() @ b.double()) * factor[:, None])


def test_rows_routed_to_experts():
    """Indices loaded from memory, padding rows named by an index past the end."""
    T, K, N = 19, 35, 24
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, EXPERTS, (T, TOP_K), np.int32))
    a, b = integers(T, K), integers(EXPERTS, N, K, seed=1)
    products = a.double()[:, None, None] @ b.double()[ids].mT
    weights = torch.ones(T, TOP_K)
    assert_innocent(fused_moe, a, b, ids, weights, expected=products[:, :, 0].sum(1))
