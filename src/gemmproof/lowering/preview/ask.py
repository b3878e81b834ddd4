"""`gemmproof lowering --dot M N K`: what the options ask the workers."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from itertools import product

from gemmproof.lowering.preview.dot import USUAL_WARPS, Dot, is_fp32, sums_of
from gemmproof.worker.protocol import Request

#: Options of a kernel, by their usual values, and those of a dot: neither goes with the other.
OF_A_KERNEL: dict[str, object] = {
    "kernel": None, "sizes": {}, "case": None, "batched": False, "config": "first",
    "sweep": False, "operand": [], "spec": None, "call": None,
}  # fmt: skip
OF_A_DOT = {"warps": None, "stages": None, "precision": None, "acc": None}


def ask_preview(options: argparse.Namespace) -> Request:
    """What the workers are asked. Raises ValueError, in one line, for what does not go together."""
    if options.target is not None:
        got = f"{options.target!r} and --dot"
        raise ValueError(f"target: got {got}, expected one of them")
    for name, usual in OF_A_KERNEL.items():
        if getattr(options, name) != usual:
            raise ValueError(f"--{name}: got it with --dot, expected it with TARGET")
    for name, layout in options.layouts.items():
        if layout not in ("row", "column"):
            raise ValueError(f"--layouts: got {name}={layout} with --dot, expected row or column")
    tile = tuple(options.dot)
    formats = dict.fromkeys(options.dtype or ["fp16"])
    for dtype in formats:
        sums = sums_of(dtype)
        if options.acc and options.acc not in sums:
            expected = " or ".join(sums)
            raise ValueError(f"--acc: got {options.acc} for {dtype}, expected {expected}")
        if options.precision and not is_fp32(dtype):
            got = f"{options.precision} for {dtype}"
            raise ValueError(f"--precision: got {got}, expected it for fp32 alone")
    dots = [
        Dot(
            tile,
            dtype,
            warps,
            options.stages,
            options.precision or ("tf32" if dtype == "tf32" else None),
            options.acc,
            **options.layouts,
        )
        for dtype, warps in product(formats, dict.fromkeys(options.warps or [USUAL_WARPS]))
    ]
    name = f"dot {'x'.join(map(str, tile))}"
    plan = {"dots": [asdict(dot) for dot in dots], "remedies": True, "done": 0}
    return Request(ask="preview", name=name, plan=plan)


def refuse_without_dot(options: argparse.Namespace) -> None:
    """Raises ValueError, in one line, for an option that only --dot has."""
    for name, usual in OF_A_DOT.items():
        if getattr(options, name) != usual:
            raise ValueError(f"--{name}: got it without --dot, expected it with --dot M N K")
