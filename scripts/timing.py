"""How fast our kernels are on a GPU, beside torch.matmul."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from scripts.evidence import Row, collect
from triton.testing import do_bench_cudagraph

from gemmproof import kernels
from gemmproof.properties.cases.tensors import TORCH_DTYPES
from gemmproof.reference.formats import FORMATS

SHAPES = [
    ("bf16", 8192, 8192, 8192),
    ("bf16", 4096, 4096, 4096),
    ("bf16", 2048, 2048, 2048),
    ("bf16", 8192, 8192, 1024),
    ("bf16", 16, 8192, 8192),
    ("fp16", 4096, 4096, 4096),
    ("fp32", 2048, 2048, 2048),
]
#: Bytes that the rotating operands together exceed, so that none is found in the 60 MB L2 cache.
ROTATED = 2 * 120 * 2**20

#: A matrix product that writes to `out`, and the operands and result of one call.
Matmul = Callable[..., Any]
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def time_kernels(rounds: int = 5, report: Path | None = None) -> int:
    """Time our kernels on the GPU against torch.matmul, each verified before it is timed.

    The ratio is torch's time over ours: median [lowest, highest] of the rounds. Exits with 0 when
    every result was right, 1 otherwise.
    """
    # The accumulator is fp32 in ours, so it must be in torch's.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    rows = (row for shape in SHAPES for row in time_shape(*shape, rounds))
    return collect(rows, describe, report)


def operands(fmt: str, M: int, N: int, K: int) -> list[Operands]:
    """Sets of a, b and c, of uniform(-1, 1) data, enough of them to leave the cache."""
    dtype = TORCH_DTYPES[fmt]
    size = dtype.itemsize * (M * K + K * N + M * N)
    sets = []
    for seed in range(min(32, max(2, math.ceil(ROTATED / size)))):
        generator = torch.Generator("cuda").manual_seed(seed)
        a, b = (
            (2 * torch.rand(shape, generator=generator, device="cuda") - 1).to(dtype)
            for shape in ((M, K), (K, N))
        )
        sets.append((a, b, torch.empty((M, N), dtype=dtype, device="cuda")))
    return sets


def is_exact(call: Matmul, fmt: str, given: Operands) -> bool:
    """Whether the call gives, on whole numbers, the exact product rounded once to c's format.

    The numbers are exact in their format, and so small that no sum of K products is rounded in
    fp32, in any order; six standard deviations sqrt(K) highest**2 / 3 of c do not overflow.
    """
    K, spec = given[0].shape[1], FORMATS[fmt]
    square = min(2 ** FORMATS["fp32"].p / K, spec.max / (2 * math.sqrt(K)))
    highest = min(2**spec.p, math.isqrt(int(square)))
    a, b = (torch.empty_like(x).random_(-highest, highest + 1) for x in given[:2])
    c = torch.full_like(given[2], math.nan)
    call(a, b, out=c)
    return torch.equal(c, (a.double() @ b.double()).to(c.dtype))


def measure(call: Matmul, sets: list[Operands]) -> float:
    """Milliseconds of a call on every set, as one CUDA graph: the wrapper's own cost stays out."""

    def call_all() -> None:
        for a, b, c in sets:
            call(a, b, out=c)

    return do_bench_cudagraph(call_all, return_mode="median")


def time_shape(fmt: str, M: int, N: int, K: int, rounds: int) -> Iterator[Row]:
    """A row per kernel and, as the noise, torch against itself; only what is right is timed."""
    sets = operands(fmt, M, N, K)
    a, b, c = sets[0]
    reference = torch.matmul(a, b)
    calls = {"torch again": torch.matmul, **{n: getattr(kernels, n) for n in kernels.__all__}}
    for name, call in calls.items():
        call(a, b, out=c)
        row = {"kernel": name, "format": fmt, "M": M, "N": N, "K": K}
        row["bits_equal_torch"] = torch.equal(c, reference)
        row["expected"] = is_exact(call, fmt, sets[0])
        if name in kernels.__all__:
            tuned = getattr(import_module(f"gemmproof.kernels.{name}"), f"{name}_kernel")
            row["config"] = str(tuned.best_config)
        if row["expected"]:
            pair = [(measure(call, sets), measure(torch.matmul, sets)) for _ in range(rounds)]
            ratios = [theirs / ours for ours, theirs in pair]
            row["ratio"], row["ratio_low"] = statistics.median(ratios), min(ratios)
            row["ratio_high"] = max(ratios)
            base = statistics.median(theirs for _, theirs in pair) / 1e3
            row["torch_tflops"] = 2 * M * N * K * len(sets) / base / 1e12
        yield row


def describe(row: Row) -> str:
    """A line for a row."""
    shape = f"{row['M']}x{row['N']}x{row['K']}"
    if not row["expected"]:
        return f"{row['kernel']:18} {row['format']} {shape:16} WRONG"
    return (
        f"{row['kernel']:18} {row['format']} {shape:16} {row['ratio']:5.3f} "
        f"[{row['ratio_low']:5.3f} {row['ratio_high']:5.3f}] torch {row['torch_tflops']:6.1f} "
        f"TFLOP/s, bits equal: {row['bits_equal_torch']}"
    )
