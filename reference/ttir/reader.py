"""Read the text of a TTIR module, one operation a line, into its functions.

One reader for Triton 3.6 to 3.9.
"""

from __future__ import annotations

import re

from gemmproof.reference.ttir.module import Block, Function, Loc, Op, ReadError
from gemmproof.reference.ttir.syntax import (
    fill_in,
    name_results,
    read_arguments,
    unescape,
    until_close,
)


def read_module(text: str) -> dict[str, Function]:
    """The functions of a module by name. Raises ReadError for what is not understood."""
    reader = _Reader(text)
    try:
        return reader.functions()
    except ReadError:
        raise
    except (ValueError, IndexError) as error:
        raise ReadError(f"{error} in: {reader.lines[reader.at - 1]}") from None


_LOC = re.compile(r"^#(loc\d*) = loc\((.*)\)$")
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_LINE = re.compile(r'(?:(%[^=]+?) = )?"?([a-z]\w*(?:\.\w+)+)"?(?![\w.])(.*)')


_TRAILING_LOC = re.compile(r"\s*loc\((#loc\d*|unknown|\".*\")\)$")
_FUNCTION = re.compile(r'tt\.func (public|private)?\s*@(?:"([^"]+)"|([\w.$-]+))\((.*)$')


class _Reader:
    def __init__(self, text: str) -> None:
        self.places: dict[str, str] = {}
        self.found: dict[str, Loc | None] = {}
        self.lines: list[str] = []
        self.at = 0
        for raw in text.splitlines():
            line = raw.strip()
            if found := _LOC.match(line):
                self.places[found[1]] = found[2]
            elif line and not line.startswith(("//", "#")):
                self.lines.append(line)

    def functions(self) -> dict[str, Function]:
        found = {}
        while self.at < len(self.lines):
            line = self._next()
            if line.startswith("tt.func"):
                function = self._function(line)
                found[function.name] = function
        return found

    def _next(self) -> str:
        if self.at >= len(self.lines):
            raise ReadError(f"the text ends behind: {self.lines[-1]}")
        self.at += 1
        return self.lines[self.at - 1]

    def _split_loc(self, text: str) -> tuple[str, Loc | None]:
        """An operation's text without the location at its end, and the place that it names."""
        found = _TRAILING_LOC.search(text)
        if found is None:
            return text, None
        if found[1] not in self.found:
            self.found[found[1]] = self._find_loc(found[1])
        return text[: found.start()].rstrip(), self.found[found[1]]

    def _find_loc(self, text: str) -> Loc | None:
        """The place that a location names, through names and calls, the innermost first."""
        for _ in range(64):
            if place := _PLACE.search(text):
                return Loc(unescape(place[1]), int(place[2]))
            alias = re.search(r"#(loc\d*)", text)
            if alias is None or alias[1] not in self.places:
                return None
            text = self.places[alias[1]]
        return None

    def _function(self, line: str) -> Function:
        found = _FUNCTION.match(line)
        if found is None:
            raise ReadError(line)
        inner, _ = until_close(found[4])
        function = Function(found[2] or found[3], found[1] == "public", read_arguments(inner), [])
        if line.endswith("{"):
            function.body, _ = self._region()
            if function.body and not function.body[0].args:
                function.body[0].args = function.args
        return function

    def _region(self) -> tuple[list[Block], str]:
        """The blocks up to the closing brace, and the line that closes."""
        blocks = [Block("", [])]
        while True:
            line = self._next()
            if line.startswith("}"):
                return [b for b in blocks if b.ops or b.label] or blocks, line
            if line.startswith("^"):
                label, _, rest = line.partition(":") if "(" not in line else line.partition("(")
                args = (
                    read_arguments(until_close(rest)[0]) if "(" in line.partition("//")[0] else []
                )
                blocks.append(Block(label.strip(), args))
                continue
            blocks[-1].ops.append(self._op(line))

    def _op(self, line: str) -> Op:
        found = _LINE.match(line)
        if found is None:
            raise ReadError(line)
        results, name, rest = found[1], found[2], found[3].strip()
        op = Op(name, name_results(results), text=line)
        rest, op.loc = self._split_loc(rest)
        opens = rest.endswith("{")
        rest = rest[: -2 if rest.endswith("({") else -1].rstrip() if opens else rest
        tail = ""
        while opens:
            region, line = self._region()
            op.regions.append(region)
            tail = line[1:].strip()
            opens = tail.endswith("{")
        if op.regions:
            tail, op.loc = self._split_loc(tail)
            rest = f"{rest} {tail.removeprefix(')')}"
        try:
            fill_in(op, rest)
        except ValueError as error:
            raise ReadError(f"{error} in: {op.text}") from None
        return op
