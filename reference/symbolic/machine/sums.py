"""What a loop leaves of a number: a sum over its trips, where each adds to the one before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gemmproof.reference.symbolic.machine.numbers import add
from gemmproof.reference.symbolic.machine.values import Data
from gemmproof.reference.symbolic.terms import Atom


def sum_up(first: Data, hole: Any, new: Data, trip: Atom) -> Data:
    """What a loop leaves of a number: a sum over its trips where each adds to the one before."""
    rest = _rest(new, hole) if isinstance(hole, Data) else None
    if rest is None:
        fixed = _without(new, hole.word) if isinstance(hole, Data) else new
        return Data("carried", first.shape, (first, Data("sum", new.shape, (fixed,), over=trip)))
    if rest.kind == "nothing":
        return first
    return add(first, Data("sum", rest.shape, (rest,), over=trip))


_NOTHING = Data("nothing")


def _rest(value: Data, hole: Data) -> Data | None:
    """What a value adds to the hole in it, None where it is no such sum."""
    if value == hole or (value.kind == "hole" and value.word == hole.word):
        return _NOTHING
    if value.kind == "add":
        x, y = value.parts
        for part, other in ((x, y), (y, x)):
            if not _mentions(other, hole.word):
                rest = _rest(part, hole)
                if rest is not None:
                    return other if rest.kind == "nothing" else add(rest, other)
        return None
    if value.kind == "choice":
        parts = [_rest(part, hole) for part in value.parts]
        if any(part is None for part in parts):
            return None
        zero = Data("number", value.shape, word="0")
        shown = tuple(zero if p is None or p.kind == "nothing" else p for p in parts)
        return replace(value, parts=shown)
    return None


def names_hole(value: Data) -> bool:
    """Whether a number is made of what a loop carries."""
    return value.kind in ("hole", "carried", "before") or any(map(names_hole, value.parts))


def _mentions(value: Data, word: str) -> bool:
    if value.kind == "hole" and value.word == word:
        return True
    return any(_mentions(part, word) for part in value.parts)


def _without(value: Data, word: str) -> Data:
    """A value with nothing in place of what the loop carries."""
    if value.kind == "hole" and value.word == word:
        return replace(value, kind="before", word="")
    return replace(value, parts=tuple(_without(part, word) for part in value.parts))
