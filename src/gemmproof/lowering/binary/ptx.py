"""A reader of PTX text: statements with their predicate, operands, labels and source lines.

Grammar: PTX ISA 8.8, "Syntax". A statement ends with a semicolon, comments are those of C, a label
ends with a colon, and `.loc` (with the file's number, the line and the column, and for an inlined
function where it was called) holds for the statements after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_INLINE = re.compile(r"// begin inline asm\n.*?// end inline asm", re.DOTALL)
_INNER_LOC = re.compile(r"^\s*\.loc\b[^\n]*\n", re.MULTILINE)
_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"', re.MULTILINE)
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)[^\n]*")
_LABEL = re.compile(r"\s*([A-Za-z_$%][\w$]*)\s*:(?!:)")
_PREDICATE = re.compile(r"@(!?)\s*(%?[\w$]+)\s+")
_OPCODE = re.compile(r"([a-z][\w]*(?:(?:\.|::)[\w]+)*)\s*(.*)", re.DOTALL)
_REGISTER = re.compile(r"%[\w$]+")

Place = tuple[str, int, int]  # a file, a line, a column; ("", 0, 0) where none is told
NOWHERE: Place = ("", 0, 0)


@dataclass(frozen=True, slots=True)
class PtxStatement:
    """One instruction: `opcode` with its modifiers, the operands as text, and its place.

    `number` is its position among the statements of the text, `guard` the predicate that decides
    whether it runs, with its "!".
    """

    number: int
    opcode: str
    operands: tuple[str, ...]
    guard: str
    place: Place

    @property
    def words(self) -> tuple[str, ...]:
        """The opcode's parts: "cp.async.cg.shared.global" has five."""
        return tuple(self.opcode.split("."))

    def registers(self, index: int) -> tuple[str, ...]:
        """The registers of an operand."""
        return tuple(_REGISTER.findall(self.operands[index]))


@dataclass(slots=True)
class PtxProgram:
    """The statements of a PTX text, and the number of the statement that each label stands before.

    `declared` bytes of a thread are of variables that the text itself puts into local memory.
    """

    statements: list[PtxStatement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    declared: int = 0

    def loops(self) -> list[tuple[int, int]]:
        """First and last statement of what is run again: from a label to the last branch back."""
        found: dict[str, tuple[int, int]] = {}
        for one in self.statements:
            if one.words[0] in ("bra", "brx") and one.operands:
                start = self.labels.get(one.operands[0])
                if start is not None and start <= one.number:
                    found[one.operands[0]] = (start, one.number)
        return list(found.values())


_DEPOT = re.compile(r"\.local\s+(?:\.align\s+\d+\s+)?\.b8\s+[\w$]+\[(\d+)\]")


def read_ptx(text: str) -> PtxProgram:
    """The program of a PTX text, without its sections of debug information."""
    files = {int(number): path for number, path in _FILE.findall(text)}
    # LLVM counts the lines of inline assembly on from its place, and does not tell when it is back
    code = _INLINE.sub(lambda x: _INNER_LOC.sub("", x[0]), text.partition("\n\t.section")[0])
    code = _COMMENTS.sub("", code)
    program = PtxProgram(declared=sum(map(int, _DEPOT.findall(code))))
    place = NOWHERE
    for piece, loc in _split(code):
        if loc is not None:
            number, line, column = map(int, loc)
            place = (files.get(number, ""), line, column)
            continue
        _take(piece, place, program)
    return program


def _split(code: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """The pieces of code between semicolons, and each .loc where it stands."""
    held = ""
    for line in code.splitlines():
        if found := _LOC.match(line):
            yield "", found.groups()
            continue
        *whole, rest = line.split(";")
        for piece in whole:
            yield f"{held} {piece}", None
            held = ""
        held = f"{held} {rest}".strip() and f"{held} {rest}"
        if held.rstrip().endswith(":"):
            yield held, None
            held = ""


def _take(piece: str, place: Place, program: PtxProgram) -> None:
    """Add what a piece of code states: labels, and at most one instruction."""
    rest = piece.strip()
    while True:
        if rest[:1] in ("{", "}", ")"):  # blocks of inline assembly, and of a function
            rest = rest[1:].strip()
        elif found := _LABEL.match(rest):
            program.labels[found[1]] = len(program.statements)
            rest = rest[found.end() :].strip()
        else:
            break
    if not rest or rest.startswith("."):
        # the head of a function ends with its opening brace, after which comes a statement
        head, brace, body = rest.rpartition("{")
        if brace and (".entry" in head or ".func" in head):
            _take(body, place, program)
        return
    guard = ""
    if found := _PREDICATE.match(rest):
        guard, rest = f"{found[1]}{found[2]}", rest[found.end() :]
    if found := _OPCODE.match(rest):
        operands = tuple(split_operands(found[2]))
        number = len(program.statements)
        program.statements.append(PtxStatement(number, found[1], operands, guard, place))


def split_operands(text: str) -> list[str]:
    """Operands between commas that no bracket holds; a trailing predicate target is one, too."""
    found, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    return [*found, text[start:].strip()] if text.strip() else []
