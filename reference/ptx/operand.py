"""Operands of PTX: registers, literals and vectors of them, read and written as typed arrays."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.ptx.operation import PtxType, UnknownAsm


@dataclass(frozen=True, slots=True)
class Register:
    """Bits in the environment: unsigned integers of `width` bits, or booleans where it is 1."""

    name: str
    width: int
    negated: bool = False

    def read(self, env: dict[str, Array], t: PtxType, groups: int) -> Array:
        """The register's low bits as an array of t's dtype, t.lanes numbers a group."""
        value = env[self.name]
        if t.kind == "p":
            return ~value if self.negated else value
        return value.astype(f"u{t.width // 8}").view(t.dtype)

    def write(self, env: dict[str, Array], t: PtxType, value: Array, guard: Array | None) -> None:
        """Store where the guard holds; a wider register is sign-extended for s types, else by 0."""
        if t.kind == "p":
            code = value
        else:
            kind = "i" if t.kind == "s" else "u"
            code = np.ascontiguousarray(value, t.dtype).view(f"{kind}{t.width // 8}")
            code = code.astype(f"{kind}{self.width // 8}").view(f"u{self.width // 8}")
        if guard is not None:
            # a first write under a predicate leaves other lanes undefined: zero here
            code = np.where(guard, code, env.get(self.name, np.zeros_like(code)))
        env[self.name] = code


@dataclass(frozen=True, slots=True)
class Literal:
    """The same bits in every group."""

    code: int

    def read(self, env: dict[str, Array], t: PtxType, groups: int) -> Array:
        """The literal, once per group."""
        if t.kind == "p":
            return np.full(groups, bool(self.code))
        return np.full(groups, self.code, f"u{t.width // 8}").view(t.dtype)


@dataclass(frozen=True, slots=True)
class Vector:
    """{lo, hi}: registers side by side, the first in the low bits; None stands for `_`."""

    parts: tuple[Register | None, ...]

    def read(self, env: dict[str, Array], t: PtxType, groups: int) -> Array:
        """All parts as one number."""
        rows = [env[part.name].reshape(groups, 1) for part in self.parts if part]
        return np.concatenate(rows, axis=1).view(f"u{t.width // 8}").reshape(-1).view(t.dtype)

    def write(self, env: dict[str, Array], t: PtxType, value: Array, guard: Array | None) -> None:
        """Cut the number into the parts."""
        width = t.width // len(self.parts)
        code = np.ascontiguousarray(value, t.dtype).view(f"u{t.width // 8}").reshape(-1, 1)
        pieces = code.view(f"u{width // 8}")
        piece_type = PtxType("", "b", np.dtype(f"u{width // 8}"))
        for i, part in enumerate(self.parts):
            if part:
                part.write(env, piece_type, np.ascontiguousarray(pieces[:, i]), guard)


Operand = Register | Literal | Vector
Scope = dict[str, Register]

_INTEGER = re.compile(r"(-?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?")


def split_operands(text: str) -> list[str]:
    """The operands between the commas outside braces."""
    return [part.strip() for part in re.split(r",(?![^{]*\})", text)] if text else []


def parse_operand(
    text: str,
    t: PtxType,
    scopes: Sequence[Scope],
    where: str,
    *,
    loose: bool = False,
    vector: bool = False,
) -> Operand:
    """The operand of an instruction that takes type t there; UnknownAsm shows the instruction."""
    shown = where.replace("#", "$")[:80]
    if text.startswith("{") and text.endswith("}") and vector and t.kind == "b":
        names = [part.strip() for part in text[1:-1].split(",")]
        parts = tuple(None if name == "_" else _find(name, scopes, shown) for name in names)
        for part in parts:
            if t.width % len(parts) or (part and part.width != t.width // len(parts)):
                raise UnknownAsm(f"asm: got {shown}, expected parts that fill .{t.name}")
        return Vector(parts)
    if t.kind != "i" and re.match(r"[!A-Za-z_$%#]", text):
        register = _find(text.lstrip("!"), scopes, shown)
        width = 1 if t.kind == "p" else t.width
        wide = loose and t.kind in "usf" and 1 < width <= register.width
        if register.width != width and not wide:
            raise UnknownAsm(
                f"asm: got {shown}, expected a register of {width} bits for .{t.name}, not"
                f" {register.width}"
            )
        if text.startswith("!"):
            if t.kind != "p":
                raise UnknownAsm(f"asm: got {shown}, expected ! before predicates only")
            return Register(register.name, 1, negated=True)
        return register
    return Literal(_literal(text, t, shown))


def _find(name: str, scopes: Sequence[Scope], shown: str) -> Register:
    for scope in reversed(scopes):
        if name in scope:
            return scope[name]
    raise UnknownAsm(f"asm: got {shown}, expected {name.replace('#', '$')} to be declared")


def _literal(text: str, t: PtxType, shown: str) -> int:
    """The bits of an integer, or of 0f and 0d codes or a decimal fraction where t has 32 or 64."""
    width = 1 if t.kind == "p" else t.width
    whole = _INTEGER.fullmatch(text)
    if whole and t.kind != "f":
        digits = whole[2]
        base = 8 if re.fullmatch(r"0[0-7]+", digits) else 0
        value = int(digits, base) * (-1 if whole[1] else 1)
        if not -(1 << max(width - 1, 0)) <= value < 1 << width:
            raise UnknownAsm(f"asm: got {shown}, expected a literal of {width} bits")
        return value % (1 << width)
    if t.kind in "bf" and t.lanes == 1 and width in (32, 64):
        return _float_literal(text, t, shown)
    raise UnknownAsm(f"asm: got {shown}, expected an operand for .{t.name}, not {text!r}")


def _float_literal(text: str, t: PtxType, shown: str) -> int:
    value: Any
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        if t.width == 32:
            return int(text[2:], 16)
        value = struct.unpack(">f", bytes.fromhex(text[2:]))[0]
    elif re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        if t.width == 64:
            return int(text[2:], 16)
        value = struct.unpack(">d", bytes.fromhex(text[2:]))[0]
    elif t.kind == "f" and re.fullmatch(r"-?\d+\.\d*(?:[eE][+-]?\d+)?|-?\d+[eE][+-]?\d+", text):
        value = float(text)
    else:
        raise UnknownAsm(f"asm: got {shown}, expected an operand for .{t.name}, not {text!r}")
    if t.kind != "f":
        raise UnknownAsm(f"asm: got {shown}, expected a literal of {t.width} bits")
    with np.errstate(over="ignore"):
        return int(np.array(value).astype(t.dtype).view(f"u{t.width // 8}"))
