"""The table of a benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmproof.bench.record import CONTROL, NOISE, WRONG, BenchReport, Ceiling, TimedRow
from gemmproof.report.text import STYLES, Line, clean, format_table

MEMORY_BOUND = 1e3  # times below it are shown in microseconds
_HEADS = (
    "kernel", "format", "shape", "ratio", "95 % interval", "", "time", "TFLOP/s", "GB/s",
    "of roofline", "of ceiling",
)  # fmt: skip


def lines(report: BenchReport) -> list[Line]:
    """Return the table, the ceilings, how it was timed, and wrong results last."""
    out = tabulate(report.rows)
    out.append(("", ""))
    out += [(clean(_describe_ceiling(ceiling)), "") for ceiling in report.ceilings]
    out += [(clean(text), "dim") for text in _list_notes(report.rows)]
    where = " ".join(f"{name} {report.facts[name]}" for name in ("torch", "triton"))
    out.append((clean(f"{report.facts['device']}, {where}, {report.facts['date']}"), ""))
    wrong = [row for row in report.rows if row.verdict == WRONG]
    for row in wrong:
        out.append((clean(f"not timed: {row.wrong}"), STYLES["fail"]))
    return out


def tabulate(rows: Iterable[TimedRow]) -> list[Line]:
    """Return the table, as wide as it needs to be."""
    cells = ([*map(clean, _list_cells(row))] for row in rows)
    return [(line, "") for line in format_table(cells, "lllrrlrrrrr", _HEADS)]


def _list_cells(row: TimedRow) -> tuple[str, ...]:
    head = (row.kernel, row.format, row.problem)
    if row.ratio is None or row.seconds is None:
        return (*head, "-", "", row.verdict, *[""] * 5)
    verdict = row.verdict
    if row.floor is not None and verdict in (NOISE, CONTROL):
        verdict = f"{verdict} {row.floor[0]:.3f}..{row.floor[1]:.3f}"
    return (
        *head,
        f"{row.ratio.median:.3f}",
        f"{row.ratio.low:.3f}..{row.ratio.high:.3f}",
        verdict,
        show_seconds(row.seconds),
        f"{row.tflops or 0:.1f}",
        f"{row.gbytes or 0:.0f}",
        _percent(row.roofline),
        _percent(row.ceiling),
    )


def show_seconds(seconds: float) -> str:
    """Format as microseconds, or as milliseconds from 1 ms on."""
    micro = seconds * 1e6
    return f"{micro:.1f} us" if micro < MEMORY_BOUND else f"{micro / 1e3:.2f} ms"


def _percent(share: float | None) -> str:
    return "not known" if share is None else f"{100 * share:.0f} %"


def _describe_ceiling(ceiling: Ceiling) -> str:
    reached = f"{ceiling.copy_bytes / 1e9:.0f} GB/s in a copy"
    if ceiling.product_flops is not None:
        reached += f", {ceiling.product_flops / 1e12:.0f} TFLOP/s in torch's product"
    if ceiling.peak_bytes is None or ceiling.peak_flops is None:
        return f"{ceiling.format}: reached here {reached}; the figures of this GPU are not known"
    figures = f"{ceiling.peak_bytes / 1e9:.0f} GB/s, {ceiling.peak_flops / 1e12:.0f} TFLOP/s"
    return f"{ceiling.format}: reached here {reached}; by its figures {figures}"


def _list_notes(rows: Sequence[TimedRow]) -> list[str]:
    """List the notes that a reader of the times needs, each once."""
    timed = [row for row in rows if row.ratio is not None]
    notes = []
    if timed:
        rounds = len(timed[0].samples)
        peers = ", ".join(dict.fromkeys(row.peer for row in timed))
        notes.append(f"ratio: time of {peers} / time of the kernel, median of {rounds} rounds")
    for row in timed:
        if row.how != "CUDA graph":
            notes.append(f"{row.kernel} at {row.problem}: both sides timed as {row.how}")
        if row.peer_differs:
            name = row.peer.removeprefix("torch.")
            notes.append(f"{name}'s result is not the formula's: {row.peer_differs}")
        if row.sets * row.set_bytes <= 2 * row.l2_bytes:
            notes.append(f"{row.kernel} at {row.problem}: its buffers fit in twice the L2 cache")
    return [*dict.fromkeys(notes), _describe_clocks(timed)]


def _describe_clocks(rows: Iterable[TimedRow]) -> str:
    read = [clocks for row in rows for clocks in row.clocks.values()]
    readings = []
    for name, unit in (("sm_clock_mhz", "MHz"), ("temperature_c", "C"), ("power_w", "W")):
        values = [float(clocks[name]) for clocks in read if name in clocks]
        if values:
            readings.append(f"{min(values):.0f}..{max(values):.0f} {unit}")
    return f"under load: {', '.join(readings) or 'clocks and temperature not read'}"
