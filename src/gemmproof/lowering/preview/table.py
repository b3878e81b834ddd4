"""Several dots that were compiled, as one table: a row for each target, format and warps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gemmproof.lowering.record import FMA, UNKNOWN, LoweredLaunch
from gemmproof.report.lowering_table import describe_needs, name_dot
from gemmproof.report.text import STYLES, Line, clean

_REFUSES = re.compile(r"^(?:Triton refuses to compile|compiling) dot_kernel(?: for \w+)?: ")
_HEADS = (
    *("target", "a and b", "warps", "instructions", "sums", "operands from", "registers"),
    *("spilled", "shared", "fits", "loads"),
)


def tabulate_dots(lowerings: Sequence[LoweredLaunch]) -> Iterator[Line]:
    """The table, and below it what was tried for those that miss the tensor cores.

    A dot that is refused has the compiler's words in its row.
    """
    rows = [_HEADS, *(_describe(one) for one in lowerings)]
    whole = [row for row in rows if len(row) == len(_HEADS)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(_HEADS))]
    widths[:3] = [max(len(row[i]) for row in rows) for i in range(3)]
    for i, row in enumerate(rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        style = "bold" if i == 0 else STYLES["fail"] if row not in whole else ""
        if i and not style and (FMA in row[3] or UNKNOWN in row[3] or row[9] == "no"):
            style = STYLES["incomplete"]
        yield (clean("  ".join(cells).rstrip()), style)
    for one in lowerings:
        head = f"{one.target} {one.dtype} warps={one.warps}"
        yield from ((clean(f"{head}: {line}"), "") for line in one.remedies)
        yield from (
            (clean(f"{head}: {UNKNOWN}: {line}"), STYLES["incomplete"]) for line in one.unrecognised
        )
    yield ("", "")


def _describe(one: LoweredLaunch) -> tuple[str, ...]:
    head = (one.target, one.dtype, str(one.warps))
    if one.error or one.resources is None:
        return (*head, f"not compiled: {_REFUSES.sub('', one.error)}")
    sums = dict.fromkeys(x.accumulator for dot in one.dots for x in dot.instructions)
    return (
        *head,
        " + ".join(name_dot(dot) for dot in one.dots),
        ", ".join(filter(None, sums)) or "-",
        *describe_needs(one),
    )
