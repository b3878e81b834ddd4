"""Contracts that promise all there is: empty operands, any view, offsets from 2**31."""

from __future__ import annotations

from typing import Any

from gemmproof.properties.contract import Contract


def wide(formats: tuple[str, ...] = ("fp16",), **words: Any) -> Contract:
    """A contract of any size, layout and offset, but for the words that are given."""
    sides = dict.fromkeys(("M", "N", "K", "batch"), "0..")
    layouts = words.setdefault("layouts", "any")
    return Contract(formats, **{**sides, "huge": layouts == "any", **words})
