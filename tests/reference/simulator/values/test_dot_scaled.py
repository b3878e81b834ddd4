"""tl.dot_scaled in every format, packing and kind of scale, against sums in float64."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.lanes import first_of_each
from tests.support.simulator_lanes import empty_launcher, launcher
from tests.support.simulator_masks import the
from tests.support.triton_versions import holds

from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.simulation import CompileError
from gemmproof.reference.simulator import run

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
TYPES = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
M, N, K = 32, 32, 64


@triton.jit
def kernel(
    a_ptr, scale_a_ptr, b_ptr, scale_b_ptr, c_ptr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    LHS: tl.constexpr, RHS: tl.constexpr, A_PACK: tl.constexpr, B_PACK: tl.constexpr,
    SCALE_A: tl.constexpr, SCALE_B: tl.constexpr, GROUPS_READ: tl.constexpr,
):  # fmt: skip
    A_M: tl.constexpr = M if A_PACK or LHS != "e2m1" else M // 2
    A_K: tl.constexpr = K // 2 if A_PACK and LHS == "e2m1" else K
    B_N: tl.constexpr = N if B_PACK or RHS != "e2m1" else N // 2
    B_K: tl.constexpr = K // 2 if B_PACK and RHS == "e2m1" else K
    m, n, g = tl.arange(0, M)[:, None], tl.arange(0, N)[:, None], tl.arange(0, K // GROUP)
    a = tl.load(a_ptr + tl.arange(0, A_M)[:, None] * A_K + tl.arange(0, A_K))
    b = tl.load(b_ptr + tl.arange(0, B_K)[:, None] * B_N + tl.arange(0, B_N))
    scale_a = None
    scale_b = None
    if SCALE_A:
        scale_a = tl.load(scale_a_ptr + m * (K // GROUP) + g, mask=g < GROUPS_READ)
    if SCALE_B:
        scale_b = tl.load(scale_b_ptr + n * (K // GROUP) + g)
    c = tl.dot_scaled(a, scale_a, LHS, b, scale_b, RHS, lhs_k_pack=A_PACK, rhs_k_pack=B_PACK)
    tl.store(c_ptr + m * N + tl.arange(0, N), c)


def operand(rng, fmt, rows, columns, packed):
    """Small numbers: as the kernel reads them, and in float64."""
    if fmt == "e2m1":
        codes = rng.integers(0, 16, (rows, columns)).astype(np.uint8)
        pairs = (codes[:, ::2], codes[:, 1::2]) if packed == 1 else (codes[::2], codes[1::2])
        stored = torch.from_numpy(pairs[0] | pairs[1] << 4)
        return stored, np.where(codes & 8, -1, 1) * E2M1[codes & 7]
    stored = torch.from_numpy(rng.integers(-4, 5, (rows, columns)).astype(np.float32) / 4)
    return stored.to(TYPES[fmt]), stored.numpy().astype(np.float64)


def scales(rng, kind, rows, groups):
    """Scales of any kind are powers of two, so that every product is exact in every format."""
    power = rng.integers(-3, 4, (rows, groups))
    if kind == "e4m3":
        return torch.from_numpy(2.0**power).to(TYPES["e4m3"]), 2.0**power
    return torch.from_numpy((power + 127).astype(np.uint8)), 2.0**power


def run_scaled(lhs, rhs, kind="e8m0", packs=(True, True), scaled=(True, True), **how):
    """The run, and the product in float64."""
    rng = np.random.default_rng(0)
    group = 16 if kind == "e4m3" else 32
    a, wide_a = operand(rng, lhs, M, K, 1 if packs[0] else 0)
    b, wide_b = operand(rng, rhs, K, N, 0 if packs[1] else 1)
    scale_a, factor_a = scales(rng, kind, M, K // group)
    scale_b, factor_b = scales(rng, kind, N, K // group)
    read = how.pop("groups_read", K // group)
    sizes = (M, N, K, group, lhs, rhs, *packs, *scaled, read)
    wrapper = launcher(kernel, (1,), *sizes, shape=(M, N), dtype=torch.float32, make=torch.empty)
    if scaled[0]:
        wide_a = wide_a * np.repeat(factor_a, group, axis=1)
    if scaled[1]:
        wide_b = wide_b * np.repeat(factor_b, group, axis=1).T
    return run(wrapper, a, scale_a, b, scale_b, **how), wide_a @ wide_b


def check_scaled(*formats, **how):
    """A run without faults, in one tile, whose result is the product."""
    seen, expected = run_scaled(*formats, **how)
    assert (seen.faults, seen.launches[0].tiles) == ([], ((M, N, K),))
    assert (seen.result.numpy() == expected).all()
    return seen


@pytest.mark.parametrize("target", first_of_each([None, "sm_90"]))
@pytest.mark.parametrize("kind", ["e8m0", "e4m3"])
@pytest.mark.parametrize("rhs", ["e2m1", "e5m2", "fp16"])
@pytest.mark.parametrize("lhs", ["e2m1", *TYPES])
def test_pairs_of_formats(lhs, rhs, kind, target):
    check_scaled(lhs, rhs, kind, target=target)


@pytest.mark.parametrize("packs", [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("kind", ["e8m0", "e4m3"])
@pytest.mark.parametrize("target", [None, "sm_90"])
def test_e2m1_packed_along_the_other_axis(packs, kind, target):
    check_scaled("e2m1", "e2m1", kind, packs, target=target)


@pytest.mark.parametrize("scaled", [(True, False), (False, True)])
def test_one_operand_without_scales(scaled):
    formats = ("e2m1", "bf16") if scaled[0] else ("bf16", "e2m1")
    check_scaled(*formats, scaled=scaled)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_says_whether_its_sum_has_a_model(target):
    """From compute capability 10.0 on tensor cores take the scales: no model, so IEEE's chain."""
    seen = check_scaled("e5m2", "e5m2", target=target)
    assert seen.launches[0].rounds == (("dot",) if target in ("sm_100", "sm_120") else ())


