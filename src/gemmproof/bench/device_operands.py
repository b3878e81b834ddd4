"""The operands of a problem on the device, in rotating buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from gemmproof.bench.problems import Problem
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.judges.exact_values import integer_range
from gemmproof.reference.formats import FORMATS, Format

MOST_SETS = 1024  # of tiny shapes; their rows report that they fit in the cache


@dataclass(frozen=True, slots=True)
class Buffers:
    """One set of operands: a, b, and further tensors and Python values by name."""

    a: torch.Tensor
    b: torch.Tensor
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor by name."""
        further = {n: x for n, x in self.named.items() if isinstance(x, torch.Tensor)}
        return {"a": self.a, "b": self.b, **further}

    def count_bytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(x.numel() * x.element_size() for x in self.tensors.values())


def count_sets(set_bytes: int, l2_bytes: int) -> int:
    """Return how many sets together exceed twice the L2 cache, at least 2, at most MOST_SETS."""
    return min(MOST_SETS, max(2, 2 * l2_bytes // set_bytes + 1))


def make_buffers(problem: Problem, fmt: Format, device: str) -> Buffers:
    """Allocate one set without data. Raises torch.OutOfMemoryError if there is no room for it."""
    dtype = TORCH_DTYPES[fmt.name]
    a, b = (torch.empty(shape, dtype=dtype, device=device) for shape in problem.shapes[:2])
    return Buffers(a, b)


def draw_uniform(
    x: torch.Tensor, fmt: Format, generator: torch.Generator, values: tuple[int, int] | None = None
) -> None:
    """Fill a tensor of a format with uniform data: (-1, 1), or integers from low to high.

    Without `values` the range is that of the format, for 64 bits within 2**62. The data determine
    the power that a product draws, and so the clocks: zeros and small integers make every kernel
    look fast.
    """
    options: Any = {"generator": generator, "device": x.device}
    if fmt.kind == "float":
        x.copy_((2 * torch.rand(x.shape, dtype=torch.float32, **options) - 1).to(x.dtype))
        return
    low, high = values or (max(integer_range(fmt)[0], -(2**62)), min(int(fmt.max), 2**62))
    wide = torch.int32 if -(2**31) <= low and high < 2**31 - 1 else torch.int64
    x.copy_(torch.randint(low, high + 1, x.shape, dtype=wide, **options))


def fill_integers(buffers: Buffers, fmt: Format, out: Format, seed: int) -> torch.Tensor:
    """Fill a set with integers, and return their product in the format of c, which is exact.

    Every sum of products stays at most 2**p, where p are the bits of the accumulator that the
    format's sums may be kept in (14 for fp8, whose units keep no more): no addition is rounded, in
    any order. With |a| <= h_a and |b| <= h_b that is (K / stride) h_a h_b <= 2**p, where only every
    stride-th k of a row of a (or a column of b, if there are more of them) is not zero, at another
    offset in each row, so that every k counts. c is rounded once.
    """
    generator = torch.Generator(buffers.a.device).manual_seed(seed)
    (M, K), N = buffers.a.shape[-2:], buffers.b.shape[-1]
    heights, stride = choose_heights(fmt, out, K)
    # the wider numbers are those of b in every second set
    for x, height in zip((buffers.a, buffers.b), heights[:: -1 if seed % 2 else 1], strict=True):
        options: Any = {"generator": generator, "device": x.device}
        drawn = torch.randint(-height, height + 1, x.shape, dtype=torch.int32, **options)
        x.copy_(drawn.float().to(x.dtype))  # few conversions to fp8 exist
    if stride > 1:
        x = buffers.a if M >= N else buffers.b.transpose(-1, -2)
        rows, ks = (torch.arange(n, device=x.device) for n in x.shape[-2:])
        kept = (rows[:, None] + ks[None, :]) % stride == 0
        x.copy_((x.float() * kept).to(x.dtype))
    exact = _double(buffers.a) @ _double(buffers.b)
    dtype = TORCH_DTYPES[out.name]
    # sums kept in fp32 are exact in fp32, so this rounds once; few conversions support fp8
    return exact.to(dtype) if out.kind == "int" else exact.float().to(dtype)


def choose_heights(fmt: Format, out: Format, K: int) -> tuple[tuple[int, int], int]:
    """Return the largest integers of both operands, and the stride of the nonzero k in a row.

    Integers that are exact in the format, six standard deviations sqrt(K) h**2 / 3 of whose
    products do not overflow c. A format as wide as its accumulator has wide integers on one side
    only: units that read fewer bits of an operand than it has (tf32 of fp32) are wrong on them.
    """
    bits = min(FORMATS[name].p for name in (fmt.sums[0], *fmt.units))
    limit, widest = 2**bits, int(min(2**fmt.p, fmt.max))
    if fmt.p == bits:
        heights = (2 ** (fmt.p // 2 + 1), 1)
    else:
        square = min(limit / K, out.max / (2 * math.sqrt(K)))
        height = max(1, min(widest, math.isqrt(int(square))))
        heights = (height, height)
    return heights, max(1, math.ceil(K * heights[0] * heights[1] / limit))


def _double(x: torch.Tensor) -> torch.Tensor:
    return x.float().double() if x.is_floating_point() else x.double()
