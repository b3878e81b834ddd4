"""Operands beyond 4 GiB and results of more than 2**31 elements, on a GPU, against exact sums."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from scripts.gpu.evidence import (
    Row,
    collect,
    find_kernel,
    list_tasks,
    place_evidence,
    require_gpu,
    run_each,
)

from gemmproof import kernels
from gemmproof.backends.autotune import Choice, force
from gemmproof.engine.observe import CaseNotRunnable
from gemmproof.properties.cases.data import TORCH_DTYPES

FORMATS = ("fp16", "fp8e4m3")
Sizes = tuple[int, int, int]
#: M, N and K by the bytes of an element: a, then b, of more than 2**32 bytes, then c of more than
#: 2**31 elements. No tile divides them, and 16 bytes divide every row, as the copy engine asks.
SIZES: dict[int, dict[str, Sizes]] = {
    2: {"a": (131_080, 72, 16_400), "b": (72, 131_080, 16_400), "c": (46_408, 46_416, 144)},
    1: {"a": (262_160, 80, 16_400), "b": (80, 262_160, 16_400), "c": (46_408, 46_416, 144)},
}
#: Integers up to this one: no partial sum of their products leaves the 13 bits of an fp8 unit
#: within 128 k, nor fp32's 24 bits within the largest K, in any order.
LARGEST = 2
BYTES_AT_ONCE = 2**30  # of the compared elements


def compare_huge(
    kernel: str = "", format: str = "", jobs: int = 2, report: Path | None = None
) -> int:
    """Call every registered kernel where 32-bit offsets end, and compare every bit of c.

    Three problems each, in fp16 and fp8: a, then b, of more than 4 GiB, then c of more than 2**31
    elements; a process takes up to 30 GiB of the GPU. Data are small integers, so the exact
    product, from torch in fp64, rounded once, is the only right answer. Kernels that compute more
    than a product are called as PRODUCTS says. Writes docs/evidence/huge.json where
    every kernel is called, else only what --report FILE says. Exits with 1 where a bit differs.
    """
    require_gpu("huge")
    tasks = list_tasks("huge", kernel, format, FORMATS)
    file = report or place_evidence("huge", kernel, format)
    return collect(run_each(compare_kernel, tasks, jobs), describe, file)


def compare_kernel(name: str, format: str) -> Row:
    """The three problems of one kernel in one format."""
    launch = PRODUCTS.get(name.removesuffix(f"_{format}"), find_kernel(name).launch)
    problems = []
    for large, sizes in SIZES[TORCH_DTYPES[format].itemsize].items():
        began = time.perf_counter()
        try:
            outcome = compare_problem(launch, format, sizes, torch.device("cuda"))
        except Exception as error:  # the other problems are independent
            outcome = {"expected": False, "found": f"{type(error).__name__}: {error}"[:300]}
        seconds = round(time.perf_counter() - began, 1)
        problems.append({"large": large, "M, N, K": sizes, **outcome, "seconds": seconds})
    expected = all(problem["expected"] for problem in problems)
    return {"kernel": name, "format": format, "expected": expected, "problems": problems}


def compare_problem(
    launch: Callable[..., Any], format: str, sizes: Sizes, device: torch.device
) -> Row:
    """Count the elements of c equal to the exact product, rounded once; add the first mismatch."""
    (M, N, K), dtype = sizes, TORCH_DTYPES[format]
    generator = torch.Generator(device).manual_seed(0)

    def draw(rows: int, columns: int) -> torch.Tensor:
        shape, kind = (rows, columns), torch.int8
        x = torch.randint(
            -LARGEST, LARGEST + 1, shape, dtype=kind, device=device, generator=generator
        )
        return x.to(dtype)

    a = draw(M, K)
    # the copy engine reads bytes k by k
    b = draw(N, K).T if dtype.itemsize == 1 else draw(K, N)
    poison = torch.full((4 * M * N,), 0xFF, dtype=torch.uint8, device=device)
    del poison  # c is made in its memory
    c, ran = call(launch, a, b)
    equal, difference = compare_product(a, b, c)
    return {
        "expected": equal == M * N,
        "equal": equal,
        "outputs": M * N,
        "bytes": [x.numel() * x.element_size() for x in (a, b, c)],
        "configuration": ", ".join(map(str, ran)),
        "found": difference,
    }


def call(
    launch: Callable[..., Any], a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, list[Choice]]:
    """The result in the first configuration that fits the device: to tune takes too long."""
    index = 0
    while True:
        with force(index) as ran:
            try:
                c = launch(a, b)
                c[-1:, -1:].cpu()  # a CUDA error shows here
                return c, ran
            except CaseNotRunnable:
                index += 1
                if index >= ran[-1].among:
                    raise ValueError("no configuration fits the device") from None


def compare_product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> tuple[int, str]:
    """The elements of c that are the exact product, rounded once, and the first that is not.

    Equal numbers have equal bits; a zero may have either sign.
    """
    (M, K), N = a.shape, b.shape[1]
    rows = max(1, BYTES_AT_ONCE // (8 * max(K, N)))
    columns = max(1, BYTES_AT_ONCE // (8 * K))
    equal, difference = 0, ""
    for i in range(0, M, rows):
        left = a[i : i + rows].to(torch.float64)
        for j in range(0, N, columns):
            exact = left @ b[:, j : j + columns].to(torch.float64)
            part = c[i : i + rows, j : j + columns]
            same = part.to(torch.float64) == exact.to(c.dtype).to(torch.float64)
            count = int(same.sum())
            if count < same.numel() and not difference:
                m, n = (int(x) for x in (~same).nonzero()[0])
                got, want = part[m, n].item(), exact[m, n].to(c.dtype).item()
                difference = f"c[{i + m}, {j + n}]: got {got}, expected {want}"
            equal += count
    return equal, difference


def describe(row: Row) -> str:
    """A line for each problem."""
    lines = []
    for problem in row["problems"]:
        word = "ok " if problem["expected"] else "BAD"
        share = f"{problem.get('equal', 0)}/{problem.get('outputs', 0)}"
        lines.append(
            f"{word} {row['kernel']:18} {row['format']:8} large {problem['large']}"
            f" {problem['seconds']:5.1f} s {share} {problem['found']}"
        )
    return "\n".join(lines)


# -- what computes more than a product, called so that it gives one --------------------------------
BATCHES = 8
BLOCK = 128  # elements along K and N that share a scale

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def multiply_batches(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The rows of a in batches, each with the whole of b."""
    rows = a.reshape(BATCHES, -1, a.shape[1])
    return kernels.bmm(rows, b.expand(BATCHES, *b.shape)).reshape(a.shape[0], b.shape[1])


