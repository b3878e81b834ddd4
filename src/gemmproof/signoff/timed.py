"""A benchmark for a sign-off: taken only where what was timed is what was judged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby

from gemmproof.bench.records import SCHEMA, BenchReport, TimedRow
from gemmproof.report.facts import Identity
from gemmproof.signoff.baseline import read_json
from gemmproof.signoff.record import Benchmark, Ratios

EXPECTED = "a report of `gemmproof bench --json`"
SOURCE = "source of "  # a fact of a benchmark: the hashes of the parts that a kernel can reach


@dataclass(frozen=True, slots=True)
class Timed:
    """The benchmark that a file holds."""

    name: str
    report: BenchReport

    def find(self, kernel: str, facts: Identity | None) -> tuple[Benchmark | None, str]:
        """What was measured of a kernel, or None and why that is not taken.

        Each part that the timed function can reach is one that the judged wrapper can reach, with
        the same text: it may be that function itself, or what is registered may call it.
        """
        rows = [row for row in self.report.rows if row.kernel == kernel and row.ratio is not None]
        if not rows:
            return None, f"{self.name} has no ratio of it"
        run = self.report.facts
        stated = run.get(f"{SOURCE}{kernel}", "").split()
        if not stated:
            return None, f"{self.name} does not say of which source"
        if facts is None or not facts.source:
            return None, "its source is not known"
        if not set(stated) <= {word for text in facts.source.values() for word in text.split()}:
            return None, f"{self.name} is of another source"
        return Benchmark(run["device"], run["date"], _summarise(rows)), ""


def read_bench(name: str) -> Timed:
    """The benchmark in a file. Raises ValueError, in one line, for what is none."""
    data = read_json(name, EXPECTED)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA or "rows" not in data:
        raise ValueError(f"got {name!r} (no benchmark), expected {EXPECTED}")
    try:
        return Timed(name, BenchReport.from_dict(data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = f"{type(error).__name__} {error}"
        raise ValueError(
            f"got {name!r} (not as it is written: {why}), expected {EXPECTED}"
        ) from None


def _summarise(rows: list[TimedRow]) -> tuple[Ratios, ...]:
    def key(row: TimedRow) -> tuple[str, str]:
        return row.format, row.peer

    found = []
    for (fmt, peer), group in groupby(sorted(rows, key=key), key):
        ratios = [row.ratio.median for row in group if row.ratio is not None]
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        found.append(Ratios(fmt, peer, len(ratios), mean, min(ratios), max(ratios)))
    return tuple(found)
