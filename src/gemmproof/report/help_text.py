"""A page of help as text that fits a screen: a property, or a kind of fault."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from gemmproof.properties.help import Example, FaultPage, Page
from gemmproof.properties.help.pages import PAGES
from gemmproof.report.text import Line

WIDTH = 96


def lines(page: Page | FaultPage) -> list[Line]:
    """What `gemmproof explain` prints of a property or a fault."""
    return [*(_property(page) if isinstance(page, Page) else _fault(page))]


def _property(page: Page) -> Iterable[Line]:
    yield from _wrap(f"{page.name}: {page.claim}", indent="", style="bold")
    yield from _part("how it is judged", [page.judged])
    yield from _part("what a finding looks like", [page.finding])
    yield from _list_causes(page.causes)
    yield from _show(page.example)
    yield from _part("what changes it", page.options)
    yield from _part("more", [", ".join(page.docs)])


def _fault(page: FaultPage) -> Iterable[Line]:
    yield from _wrap(f"{page.name}, a fault: {page.says}", indent="", style="bold")
    holders = [PAGES[name] for name in page.properties]
    yield from _part("what it breaks", [f"{p.name}: {p.claim}" for p in holders])
    yield from _list_causes(page.causes)
    yield from _show(page.example or holders[0].example)
    yield from _part("more", [f"gemmproof explain {p.name}" for p in holders])


def _list_causes(causes: Iterable[tuple[str, str]]) -> Iterable[Line]:
    yield from _part("usual causes -> what mends them", [f"{why} -> {how}" for why, how in causes])


def _show(example: Example) -> Iterable[Line]:
    where = f", {example.given_words}" * bool(example.given_words)
    with_ = f", found with {' '.join(example.options)}" * bool(example.options)
    yield "", ""
    yield from _wrap(f"an example{where}{with_}", indent="", style="bold")
    for label, text, style in (("wrong", example.wrong, "red"), ("right", example.right, "green")):
        yield from _list_code(label, text, style)


def _list_code(label: str, text: str, style: str) -> Iterable[Line]:
    """The lines of a example below each other, as they are indented; a long one goes on below."""
    first, *others = text.splitlines()
    head = f"  {label:<7}"
    for line in (first, *textwrap.dedent("\n".join(others)).splitlines()):
        room = WIDTH - len(head)
        for part in textwrap.wrap(line, room, subsequent_indent="    ", break_on_hyphens=False):
            yield f"{head}{part}", style
            head = " " * len(head)


def _part(title: str, texts: Iterable[str]) -> Iterable[Line]:
    yield "", ""
    yield title, "bold"
    for text in texts:
        yield from _wrap(text, indent="  ")


def _wrap(text: str, indent: str, style: str = "") -> Iterable[Line]:
    for line in textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    ):
        yield line, style
