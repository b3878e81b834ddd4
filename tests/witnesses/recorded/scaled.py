"""Dots of microscaled operands, of batches, and of short K: the kernels whose outputs were
recorded, their inputs, and how they are launched, on a GPU or on the simulator.

`python -m recorded.scaled FILE`, in tests/witnesses and on a GPU, records the outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

TYPES = {
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
}
STEPS = 3  # tl.dot_scaled of a chain


class Scaled(NamedTuple):
    """A chain of tl.dot_scaled; `scales`: e8m0, e4m3, or special (e8m0 with its extremes)."""

    lhs: str
    rhs: str
    scales: str
    M: int
    N: int
    K: int
    k_pack: bool


class Batched(NamedTuple):
    """A tl.dot of B products; `widened`: of one, of fp16 and of int8 that becomes fp16."""

    lhs: str
    rhs: str
    B: int
    M: int
    N: int
    K: int
    widened: bool


@triton.jit
def scaled_dot(
    a_ptr, scale_a_ptr, b_ptr, scale_b_ptr, c_ptr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
    LHS: tl.constexpr, RHS: tl.constexpr, K_PACK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    PACKED_A: tl.constexpr = 2 if LHS == "e2m1" else 1
    PACKED_B: tl.constexpr = 2 if RHS == "e2m1" else 1
    A_M: tl.constexpr = M if K_PACK else M // PACKED_A
    A_K: tl.constexpr = K // PACKED_A if K_PACK else K
    B_N: tl.constexpr = N if K_PACK else N // PACKED_B
    B_K: tl.constexpr = K // PACKED_B if K_PACK else K
    GROUPS: tl.constexpr = K // GROUP
    m, n, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, GROUPS)
    c = tl.zeros((M, N), tl.float32)
    for i in range(STEPS):
        a = tl.load(a_ptr + (i * A_M + tl.arange(0, A_M)[:, None]) * A_K + tl.arange(0, A_K))
        b = tl.load(b_ptr + (i * B_K + tl.arange(0, B_K)[:, None]) * B_N + tl.arange(0, B_N))
        scale_a = tl.load(scale_a_ptr + (i * M + m[:, None]) * GROUPS + g)
        scale_b = tl.load(scale_b_ptr + (i * N + n[:, None]) * GROUPS + g)
        c = tl.dot_scaled(a, scale_a, LHS, b, scale_b, RHS, c, lhs_k_pack=K_PACK, rhs_k_pack=K_PACK)
    tl.store(c_ptr + m[:, None] * N + n, c)


@triton.jit
def batched_dot(
    a_ptr, b_ptr, c_ptr,
    B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WIDENED: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, B)[:, None, None]
    m, n, k = tl.arange(0, M)[None, :, None], tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + (i * M + m) * K + k)
    b = tl.load(b_ptr + (i * K + k[None, :, None]) * N + n)
    if WIDENED:
        c = tl.dot(tl.reshape(a, (M, K)), tl.reshape(b, (K, N)).to(a.dtype)).reshape(B, M, N)
    else:
        c = tl.dot(a, b)
    tl.store(c_ptr + (i * M + m) * N + n, c)


def cases() -> Iterator[Scaled | Batched]:
    formats = [("e2m1", "e2m1", "e8m0"), ("e2m1", "e2m1", "e4m3"), ("e4m3", "e5m2", "e8m0")]
    formats += [("bf16", "e2m1", "e8m0"), ("fp16", "e4m3", "e8m0"), ("fp16", "bf16", "e8m0")]
    formats += [("e4m3", "e4m3", "e4m3"), ("e2m1", "e4m3", "e4m3"), ("bf16", "e2m1", "e4m3")]
    formats += [("bf16", "bf16", "e8m0"), ("e5m2", "e5m2", "special")]
    for lhs, rhs, scales in formats:
        for tile in ((128, 128, 64), (32, 32, 64), (16, 32, 128), (16, 16, 32)):
            for k_pack in (True, False) if lhs == rhs == "e2m1" else (True,):
                yield Scaled(lhs, rhs, scales, *tile, k_pack)
    for fmt in ("fp16", "fp32", "e5m2", "e4m3", "bf16"):
        for sizes in ((2, 16, 16, 32), (4, 64, 64, 32), (2, 32, 32, 64)):
            yield Batched(fmt, fmt, *sizes, widened=False)
    for sizes in ((1, 16, 16, 16), (1, 16, 16, 32), (1, 64, 64, 16)):
        yield Batched("fp16", "int8", *sizes, widened=True)


def get_name(case: Scaled | Batched) -> str:
    return "|".join(map(str, case))


def _operand(rng: np.random.RandomState, fmt: str, *shape: int) -> torch.Tensor:
    if fmt == "e2m1":
        return torch.from_numpy(rng.randint(0, 256, shape).astype(np.uint8))
    if fmt == "int8":
        return torch.from_numpy(rng.randint(-128, 128, shape).astype(np.int8))
    numbers = rng.standard_normal(shape) * np.exp2(rng.randint(-6, 7, shape))
    return torch.from_numpy(numbers.astype(np.float32)).to(TYPES[fmt])


def inputs(case: Scaled | Batched, seed: int) -> list[torch.Tensor]:
    """The operands, the same on every machine."""
    rng = np.random.RandomState(seed)
    if isinstance(case, Batched):
        return [
            _operand(rng, case.lhs, case.B, case.M, case.K),
            _operand(rng, case.rhs, case.B, case.K, case.N),
        ]
    M, N, K = case.M, case.N, case.K
    pair_a, pair_b = (2 if fmt == "e2m1" else 1 for fmt in (case.lhs, case.rhs))
    a_shape = (M, K // pair_a) if case.k_pack else (M // pair_a, K)
    b_shape = (K // pair_b, N) if case.k_pack else (K, N // pair_b)
    a, b = _operand(rng, case.lhs, STEPS, *a_shape), _operand(rng, case.rhs, STEPS, *b_shape)

    def scales(rows: int) -> torch.Tensor:
        shape = (STEPS, rows, K // group_of(case))
        if case.scales == "e4m3":
            return torch.from_numpy((rng.rand(*shape) * 8).astype(np.float32)).to(TYPES["e4m3"])
        codes = rng.randint(119, 133, shape).astype(np.uint8)
        if case.scales == "special":
            codes[0, :4, 0] = [0, 255, 1, 254]
        return torch.from_numpy(codes)

    if case.scales == "special":  # Inf and NaN of both signs
        codes = torch.tensor([0x7C, 0x7D, 0xFC, 0xFF], dtype=torch.uint8)
        a.view(torch.uint8)[0, 5, :4] = codes
    return [a, scales(M), b, scales(N)]


def group_of(case: Scaled) -> int:
    return 16 if case.scales == "e4m3" else 32


def launch(case: Scaled | Batched, *operands: torch.Tensor) -> torch.Tensor:
    """The output of a case's kernel, in fp32."""
    device: Any = operands[0].device
    if isinstance(case, Batched):
        c = torch.empty((case.B, case.M, case.N), device=device)
        batched_dot[(1,)](*operands, c, case.B, case.M, case.N, case.K, case.widened)
        return c
    c = torch.empty((case.M, case.N), device=device)
    how = (group_of(case), case.lhs, case.rhs, case.k_pack, STEPS)
    scaled_dot[(1,)](*operands, c, case.M, case.N, case.K, *how)
    return c


def kept(output: np.ndarray) -> np.ndarray:
    """Return the recorded part of an output: every eighth row of a large one."""
    return output if output.size <= 1 << 12 else output[..., ::8, :]


if __name__ == "__main__":
    outputs = {}
    for seed, case in enumerate(cases()):
        try:
            on_gpu = launch(case, *(x.cuda() for x in inputs(case, seed)))
        except Exception as error:  # not compiled by this Triton for this GPU
            print(f"{get_name(case)}: {str(error).splitlines()[-1][:100]}")
            continue
        outputs[f"{get_name(case)}|{seed}"] = kept(on_gpu.cpu().numpy())
    np.savez_compressed(sys.argv[1], **outputs)
