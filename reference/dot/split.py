"""fp32 operands as sums of narrower ones, as Triton's input_precision tf32x3, bf16x3, bf16x6 do."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from gemmproof.reference.arithmetic.conversions import (
    Array,
    round_tf32_rna,
    round_to,
    to_fp32,
    truncate_tf32,
)

# (piece of a, piece of b) in the order of accumulation, piece 0 the leading one.
SPLITS: Mapping[str, tuple[tuple[int, int], ...]] = MappingProxyType(
    {
        "tf32x3": ((1, 0), (0, 1), (0, 0)),
        "bf16x3": ((1, 0), (0, 1), (0, 0)),
        "bf16x6": ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0)),
    }
)


def pieces(x: Array, split: str) -> list[Array]:
    """The pieces of float32 x as the unit reads them, leading one first, in float32.

    tf32: the leading piece rounded half away, the rest cut by the hardware. bf16: each piece the
    remainder rounded to nearest. x - piece is exact in float32.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        if split == "tf32x3":
            high = round_tf32_rna(x)
            return [high, truncate_tf32(x - high)]
        parts = []
        for _ in range(3 if split == "bf16x6" else 2):
            part = to_fp32(round_to(x, "bf16"))
            parts.append(part)
            x = x - part
        return parts
