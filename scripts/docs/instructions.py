"""The tables of docs/instructions.md, from docs/evidence/instructions.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripts.docs.compiled_dots import (
    IMPRECISE,
    PRECISIONS,
    SIDES,
    USUAL,
    WARPS,
    Row,
    compile_all,
    dot_of,
    read_data,
)
from scripts.docs.markdown import fill, make_table, update

from gemmproof.compiled.record import FMA
from gemmproof.lowering.record import Dot
from gemmproof.reference.formats import FNUZ, FORMATS
from gemmproof.reference.gpus import GPUS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "instructions.md"
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
    """Make the tables of docs/instructions.md from docs/evidence/instructions.json.

    With --compile every dot is first compiled again (minutes; --jobs workers, as many as there are
    CPUs), and the evidence is rewritten.
    """
    if compile:
        compile_all(jobs)
    return update(PAGE, fill(PAGE, make_tables(read_data())), check, out)


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
    at = "MNK".index(side)
    below = ""
    for n in SIDES[side]:
        row = cells.get((gpu, replace(dot, tile=(*dot.tile[:at], n, *dot.tile[at + 1 :]))))  # type: ignore[arg-type]
        if has_cores(row):
            return f"{n}{f', {below} below' if below else ''}"
        below = label_cell(row)
    return NONE


def _side(at: int) -> Callable[[Dot, int], Dot]:
    return lambda dot, n: replace(dot, tile=(*dot.tile[:at], n, *dot.tile[at + 1 :]))  # type: ignore[arg-type]


#: A table each: the name of the parameter, its values, and how to set it in a dot.
CHANGES: tuple[tuple[str, Sequence[int], Callable[[Dot, int], Dot]], ...] = (
    ("M", SIDES["M"], _side(0)),
    ("N", SIDES["N"], _side(1)),
    ("K", SIDES["K"], _side(2)),
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
    head = ("GPU", "nothing said", *(f"`{x}`" for x in PRECISIONS))
    return make_table(head, [[" ".join(gpus), *labels] for labels, gpus in group(pairs).items()])


def describe_promotion(cells: Cells) -> str:
    """fp8 sums in `acc = tl.dot(a, b, acc)`, by the value of max_num_imprecise_acc."""
    deep = replace(USUAL, tile=(64, 64, 128), dtype="fp8e4m3")
    pairs = []
    for gpu in GPUS:
        rows = [cells.get((gpu, replace(deep, imprecise=n))) for n in (None, *IMPRECISE)]
        if any(map(has_cores, rows)):
            pairs.append((tuple(map(_describe_sum, rows)), gpu))
    head = ("GPU", "nothing said", *(f"max_num_imprecise_acc={n}" for n in IMPRECISE))
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
