"""What AMD's assembly says of a kernel: matrix instructions, accesses, and its own metadata.

Names are those of LLVM's "Syntax of AMDGPU Instructions" and "User Guide for AMDGPU Backend", whose
table "AMDHSA Code Object V5 Kernel Metadata Map" has the counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gemmproof.lowering.binary.ptx import NOWHERE, Place
from gemmproof.lowering.record import FMA, UNKNOWN

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_INSTRUCTION = re.compile(r"\s+([a-z]\w*)(?:\s+([^;]*?))?\s*(?:;.*)?$")
_MATRIX = re.compile(
    r"v_(?:mfma|smfmac)_(?:scale_)?(f64|f32|i32)_(\d+)x(\d+)x(\d+)(?:_\d+b)?_?(\w*)$"
)
_WMMA = re.compile(r"v_s?wmma\w*?_(f32|f16|bf16|i32)_(\d+)x(\d+)x(\d+)_(\w+)$")
_FORMATS = re.compile(r"bf16|xf32|fp8|bf8|f8f6f4|f64|f32|f16|i8|iu8|u8|iu4")
_ENCODING = re.compile(r"_(?:e32|e64|dpp|sdwa)$")
_FUSED = re.compile(
    r"v_(?:pk_)?(?:fma|fmac|mad|mac|fma_mix|mad_mix)(?:lo|hi)?_(f64|f32|f16|bf16)|v_dot\w+"
)
_ACCESS = re.compile(r"(buffer|global|flat)_(load|store|atomic)_(\w+)")
_WIDTHS = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4,
           "u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12,
           "b128": 16}  # fmt: skip
_COUNT = re.compile(r"^\s+(?:- )?\.(\w+):\s+(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class AmdInstruction:
    """A matrix instruction or a fused multiply-add: as `record.DotInstruction`, at its place."""

    place: Place
    name: str
    unit: str
    shape: tuple[int, int, int] | None = None
    a: str = ""
    b: str = ""
    accumulator: str = ""
    from_zero: bool = False


@dataclass(slots=True)
class AmdAssembly:
    """The instructions that matter of a text, and the counts of its metadata by their names."""

    products: list[AmdInstruction] = field(default_factory=list)
    accesses: list[tuple[Place, str, int]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def read_amdgcn(text: str) -> AmdAssembly:
    """The assembly of one kernel."""
    files: dict[int, str] = {}
    found, place = AmdAssembly(), NOWHERE
    code, _, metadata = text.partition(".amdgpu_metadata")
    for line in code.splitlines():
        if named := _FILE.match(line):
            files[int(named[1])] = "/".join(x for x in (named[2], named[3]) if x)
        elif loc := _LOC.match(line):
            place = (files.get(int(loc[1]), ""), int(loc[2]), int(loc[3]))
        elif (one := _INSTRUCTION.match(line)) and not line.lstrip().startswith("."):
            product = _read_product(one[1], one[2] or "", place)
            if product is not None:
                found.products.append(product)
            access = _read_access(one[1], one[2] or "")
            if access is not None:
                found.accesses.append((place, *access))
    found.counts = {name: int(count) for name, count in _COUNT.findall(metadata)}
    return found


def _read_product(name: str, operands: str, place: Place) -> AmdInstruction | None:
    if name.startswith(("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")):
        known = _MATRIX.match(name) or _WMMA.match(name)
        if known is None:
            return AmdInstruction(place, name, UNKNOWN)
        shape = (int(known[2]), int(known[3]), int(known[4]))
        formats = _FORMATS.findall(known[5])
        a, b = (formats * 2)[:2] if formats else ("", "")
        added = operands.split(", ")[3:4]
        unit = name.split("_")[1]
        return AmdInstruction(place, name, unit, shape, a, b, known[1], added == ["0"])
    bare = _ENCODING.sub("", name)
    if found := _FUSED.fullmatch(bare):
        return AmdInstruction(place, bare, FMA, None, "", "", found[1] or "")
    return None


def _read_access(name: str, operands: str) -> tuple[str, int] | None:
    found = _ACCESS.match(name)
    if found is None:
        return None
    kind = "lds load" if found[2] == "load" and re.search(r"\blds\b", operands) else found[2]
    return kind, _count_bytes(found[3])


def _count_bytes(word: str) -> int:
    """The bytes of "dwordx4", "short_d16_hi", "lds_dwordx4"; 0 where they are not known."""
    parts = word.removeprefix("lds_").split("_")
    if vector := re.fullmatch(r"dwordx(\d+)", parts[0]):
        return 4 * int(vector[1])
    return _WIDTHS.get(parts[0], 0)


def list_kinds(assembly: AmdAssembly) -> Iterator[str]:
    """The names of matrix instructions that were not recognised."""
    yield from sorted({x.name for x in assembly.products if x.unit == UNKNOWN})
