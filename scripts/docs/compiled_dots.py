"""Dots of many tiles, formats and warps, compiled for each GPU: data of docs/instructions.md."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import triton

from gemmproof.compiled.record import LoweredLaunch
from gemmproof.compiled.run import compile_for_gpus
from gemmproof.lowering.command import DOTS
from gemmproof.lowering.record import Dot, DotRequest
from gemmproof.reference.formats import FNUZ, OPERANDS
from gemmproof.reference.gpus import GPUS
from gemmproof.worker.protocol import Listener
from gemmproof.worker.supervisor import Limits, open_pool, preload

ROOT = Path(__file__).parents[2]
DATA = ROOT / "docs" / "evidence" / "instructions.json"
LIMITS = Limits(case=120)
#: The base dot, varied in one field at a time: 4 warps, and no side that limits an instruction.
USUAL = Dot((64, 64, 32))
SIDES = {
    "M": (1, 8, 16, 32, 64, 128),
    "N": (1, 8, 16, 32, 64, 128),
    "K": (2, 4, 8, 16, 32, 64),
}
WARPS = (1, 2, 4, 8)
#: The same for GPUs without tensor cores: large tiles compile slowly.
FEW_SIDES = {"M": (1, 16, 64), "N": (1, 16, 64), "K": (2, 4, 8, 16, 32)}
FEW_WARPS = (4,)
PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
WIDE = Dot((128, 256, 64), warps=8)
IMPRECISE = (32, 64, 0)  # of k: the values of max_num_imprecise_acc apart from None
Row = dict[str, Any]


def list_dots(gpu: str) -> list[Dot]:
    """The dots that are compiled for a GPU."""
    formats = [name for name in (*OPERANDS, "fp64") if name != "tf32"]
    formats += [fmt.name for fmt in FNUZ[:2]] if GPUS[gpu].is_amd else []
    dots: dict[Dot, None] = {}
    for name in formats:
        usual = replace(USUAL, dtype=name)
        dots |= dict.fromkeys(_vary(usual, GPUS[gpu].triton_uses_cores))
    in_full = replace(USUAL, dtype="fp32", precision="ieee")
    dots |= dict.fromkeys(_vary(in_full, GPUS[gpu].is_amd))
    dots |= dict.fromkeys(replace(in_full, precision=x) for x in PRECISIONS)
    if not GPUS[gpu].triton_uses_cores:
        return list(dots)
    for name in ("fp16", "fp8e4m3"):
        dots |= dict.fromkeys((replace(USUAL, dtype=name, acc="fp16"), replace(WIDE, dtype=name)))
    deep = replace(USUAL, tile=(64, 64, 128), dtype="fp8e4m3")
    dots |= dict.fromkeys((deep, *(replace(deep, imprecise=n) for n in IMPRECISE)))
    return list(dots)


def _vary(dot: Dot, widely: bool) -> Iterator[Dot]:
    """Yield the dot, and it with one side or the number of warps changed."""
    M, N, K = dot.tile
    sides = SIDES if widely else FEW_SIDES
    yield dot
    yield from (replace(dot, tile=(m, N, K)) for m in sides["M"])
    yield from (replace(dot, tile=(M, n, K)) for n in sides["N"])
    yield from (replace(dot, tile=(M, N, k)) for k in sides["K"])
    yield from (replace(dot, warps=n) for n in (WARPS if widely else FEW_WARPS))


def compile_cells(cells: dict[str, list[Dot]], jobs: int) -> Iterator[Row]:
    """Yield the row of each dot, by GPU. Raises RuntimeError if a compilation reports no result."""
    with preload(None, LIMITS):
        for gpu, dots in cells.items():
            parts = [dots[i::jobs] for i in range(jobs)]
            lowered = _compile(gpu, [part for part in parts if part])
            for dot in dots:
                yield {"gpu": gpu, **_state(dot), **describe_cell(lowered[dot])}


def _compile(gpu: str, parts: list[list[Dot]]) -> dict[Dot, LoweredLaunch]:
    def lower_part(dots: list[Dot]) -> dict[Dot, LoweredLaunch]:
        request = DotRequest("dot", tuple(dots), remedies=False, gpu=gpu)
        (launches,) = compile_for_gpus(DOTS, [request], LIMITS, _follow)
        if launches.failures or launches.mistake or len(launches.lowerings) != len(dots):
            raise RuntimeError(
                f"{gpu}: got {launches.failures or launches.mistake}, expected all dots"
            )
        return dict(zip(dots, launches.lowerings, strict=True))

    with open_pool(len(parts)) as pool:
        lowered_parts = list(pool.map(lower_part, parts))
    return {dot: launch for part in lowered_parts for dot, launch in part.items()}


@contextmanager
def _follow(name: str) -> Iterator[Listener]:
    yield lambda event: None


def describe_cell(launch: LoweredLaunch) -> Row:
    """Return the page's data of a compiled dot: its instructions, or the compiler's message."""
    if launch.error:
        return {"refused": launch.error}
    instructions = [
        [x.unit, *([list(x.shape)] if x.shape else [None]), x.a, x.accumulator, list(x.operands)]
        for dot in launch.dots
        for x in dot.instructions
    ]
    kinds = [x for i, x in enumerate(instructions) if x not in instructions[:i]]
    promoted = [dot.promoted_k for dot in launch.dots if dot.promoted_k is not None]
    return {"instructions": kinds, "promoted_k": promoted[0] if promoted else None}


def _state(dot: Dot) -> Row:
    """Return the unusual fields of a dot, and always its tile, format and warps."""
    usual, own = asdict(Dot((0, 0, 0))), asdict(dot)
    kept = ("tile", "dtype", "warps")
    return {
        name: list(x) if name == "tile" else x
        for name, x in own.items()
        if name in kept or x != usual[name]
    }


def dot_of(row: Row) -> Dot:
    """The dot of a row."""
    named = {name: row[name] for name in Dot.__slots__ if name in row}
    return Dot(**{**named, "tile": tuple(row["tile"])})


def read_data() -> dict[str, Any]:
    """Read the saved data."""
    return dict(json.loads(DATA.read_text(encoding="utf-8")))


def compile_all(jobs: int) -> None:
    """Compile every cell again, and save the results."""
    cells = {gpu: list_dots(gpu) for gpu in GPUS}
    rows = []
    total = sum(map(len, cells.values()))
    for row in compile_cells(cells, jobs or os.cpu_count() or 1):
        rows.append(json.dumps(row))
        if len(rows) % 100 == 0:
            print(f"{len(rows)} of {total} dots", file=sys.stderr, flush=True)
    date = datetime.now(UTC).date().isoformat()
    head = json.dumps({"triton": triton.__version__, "date": date})[1:-1]
    lines = ",\n  ".join(rows)
    DATA.write_text(f'{{{head}, "cells": [\n  {lines}\n]}}\n', encoding="utf-8")
