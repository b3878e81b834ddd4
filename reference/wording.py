"""Counts as English has them."""

from __future__ import annotations

_HISSES = ("s", "x", "ch", "sh")


def say_count(n: int, noun: str) -> str:
    """A number and its noun: "1 case", "2 cases", "0 launches", "3 properties"."""
    if n == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{n} {noun[:-1]}ies"
    return f"{n} {noun}{'es' if noun.endswith(_HISSES) else 's'}"
