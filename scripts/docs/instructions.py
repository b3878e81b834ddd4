"""The tables of docs/reference/instructions.md: dots of many tiles, formats and warps."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import triton
from scripts.docs.markdown import ROOT, make_table, update_tables

from gemmproof.compiled.record import FMA, LoweredLaunch
from gemmproof.compiled.run import compile_for_gpus
from gemmproof.lowering.command import DOTS
from gemmproof.lowering.record import Dot, DotRequest
from gemmproof.reference.formats import FNUZ, FORMATS, OPERANDS
from gemmproof.reference.gpus import GPUS
from gemmproof.worker.protocol import Listener
from gemmproof.worker.supervisor import Limits, open_pool, preload

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


# -- tables ----------------------------------------------------------------------------------------
PAGE = ROOT / "docs" / "reference" / "instructions.md"
REFUSED, NONE = "refused", "-"
_IN_PTX = {f.name: (f.ttir, f.ptx) for f in (*FORMATS.values(), *FNUZ)}
#: The names in the instructions of both makers of formats that are named differently here.
_SAME = {"int8": ("s8", "i8"), "fp32": ("f32",), "fp8e4m3": ("e4m3", "fp8"),
         "fp8e5m2": ("e5m2", "bf8"), "fp8e4m3fnuz": ("fp8",), "fp8e5m2fnuz": ("bf8",),
         "fp64": ("f64",)}  # fmt: skip

Cells = dict[tuple[str, Dot], Row]
Kind = tuple[str, str | None]  # a format, and its declared precision


def make_page(
    check: bool = False, out: Path | None = None, compile: bool = False, jobs: int = 0
) -> int:
    """Make the tables of docs/reference/instructions.md from docs/evidence/instructions.json.

    --compile first compiles every dot again and rewrites the evidence. It takes minutes, with
    --jobs N workers, by default one for each CPU.
    """
    if compile:
        compile_all(jobs)
    return update_tables(PAGE, make_tables(read_data()), check, out)


def make_tables(data: Row) -> dict[str, str]:
    """The tables by the names of their marks."""
    cells = {(row["gpu"], dot_of(row)): row for row in data["cells"]}
    count, gpus = len(cells), len({gpu for gpu, _ in cells})
    caption = (
        f"{count} dots for {gpus} GPUs, compiled with Triton {data['triton']} on {data['date']}."
    )
    tables = {"made": caption, "usual": describe_usual(cells), "smallest": describe_smallest(cells)}
    for name, values, change in CHANGES:
        tables[name] = describe_changes(cells, name, values, change)
    return tables | {
        "fp32": describe_precisions(cells),
        "fp8": describe_promotion(cells),
        "sums": describe_sums(cells),
    }


def label_cell(row: Row | None, short: bool = False) -> str:
    """A cell in a word or two: the instruction, and its format if it differs from the operands'.

    If `short`, without the k that an instruction of the same kind has for each width of elements.
    """
    if row is None:
        return NONE
    if "refused" in row:
        return REFUSED
    names = []
    for unit, shape, a, *_ in row["instructions"]:
        if unit == FMA:
            names.append("fma")
        elif shape is None:
            names.append(unit)
        else:
            own = a in (*_IN_PTX[row["dtype"]], *_SAME.get(row["dtype"], ()))
            own |= short and (row["dtype"], a) == ("fp32", "tf32")
            k = "" if short else f"k{shape[2]}"
            names.append(f"{unit} m{shape[0]}n{shape[1]}{k}{'' if own else f' of {a}'}")
    return " + ".join(dict.fromkeys(names))


def has_cores(row: Row | None) -> bool:
    """Return whether a cell reaches the tensor cores."""
    return row is not None and any(shape for _, shape, *_ in row.get("instructions", ()))


def list_kinds(cells: Cells) -> list[Kind]:
    """The formats; fp32 with its default precision and with ieee."""
    formats = dict.fromkeys((dot.dtype, None) for _, dot in cells)
    at = list(formats).index(("fp32", None)) + 1
    kinds = list(formats)
    return [*kinds[:at], ("fp32", "ieee"), *kinds[at:]]


def label_kind(kind: Kind) -> str:
    """A format as text."""
    return f"`{kind[0]}`{', ' if kind[1] else ''}{kind[1] or ''}"


def describe_usual(cells: Cells) -> str:
    """Tabulate the instruction for a tile that limits nothing; equal GPUs share a column."""

    def label(gpu: str, kind: Kind) -> str:
        dot = replace(USUAL, dtype=kind[0], precision=kind[1])
        return label_cell(cells.get((gpu, dot)))

    kinds = list_kinds(cells)
    columns = group((tuple(label(gpu, kind) for kind in kinds), gpu) for gpu in GPUS)
    rows = group((tuple(x[i] for x in columns), label_kind(kind)) for i, kind in enumerate(kinds))
    head = ("a and b", *(" ".join(gpus) for gpus in columns.values()))
    return make_table(head, [[" ".join(names), *cell_texts] for cell_texts, names in rows.items()])


def describe_smallest(cells: Cells) -> str:
    """Tabulate the smallest M, N and K that reach the tensor cores, and the results below them."""
    pairs = []
    for gpu in GPUS:
        for kind in list_kinds(cells):
            dot = replace(USUAL, dtype=kind[0], precision=kind[1])
            if has_cores(cells.get((gpu, dot))):
                sides = tuple(_find_smallest(cells, gpu, dot, side) for side in "MNK")
                pairs.append((sides, (gpu, label_kind(kind))))
    return make_table(("GPU", "a and b", "M", "N", "K"), _join(group(pairs)))


def _find_smallest(cells: Cells, gpu: str, dot: Dot, side: str) -> str:
    change, below = _change_side("MNK".index(side)), ""
    for n in SIDES[side]:
        row = cells.get((gpu, change(dot, n)))
        if has_cores(row):
            return f"{n}{f', {below} below' if below else ''}"
        below = label_cell(row)
    return NONE


def _change_side(at: int) -> Callable[[Dot, int], Dot]:
    return lambda dot, n: replace(dot, tile=(*dot.tile[:at], n, *dot.tile[at + 1 :]))  # type: ignore[arg-type]


#: A table each: the name of the parameter, its values, and how to set it in a dot.
CHANGES: tuple[tuple[str, Sequence[int], Callable[[Dot, int], Dot]], ...] = (
    ("M", SIDES["M"], _change_side(0)),
    ("N", SIDES["N"], _change_side(1)),
    ("K", SIDES["K"], _change_side(2)),
    ("warps", WARPS, lambda dot, n: replace(dot, warps=n)),
)


def describe_changes(
    cells: Cells, name: str, values: Sequence[int], change: Callable[[Dot, int], Dot]
) -> str:
    """By GPU and format the result of each value, where it is not one instruction for all.

    The tf32 of fp32 counts as its own format there.
    """
    pairs = []
    for gpu in GPUS:
        for kind in list_kinds(cells):
            dot = replace(USUAL, dtype=kind[0], precision=kind[1])
            rows = [cells.get((gpu, change(dot, n))) for n in values]
            labels = tuple(label_cell(row, short=name != "K") for row in rows)
            if len(set(labels) - {REFUSED, NONE, "fma"}) > 1 and NONE not in labels:
                pairs.append((labels, (gpu, label_kind(kind))))
    return make_table(("GPU", "a and b", *(f"{name} = {n}" for n in values)), _join(group(pairs)))


def describe_precisions(cells: Cells) -> str:
    """Tabulate the formats in which fp32 operands are multiplied, by the declared precision."""
    pairs = []
    for gpu in GPUS:
        precisions = (None, *PRECISIONS)
        dots = [replace(USUAL, dtype="fp32", precision=x) for x in precisions]
        pairs.append((tuple(label_cell(cells.get((gpu, dot))) for dot in dots), gpu))
    head = ("GPU", "default", *(f"`{x}`" for x in PRECISIONS))
    return make_table(head, [[" ".join(gpus), *labels] for labels, gpus in group(pairs).items()])


def describe_promotion(cells: Cells) -> str:
    """fp8 sums in `acc = tl.dot(a, b, acc)`, by the value of max_num_imprecise_acc."""
    deep = replace(USUAL, tile=(64, 64, 128), dtype="fp8e4m3")
    pairs = []
    for gpu in GPUS:
        rows = [cells.get((gpu, replace(deep, imprecise=n))) for n in (None, *IMPRECISE)]
        if any(map(has_cores, rows)):
            pairs.append((tuple(map(_describe_sum, rows)), gpu))
    head = ("GPU", "default", *(f"max_num_imprecise_acc={n}" for n in IMPRECISE))
    return make_table(head, [[" ".join(gpus), *labels] for labels, gpus in group(pairs).items()])


def _describe_sum(row: Row | None) -> str:
    every = row and row.get("promoted_k")
    added = f", added in fp32 every {every} of k" if every else ""
    return f"{label_cell(row)}{added}"


def describe_sums(cells: Cells) -> str:
    """Tabulate the formats in which instructions add for an fp16 accumulator, by operand format."""
    pairs = []
    for gpu in GPUS:
        rows = [cells.get((gpu, replace(USUAL, dtype=x, acc="fp16"))) for x in ("fp16", "fp8e4m3")]
        if any(rows):
            pairs.append((tuple(_label_sum(row) for row in rows), gpu))
    rows = [[" ".join(gpus), *labels] for labels, gpus in group(pairs).items()]
    return make_table(("GPU", "`fp16` added in", "`fp8e4m3` added in"), rows)


def _label_sum(row: Row | None) -> str:
    if row is None or "refused" in row:
        return label_cell(row)
    return ", ".join(dict.fromkeys(acc for *_, acc, _ in row["instructions"]))


def group(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    """Group the second items of pairs by the first, both in their order."""
    names_of: dict[Any, list[Any]] = {}
    for key, name in pairs:
        names_of.setdefault(key, []).append(name)
    return names_of


def _join(names_of: dict[tuple[str, ...], list[tuple[str, str]]]) -> list[list[str]]:
    """Rows of GPUs, formats and labels, with GPUs that share formats in one row."""
    rows = []
    for labels, names in names_of.items():
        kinds_of = group(names)
        shared = group((tuple(kinds), gpu) for gpu, kinds in kinds_of.items())
        rows += [[" ".join(gpus), " ".join(kinds), *labels] for kinds, gpus in shared.items()]
    return rows
