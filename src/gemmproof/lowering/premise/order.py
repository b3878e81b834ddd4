"""The order of k in which a compiled dot takes its products, from the layouts of the optimised IR.

A 32-bit register of an operand of mma holds E = 32 / bits neighbours in k. Of the instruction's
8 E of k, thread t of four holds E t + e in the lower half and 4 E more in the upper one (PTX ISA
8.8, "Matrix Fragments for mma.m16n8k16" and its neighbours; of m16n8k8 with 16 bits there is the
lower half alone). `kWidth = w` of the IR says that the same thread holds w neighbours of the tile:
w t + j, and from 4 w on the same again (Triton's TritonGPUAttrDefs.td, "DotOperandEncodingAttr").
Where w is more than E, a thread's w / E registers go to as many instructions, in their order.
Operands that lie in shared or tensor memory are read in the order of k.
"""

from __future__ import annotations

import re
from math import lcm

_WIDTH = re.compile(r"^dot_op<\{.*kWidth = (\d+)\}>$", re.DOTALL)

Steps = tuple[frozenset[int], ...]


def read_width(layout: str) -> int | None:
    """The kWidth of an operand in registers, None of any other layout."""
    found = _WIDTH.match(layout.strip())
    return int(found[1]) if found else None


def list_order(width: int, bits: int, BLOCK_K: int) -> tuple[int, ...]:
    """The k of successive products within a group, of operands of `bits` with this kWidth.

    A tile of 4 w has no upper half of a group: what is left of a thread's w neighbours takes its
    place, E by E. () where a tile is neither that nor whole groups: the order is then not known.
    """
    E = 32 // bits
    if width % E or (BLOCK_K % (8 * width) and BLOCK_K != 4 * width):
        return ()
    short = BLOCK_K == 4 * width
    if short and width % (2 * E):
        return tuple(range(BLOCK_K))  # one instruction, of which the upper half is empty
    halves, step = ((0, E), 2 * E) if short else ((0, 4 * width), E)
    return tuple(
        width * t + register + half + e
        for register in range(0, width, step)
        for half in halves
        for t in range(4)
        for e in range(E)
    )


def list_steps(order: tuple[int, ...], size: int, K: int) -> Steps:
    """The products that a unit sums at once, `size` of k in this order; () is ascending."""
    group = order or tuple(range(size))
    count = lcm(len(group), size, K)
    whole = [k + start for start in range(0, count, len(group)) for k in group]
    return tuple(frozenset(whole[i : i + size]) for i in range(0, count, size))
