"""The instructions of tensor cores in a PTX program: shape, formats, and where each sum begins.

Grammar and names: PTX ISA 8.8, "Warp Level Matrix Multiply-Accumulate Instructions" (mma),
"Asynchronous Warpgroup Level Matrix Instructions" (wgmma), and "TensorCore 5th Generation Family
Instructions" (tcgen05) with the table "Instruction descriptor format for .kind::tf32, .kind::f16,
.kind::f8f6f4 and .kind::i8".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from gemmproof.lowering.binary.ptx import PtxProgram, PtxStatement
from gemmproof.lowering.binary.ptx_values import Values
from gemmproof.lowering.record import UNKNOWN

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
