"""Pages in Markdown with parts that a program makes: tables between marks, outputs of commands."""

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


def make_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], align: Sequence[str] = ()
) -> str:
    """A table; `align` holds the cells below the head."""
    lines = [head, align or ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def remove_times(text: str) -> str:
    """Remove every number of seconds from a text, `1.2 s` or the last cell of a row."""
    return re.sub(r"\d+(\.\d+)?(?= s\b)|\d+\.\d\d(, \d+\.\d\d)?(?= \|$)", "...", text, flags=re.M)


def update(page: Path, text: str, check: bool, out: Path | None = None) -> int:
    """Write the text to `out` or to the page itself; with `check`, only compare it with the page.

    Exit status 1 where they differ by more than times.
    """
    if not check:
        (out or page).write_text(text, encoding="utf-8")
        return 0
    same = remove_times(text) == remove_times(page.read_text(encoding="utf-8"))
    print(f"{page}: {'up to date' if same else 'got other text, expected what is made now'}")
    return int(not same)


def update_tables(page: Path, tables: Mapping[str, str], check: bool, out: Path | None) -> int:
    """Do the same with the page's tables."""
    return update(page, fill(page, tables), check, out)


def show_outputs(page: Path, folder: Path, check: bool = False, out: Path | None = None) -> int:
    """Replace the outputs that PAGE shows by the current output of their commands.

    An output is the block after a line `<!-- output: gemmproof ... -->`; the commands run in
    FOLDER. A block in which `...` stands for omitted lines stays as it is.
    """

    def run_again(shown: re.Match[str]) -> str:
        if "\n...\n" in f"\n{shown[3]}":
            return shown[0]
        argv = [sys.executable, "-m", *shlex.split(shown[2])]
        printed = subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
        return f"{shown[1]}{printed.stdout.strip(chr(10))}\n{shown[4]}"

    return update(page, OUTPUT.sub(run_again, page.read_text(encoding="utf-8")), check, out)