def multiply_groups(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The rows of a in groups, the first of them empty, each with the whole of b."""
    ends = [a.shape[0] * i // BATCHES for i in range(BATCHES + 1)]
    offsets = torch.tensor([0, *ends], dtype=torch.int32, device=a.device)
    return kernels.grouped_gemm(a, b.expand(BATCHES + 1, *b.shape), offsets)


def add_nothing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With a residual and a bias of zeros."""
    residual = torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    bias = torch.zeros(b.shape[1], dtype=torch.float32, device=a.device)
    return kernels.matmul_fused(a, b, bias, residual=residual)


def update_zeros(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b - c in the memory of c, which holds zeros."""
    c = torch.zeros((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    return kernels.matmul_fused(a, b, c=c, beta=-1.0, out=c)


def scale_rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With a scale of 2 for each row and of a half for each column."""
    return kernels.matmul_scaled(a, b, *_make_scales(a, b))


def scale_sums_of_units(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same, with the whole of K summed by the tensor cores."""
    return kernels.matmul_scaled(a, b, *_make_scales(a, b), fast_accum=True)


def scale_blocks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With scales of 2 and of a half for each block."""
    (M, K), N = a.shape, b.shape[1]
    scale_a = torch.full((M, -(-K // BLOCK)), 2.0, device=a.device)
    scale_b = torch.full((-(-K // BLOCK), -(-N // BLOCK)), 0.5, device=a.device)
    return kernels.matmul_block_scaled(a, b, scale_a, scale_b)


def multiply_bytes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With b as weights of 8 bits."""
    return kernels.matmul_w8(a, b.to(torch.int8), _make_ones(b))


def multiply_nibbles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """With b, of -8 to 7, as weights of 4 bits."""
    return kernels.matmul_w4(a, kernels.pack_int4(b.to(torch.int8) + 8), _make_ones(b))


#: By the names under which conftest.py registers them, without a format.
PRODUCTS: dict[str, Product] = {
    "bmm": multiply_batches,
    "grouped_gemm": multiply_groups,
    "matmul_fused": add_nothing,
    "matmul_fused_tiled": add_nothing,
    "matmul_fused_bare": add_nothing,
    "matmul_fused_in_place": update_zeros,
    "matmul_scaled": scale_rows,
    "matmul_scaled_described": scale_rows,
    "matmul_scaled_fast": scale_sums_of_units,
    "matmul_block_scaled": scale_blocks,
    "matmul_block_scaled_described": scale_blocks,
    "matmul_w8": multiply_bytes,
    "matmul_w4": multiply_nibbles,
}


def _make_scales(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    given = (a.shape[0], 2.0), (b.shape[1], 0.5)
    first, second = (torch.full((n,), x, device=a.device) for n, x in given)
    return first, second


def _make_ones(b: torch.Tensor) -> torch.Tensor:
    return torch.ones(b.shape[1], dtype=torch.float16, device=b.device)
