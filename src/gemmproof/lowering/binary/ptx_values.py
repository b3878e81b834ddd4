"""What registers of a PTX program hold: constants, at one statement or everywhere.

A register of PTX may be written at several places (LLVM gives the same one to a value that a loop
carries). It holds a constant where the last one to write it before a statement, with no label
between, moves one there; or where each of its writers gives the same.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict

from gemmproof.lowering.binary.ptx import PtxProgram, PtxStatement

Constant = int | None


class Values:
    """The constants of a program's registers."""

    def __init__(self, program: PtxProgram) -> None:
        self._starts = sorted({0, *program.labels.values()})
        self._writers: dict[str, list[PtxStatement]] = defaultdict(list)
        for one in program.statements:
            for register in written(one):
                self._writers[register].append(one)
        self._everywhere = self._find_everywhere()

    def at(self, one: PtxStatement, register: str) -> Constant:
        """What a register holds when a statement begins, None where that is no constant."""
        writers = self._writers.get(register, [])
        before = bisect_left(writers, one.number, key=lambda x: x.number)
        block = self._starts[bisect_right(self._starts, one.number) - 1]
        if before and writers[before - 1].number >= block:
            writer = writers[before - 1]
            if not _moves_one(writer):
                return None
            source = writer.operands[1]
            return self.at(writer, source) if source.startswith("%") else _read_constant(source)
        return self._everywhere.get(register)

    def _find_everywhere(self) -> dict[str, Constant]:
        """Those that each of their writers gives the same constant."""
        known: dict[str, Constant] = {}
        waiting = {n for n, writers in self._writers.items() if all(map(_moves_one, writers))}
        moved = True
        while moved:
            moved = False
            for name in sorted(waiting):
                sources = {x.operands[1] for x in self._writers[name]}
                given = {known.get(s) if s[0] == "%" else _read_constant(s) for s in sources}
                if len(given) == 1 and (value := given.pop()) is not None:
                    known[name] = value
                    waiting.discard(name)
                    moved = True
        return known


def _moves_one(one: PtxStatement) -> bool:
    """Whether it always gives one register one value."""
    operands = one.operands
    return (
        one.words[0] == "mov"
        and len(operands) == 2
        and "{" not in "".join(operands)
        and (not one.guard)
    )


def _read_constant(source: str) -> Constant:
    """A number of PTX: an integer, or of floats zero alone; None for the name of anything else."""
    if re.fullmatch(r"0[fFdD][0-9a-fA-F]+", source):
        return 0 if int(source[2:], 16) == 0 else None
    try:
        return int(source.rstrip("U"), 0)
    except ValueError:
        return None


def written(one: PtxStatement) -> tuple[str, ...]:
    """The registers that an instruction writes."""
    if not one.operands or one.words[0] in ("st", "bra", "bar", "red", "ret"):
        return ()
    first = one.operands[0]
    if first.startswith("["):  # stores, copies and commands of the tensor core
        return ()
    return tuple(re.findall(r"%[\w$]+", first))
