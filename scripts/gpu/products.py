"""Kernels of this repository that compute more than a product, called so that they give one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gemmproof import kernels

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
