"""What a report says of the kernel itself, and of what the cases reached: for a sign-off."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

AXES = ("M", "N", "K")
UNKNOWN = "not known"
# what a size leaves beside the tile of its axis; a tile of 1 leaves 0, one of 2 leaves 0 or 1
RESIDUES = ("0", "1", "BLOCK-1", "other")


@dataclass(frozen=True, slots=True)
class Identity:
    """What was judged: by parts of the project, the hashes of their texts; and what is promised.

    `source` are the parts that the wrapper can reach (signoff/source.py), `formula` those of its
    `spec`. `contract` and `operands` are in words. `lack` says in one line why nothing is known.
    """

    source: dict[str, str] = field(default_factory=dict)
    formula: dict[str, str] = field(default_factory=dict)
    contract: dict[str, Any] = field(default_factory=dict)
    operands: dict[str, str] = field(default_factory=dict)
    lack: str = ""

    @property
    def digest(self) -> str:
        """One hash of the wrapper, its kernels and what they call; "" where it is not known."""
        return hash_texts(self.source.values()) if self.source else ""

    def of_formats(self, names: Iterable[str]) -> Identity:
        """The same kernel under a contract of other formats."""
        return replace(self, contract={**self.contract, "formats": list(names)})

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Identity:
        """The facts that `asdict` and JSON made plain."""
        return Identity(**data)


@dataclass(frozen=True, slots=True)
class Bits:
    """What a simulated call returned at a case: a hash of the bits of all its results."""

    case: str
    digest: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """Where the judged cases lie beside the tiles, and the bits of a few of them by format.

    `residues`: "0 1 other" -> how many cases had M mod BLOCK_M = 0, N mod BLOCK_N = 1 and so on,
    "not known" for an axis whose tile no constexpr names.
    """

    residues: dict[str, int] = field(default_factory=dict)
    bits: dict[str, tuple[Bits, ...]] = field(default_factory=dict)

    def count(self, axis: str) -> dict[str, int]:
        """How many cases had each residue along M, N or K."""
        found = dict.fromkeys((*RESIDUES, UNKNOWN), 0)
        for word, count in self.residues.items():
            found[split_residues(word)[AXES.index(axis)]] += count
        return found

    @staticmethod
    def merge(parts: Iterable[Coverage | None]) -> Coverage:
        """The coverage of several checks, each of formats of its own."""
        known = [part for part in parts if part is not None]
        residues = sum((Counter(part.residues) for part in known), Counter[str]())
        bits = {name: found for part in known for name, found in part.bits.items()}
        return Coverage(dict(sorted(residues.items())), bits)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "bits": {k: [asdict(x) for x in v] for k, v in self.bits.items()}}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Coverage:
        """The coverage that `to_dict` wrote."""
        bits = {name: tuple(Bits(**x) for x in found) for name, found in data["bits"].items()}
        return Coverage(dict(data["residues"]), bits)


def join_residues(parts: Iterable[str]) -> str:
    """The residues of M, N and K as one word."""
    return ", ".join(parts)


def split_residues(word: str) -> tuple[str, ...]:
    """The residues of M, N and K. Raises ValueError for what are none."""
    parts = tuple(word.split(", "))
    if len(parts) != len(AXES) or not set(parts) <= {*RESIDUES, UNKNOWN}:
        raise ValueError(f"residues: got {word!r}, expected one of each axis")
    return parts


def hash_texts(texts: Iterable[str]) -> str:
    """One hash of some texts, whatever their order, and however often each is there."""
    return hashlib.sha256("\n".join(sorted(set(texts))).encode()).hexdigest()
