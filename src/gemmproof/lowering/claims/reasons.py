"""Why a launch is not as it was promised, as far as that follows from what was asked and the GPU.

Where no rule here applies, nothing is said beyond what was seen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gemmproof.lowering.binary.ir import IrDot
from gemmproof.lowering.record import DotLowering
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS

_WIDTH = re.compile(r"[a-zA-Z]+(\d+)")
# what the IR calls a format -> its name here; of formats that share a word the first one
_NAMES: Mapping[str, str] = MappingProxyType(
    {fmt.ttir: fmt.name for fmt in tuple(FORMATS.values())[::-1]}
)
# the smallest tiles of which Triton makes AMD's matrix instructions, by the IR's formats: measured,
# as a test compiles them and those that are half as deep
_LONG = ((4, 64, 64), (64, 4, 64))
_MFMA: Mapping[str, tuple[tuple[int, int, int], ...]] = MappingProxyType(
    {
        **dict.fromkeys(("f16", "bf16"), ((16, 16, 16), (32, 32, 8), *_LONG)),
        "f32": ((16, 16, 4), (32, 32, 2), (4, 64, 16), (64, 4, 16)),
        "i8": ((16, 16, 32), (32, 32, 16), *_LONG),
    }
)
_MFMA_950 = MappingProxyType(
    {**_MFMA, **dict.fromkeys(("f8E4M3FN", "f8E5M2"), ((16, 16, 32), (32, 32, 16)))}
)
Buffers = Sequence[tuple[tuple[str, int, int], tuple[int, ...], str]]


def explain_no_core(dot: DotLowering, gpu: str) -> str:
    """Why a dot has no tensor core on a GPU; "" where that is not known."""
    if not GPUS[gpu].triton_uses_cores:
        return f"Triton makes fused multiply-adds of every dot on {gpu}"
    if GPUS[gpu].is_amd:
        return _explain_no_mfma(dot, gpu)
    known = {name for core in GPUS[gpu].cores for name in core.formats}
    if not known or dot.asked[0] != dot.asked[1]:
        return ""
    if dot.asked[0] == "f32":
        return "fp32 ieee has no tensor core" if dot.precision == "ieee" else ""
    name = _NAMES.get(dot.asked[0], "")
    return f"{name} has no tensor core on {gpu}" if name and name not in known else ""


def _explain_no_mfma(dot: DotLowering, gpu: str) -> str:
    kind, other, _ = dot.asked
    smallest = (_MFMA_950 if gpu == "gfx950" else _MFMA).get(kind, ())
    own = dot.tile[-3:]
    is_covered = any(all(x >= y for x, y in zip(own, one, strict=True)) for one in smallest)
    if kind != other or not smallest or is_covered:
        return ""
    told = " ".join("x".join(map(str, one)) for one in smallest)
    return f"Triton's smallest mfma for {_NAMES.get(kind, kind)} take {told}"


def explain_shared(buffers: Buffers, shared: int, stages: int) -> str:
    """Which buffers take the shared memory of a block; "" where they are not most of it."""
    taken = sum(_count_bytes(shape, kind) for _, shape, kind in buffers)
    if not shared // 2 < taken <= shared:  # the rest is for what has no buffer of its own
        return ""
    shown = [f"{'x'.join(map(str, shape))} {kind}" for _, shape, kind in buffers]
    return f"buffers of {' and '.join(shown)} with num_stages={stages}"


def explain_spills(dots: Sequence[IrDot], threads: int | None, registers: int | None) -> str:
    """The accumulator that alone takes all registers of a thread; "" where none does."""
    for dot in dots:
        kind, layout = dot.formats[2], dot.layouts[2]
        is_held = layout.startswith(("blocked", "nvidia_mma", "amd_mfma"))
        if not is_held or not threads or not registers or not dot.tile:
            continue
        size = _count_bytes((*dot.tile[:-3], dot.tile[-3], dot.tile[-2]), kind) // 4
        if size >= registers * threads:
            tile = "x".join(map(str, dot.tile[-3:-1]))
            needs = f"the accumulator of {tile} {kind} alone takes {math.ceil(size / threads)}"
            return f"{needs} registers of a thread, which has {registers}"
    return ""


def find_largest(buffers: Buffers) -> tuple[str, int, int] | None:
    """The place of the largest of them, None where there is none with a line."""
    placed = [one for one in buffers if one[0][0]]
    return max(placed, key=lambda one: _count_bytes(one[1], one[2]))[0] if placed else None


def _count_bytes(shape: tuple[int, ...], kind: str) -> int:
    found = _WIDTH.match(kind)
    return math.prod(shape) * (int(found[1]) if found else 0) // 8
