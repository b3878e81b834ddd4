"""Conditions on terms: comparisons with 0, joined by "and" and "or"."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gemmproof.reference.symbolic.terms.atoms import Atom, Poly, term

_KINDS = ("le", "eq", "ne", "all", "any")
_SIGNS = {"le": "<=", "eq": "==", "ne": "!="}


class Cond:
    """A condition: "le" (a term is at most 0), "eq" (is 0), "ne" (is not), "all" or "any" of some.

    Those without parts are true ("all") and false ("any"). Negation is carried inward.
    """

    __slots__ = ("_hash", "kind", "parts", "term")

    def __init__(self, kind: str, term: Poly | None = None, parts: tuple[Cond, ...] = ()) -> None:
        self.kind, self.term, self.parts = kind, term, parts
        # neither of strings nor of None, whose hashes are others in each process
        self._hash = hash((_KINDS.index(kind), term or 0, parts))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Cond)
            and (self._hash, self.kind) == (other._hash, other.kind)
            and (self.term, self.parts) == (other.term, other.parts)
        )

    def __repr__(self) -> str:
        if self.term is not None:
            return f"{self.term} {_SIGNS[self.kind]} 0"
        return f"{self.kind}({', '.join(map(repr, self.parts))})"

    @property
    def key(self) -> tuple[Any, ...]:
        """What equal conditions share, without their atoms."""
        number = None if self.term is None else self.term.key
        return self.kind, number, tuple(part.key for part in self.parts)

    def __and__(self, other: Cond) -> Cond:
        return every((self, other))

    def __or__(self, other: Cond) -> Cond:
        return some((self, other))

    def __invert__(self) -> Cond:
        if self.kind == "le":
            assert self.term is not None
            return le(1 - self.term, 0)
        if self.kind in ("eq", "ne"):
            return Cond("ne" if self.kind == "eq" else "eq", self.term)
        parts = (~part for part in self.parts)
        return some(parts) if self.kind == "all" else every(parts)


TRUE, FALSE = Cond("all"), Cond("any")


def le(x: Poly | int, y: Poly | int) -> Cond:
    """x <= y."""
    difference = term(x) - y
    if difference.constant is not None:
        return TRUE if difference.constant <= 0 else FALSE
    return Cond("le", difference)


def lt(x: Poly | int, y: Poly | int) -> Cond:
    """x < y."""
    return le(term(x) + 1, y)


def eq(x: Poly | int, y: Poly | int) -> Cond:
    """x == y."""
    difference = term(x) - y
    if difference.constant is not None:
        return FALSE if difference.constant else TRUE
    only = difference.atom
    if only is not None and only.kind == "flag":
        return ~only.args[0]
    if only is not None and only.kind == "or":  # no bit is set in either
        return every(eq(part, 0) for part in only.args)
    return Cond("eq", difference)


def _flatten(kind: str, conds: Iterable[Cond]) -> tuple[Cond, ...]:
    parts: dict[Cond, None] = {}
    for cond in conds:
        parts |= dict.fromkeys(cond.parts if cond.kind == kind else (cond,))
    return tuple(parts)


def every(conds: Iterable[Cond]) -> Cond:
    """Whether all of them hold."""
    parts = _flatten("all", conds)
    if FALSE in parts:
        return FALSE
    return parts[0] if len(parts) == 1 else Cond("all", None, parts)


def some(conds: Iterable[Cond]) -> Cond:
    """Whether one of them holds."""
    parts = _flatten("any", conds)
    if TRUE in parts:
        return TRUE
    return parts[0] if len(parts) == 1 else Cond("any", None, parts)


def flag(cond: Cond) -> Poly:
    """A condition as 1 or 0."""
    if cond in (TRUE, FALSE):
        return term(int(cond is TRUE or cond == TRUE))
    if cond.kind == "ne" and cond.term is not None:
        only = cond.term.atom
        if only is not None and only.kind == "flag":
            return term(only)
    return term(Atom("flag", cond))
