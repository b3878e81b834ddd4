"""How fast our kernels are on a GPU, beside torch.matmul."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import torch
from scripts.evidence import Row, collect

from gemmproof import kernels
from gemmproof.properties.cases.tensors import TORCH_DTYPES, format_of_tensor
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

#: a, b, the result of the kernel that is timed and that of torch.
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def time_kernels(rounds: int = 10, settle: float = 2.0, report: Path | None = None) -> int:
    """Time our kernels on the GPU against torch.matmul, each verified before it is timed.

    The ratio is torch's time over ours: median [lowest, highest] of the rounds, whose legs run in
    the order ABBA, then BAAB; torch against itself shows the noise. Exits with 0 when every result
    was right, 1 otherwise.
    """
    # The accumulator is fp32 in ours, so it must be in torch's.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    rows = (row for shape in SHAPES for row in time_shape(*shape, rounds, settle))
    return collect(rows, describe, report)


def operands(fmt: str, M: int, N: int, K: int) -> list[Operands]:
    """Sets of a, b and two outputs of uniform(-1, 1) data, enough of them to leave the cache."""
    dtype = TORCH_DTYPES[fmt]
    size = dtype.itemsize * (M * K + K * N + M * N)
    sets = []
    for seed in range(min(32, max(2, math.ceil(ROTATED / size)))):
        generator = torch.Generator("cuda").manual_seed(seed)
        a, b = (
            (2 * torch.rand(shape, generator=generator, device="cuda") - 1).to(dtype)
            for shape in ((M, K), (K, N))
        )
        c = torch.full((M, N), math.nan, dtype=dtype, device="cuda")
        sets.append((a, b, c, c.clone()))
    return sets


def graph_of(
    call: Callable[..., object], sets: list[Operands], column: int
) -> torch.cuda.CUDAGraph:
    """One CUDA graph that makes the call once on every set; the wrapper's own cost stays out."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(sets[0][0], sets[0][1], out=sets[0][column])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for given in sets:
            call(given[0], given[1], out=given[column])
    return graph


def seconds(graph: torch.cuda.CUDAGraph, repeats: int) -> float:
    """Device time of one replay, over `repeats` of them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeats


def ratios(
    ours: torch.cuda.CUDAGraph, theirs: torch.cuda.CUDAGraph, rounds: int, settle: float
) -> tuple[list[float], float]:
    """theirs / ours of each round, legs in the order ABBA then BAAB; and the median of theirs."""
    repeats = max(1, math.ceil(0.01 / seconds(theirs, 3)))
    stop = time.monotonic() + settle
    while time.monotonic() < stop:
        seconds(ours, repeats), seconds(theirs, repeats)
    result, base = [], []
    for number in range(rounds):
        order = (ours, theirs, theirs, ours) if number % 2 else (theirs, ours, ours, theirs)
        legs = [(graph, seconds(graph, repeats)) for graph in order]
        mine = sum(t for graph, t in legs if graph is ours)
        other = sum(t for graph, t in legs if graph is theirs)
        result.append(other / mine)
        base.append(other / 2)
    return result, statistics.median(base)


def verify(graphs: dict[str, torch.cuda.CUDAGraph], given: Operands) -> dict[str, bool]:
    """Which graphs give, on whole numbers, the exact product rounded once to the format of c.

    The numbers are exact in their format, and so small that no sum of K products is rounded in
    fp32, in any order; six standard deviations sqrt(K) highest**2 / 3 of c do not overflow.
    """
    a, b, c, _ = given
    K, fmt = a.shape[1], format_of_tensor(a)
    assert fmt is not None
    square = min(2 ** FORMATS["fp32"].p / K, fmt.max / (2 * math.sqrt(K)))
    highest = min(2**fmt.p, math.isqrt(int(square)))
    uniform = [(x, x.clone()) for x in (a, b)]
    for x in (a, b):
        x.random_(-highest, highest + 1)
    exact = (a.double() @ b.double()).to(c.dtype)
    right = {}
    for name, graph in graphs.items():
        c.fill_(math.nan)
        graph.replay()
        right[name] = torch.equal(c, exact)
    for x, data in uniform:
        x.copy_(data)
    return right


def time_shape(fmt: str, M: int, N: int, K: int, rounds: int, settle: float) -> Iterator[Row]:
    """A row per kernel and one for torch against itself, all verified before any is timed."""
    sets = operands(fmt, M, N, K)
    calls = {"torch again": torch.matmul, **{n: getattr(kernels, n) for n in kernels.__all__}}
    theirs = graph_of(torch.matmul, sets, 3)
    graphs = {name: graph_of(call, sets, 2) for name, call in calls.items()}
    right = verify(graphs, sets[-1])
    theirs.replay()
    *_, c, reference = sets[-1]
    for name, graph in graphs.items():
        row = {"kernel": name, "format": fmt, "M": M, "N": N, "K": K, "expected": right[name]}
        graph.replay()
        row["bits_equal_torch"] = torch.equal(c, reference)
        if name in kernels.__all__:
            tuned = getattr(import_module(f"gemmproof.kernels.{name}"), f"{name}_kernel")
            row["config"] = str(tuned.best_config)
        if row["expected"]:
            found, base = ratios(graph, theirs, rounds, settle)
            row["ratio"], row["ratio_low"] = statistics.median(found), min(found)
            row["ratio_high"] = max(found)
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
