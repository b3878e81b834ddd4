"""What every program of each kernel of ours should do, stated in numpy from its specification.

A mirror takes a `MirrorLaunch` (launch.py: sizes, strides, tile sizes) and a memory (memory.py)
that records accesses, computes values, or both. Kernels and mirrors share no code.
"""

from __future__ import annotations

from gemmproof.reference.mirrors import matmul, matmul_grouped, matmul_persistent, matmul_swizzled
from gemmproof.reference.mirrors.launch import Mirror, MirrorLaunch, launch_of

MIRRORS = {
    "matmul": Mirror("matmul", matmul.program, matmul.grid, matmul.tiles),
    "matmul_grouped": Mirror(
        "matmul_grouped", matmul_grouped.program, matmul_grouped.grid, matmul_grouped.tiles
    ),
    "matmul_swizzled": Mirror(
        "matmul_swizzled", matmul_swizzled.program, matmul_swizzled.grid, matmul_swizzled.tiles
    ),
    "matmul_persistent": Mirror(
        "matmul_persistent",
        matmul_persistent.program,
        matmul_persistent.grid,
        matmul_persistent.tiles,
    ),
}


def mirror_for(kernel_name: str) -> Mirror:
    """The mirror of one of our kernels, by the name of its wrapper; ValueError for any other."""
    if kernel_name not in MIRRORS:
        raise ValueError(f"mirror_for: got {kernel_name!r}, expected one of {' '.join(MIRRORS)}")
    return MIRRORS[kernel_name]


__all__ = ["MIRRORS", "Mirror", "MirrorLaunch", "launch_of", "mirror_for"]
