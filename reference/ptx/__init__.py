"""Inline PTX assembly, parsed and evaluated in numpy."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import Array
from gemmproof.reference.ptx import float_instructions, integer_instructions
from gemmproof.reference.ptx.instruction_operands import (
    TYPES,
    Literal,
    Opcode,
    Operand,
    Register,
    Scope,
    UnknownAsm,
    Vector,
    Words,
    label_freedom,
    parse_operand,
    split_operands,
)

# -- registers -----------------------------------------------------------------------------------
# LLVM's register classes of NVPTX
_OPERAND = re.compile(r"\$(\$|\d+|\{\d+\})")
_WIDTHS = {"c": 16, "h": 16, "r": 32, "f": 32, "l": 64, "d": 64}


@dataclass(frozen=True, slots=True)
class TensorRegisters:
    """The registers of one tensor, each with `shared` of its elements."""

    dtype: np.dtype[Any]
    registers: tuple[Register, ...]
    shared: int


@dataclass(frozen=True, slots=True)
class RegisterLayout:
    """All operands of an invocation, results first, and the elements an invocation takes."""

    outputs: tuple[TensorRegisters, ...]
    inputs: tuple[TensorRegisters, ...]
    registers: dict[str, Register]
    pack: int

    @property
    def given(self) -> list[str]:
        """The registers that hold a value at the start."""
        return [r.name for group in self.inputs for r in group.registers]

    @property
    def results(self) -> list[str]:
        """The registers that must hold a value at the end."""
        return [r.name for group in self.outputs for r in group.registers]

    def load(self, inputs: Sequence[Array], count: int) -> tuple[dict[str, Array], int]:
        """Return the registers of all invocations at the start, and the number of invocations."""
        shapes = [(np.dtype(a.dtype), a.shape) for a in inputs]
        if shapes != [(group.dtype, (count,)) for group in self.inputs]:
            expected = " ".join(f"{group.dtype}[{count}]" for group in self.inputs)
            raise ValueError(f"asm inputs: got {shapes}, expected {expected}")
        groups = -(-count // self.pack)
        env: dict[str, Array] = {}
        for array, group in zip(inputs, self.inputs, strict=True):
            padded = np.zeros(groups * self.pack, group.dtype)
            padded[:count] = array
            size = group.shared * group.dtype.itemsize
            rows = padded.view(np.uint8).reshape(groups, len(group.registers), size)
            for i, register in enumerate(group.registers):
                raw = np.zeros((groups, register.width // 8), np.uint8)
                raw[:, :size] = rows[:, i]
                env[register.name] = raw.reshape(-1).view(f"u{register.width // 8}")
        return env, groups

    def store(self, env: dict[str, Array], count: int) -> list[Array]:
        """Return the result tensors from the registers at the end."""
        out = []
        for group in self.outputs:
            size = group.shared * group.dtype.itemsize
            rows = [
                env[r.name].view(np.uint8).reshape(-1, r.width // 8)[:, :size]
                for r in group.registers
            ]
            raw = np.ascontiguousarray(np.concatenate(rows, axis=1)).reshape(-1)
            out.append(raw.view(group.dtype)[:count])
        return out


def lay_out(
    constraints: str, ins: Sequence[np.dtype[Any]], outs: Sequence[np.dtype[Any]], pack: int
) -> RegisterLayout:
    """Lay out operands of these dtypes by LLVM's constraint string; UnknownAsm if they differ."""
    codes = _split_constraints(constraints)
    operands = [(np.dtype(d), True) for d in outs] + [(np.dtype(d), False) for d in ins]
    registers: dict[str, Register] = {}
    groups: list[TensorRegisters] = []
    for dtype, is_result in operands:
        shared = _share(dtype, pack)
        row = []
        for _ in range(pack // shared):
            index = len(registers)
            code = codes[index] if index < len(codes) else ""
            register = _allot(index, code, is_result, registers, constraints)
            if register.width < 8 * dtype.itemsize * shared:
                raise UnknownAsm(
                    f"constraints: got {code} for {shared} of {dtype}, expected a wider register"
                )
            registers[f"#{index}"] = register
            row.append(register)
        groups.append(TensorRegisters(dtype, tuple(row), shared))
    if len(codes) != len(registers):
        raise UnknownAsm(
            f"constraints: got {constraints!r}, expected {len(registers)} operands for these types"
            f" and pack={pack}"
        )
    return RegisterLayout(tuple(groups[: len(outs)]), tuple(groups[len(outs) :]), registers, pack)


def _split_constraints(constraints: str) -> list[str]:
    """Return the constraint of each operand."""
    codes = [code.strip() for code in constraints.split(",")]
    return [code for code in codes if code and not code.startswith("~")]


def _share(dtype: np.dtype[Any], pack: int) -> int:
    if dtype == np.bool_:
        raise UnknownAsm("asm operand: got bool, expected a type of 8 bits or more")
    shared = min(max(4 // dtype.itemsize, 1), pack)
    if pack < 1 or pack % shared:
        raise UnknownAsm(f"asm: got pack={pack} for {dtype}, expected a multiple of {shared}")
    return shared


def _allot(
    index: int, word: str, is_result: bool, before: dict[str, Register], constraints: str
) -> Register:
    letter = word.lstrip("=").replace("&", "")
    if word.startswith("=") == is_result:
        if letter in _WIDTHS:
            return Register(f"#{index}", _WIDTHS[letter])
        if not is_result and f"#{letter}" in before:
            return before[f"#{letter}"]  # tied: the operand starts in that result's register
    raise UnknownAsm(
        f"constraints: got {word!r} at {index} of {constraints!r}, expected a"
        f" {'result (=)' if is_result else 'source'} of {' '.join(_WIDTHS)}"
    )


# -- constants -----------------------------------------------------------------------------------
_CONSTANT = ("n", "i")  # constraints of operands that LLVM writes as literals


def list_constants(
    constraints: str, ins: Sequence[np.dtype[Any]], outs: Sequence[np.dtype[Any]], pack: int
) -> list[int]:
    """Return the numbers of the inputs whose constraints ask for a constant."""
    codes = _split_constraints(constraints)
    rows = _number_operands(ins, outs, pack)
    return [i for i, row in enumerate(rows) if {*codes[row.start : row.stop]} & {*_CONSTANT}]


def bind_constants(
    asm: str, constraints: str, ins: Sequence[np.dtype[Any]], outs: Sequence[np.dtype[Any]],
    pack: int, constants: Mapping[int, int],
) -> tuple[str, str]:  # fmt: skip
    """Return the text with these constants of inputs as literals, and the other constraints."""
    codes, rows = _split_constraints(constraints), _number_operands(ins, outs, pack)
    literals = {n: str(number) for i, number in constants.items() for n in rows[i]}
    kept = [n for n in range(len(codes)) if n not in literals]
    names = literals | {n: f"${i}" for i, n in enumerate(kept)}

    def rename(match: re.Match[str]) -> str:
        number = match[1].strip("{}")
        return names.get(int(number), match[0]) if number != "$" else match[0]

    return _OPERAND.sub(rename, asm), ",".join(codes[n] for n in kept)


def _number_operands(
    ins: Sequence[np.dtype[Any]], outs: Sequence[np.dtype[Any]], pack: int
) -> list[range]:
    """Return the numbers of the operands of each input."""
    ends = list(accumulate(pack // _share(np.dtype(dtype), pack) for dtype in (*outs, *ins)))
    return [range(begin, end) for begin, end in pairwise([0, *ends])][len(outs) :]


__all__ = ["Assembly", "UnknownAsm", "bind_constants", "compile_asm", "list_constants"]

Env = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Instruction:
    """An operation with its operands, and the predicate under which it writes.

    `freedom` names what a GPU may choose (label_freedom).
    """

    text: str
    freedom: str
    operation: Opcode
    writes: tuple[Operand, ...]
    reads: tuple[Operand, ...]
    guard: Register | None


@dataclass(frozen=True, slots=True)
class Assembly:
    """A program for the lanes of tensors.

    `rounds` names what a GPU may choose, as Launch.rounds does: it is empty if the PTX ISA
    specifies every bit.
    """

    program: tuple[Instruction, ...]
    layout: RegisterLayout
    rounds: frozenset[str]

    def run(self, inputs: Sequence[Array], lanes: int | None = None) -> list[Array]:
        """Return the result arrays for input arrays, one element a lane.

        Lanes up to a multiple of the layout's pack are padded with zeros, where Triton leaves them
        undefined, and their results dropped. `lanes` is used if there are no inputs.
        """
        count = len(inputs[0]) if inputs else self.layout.pack if lanes is None else lanes
        env, groups = self.layout.load(inputs, count)
        with np.errstate(all="ignore"):
            for instruction in self.program:
                _execute(instruction, env, groups)
        return self.layout.store(env, count)


def compile_asm(
    asm: str,
    constraints: str,
    in_dtypes: Sequence[np.dtype[Any]],
    out_dtypes: Sequence[np.dtype[Any]],
    pack: int,
) -> Assembly:
    """Compile an assembly string; registers are laid out as in Triton's lowering.

    Raises UnknownAsm.
    """
    layout = lay_out(constraints, in_dtypes, out_dtypes, pack)
    program = tuple(_parse(asm, layout))
    _check_order(program, layout)
    return Assembly(program, layout, frozenset(x.freedom for x in program) - {""})


def _parse(asm: str, layout: RegisterLayout) -> Iterator[Instruction]:
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", asm, flags=re.S)
    # the registers of operands get names that no program can spell
    text = _OPERAND.sub(lambda m: "$" if m[1] == "$" else f"#{m[1].strip('{}')}", text)
    scopes: list[Scope] = [dict(layout.registers)]
    at, blocks = 0, 0
    for statement in re.finditer(r"\s*(?:([{}])|([^;{}]*(?:\{[^}]*\}[^;{}]*)*);)", text):
        if statement.start() != at:
            break
        at = statement.end()
        if statement[1] == "{":
            blocks += 1
            scopes.append({})
        elif statement[1] == "}":
            if len(scopes) == 1:
                raise UnknownAsm("asm: got }, expected a block to close")
            scopes.pop()
        elif statement[2].startswith("."):
            _declare(statement[2], scopes[-1], blocks)
        elif statement[2]:
            yield _read_instruction(statement[2], scopes)
    rest = text[at:].strip()
    if rest:
        raise UnknownAsm(f"asm: got {_quote(rest)}, expected statements that end in ;")
    if len(scopes) > 1:
        raise UnknownAsm("asm: got a block without an end, expected }")


def _declare(statement: str, scope: Scope, block: int) -> None:
    """.reg .b32 x, r<4>; declares x and r0 to r3."""
    parts = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", statement.strip(), flags=re.S)
    t = TYPES.get(parts[1]) if parts else None
    if parts is None or t is None or t.kind == "i":
        raise UnknownAsm(f"asm: got {_quote(statement)}, expected .reg of a known type")
    for name in parts[2].split(","):
        item = re.fullmatch(r"([A-Za-z_$%][\w$]*)(?:<(\d+)>)?", name.strip())
        if item is None:
            raise UnknownAsm(f"asm: got {_quote(statement)}, expected names of registers")
        names = [f"{item[1]}{i}" for i in range(int(item[2]))] if item[2] else [item[1]]
        for each in names:
            if each in scope:
                raise UnknownAsm(f"asm: got {_quote(statement)}, expected no second {each}")
            scope[each] = Register(f"{block}:{each}", 1 if t.kind == "p" else t.width)


def _read_instruction(statement: str, scopes: list[Scope]) -> Instruction:
    text = " ".join(statement.split())
    form = re.fullmatch(r"(?:@(!?\s*[\w$%#]+)\s+)?([a-z]\w*(?:\.\w+)*)(?:\s+(.*))?", text)
    if form is None:
        raise UnknownAsm(f"asm: got {_quote(text)}, expected an instruction of straight-line PTX")
    operation = _resolve(form[2])
    operands = split_operands(form[3] or "")
    first = [name.strip() for name in operands[0].split("|")] if operands else []
    needed, most = len(operation.writes) - operation.optional, len(operation.writes)
    if not needed <= len(first) <= most or len(operands) != 1 + len(operation.reads):
        raise UnknownAsm(
            f"asm: got {_quote(text)}, expected {needed} results and {len(operation.reads)} sources"
        )
    is_move = form[2].startswith("mov.")
    types = [*operation.writes[: len(first)], *operation.reads]
    parsed = tuple(
        parse_operand(operand, TYPES[t], scopes, text, loose=operation.loose, vector=is_move)
        for operand, t in zip([*first, *operands[1:]], types, strict=True)
    )
    for operand in parsed[: len(first)]:
        if isinstance(operand, Literal) or getattr(operand, "negated", False):
            raise UnknownAsm(f"asm: got {_quote(text)}, expected a register for the result")
    guard = None
    if form[1]:
        operand = parse_operand(form[1].replace(" ", ""), TYPES["pred"], scopes, text)
        if not isinstance(operand, Register):
            raise UnknownAsm(f"asm: got {_quote(text)}, expected a predicate as the guard")
        guard = operand
    freedom = label_freedom(form[2])
    return Instruction(text, freedom, operation, parsed[: len(first)], parsed[len(first) :], guard)


def _resolve(mnemonic: str) -> Opcode:
    parsed = Words(mnemonic)
    # roots such as add belong to both: the types decide
    is_float = any(TYPES[word].kind == "f" for word in parsed.left if word in TYPES)
    families = (
        (float_instructions.FLOAT_FAMILIES if is_float else integer_instructions.INTEGER_FAMILIES)
        | float_instructions.CONVERSIONS
        | integer_instructions.SELECTIONS
    )
    if parsed.root not in families:
        raise UnknownAsm(f"asm: got {mnemonic}, expected an instruction that this evaluator knows")
    operation = families[parsed.root](parsed)
    parsed.finish()
    return operation


def _check_order(program: tuple[Instruction, ...], layout: RegisterLayout) -> None:
    """Refuse a register that is read, or returned as a result, before it is written."""
    written = set(layout.given)
    for instruction in program:
        reads = [*instruction.reads, *([instruction.guard] if instruction.guard else [])]
        for register in _registers(reads):
            if register.name not in written:
                name = register.name.split(":")[-1].replace("#", "$")
                raise UnknownAsm(
                    f"asm: got {_quote(instruction.text)}, expected a value in {name} before it"
                )
        written |= {register.name for register in _registers(instruction.writes)}
    for name in layout.results:
        if name not in written:
            raise UnknownAsm(f"asm: got no write of {name.replace('#', '$')}, expected one")


def _registers(operands: Sequence[Operand]) -> Iterator[Register]:
    for operand in operands:
        if isinstance(operand, Register):
            yield operand
        elif isinstance(operand, Vector):
            yield from (part for part in operand.parts if isinstance(part, Register))


def _execute(instruction: Instruction, env: Env, groups: int) -> None:
    operation = instruction.operation
    args = [
        operand.read(env, TYPES[t], groups)
        for operand, t in zip(instruction.reads, operation.reads, strict=True)
    ]
    results = operation.run(*args)
    results = results if isinstance(results, tuple) else (results,)
    guard = instruction.guard.read(env, TYPES["pred"], groups) if instruction.guard else None
    # the optional results that the text omits are the last ones
    for operand, t, value in zip(instruction.writes, operation.writes, results, strict=False):
        if not isinstance(operand, Literal):
            operand.write(env, TYPES[t], value, guard)


def _quote(text: str) -> str:
    return " ".join(text.split()).replace("#", "$")[:80]
