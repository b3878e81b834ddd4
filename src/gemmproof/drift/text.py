"""The drift of a kernel as text: its accumulator, its errors against K, and the verdict."""

from __future__ import annotations

from gemmproof.properties.judges.accumulator_drift import DATA, Drift
from gemmproof.reference.accumulator import Accumulator
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import Report
from gemmproof.report.text import STYLES, Line, clean, format_ratio, format_table, kernel_name


def lines(report: Report) -> list[Line]:
    """Return the findings, the accumulator, a line for each K, and the verdict last."""
    name, drift = kernel_name(report), report.drift
    assert drift is not None
    out: list[Line] = []
    for finding in report.findings:
        text = f"{name} does not accumulate as declared: {finding.message}"
        out.append((clean(text), "bold"))
    if report.findings:
        out.append(("", ""))
    if drift.accumulator:
        out += [(clean(f"  {text}"), "") for text in _describe(drift.accumulator)]
        out += [("", ""), *((text, "") for text in _tabulate(drift)), ("", "")]
    return [*out, (clean(summarise(report, drift)), STYLES[report.verdict])]


def summarise(report: Report, drift: Drift) -> str:
    """Return the verdict in one line."""
    worst = max((m.ratio for m in drift.measures), default=0.0)
    no_worse = f"no worse than {drift.declared} accumulation"
    verdict = {
        "pass": f"pass: {no_worse}, worst error {format_ratio(worst)} of its bound",
        "fail": f"fail: {format_count(len(report.findings), 'finding')}",
        "incomplete": f"incomplete: {no_worse} where simulated",
    }[report.verdict]
    note = f"; {report.note}" if report.note else ""
    where = f"{kernel_name(report)}, {drift.in_format} on {drift.gpu}"
    return f"{where}: {verdict} ({report.seconds:.1f} s){note}"


def _describe(acc: Accumulator) -> list[str]:
    """List the facts that the probes found, one per line."""
    rest = "all count" if acc.reading == "none" else f"the others {acc.reading}"
    facts = [
        ("accumulator", acc.name),
        ("operands", f"{acc.read} significant bits of {acc.in_format}, {rest}"),
    ]
    if acc.block == 1:
        facts.append(("added", f"one k at a time, {acc.order}"))
    elif acc.block:
        cut = f"{acc.width} bits below the largest are kept"
        facts.append(("added", f"{acc.block} k at once, {cut}; k {acc.order}"))
    facts.append(("carried on", f"{acc.register} bits, {acc.rounding}"))
    if acc.promotion:
        facts.append(("summed apart", f"every {acc.promotion} k, then added in {acc.carried} bits"))
    if acc.split > 1:
        facts.append(("shares of K", f"{acc.split}, joined in {acc.split_bits} bits"))
    if acc.downcast:
        facts.append(("rounded", f"to {acc.downcast_bits} bits every {acc.downcast} k"))
    how = "" if acc.output == "none" else f", rounding: {acc.output}"
    facts.append(("result", f"{acc.out_format}{how}"))
    return [f"{label:<13}{text}" for label, text in facts]


def _tabulate(drift: Drift) -> list[str]:
    """Tabulate the bias of data of one sign, and the worst error and its share by kind of data."""
    rows = [["", "bias", *DATA.values()], ["K", "same sign", *["worst  of bound"] * len(DATA)]]
    for K in sorted({m.K for m in drift.measures}):
        by_kind = {m.data: m for m in drift.measures if m.K == K}
        cells = (f"{by_kind[kind].worst:.1e}{by_kind[kind].ratio:>10.2g}" for kind in DATA)
        rows.append([f"{K}", f"{by_kind['positive'].bias:+.1e}", *cells])
    lines = [
        *format_table(rows, "r" * len(rows[0])),
        "errors are shares of |A||B|, element by element",
    ]
    return [f"  {line}" for line in lines]
