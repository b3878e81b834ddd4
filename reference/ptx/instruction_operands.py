"""Opcodes of PTX, and the operands that they take."""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from gemmproof.reference.arithmetic import Array
from gemmproof.reference.formats import FORMATS

# -- opcodes -------------------------------------------------------------------------------------
K = TypeVar("K")
W = TypeVar("W", bound=str)


class UnknownAsm(ValueError):
    """Assembly that this evaluator does not know, or that the assembler would refuse."""


@dataclass(frozen=True, slots=True)
class PtxType:
    """A PTX type: `lanes` numbers of dtype in one register, the first in the low bits.

    kind: b (untyped), u, s, f, p (predicate), or i for an operand that must be a literal.
    """

    name: str
    kind: str
    dtype: np.dtype[Any]
    lanes: int = 1

    @property
    def width(self) -> int:
        """Bits of the register."""
        return 8 * self.dtype.itemsize * self.lanes


def _types() -> Mapping[str, PtxType]:
    types = [
        PtxType(f"{kind}{width}", kind, np.dtype(f"{'i' if kind == 's' else 'u'}{width // 8}"))
        for kind in "bus"
        for width in (8, 16, 32, 64)
    ]
    types += [
        PtxType(f.ptx + "x2" * f.is_fp8, "f", f.storage, 1 + f.is_fp8)  # bytes come in pairs only
        for f in FORMATS.values()
        if f.ptx
    ]
    types += [PtxType(f"{t.name}x2", t.kind, t.dtype, 2) for t in types if t.name in _PAIRED]
    types += [
        PtxType("e3m2x2", "f", np.dtype(ml_dtypes.float6_e3m2fn), 2),
        PtxType("e2m3x2", "f", np.dtype(ml_dtypes.float6_e2m3fn), 2),
        PtxType("ue8m0x2", "f", np.dtype(ml_dtypes.float8_e8m0fnu), 2),
        # two nibbles: numpy has no packed four-bit type
        PtxType("e2m1x2", "f", np.dtype(np.uint8)),
        PtxType("pred", "p", np.dtype(bool)),
        PtxType("literal", "i", np.dtype(np.uint64)),
    ]
    return MappingProxyType({t.name: t for t in types})


_PAIRED = ("u16", "s16", "f16", "bf16", "f32")

TYPES = _types()


@dataclass(frozen=True, slots=True)
class Opcode:
    """An instruction without its operands: run takes one array for each type of `reads`.

    It returns an array for the one type of `writes`, or a tuple if there are more, of which the
    text may omit the last `optional`. With `loose`, as for cvt, a register may be wider than
    its type (PTX ISA, operand size exceeding instruction-type size).
    """

    writes: tuple[str, ...]
    reads: tuple[str, ...]
    run: Callable[..., Any]
    loose: bool = False
    optional: int = 0


#: Modifiers of instructions whose result the PTX ISA only bounds.
_BOUNDED = ("approx", "full")
#: Operations that the assembler may fuse if no rounding is written (PTX ISA, add.f32 and mul.f32).
_FUSED = {"add": "+", "sub": "-", "mul": "*"}
_ROUNDINGS = ("rn", "rz", "rm", "rp")


def label_freedom(mnemonic: str) -> str:
    """Return what a GPU may choose, as Launch.rounds names it, or "" if the bits are specified.

    "math" for an approximation, else the sum or product of floats that may become part of an fma.
    """
    root, *qualifiers = mnemonic.split(".")
    if set(_BOUNDED) & set(qualifiers):
        return "math"
    is_float = any(TYPES[word].kind == "f" for word in qualifiers if word in TYPES)
    return _FUSED.get(root, "") if is_float and not set(_ROUNDINGS) & set(qualifiers) else ""


class Words:
    """The words of a mnemonic after its root, each consumed once."""

    def __init__(self, mnemonic: str) -> None:
        self.mnemonic = mnemonic
        self.root, *self.left = mnemonic.split(".")

    def types(self) -> list[str]:
        """Take all words that are types, in order."""
        types = [w for w in self.left if w in TYPES]
        self.left = [w for w in self.left if w not in TYPES]
        return types

    def one_type(self, *allowed: str) -> str:
        """Take the only type, which must be among `allowed`."""
        types = self.types()
        if len(types) != 1 or types[0] not in allowed:
            raise self.unknown(f"expected one type of {' '.join(allowed)}")
        return types[0]

    def flag(self, word: str) -> bool:
        """Take `word`, and return True, if it is present."""
        present = word in self.left
        if present:
            self.left.remove(word)
        return present

    def one_of(self, *choices: W, default: W | None = None) -> W:
        """Take the one word that is among `choices`, or return `default` if there is none."""
        matches = [w for w in choices if w in self.left]
        if not matches and default:
            return default
        if len(matches) != 1:
            raise self.unknown(f"expected one of .{' .'.join(choices)}")
        self.left.remove(matches[0])
        return matches[0]

    def pick(self, choices: Mapping[str, K]) -> K:
        """Take the one word that is a key of `choices`, and return its value."""
        return choices[self.one_of(*choices)]

    def finish(self) -> None:
        """Refuse any remaining words: to ignore a modifier would be a guess."""
        if self.left:
            raise self.unknown(f"expected no .{' .'.join(self.left)}")

    def unknown(self, expected: str) -> UnknownAsm:
        """Return the error that names this mnemonic."""
        return UnknownAsm(f"asm: got {self.mnemonic}, {expected}")


Family = Callable[[Words], Opcode]


def elementwise(compute: Callable[..., Any], count: int, *types: str) -> Family:
    """Return the family of an unmodified operation on `count` operands of one type of `types`."""

    def read(mnemonic: Words) -> Opcode:
        t = mnemonic.one_type(*types)
        return Opcode((t,), (t,) * count, compute)

    return read


# -- operands ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Register:
    """Bits in the environment: unsigned integers of `width` bits, or booleans if it is 1."""

    name: str
    width: int
    negated: bool = False

    def read(self, env: dict[str, Array], t: PtxType, groups: int) -> Array:
        """Return the register's low bits as an array of t's dtype, t.lanes numbers a group."""
        value = env[self.name]
        if t.kind == "p":
            return ~value if self.negated else value
        return value.astype(f"u{t.width // 8}").view(t.dtype)

    def write(self, env: dict[str, Array], t: PtxType, value: Array, guard: Array | None) -> None:
        """Store where the guard holds, sign-extended to a wider register for s types, else by 0."""
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
        """Return the literal, once per group."""
        if t.kind == "p":
            return np.full(groups, bool(self.code))
        return np.full(groups, self.code, f"u{t.width // 8}").view(t.dtype)


@dataclass(frozen=True, slots=True)
class Vector:
    """{lo, hi}: registers side by side, the first in the low bits; None stands for `_`."""

    parts: tuple[Register | None, ...]

    def read(self, env: dict[str, Array], t: PtxType, groups: int) -> Array:
        """Return all parts as one number."""
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
    """Return the operands between the commas outside braces."""
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
    """Parse an operand that must have type t; UnknownAsm quotes the instruction."""
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
