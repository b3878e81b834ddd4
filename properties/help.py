"""The pages on properties and faults: Markdown of docs/reference/properties, linked by `pages`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# in this order they are listed
_PROPERTIES = ("calls-and-values", "addresses-and-memory", "equal-bits", "compiled-code")
_HEADING = re.compile(r"^##+ (?=[a-z_]+$)", re.MULTILINE)  # of a page: other headings are titles
CAUSES, EXAMPLE = "Common causes -> fixes", "Example"


@dataclass(frozen=True, slots=True)
class Page:
    """The help on a property, or on a fault.

    `claim` is true of a good kernel; of a fault it says what happened. `breaks` names the
    properties that a fault breaks. `sections` has paragraphs, items and lines of code by title.
    """

    name: str
    claim: str
    breaks: tuple[str, ...]
    sections: Mapping[str, tuple[str, ...]]


@cache
def read_properties() -> Mapping[str, Page]:
    """Return the page of each property."""
    return {name: page for file in _PROPERTIES for name, page in _read_pages(file)}


def read_claim(name: str) -> str:
    """Return the sentence on a property that its page opens with."""
    return read_properties()[name].claim


@cache
def read_proofs() -> Mapping[str, Page]:
    """Return the page on what a proof means."""
    return dict(_read_pages("proofs"))


@cache
def read_faults() -> Mapping[str, Page]:
    """Return the page of each fault: a row of a table for each cause, and examples of some.

    Tables without a column of properties follow a line that names those of all rows.
    """
    text = _read("faults")
    examples = dict(_split(text))
    rows: list[list[str]] = []
    broken = ""
    for line in text.splitlines():
        if line.startswith(("## ", "Violated propert")):
            broken = line.partition(": ")[2]
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if broken and len(cells) == 4:
            cells.insert(1, broken)
        if len(cells) == 5 and cells[-1] not in ("fix", "---"):
            cause = f"- {cells[3]} -> {cells[4]}"
            if cells[0]:
                rows.append([*(cell.strip("`") for cell in cells[:3]), cause])
            else:
                rows[-1].append(cause)
    return {
        name: Page(
            name,
            claim,
            tuple(breaks.split("`, `")),
            {CAUSES: tuple(causes), **_read_sections(examples.get(name, ""))},
        )
        for name, breaks, claim, *causes in rows
    }


def find_pages(word: str) -> list[Page]:
    """Return the page of that name, or those whose names have the word as a part."""
    for pages in (read_properties(), read_faults(), read_proofs()):
        if word in pages:
            return [pages[word]]
    asked = word.replace("-", "_").strip("_")
    for pages in (read_properties(), read_faults()):
        if matches := [page for name, page in pages.items() if f"_{asked}_" in f"_{name}_"]:
            return matches
    return []


def _read_pages(file: str) -> Iterator[tuple[str, Page]]:
    for name, body in _split(_read(file)):
        claim, _, rest = body.removeprefix("> ").partition("\n")
        yield name, Page(name, claim, (), _read_sections(rest))


def _read(file: str) -> str:
    return (Path(__file__).parent / "pages" / f"{file}.md").read_text(encoding="utf-8")


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the body of each page."""
    for part in _HEADING.split(text)[1:]:
        name, _, body = part.partition("\n")
        yield name, body.strip()


def _read_sections(body: str) -> dict[str, tuple[str, ...]]:
    """Return the paragraphs, items and lines of code below each title in bold."""
    sections: dict[str, list[str]] = {}
    is_code = is_new = False
    for line in re.split(r"^## ", body, flags=re.MULTILINE)[0].splitlines():
        if line.startswith("**"):
            items = sections.setdefault(line.strip("*"), [])
        elif line.startswith("```"):
            is_code = not is_code
        elif line and (is_code or is_new or line.startswith("- ")):
            items.append(line)
        elif line:
            items[-1] += f" {line.strip()}"
        is_new = not line
    return {title: tuple(items) for title, items in sections.items()}
