"""The index of the help pages, and the search by a word."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gemmproof.properties.help import (
    FaultPage,
    Page,
    guarantee_pages,
    property_pages,
)
from gemmproof.properties.help.fault_pages import FAULTS, MISFITS

PAGES: Mapping[str, Page] = MappingProxyType(
    {
        page.name: page
        for page in (
            *property_pages.CALL_PAGES,
            *property_pages.ACCESS_PAGES,
            *property_pages.BIT_PAGES,
            *guarantee_pages.PAGES,
        )
    }
)
FAULT_PAGES: Mapping[str, FaultPage] = MappingProxyType(
    {page.name: page for page in (*FAULTS, *MISFITS, *guarantee_pages.FAULTS)}
)
# property -> its claim, which the table of properties uses
CLAIMS: Mapping[str, str] = MappingProxyType({name: page.claim for name, page in PAGES.items()})


def find_pages(word: str) -> list[Page | FaultPage]:
    """Return the page of that name, or those whose names have the word as a part."""
    every: dict[str, Page | FaultPage] = {**FAULT_PAGES, **PAGES}
    if word in every:
        return [every[word]]
    asked = word.replace("-", "_").strip("_")
    kinds: tuple[Mapping[str, Page | FaultPage], ...] = (PAGES, FAULT_PAGES)
    for pages in kinds:
        if matches := [page for name, page in pages.items() if f"_{asked}_" in f"_{name}_"]:
            return matches
    return []