def test_undefined_scales_reach_the_output():
    seen, _ = run_scaled("e2m1", "e2m1", groups_read=1)
    assert "the load's mask disables" in the(seen, "undefined_stored").got


def test_what_triton_refuses_is_refused_in_its_words():
    with pytest.raises(CompileError, match="only mxfp4 inputs can be packed"):
        run_scaled("e4m3", "e4m3", packs=(False, True))


@triton.jit
def batched_kernel(a_ptr, scale_ptr, b_ptr, c_ptr, B: tl.constexpr, S: tl.constexpr):
    i, m, n = tl.arange(0, B)[:, None, None], tl.arange(0, S)[None, :, None], tl.arange(0, S)
    at, scales = (i * S + m) * S + n, (i * S + m) * (S // 32) + tl.arange(0, S // 32)
    scale = tl.load(scale_ptr + scales)
    c = tl.dot_scaled(tl.load(a_ptr + at), scale, "e5m2", tl.load(b_ptr + at), scale, "e5m2")
    tl.store(c_ptr + at, c)


@pytest.mark.parametrize("target", [None, "sm_90"])
def test_batches(target):
    rng = np.random.default_rng(0)
    B, S = 2, 64
    (a, wide_a), (b, wide_b) = (operand(rng, "e5m2", B * S, S, 1) for _ in range(2))
    scale, factor = scales(rng, "e8m0", B * S, S // 32)
    factor = np.repeat(factor, 32, axis=1).reshape(B, S, S)
    wrapper = empty_launcher(batched_kernel, (1,), B, S, shape=(B, S, S))
    if not holds("batches_of_scales"):
        with pytest.raises(CompileError, match="lhs_scale must be a tensor of shape"):
            run(wrapper, a, scale, b, target=target)
        return
    seen = run(wrapper, a, scale, b, target=target)
    assert seen.faults == []
    wide_a, wide_b = (x.reshape(B, S, S) for x in (wide_a, wide_b))
    assert (seen.result.numpy() == (wide_a * factor) @ (wide_b * factor.swapaxes(1, 2))).all()
