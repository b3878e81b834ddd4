"""Generated parts of pages in Markdown: tables between marks, and outputs of commands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUTPUT = re.compile(r"(^<!-- output: (.+?) -->\n```text\n)(.*?)(^```$)", re.MULTILINE | re.DOTALL)


def fill(page: Path, tables: Mapping[str, str]) -> str:
    """Return the page with the text between each pair of marks replaced by a table."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        if not after:
            raise ValueError(f"{page.name}: got no marks for {name!r}, expected {start.strip()}")
        text = f"{before}{start}{table}\n{end}{after}"
    return text


def make_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str] = ()
) -> str:
    """Format a table; `align` has the cells below the head."""
    lines = [head, align or ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def remove_times(text: str) -> str:
    """Replace every number of seconds in a text, `1.2 s` or the last cell of a row."""
    return re.sub(r"\d+(\.\d+)?(?= s\b)|\d+\.\d\d(, \d+\.\d\d)?(?= \|$)", "...", text, flags=re.M)


def update(page: Path, text: str, check: bool, out: Path | None = None) -> int:
    """Write the text to `out` or to the page itself; with `check`, only compare it with the page.

    Return exit status 1 if they differ by more than times.
    """
    if not check:
        (out or page).write_text(text, encoding="utf-8")
        return 0
    same = remove_times(text) == remove_times(page.read_text(encoding="utf-8"))
    print(f"{page}: {'up to date' if same else 'out of date'}")
    return int(not same)


def update_tables(page: Path, tables: Mapping[str, str], check: bool, out: Path | None) -> int:
    """Update the page's tables as `update` does."""
    return update(page, fill(page, tables), check, out)


def show_outputs(page: Path, folder: Path, check: bool = False, out: Path | None = None) -> int:
    """Replace the outputs that PAGE shows by the current outputs of their commands.

    An output is the fenced block after a line `<!-- output: gemmproof ... -->`. The commands run
    in FOLDER. A block in which `...` stands for omitted lines stays as it is.
    """

    def run_again(shown: re.Match[str]) -> str:
        if "\n...\n" in f"\n{shown[3]}":
            return shown[0]
        argv = [sys.executable, "-m", *shlex.split(shown[2])]
        printed = subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
        return f"{shown[1]}{printed.stdout.strip(chr(10))}\n{shown[4]}"

    return update(page, OUTPUT.sub(run_again, page.read_text(encoding="utf-8")), check, out)
