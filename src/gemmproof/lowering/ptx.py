"""PTX read as statements, accesses, sums and dots."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gemmproof.lowering.record import UNKNOWN

# -- ptx -----------------------------------------------------------------------------------------
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
UNKNOWN_PLACE: Place = ("", 0, 0)


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
    place = UNKNOWN_PLACE
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


# -- ptx values ----------------------------------------------------------------------------------
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


# -- ptx access ----------------------------------------------------------------------------------
_VECTOR = re.compile(r"v([248])")
_TYPE = re.compile(r"[bsuf](8|16|32|64|128)|f16x2|bf16x?2?|f32x2")
_TWICE = {"f16x2": 4, "bf16x2": 4, "f32x2": 8, "bf16": 2, "bf16x": 0}


def list_accesses(program: PtxProgram) -> Iterator[tuple[Place, str, int]]:
    """The place, the kind and the bytes of a thread of each access; 0 bytes for a tile."""
    for one in program.statements:
        found = _read_access(one)
        if found is not None:
            yield one.place, *found


def _read_access(one: PtxStatement) -> tuple[str, int] | None:
    words = one.words
    spaces = {word.partition("::")[0] for word in words}
    if words[:3] == ("cp", "async", "bulk"):
        return _read_bulk(one)
    if words[:4] == ("cp", "reduce", "async", "bulk"):
        return "atomic", 0
    if words[:2] == ("cp", "async") and "global" in words:
        return "async copy", _read_size(one)
    if "global" not in spaces or words[0] not in ("ld", "ldu", "st", "atom", "red"):
        return None
    kind = {"ld": "load", "ldu": "load", "st": "store"}.get(words[0], "atomic")
    return kind, _count_bytes(words)


def _read_bulk(one: PtxStatement) -> tuple[str, int] | None:
    """cp.async.bulk{.tensor.Nd}.dst.src: the order of the two spaces is the direction."""
    spaces = [x.partition("::")[0] for x in one.words if x.startswith(("shared", "global"))]
    if spaces == ["shared", "global"]:
        return "tma load", 0
    if spaces == ["global", "shared"]:
        return "tma store", 0
    return None  # groups that are committed and waited for, prefetches


def _read_size(one: PtxStatement) -> int:
    """cp.async.{ca,cg}.shared.global [dst], [src], cp-size{, src-size}"""
    try:
        return int(one.operands[2], 0)
    except (IndexError, ValueError):
        return 0


def _count_bytes(words: tuple[str, ...]) -> int:
    lanes = next((int(x[1]) for word in words if (x := _VECTOR.fullmatch(word))), 1)
    last = words[-1]
    if not (found := _TYPE.fullmatch(last)):
        return 0
    return lanes * (int(found[1]) // 8 if found[1] else _TWICE[last])


# -- ptx dots ------------------------------------------------------------------------------------
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_TYPES = re.compile(r"(?:f64|f32|tf32|f16|bf16|e4m3|e5m2|e3m2|e2m3|e2m1|[su](?:4|8|32)|b1)")
REGISTERS, SHARED, TENSOR = "registers", "shared", "tensor memory"
_ACCUMULATORS = {0: "f16", 1: "f32", 2: "s32"}
# of tcgen05 by its kind: elements of k of one instruction, and the formats by their numbers
_KINDS: Mapping[str, tuple[int, Mapping[int, str]]] = {
    "f16": (16, {0: "f16", 1: "bf16"}),
    "tf32": (8, {2: "tf32"}),
    "f8f6f4": (32, {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}),
    "i8": (32, {0: "u8", 1: "s8"}),
}
Begins = Literal["zero", "sum", "open"]


@dataclass(frozen=True, slots=True)
class CoreInstruction:
    """One instruction in the text. `begins`: its accumulator is the constant 0, a sum, or decided
    while it runs ("open"). `result` and `added` are the registers, or the place, of d and of c."""

    statement: PtxStatement
    name: str
    unit: str
    shape: tuple[int, int, int] | None
    a: str
    b: str
    accumulator: str
    operands: tuple[str, str]
    begins: Begins
    result: tuple[str, ...]
    added: tuple[str, ...]


def list_core_instructions(program: PtxProgram) -> Iterator[CoreInstruction]:
    """Every instruction of a tensor core, in the order of the text."""
    values = Values(program)
    for one in program.statements:
        words = one.words
        if words[0] in ("mma", "wmma") and (words[0] == "mma" or "mma" in words[1:2]):
            yield _read_mma(one, values)
        elif words[:2] == ("wgmma", "mma_async"):
            yield _read_wgmma(one, values)
        elif words[0] == "tcgen05" and words[1] == "mma":
            yield _read_tcgen05(one, values)


def _read_mma(one: PtxStatement, values: Values) -> CoreInstruction:
    """mma.sync.aligned.shape.alayout.blayout{...}.dtype.atype.btype.ctype{.stype} d, a, b, c"""
    types = [word for word in one.words if _TYPES.fullmatch(word)]
    known = one.words[0] == "mma" and len(types) >= 4 and len(one.operands) >= 4
    if not known:
        return _unknown(one)
    added = one.registers(3)
    begins: Begins = "zero" if added and all(values.at(one, x) == 0 for x in added) else "sum"
    return CoreInstruction(
        one, one.opcode, "mma", _shape_of(one), types[1], types[2], types[0],
        (REGISTERS, REGISTERS), begins, one.registers(0), added,
    )  # fmt: skip


def _read_wgmma(one: PtxStatement, values: Values) -> CoreInstruction:
    """wgmma.mma_async{.sp}.sync.aligned.shape.dtype.atype.btype d, a, b-desc, scale-d, ..."""
    types = [word for word in one.words if _TYPES.fullmatch(word)]
    at = 4 if "sp" in one.words else 3  # after the metadata of sparse operands
    if len(types) != 3 or len(one.operands) <= at:
        return _unknown(one)
    a = REGISTERS if one.operands[1].startswith("{") else SHARED
    begins = _read_input(values, one, one.operands[at])
    if begins == "sum" and all(values.at(one, x) == 0 for x in one.registers(0)):
        begins = "zero"
    return CoreInstruction(
        one, one.opcode, "wgmma", _shape_of(one), types[1], types[2], types[0],
        (a, SHARED), begins, one.registers(0), one.registers(0),
    )  # fmt: skip


def _read_tcgen05(one: PtxStatement, values: Values) -> CoreInstruction:
    """tcgen05.mma.cta_group.kind [d], a, b-desc, idesc, {...,} enable-input-d{, ...}"""
    kind = next((x.partition("::")[2] for x in one.words if x.startswith("kind::")), "")
    if len(one.operands) < 5:
        return _unknown(one)
    asked = next((x for x in one.operands[4:] if re.fullmatch(r"!?%p\w*", x)), "")
    a = TENSOR if one.operands[1].startswith("[") else SHARED
    shape, formats = None, ("", "", "")
    described = values.at(one, one.operands[3])
    if isinstance(described, int) and kind in _KINDS:
        shape, formats = _read_descriptor(kind, described & 0xFFFFFFFF)
    place = (one.operands[0].replace(" ", ""),)
    return CoreInstruction(
        one, one.opcode, "tcgen05", shape, *formats, (a, SHARED),
        _read_input(values, one, asked), place, place,
    )  # fmt: skip


def _read_descriptor(kind: str, bits: int) -> tuple[tuple[int, int, int], tuple[str, str, str]]:
    """Shape, and the formats of a, b and the accumulator, of an instruction descriptor.

    Bits 4-5 are the format of d, 7-9 of a, 10-12 of b, 17-22 are n / 8, 24-28 are m / 16.
    """
    k, formats = _KINDS[kind]
    n, m = (bits >> 17 & 63) * 8, (bits >> 24 & 31) * 16
    a, b = (formats.get(bits >> at & 7, "") for at in (7, 10))
    return (m, n, k), (a, b, _ACCUMULATORS.get(bits >> 4 & 3, ""))


def _read_input(values: Values, one: PtxStatement, operand: str) -> Begins:
    """What a predicate says of the accumulator: false leaves it out."""
    value = values.at(one, operand) if operand.startswith("%") else _read_number(operand)
    if not isinstance(value, int):
        return "open"
    return "sum" if value else "zero"


def _read_number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def _shape_of(one: PtxStatement) -> tuple[int, int, int] | None:
    found = next((s for word in one.words if (s := _SHAPE.fullmatch(word))), None)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def _unknown(one: PtxStatement) -> CoreInstruction:
    return CoreInstruction(
        one, one.opcode, UNKNOWN, _shape_of(one), "", "", "", ("", ""), "open", (), ()
    )


# -- ptx sums ------------------------------------------------------------------------------------
# as it is, scaled, or put into a pair: older compilers do that by shifts
_PASSED_ON = ("mov", "mul", "cvt", "shl", "or")


def find_promotion(
    program: PtxProgram, dot: Sequence[CoreInstruction], cores: Sequence[CoreInstruction]
) -> tuple[int, int | None]:
    """Of the instructions of one dot, among all `cores` of the program: additions of a thread to
    other sums, and the most elements of k that such a sum has, with those that another dot handed
    to it; 0 and None where none is added in the loop that makes it."""
    loops = program.loops()
    own = {x.statement.number for x in dot}
    additions: set[int] = set()
    longest: int | None = None
    for loop in {_innermost(loops, x.statement.number) for x in dot} - {None}:
        assert loop is not None
        inside = [x for x in cores if loop[0] <= x.statement.number <= loop[1]]
        sums = [(x, k) for x, k in _list_sums(inside) if x.statement.number in own]
        begun = [k for _, k in sums if k is not None]
        if not begun:
            continue
        body = program.statements[loop[0] : loop[1] + 1]
        # what begins with no 0 may go on with such a sum: that of a split is passed by a select
        found = _find_additions(body, [x for x, _ in sums])
        if found:
            additions |= found
            longest = max(longest or 0, *begun)
    widths = (2 if program.statements[n].opcode.endswith("x2") else 1 for n in additions)
    return sum(widths), longest


def _innermost(loops: list[tuple[int, int]], number: int) -> tuple[int, int] | None:
    around = [(start, stop) for start, stop in loops if start <= number <= stop]
    return min(around, key=lambda loop: loop[1] - loop[0], default=None)


def _find_additions(body: list[PtxStatement], dot: Sequence[CoreInstruction]) -> set[int]:
    """The numbers of what adds a result of the dot, or one that was moved or scaled."""
    held = {register for x in dot for register in x.result if register.startswith("%")}
    if any(x.unit == "tcgen05" for x in dot):  # whose results are read from tensor memory
        reads = (x for x in body if x.words[:2] == ("tcgen05", "ld"))
        held |= {register for x in reads for register in written(x)}
    known = -1
    while known != len(held):  # what a loop carries is used before it stands in the text
        known = len(held)
        for one in body:
            if one.words[0] in _PASSED_ON and _sources(one) & held:
                held |= set(written(one))
    return {
        one.number
        for one in body
        if one.words[0] in ("add", "fma")
        and one.words[-1] in ("f32", "f32x2")
        and _sources(one) & held
    }


def _sources(one: PtxStatement) -> set[str]:
    return {register for i in range(1, len(one.operands)) for register in one.registers(i)}


def _list_sums(cores: Sequence[CoreInstruction]) -> list[tuple[CoreInstruction, int | None]]:
    """The last instruction of each chain, and the chain's elements of k if it begins with 0.

    One whose result is the accumulator of another, also of another dot, is not the last.
    """
    lengths: dict[int, int | None] = {}
    makers: dict[tuple[str, ...], int] = {}
    for i, one in enumerate(cores):
        k = one.shape[2] if one.shape else 0
        before = None if one.begins == "zero" else makers.get(one.added)
        held = 0 if one.begins == "zero" else None
        if before is not None:
            held = lengths.pop(before, None)
        lengths[i] = None if held is None else held + k
        makers[one.result] = i
    return [(cores[i], k) for i, k in lengths.items()]
