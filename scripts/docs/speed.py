"""docs/speed.md: the recordings of `gemmproof bench` on a GPU, as tables and pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from scripts.docs.markdown import fill, make_table, update

from gemmproof.bench.plot import draw
from gemmproof.bench.record import CONTROL, BenchReport, TimedRow
from gemmproof.properties.codec import decode

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "speed.md"
#: Recorded runs, by the name of their table and file, and those that are drawn.
RUNS = (
    *("gemm", "gemm-few", "kernels", "layers"),
    *("epilogue", "relu", "compiled", "int4", "scaled", "batched"),
)
DRAWN = ("gemm", "kernels", "layers", "epilogue")


def make_page(check: bool = False, out: Path | None = None) -> int:
    """Make docs/speed.md's tables and pictures from docs/evidence/speed-*.json."""
    tables = {}
    for name in RUNS:
        text = (ROOT / "docs" / "evidence" / f"speed-{name}.json").read_text(encoding="utf-8")
        report = decode(BenchReport, json.loads(text), "bench")
        tables[name] = tabulate(report)
        if name in DRAWN and not check and out is None:
            draw(report, str(ROOT / "docs" / "pictures" / f"speed-{name}.svg"))
    return update(PAGE, fill(PAGE, tables), check, out)


def tabulate(report: BenchReport) -> str:
    """A row for each shape: the noise, the peer's rate, and each kernel's ratio; means below."""
    kernels = list(dict.fromkeys(row.kernel for row in report.rows if row.verdict != CONTROL))
    shapes: dict[str, dict[str, TimedRow]] = {}
    for row in report.rows:
        shapes.setdefault(row.problem, {})[
            CONTROL if row.verdict == CONTROL else row.kernel
        ] = row  # fmt: skip
    cells = []
    for shape, rows in shapes.items():
        control = rows[CONTROL]
        low, high = control.floor or (1.0, 1.0)
        cells.append([shape, f"{low:.3f} to {high:.3f}", f"{control.tflops:.0f}"])
        cells[-1] += [_show(rows[kernel]) for kernel in kernels]
    means = [_mean(rows[kernel] for rows in shapes.values()) for kernel in kernels]
    cells.append(["geometric mean", "", "", *(f"**{mean:.3f}**" for mean in means)])
    heads = ["shape (M x N x K)", "noise", "torch, TFLOP/s", *(f"`{name}`" for name in kernels)]
    return make_table(heads, cells)


def _show(row: TimedRow) -> str:
    assert row.ratio is not None
    return f"{row.ratio.median:.3f} ({row.ratio.low:.3f} to {row.ratio.high:.3f})"


def _mean(rows: Iterable[TimedRow]) -> float:
    logs = [math.log(row.ratio.median) for row in rows if row.ratio is not None]
    return math.exp(sum(logs) / len(logs))
