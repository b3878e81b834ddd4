"""A TTIR module as it is written: functions, blocks and operations, each with its source line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gemmproof.reference.ttir.dtypes import Type


class ReadError(ValueError):
    """A line that the reader does not understand; the message is the line."""


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in Python source."""

    file: str
    line: int


@dataclass(slots=True)
class Op:
    """One operation as it is written.

    `operands` and `results` are SSA names. `words` are what stands bare before the types (a
    predicate, an atomic's kind), `attrs` what is named, as text, `strings` what is quoted.
    `segments` counts the operands in each pair of brackets, where the operation has lists of them.
    `targets` are a branch's blocks with the operands that it hands them.
    """

    name: str
    results: list[str]
    operands: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    targets: list[tuple[str, list[str]]] = field(default_factory=list)
    regions: list[list[Block]] = field(default_factory=list)
    loc: Loc | None = None
    text: str = ""
    operand_types: list[Type] = field(default_factory=list)

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        text = self.attrs.get(name)
        return default if text is None else int(text.partition(" : ")[0])

    def integers(self, name: str) -> list[int]:
        """An attribute that lists integers (array<i32: 1, 0>, dense<[1, 2]> or dense<4>)."""
        text = self.attrs.get(name, "")
        inner = text.partition("<")[2].rpartition(">")[0]
        inner = inner.split(":", 1)[1] if text.startswith("array") and ":" in inner else inner
        return [int(x) for x in re.findall(r"-?\d+", inner)]

    def flag(self, name: str) -> bool:
        """A boolean attribute."""
        return self.attrs.get(name, "false").startswith("true")


@dataclass(slots=True)
class Block:
    """A label, the values that it is entered with, and its operations."""

    label: str
    args: list[tuple[str, Type]]
    ops: list[Op] = field(default_factory=list)


@dataclass(slots=True)
class Function:
    """A function: its parameters by SSA name, and its body."""

    name: str
    public: bool
    args: list[tuple[str, Type]]
    body: list[Block]
