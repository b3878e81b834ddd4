"""Pages in Markdown with parts that a program makes, between marks in the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def fill(page: Path, tables: Mapping[str, str]) -> str:
    """The page with the text between each pair of marks replaced by a table."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        if not after:
            raise ValueError(f"{page.name}: got no marks for {name!r}, expected {start.strip()}")
        text = f"{before}{start}{table}\n{end}{after}"
    return text


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str] = ()) -> str:
    """A table; `align` holds the cells below the head."""
    lines = [head, align or ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def without_times(text: str) -> str:
    """The text with every number of seconds, `1.2 s` or the last cell of a row, taken out."""
    return re.sub(r"\d+(\.\d+)?(?= s\b)|\d+\.\d\d(, \d+\.\d\d)?(?= \|$)", "...", text, flags=re.M)


def settle(page: Path, text: str, check: bool, out: Path | None = None) -> int:
    """Write the text to `out` or to the page itself; to check, only compare it with the page.

    Exit status 1 where they differ by more than times.
    """
    if not check:
        (out or page).write_text(text, encoding="utf-8")
        return 0
    same = without_times(text) == without_times(page.read_text(encoding="utf-8"))
    print(f"{page}: {'up to date' if same else 'got other text, expected what is made now'}")
    return int(not same)
