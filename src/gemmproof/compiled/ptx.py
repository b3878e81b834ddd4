"""PTX parsed into statements, accesses, instructions that multiply, and their sums."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gemmproof.compiled.record import FMA, UNKNOWN, UNKNOWN_PLACE, DotInstruction, Place

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


@dataclass(frozen=True, slots=True)
class PtxStatement:
    """One instruction: `opcode` with its modifiers, the operands as text, and its place.

    `number` is its position among the statements of the text, `guard` the predicate that enables
    it, with its "!".
    """

    number: int
    opcode: str
    operands: tuple[str, ...]
    guard: str
    location: Place

    @property
    def parts(self) -> tuple[str, ...]:
        """The opcode's parts: "cp.async.cg.shared.global" has five."""
        return tuple(self.opcode.split("."))

    def registers(self, index: int) -> tuple[str, ...]:
        """The registers of an operand."""
        return tuple(_REGISTER.findall(self.operands[index]))


@dataclass(slots=True)
class PtxProgram:
    """The statements of a PTX text, and for each label the number of the statement after it.

    `declared` is the bytes per thread of variables that the text itself puts into local memory.
    """

    statements: list[PtxStatement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    declared: int = 0

    def loops(self) -> list[tuple[int, int]]:
        """Return the first and last statement of each loop: a label to the last branch to it."""
        loops: dict[str, tuple[int, int]] = {}
        for statement in self.statements:
            if statement.parts[0] in ("bra", "brx") and statement.operands:
                start = self.labels.get(statement.operands[0])
                if start is not None and start <= statement.number:
                    loops[statement.operands[0]] = (start, statement.number)
        return list(loops.values())


_DEPOT = re.compile(r"\.local\s+(?:\.align\s+\d+\s+)?\.b8\s+[\w$]+\[(\d+)\]")


def read_ptx(text: str) -> PtxProgram:
    """Parse a PTX text, without its sections of debug information."""
    files = {int(number): path for number, path in _FILE.findall(text)}
    # LLVM counts the lines of inline assembly on from its place and does not mark its end
    code = _INLINE.sub(lambda x: _INNER_LOC.sub("", x[0]), text.partition("\n\t.section")[0])
    code = _COMMENTS.sub("", code)
    program = PtxProgram(declared=sum(map(int, _DEPOT.findall(code))))
    location = UNKNOWN_PLACE
    for piece, loc in _split(code):
        if loc is not None:
            number, line, column = map(int, loc)
            location = (files.get(number, ""), line, column)
            continue
        _take(piece, location, program)
    return program


def _split(code: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Yield the pieces of code between semicolons, and each .loc in its position."""
    pending = ""
    for line in code.splitlines():
        if match := _LOC.match(line):
            yield "", match.groups()
            continue
        *complete, rest = line.split(";")
        for piece in complete:
            yield f"{pending} {piece}", None
            pending = ""
        pending = f"{pending} {rest}".strip() and f"{pending} {rest}"
        if pending.rstrip().endswith(":"):
            yield pending, None
            pending = ""


def _take(piece: str, location: Place, program: PtxProgram) -> None:
    """Add the labels of a piece of code and its instruction, if it has one."""
    rest = piece.strip()
    while True:
        if rest[:1] in ("{", "}", ")"):  # blocks of inline assembly, and of a function
            rest = rest[1:].strip()
        elif match := _LABEL.match(rest):
            program.labels[match[1]] = len(program.statements)
            rest = rest[match.end() :].strip()
        else:
            break
    if not rest or rest.startswith("."):
        # the head of a function ends with its opening brace, and a statement follows
        head, brace, body = rest.rpartition("{")
        if brace and (".entry" in head or ".func" in head):
            _take(body, location, program)
        return
    guard = ""
    if match := _PREDICATE.match(rest):
        guard, rest = f"{match[1]}{match[2]}", rest[match.end() :]
    if match := _OPCODE.match(rest):
        operands = tuple(split_operands(match[2]))
        number = len(program.statements)
        program.statements.append(PtxStatement(number, match[1], operands, guard, location))


def split_operands(text: str) -> list[str]:
    """Split operands at commas outside brackets; a trailing predicate target is one, too."""
    operands, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0:
            operands.append(text[start:i].strip())
            start = i + 1
    return [*operands, text[start:].strip()] if text.strip() else []


# -- ptx values ----------------------------------------------------------------------------------
Constant = int | None


class Values:
    """The constants of a program's registers."""

    def __init__(self, program: PtxProgram) -> None:
        self._starts = sorted({0, *program.labels.values()})
        self._writers: dict[str, list[PtxStatement]] = defaultdict(list)
        for statement in program.statements:
            for register in written(statement):
                self._writers[register].append(statement)
        self._global_constants = self._find_global_constants()

    def at(self, statement: PtxStatement, register: str) -> Constant:
        """Return the constant in a register when a statement begins, or None if it has none."""
        writers = self._writers.get(register, [])
        before = bisect_left(writers, statement.number, key=lambda x: x.number)
        block = self._starts[bisect_right(self._starts, statement.number) - 1]
        if before and writers[before - 1].number >= block:
            writer = writers[before - 1]
            if not _moves_constant(writer):
                return None
            source = writer.operands[1]
            return self.at(writer, source) if source.startswith("%") else _read_constant(source)
        return self._global_constants.get(register)

    def _find_global_constants(self) -> dict[str, Constant]:
        """Return the registers that every writer sets to the same constant."""
        constants: dict[str, Constant] = {}
        waiting = {n for n, writers in self._writers.items() if all(map(_moves_constant, writers))}
        changed = True
        while changed:
            changed = False
            for name in sorted(waiting):
                sources = {x.operands[1] for x in self._writers[name]}
                values = {constants.get(s) if s[0] == "%" else _read_constant(s) for s in sources}
                if len(values) == 1 and (value := values.pop()) is not None:
                    constants[name] = value
                    waiting.discard(name)
                    changed = True
        return constants


def _moves_constant(statement: PtxStatement) -> bool:
    """Return whether the statement always gives one register one value."""
    operands = statement.operands
    return (
        statement.parts[0] == "mov"
        and len(operands) == 2
        and "{" not in "".join(operands)
        and (not statement.guard)
    )


def _read_constant(source: str) -> Constant:
    """Parse a number of PTX: an integer, or a float zero; None for anything else."""
    if re.fullmatch(r"0[fFdD][0-9a-fA-F]+", source):
        return 0 if int(source[2:], 16) == 0 else None
    try:
        return int(source.rstrip("U"), 0)
    except ValueError:
        return None


def written(statement: PtxStatement) -> tuple[str, ...]:
    """Return the registers that an instruction writes."""
    if not statement.operands or statement.parts[0] in ("st", "bra", "bar", "red", "ret"):
        return ()
    first = statement.operands[0]
    if first.startswith("["):  # stores, copies and commands of the tensor core
        return ()
    return tuple(re.findall(r"%[\w$]+", first))


# -- ptx access ----------------------------------------------------------------------------------
_VECTOR = re.compile(r"v([248])")
_TYPE = re.compile(r"[bsuf](8|16|32|64|128)|f16x2|bf16x?2?|f32x2")
_TWICE = {"f16x2": 4, "bf16x2": 4, "f32x2": 8, "bf16": 2, "bf16x": 0}


def list_accesses(program: PtxProgram) -> Iterator[tuple[Place, str, int]]:
    """Yield the place, the kind and the bytes per thread of each access; 0 bytes for a tile."""
    for statement in program.statements:
        access = _read_access(statement)
        if access is not None:
            yield statement.location, *access


def _read_access(statement: PtxStatement) -> tuple[str, int] | None:
    parts = statement.parts
    spaces = {part.partition("::")[0] for part in parts}
    if parts[:3] == ("cp", "async", "bulk"):
        return _read_bulk(statement)
    if parts[:4] == ("cp", "reduce", "async", "bulk"):
        return "atomic", 0
    if parts[:2] == ("cp", "async") and "global" in parts:
        return "async copy", _read_size(statement)
    if "global" not in spaces or parts[0] not in ("ld", "ldu", "st", "atom", "red"):
        return None
    kind = {"ld": "load", "ldu": "load", "st": "store"}.get(parts[0], "atomic")
    return kind, _count_bytes(parts)


def _read_bulk(statement: PtxStatement) -> tuple[str, int] | None:
    """Classify cp.async.bulk{.tensor.Nd}.dst.src: the order of the spaces is the direction."""
    spaces = [x.partition("::")[0] for x in statement.parts if x.startswith(("shared", "global"))]
    if spaces == ["shared", "global"]:
        return "tma load", 0
    if spaces == ["global", "shared"]:
        return "tma store", 0
    return None  # groups that are committed and waited for, prefetches


def _read_size(statement: PtxStatement) -> int:
    """cp.async.{ca,cg}.shared.global [dst], [src], cp-size{, src-size}"""
    try:
        return int(statement.operands[2], 0)
    except (IndexError, ValueError):
        return 0


def _count_bytes(parts: tuple[str, ...]) -> int:
    lanes = next((int(x[1]) for part in parts if (x := _VECTOR.fullmatch(part))), 1)
    last = parts[-1]
    if not (match := _TYPE.fullmatch(last)):
        return 0
    return lanes * (int(match[1]) // 8 if match[1] else _TWICE[last])


# -- ptx dots ------------------------------------------------------------------------------------
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_TYPES = re.compile(r"(?:f64|f32|tf32|f16|bf16|e4m3|e5m2|e3m2|e2m3|e2m1|[su](?:4|8|32)|b1)")
REGISTERS, SHARED, TENSOR = "registers", "shared", "tensor memory"
_ACCUMULATORS = {0: "f16", 1: "f32", 2: "s32"}
# tcgen05 kinds: elements of k per instruction, and the formats by number
_KINDS: Mapping[str, tuple[int, Mapping[int, str]]] = {
    "f16": (16, {0: "f16", 1: "bf16"}),
    "tf32": (8, {2: "tf32"}),
    "f8f6f4": (32, {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}),
    "i8": (32, {0: "u8", 1: "s8"}),
}
ZERO, SUM, OPEN = (1, 0), (0, 0), (0, 1)  # from_zero and or_zero of an instruction
_FUSED = ("fma", "mad", "dp4a")


@dataclass(frozen=True, slots=True)
class CoreInstruction:
    """One tensor core instruction in the text, a count of one.

    `result` and `added` are the registers, or the address, of d and of c.
    """

    statement: PtxStatement
    instruction: DotInstruction
    result: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """The unit that executes it."""
        return self.instruction.unit


def list_fused(program: PtxProgram) -> Iterator[tuple[Place, DotInstruction]]:
    """Yield every fused multiply-add; an instruction on a pair of values counts twice."""
    for statement in program.statements:
        name, parts = statement.opcode, statement.parts
        if parts[0] in _FUSED and parts[1:2] != ("wide",):
            count = 2 if name.endswith("x2") else 1
            accumulator = parts[-1].removesuffix("x2")
            yield statement.location, DotInstruction(name, FMA, count, accumulator=accumulator)


def list_core_instructions(program: PtxProgram) -> Iterator[CoreInstruction]:
    """Yield every tensor core instruction, in the order of the text."""
    values = Values(program)
    for statement in program.statements:
        parts = statement.parts
        if parts[0] in ("mma", "wmma") and (parts[0] == "mma" or "mma" in parts[1:2]):
            yield _read_mma(statement, values)
        elif parts[:2] == ("wgmma", "mma_async"):
            yield _read_wgmma(statement, values)
        elif parts[0] == "tcgen05" and parts[1] == "mma":
            yield _read_tcgen05(statement, values)


def _read_mma(statement: PtxStatement, values: Values) -> CoreInstruction:
    """mma.sync.aligned.shape.alayout.blayout{...}.dtype.atype.btype.ctype{.stype} d, a, b, c"""
    types = [part for part in statement.parts if _TYPES.fullmatch(part)]
    is_complete = statement.parts[0] == "mma" and len(types) >= 4 and len(statement.operands) >= 4
    if not is_complete:
        return _unknown_core(statement)
    added = statement.registers(3)
    from_zero = bool(added) and all(values.at(statement, x) == 0 for x in added)
    formats, shape = (types[1], types[2], types[0]), _shape_of(statement)
    operands, begins = (REGISTERS, REGISTERS), (int(from_zero), 0)
    instruction = DotInstruction(statement.opcode, "mma", 1, shape, *formats, operands, *begins)
    return CoreInstruction(statement, instruction, statement.registers(0), added)


def _read_wgmma(statement: PtxStatement, values: Values) -> CoreInstruction:
    """wgmma.mma_async{.sp}.sync.aligned.shape.dtype.atype.btype d, a, b-desc, scale-d, ..."""
    types = [part for part in statement.parts if _TYPES.fullmatch(part)]
    index = 4 if "sp" in statement.parts else 3  # after the metadata of sparse operands
    if len(types) != 3 or len(statement.operands) <= index:
        return _unknown_core(statement)
    a = REGISTERS if statement.operands[1].startswith("{") else SHARED
    result = statement.registers(0)
    begins = _read_input(values, statement, statement.operands[index])
    if begins == SUM and all(values.at(statement, x) == 0 for x in result):
        begins = ZERO
    formats, shape = (types[1], types[2], types[0]), _shape_of(statement)
    operands = (a, SHARED)
    instruction = DotInstruction(statement.opcode, "wgmma", 1, shape, *formats, operands, *begins)
    return CoreInstruction(statement, instruction, result, result)


def _read_tcgen05(statement: PtxStatement, values: Values) -> CoreInstruction:
    """tcgen05.mma.cta_group.kind [d], a, b-desc, idesc, {...,} enable-input-d{, ...}"""
    kind = next((x.partition("::")[2] for x in statement.parts if x.startswith("kind::")), "")
    if len(statement.operands) < 5:
        return _unknown_core(statement)
    enable = next((x for x in statement.operands[4:] if re.fullmatch(r"!?%p\w*", x)), "")
    a = TENSOR if statement.operands[1].startswith("[") else SHARED
    shape, formats = None, ("", "", "")
    descriptor = values.at(statement, statement.operands[3])
    if isinstance(descriptor, int) and kind in _KINDS:
        shape, formats = _read_descriptor(kind, descriptor & 0xFFFFFFFF)
    address = (statement.operands[0].replace(" ", ""),)
    operands, begins = (a, SHARED), _read_input(values, statement, enable)
    instruction = DotInstruction(statement.opcode, "tcgen05", 1, shape, *formats, operands, *begins)
    return CoreInstruction(statement, instruction, address, address)


def _read_descriptor(kind: str, bits: int) -> tuple[tuple[int, int, int], tuple[str, str, str]]:
    """Read the shape, and the formats of a, b and the accumulator, from a descriptor.

    Bits 4-5 are the format of d, 7-9 of a, 10-12 of b, 17-22 are n / 8, 24-28 are m / 16.
    """
    k, formats = _KINDS[kind]
    n, m = (bits >> 17 & 63) * 8, (bits >> 24 & 31) * 16
    a, b = (formats.get(bits >> at & 7, "") for at in (7, 10))
    return (m, n, k), (a, b, _ACCUMULATORS.get(bits >> 4 & 3, ""))


def _read_input(values: Values, statement: PtxStatement, operand: str) -> tuple[int, int]:
    """Return how a sum begins, by the predicate of its accumulator: false leaves it out."""
    value = values.at(statement, operand) if operand.startswith("%") else _read_number(operand)
    if not isinstance(value, int):
        return OPEN
    return SUM if value else ZERO


def _read_number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def _shape_of(statement: PtxStatement) -> tuple[int, int, int] | None:
    match = next((s for part in statement.parts if (s := _SHAPE.fullmatch(part))), None)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def _unknown_core(statement: PtxStatement) -> CoreInstruction:
    unknown = DotInstruction(statement.opcode, UNKNOWN, 1, _shape_of(statement), or_zero=1)
    return CoreInstruction(statement, unknown)


# -- ptx sums ------------------------------------------------------------------------------------
# unchanged, scaled, or packed into a pair: older compilers pack by shifts
_PASSED_ON = ("mov", "mul", "cvt", "shl", "or")


def find_promotion(
    program: PtxProgram, dot: Sequence[CoreInstruction], cores: Sequence[CoreInstruction]
) -> tuple[int, int | None]:
    """Return the number of additions that promote one dot's sums, and the longest such sum.

    `cores` are all instructions of the program. The additions are those of a thread to other sums;
    the longest sum is in elements of k, with those that another dot handed to it. 0 and None if
    none is added in the loop that computes it.
    """
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
        # a sum that does not begin with 0 may continue one that does: a split passes it by a select
        loop_additions = _find_additions(body, [x for x, _ in sums])
        if loop_additions:
            additions |= loop_additions
            longest = max(longest or 0, *begun)
    widths = (2 if program.statements[n].opcode.endswith("x2") else 1 for n in additions)
    return sum(widths), longest


def _innermost(loops: list[tuple[int, int]], number: int) -> tuple[int, int] | None:
    around = [(start, stop) for start, stop in loops if start <= number <= stop]
    return min(around, key=lambda loop: loop[1] - loop[0], default=None)


def _find_additions(body: list[PtxStatement], dot: Sequence[CoreInstruction]) -> set[int]:
    """Return the numbers of statements that add a dot's result, also moved or scaled."""
    registers = {register for x in dot for register in x.result if register.startswith("%")}
    if any(x.unit == "tcgen05" for x in dot):  # its results are read from tensor memory
        reads = (x for x in body if x.parts[:2] == ("tcgen05", "ld"))
        registers |= {register for x in reads for register in written(x)}
    count = -1
    while count != len(registers):  # a loop-carried value is used before it is written in the text
        count = len(registers)
        for statement in body:
            if statement.parts[0] in _PASSED_ON and _sources(statement) & registers:
                registers |= set(written(statement))
    return {
        statement.number
        for statement in body
        if statement.parts[0] in ("add", "fma")
        and statement.parts[-1] in ("f32", "f32x2")
        and _sources(statement) & registers
    }


def _sources(statement: PtxStatement) -> set[str]:
    return {
        register for i in range(1, len(statement.operands)) for register in statement.registers(i)
    }


def _list_sums(cores: Sequence[CoreInstruction]) -> list[tuple[CoreInstruction, int | None]]:
    """Return the last instruction of each chain, and the chain's k if it begins with 0.

    An instruction whose result is the accumulator of another, also of another dot, is not the last.
    """
    lengths: dict[int, int | None] = {}
    makers: dict[tuple[str, ...], int] = {}
    for i, core in enumerate(cores):
        k = core.instruction.shape[2] if core.instruction.shape else 0
        previous = None if core.instruction.from_zero else makers.get(core.added)
        length = 0 if core.instruction.from_zero else None
        if previous is not None:
            length = lengths.pop(previous, None)
        lengths[i] = None if length is None else length + k
        makers[core.result] = i
    return [(cores[i], k) for i, k in lengths.items()]
