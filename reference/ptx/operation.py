"""What a PTX mnemonic means: the types it reads and writes, and a function of typed arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from gemmproof.reference.formats import FORMATS

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
    """An instruction without its operands: run takes an array a type of `reads`.

    It gives an array for the one type of `writes`, or a tuple where there are more, of which the
    text may leave out the last `optional`. With `loose`, as for cvt, a register may be wider than
    its type (PTX ISA, operand size exceeding instruction-type size).
    """

    writes: tuple[str, ...]
    reads: tuple[str, ...]
    run: Callable[..., Any]
    loose: bool = False
    optional: int = 0


#: Modifiers of instructions whose result the PTX ISA bounds only.
_BOUNDED = ("approx", "full")
#: What the assembler may fuse where no rounding is written (PTX ISA, add.f32 and mul.f32).
_FUSED = {"add": "+", "sub": "-", "mul": "*"}
_ROUNDINGS = ("rn", "rz", "rm", "rp")


def name_freedom(mnemonic: str) -> str:
    """What a GPU may do in its own way, in the words of Launch.rounds; "" where bits are given.

    "math" for an approximation, else the sum or product of floats that may become part of an fma.
    """
    root, *words = mnemonic.split(".")
    if set(_BOUNDED) & set(words):
        return "math"
    is_float = any(TYPES[word].kind == "f" for word in words if word in TYPES)
    return _FUSED.get(root, "") if is_float and not set(_ROUNDINGS) & set(words) else ""


class Words:
    """The words of a mnemonic after its root, each taken once."""

    def __init__(self, mnemonic: str) -> None:
        self.mnemonic = mnemonic
        self.root, *self.left = mnemonic.split(".")

    def types(self) -> list[str]:
        """Take all words that are types, in order."""
        found = [w for w in self.left if w in TYPES]
        self.left = [w for w in self.left if w not in TYPES]
        return found

    def one_type(self, *allowed: str) -> str:
        """Take the only type, which must be among `allowed`."""
        found = self.types()
        if len(found) != 1 or found[0] not in allowed:
            raise self.unknown(f"expected one type of {' '.join(allowed)}")
        return found[0]

    def flag(self, word: str) -> bool:
        """Take `word` if it is there."""
        present = word in self.left
        if present:
            self.left.remove(word)
        return present

    def one_of(self, *choices: W, default: W | None = None) -> W:
        """Take the one word that is among `choices`; without any, `default`."""
        found = [w for w in choices if w in self.left]
        if not found and default:
            return default
        if len(found) != 1:
            raise self.unknown(f"expected one of .{' .'.join(choices)}")
        self.left.remove(found[0])
        return found[0]

    def pick(self, choices: Mapping[str, K]) -> K:
        """Take the one word that is a key of `choices`, and give what it stands for."""
        return choices[self.one_of(*choices)]

    def finish(self) -> None:
        """Refuse the words that are left: to ignore a modifier would be a guess."""
        if self.left:
            raise self.unknown(f"expected no .{' .'.join(self.left)}")

    def unknown(self, expected: str) -> UnknownAsm:
        """The error that names this mnemonic."""
        return UnknownAsm(f"asm: got {self.mnemonic}, {expected}")


Family = Callable[[Words], Opcode]


def elementwise(compute: Callable[..., Any], count: int, *types: str) -> Family:
    """The family of an operation without modifiers on `count` operands of one type of `types`."""

    def read(words: Words) -> Opcode:
        t = words.one_type(*types)
        return Opcode((t,), (t,) * count, compute)

    return read
