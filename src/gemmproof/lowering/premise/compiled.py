"""What the compiler made of the dots of one launch: all that a prediction is compared with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gemmproof.lowering.binary import ir
from gemmproof.lowering.compile import CompiledLaunch
from gemmproof.lowering.facts import list_dots, show
from gemmproof.lowering.record import DotLowering, read_dot

_WARPS = re.compile(r"warpsPerCTA = \[([\d, ]+)\]")


@dataclass(frozen=True, slots=True)
class CompiledDot:
    """The dots that a launch has at one line, and what became of them.

    `tiles` are theirs, `kinds` how many of them differ in tile, formats or precision, and `warps`
    how the warps of a block share the result, along each of its axes; None where that is not known.
    `strays`: instructions of other dots may be among them, or some of theirs elsewhere.
    """

    where: str
    lowerings: tuple[DotLowering, ...]
    tiles: tuple[tuple[int, ...], ...]
    kinds: int
    warps: tuple[int, ...] | None = None
    strays: bool = False

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> CompiledDot:
        """The record that `asdict` gave, also after JSON."""
        lowerings = tuple(read_dot(x) for x in data["lowerings"])
        tiles = tuple(tuple(x) for x in data["tiles"])
        warps = None if data["warps"] is None else tuple(data["warps"])
        return CompiledDot(**{**data, "lowerings": lowerings, "tiles": tiles, "warps": warps})


def list_compiled(made: CompiledLaunch) -> list[CompiledDot]:
    """The dots of a compiled launch, by line."""
    asked = ir.list_dots(made.asm.get("ttir", ""))
    return join_lines(asked, list_dots(made))


def join_lines(asked: list[ir.IrDot], lowered: Iterable[DotLowering]) -> list[CompiledDot]:
    """Every line of the source that has dots, with what the compiler made of them.

    A compiler may give some instructions of a dot another line: that of an operand, or of the
    function around it. They are those of the only dot there is, or else of the only line that has
    none of its own.
    """
    lines: dict[str, list[ir.IrDot]] = {}
    for dot in asked:
        lines.setdefault(show(dot.place), []).append(dot)
    given: dict[str, list[DotLowering]] = {line: [] for line in lines}
    strays: list[DotLowering] = []
    for one in lowered:
        given.get(one.where, strays).append(one)
    lacking = [line for line in lines if not any(map(_multiplies, given[line]))]
    strays = [one for one in strays if _multiplies(one)]
    home = next(iter(lines)) if len(lines) == 1 else lacking[0] if len(lacking) == 1 else None
    if strays and home is not None:
        given[home] += strays
    found = []
    for line, dots in lines.items():
        shares = {_read_warps(x.layouts[2]) for x in given[line] if x.layouts[2]}
        found.append(
            CompiledDot(
                line,
                tuple(given[line]),
                tuple(dict.fromkeys(x.tile for x in dots)),
                len({(x.tile, x.formats, x.precision) for x in dots}),
                shares.pop() if len(shares) == 1 else None,
                bool(strays) and len(lines) > 1,
            )
        )
    return found


def _multiplies(one: DotLowering) -> bool:
    return any(x.name for x in one.instructions)


def _read_warps(layout: str) -> tuple[int, ...] | None:
    found = _WARPS.search(layout)
    return tuple(map(int, found[1].split(","))) if found else None


def to_dicts(dots: list[CompiledDot]) -> list[dict[str, Any]]:
    """The same as plain data."""
    return [asdict(one) for one in dots]
