"""Contracts that admit everything: empty operands, any view, offsets from 2**31."""

from __future__ import annotations

from typing import Any

from gemmproof.properties.contract import Contract


def wide(formats: tuple[str, ...] = ("fp16",), **fields: Any) -> Contract:
    """A contract of any size, layout and offset, except for the given fields."""
    sides = dict.fromkeys(("M", "N", "K", "batch"), "0..")
    layouts = fields.setdefault("layouts", "any")
    return Contract(formats, **{**sides, "huge": layouts == "any", **fields})
