"""Triton's IR, AMD's assembly and cubins, parsed for facts."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO

from gemmproof.compiled.record import (
    FMA,
    UNKNOWN,
    UNKNOWN_PLACE,
    CompiledDot,
    DotInstruction,
    Place,
    SharedBuffer,
    format_place,
)

# -- Triton's IR ---------------------------------------------------------------------------------
_DOT = re.compile(
    r"\b(tt\.dot|tt\.dot_scaled|ttng\.warp_group_dot|ttng\.tc_gen5_mma|ttng\.tc_gen5_mma_scaled)"
    r"\s+(%.*)$",
    re.MULTILINE,
)
_ALIAS = re.compile(r"^#([\w.]+) = (.*)$", re.MULTILINE)
_LINE = re.compile(r'loc\("((?:[^"\\]|\\.)*)":(\d+):(\d+)\)')
_NAMED = re.compile(r'loc\("(?:[^"\\]|\\.)*"\((.*)\)\)$')
_CALL = re.compile(r"loc\(callsite\((.*) at .*\)\)$")
_FUSED = re.compile(r"loc\(fused(?:<.*?>)?\[(.*?)[,\]].*\)$")
_REF = re.compile(r"#loc\d*$")
_TENSOR = re.compile(r"(?:tensor|memdesc)<((?:\d+x)*)(!?[\w.]+)(.*)>$", re.DOTALL)
_PRECISION = re.compile(r"inputPrecision = (\w+)")
_ALLOCATED = re.compile(
    r"ttg\.local_alloc\b[^\n]*memdesc<((?:\d+x)+)(\w+),[^\n>]*>[^\n]*? (loc\(.*\))$", re.MULTILINE
)
_BUFFERS = re.compile(r"ttg\.memdesc_index %[^:]*: !ttg\.memdesc<(\d+)x((?:\d+x)+)([a-z]\w*)")


# if the IR prints a number: Triton's enumeration InputPrecision
_PRECISIONS = {"0": "tf32", "1": "tf32x3", "2": "ieee", "3": "bf16x3", "4": "bf16x6"}


def list_dots(text: str) -> tuple[CompiledDot, ...]:
    """List every dot of a TTIR or TTGIR text, in order. Raises ValueError if one is unreadable."""
    aliases = dict(_ALIAS.findall(text))
    dots = []
    for name, rest in _DOT.findall(text):
        body, _, loc = rest.rpartition(" loc(")
        types = [_split_type(x) for x in _list_types(body)]
        if "scaled" in name and len(types) > 3 and "gen5" not in name:  # scales are in between
            types = _skip_scales(body)
        if len(types) < 3:
            raise ValueError(f"{name}: got {len(types)} types, expected those of a, b and c")
        a, b, c = types[:3]
        tile = (*a[0][:-2], a[0][-2], b[0][-1], a[0][-1])
        if name == "tt.dot_scaled":  # two elements of four bits are a byte
            packed = "lhs = e2m1" in body and "lhs_k_pack = false" not in body
            tile = (*c[0], a[0][-1] * (2 if packed else 1))
        layouts = tuple(_resolve_layout(x[2], aliases) for x in (a, b, c))
        location = _resolve_place(f"loc({loc.strip()}", aliases)
        precision = _read_precision(body) if a[1] == "f32" else ""
        formats = (a[1], b[1], c[1])
        dots.append(
            CompiledDot(
                format_place(location),
                formats,
                tile,
                precision,
                layouts,  # type: ignore[arg-type]
                column=location[2],
            )
        )
    return tuple(dots)


def _read_precision(body: str) -> str:
    """Return the requested precision of fp32 operands."""
    match = _PRECISION.search(body)
    return _PRECISIONS.get(match[1], match[1]) if match else "ieee"


def list_buffers(text: str) -> tuple[SharedBuffer, ...]:
    """List the buffers in shared memory, each with the line that it is for, as of a load."""
    aliases = dict(_ALIAS.findall(text))
    return tuple(
        SharedBuffer(
            format_place(_resolve_place(loc, aliases)),
            tuple(int(n) for n in shape.split("x") if n),
            kind,
        )
        for shape, kind, loc in _ALLOCATED.findall(text)
    )


def count_buffers(text: str) -> int:
    """Return the most buffers that a loop rotates through for its operands; 0 for none."""
    sizes = [int(n) for n, _, element in _BUFFERS.findall(text) if element != "i64"]
    return max(sizes, default=0)


def has_specialised_warps(text: str) -> bool:
    """Return whether some warps run other code than others."""
    return "ttg.warp_specialize" in text


def _list_types(body: str) -> list[str]:
    """List the types after the last " : " outside brackets, tensors and memory alone."""
    types, depth, start = [], 0, None
    first = _find_types(body)
    for i in range(first, len(body)):
        c = body[i]
        if c == "<":
            if depth == 0:
                start = max(body.rfind(" ", first, i), body.rfind("!", first, i), first - 1) + 1
            depth += 1
        elif c == ">" and body[i - 1] != "-":
            depth -= 1
            if depth == 0 and start is not None:
                types.append(body[start : i + 1])
    kinds = ("tensor<", "memdesc<", "ttg.memdesc<")
    return [x.removeprefix("ttg.") for x in types if x.startswith(kinds)]


def _find_types(body: str) -> int:
    depth, first = 0, 0
    for i, c in enumerate(body):
        depth += (c in "{[(<") - (c in "}])" or (c == ">" and body[i - 1] != "-"))
        if c == ":" and depth == 0 and body[i - 1 : i + 2] == " : ":
            first = i + 2
    return first


def _skip_scales(body: str) -> list[tuple[tuple[int, ...], str, str]]:
    """Return the types of a, b and c of `A, scale * B, scale -> C`."""
    types = body[_find_types(body) :]
    left, _, rest = types.partition(" * ")
    right, _, result = rest.partition(" -> ")
    firsts = (_list_types(f" : {x.strip()}")[:1] for x in (left, right, result))
    return [_split_type(x[0]) for x in firsts if x]


def _split_type(text: str) -> tuple[tuple[int, ...], str, str]:
    """Return the shape, the format and the layout of `tensor<128x32xf16, #blocked>`."""
    match = _TENSOR.match(text)
    if match is None:
        return (), "", ""
    shape = tuple(int(n) for n in match[1].split("x") if n)
    return shape, match[2], match[3].lstrip(", ")


def _resolve_layout(text: str, aliases: dict[str, str]) -> str:
    """Expand the aliases in a layout, without its dialects' prefixes."""
    text = text.removesuffix(", mutable")
    for _ in range(4):
        text = re.sub(r"#(\w+)(?![\w.<])", lambda x: aliases.get(x[1], f"#{x[1]}"), text)
    return re.sub(r"#(?:ttg|ttng)\.", "", text)


def _resolve_place(loc: str, aliases: dict[str, str]) -> Place:
    """Return the line of a location: for inlined code the inner one, as in PTX."""
    for _ in range(32):
        if match := _LINE.match(loc):
            return match[1], int(match[2]), int(match[3])
        inner = next((x[1] for kind in (_CALL, _FUSED, _NAMED) if (x := kind.match(loc))), None)
        if inner is None and loc.startswith("loc(#"):
            inner = loc[4:-1]
        if inner is None:
            return UNKNOWN_PLACE
        loc = aliases.get(inner[1:], "") if _REF.match(inner) else inner
        loc = loc if loc.startswith("loc(") else f"loc({loc})"
    return UNKNOWN_PLACE


# -- AMD's assembly ------------------------------------------------------------------------------
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"(?:\s+"((?:[^"\\]|\\.)*)")?')
_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_INSTRUCTION = re.compile(r"\s+([a-z]\w*)(?:\s+([^;]*?))?\s*(?:;.*)?$")
_MATRIX = re.compile(
    r"v_(?:mfma|smfmac)_(?:scale_)?(f64|f32|i32)_(\d+)x(\d+)x(\d+)(?:_\d+b)?_?(\w*)$"
)
_WMMA = re.compile(r"v_s?wmma\w*?_(f32|f16|bf16|i32)_(\d+)x(\d+)x(\d+)_(\w+)$")
_FORMATS = re.compile(r"bf16|xf32|fp8|bf8|f8f6f4|f64|f32|f16|i8|iu8|u8|iu4")
_ENCODING = re.compile(r"_(?:e32|e64|dpp|sdwa)$")
_AMD_FUSED = re.compile(
    r"v_(?:pk_)?(?:fma|fmac|mad|mac|fma_mix|mad_mix)(?:lo|hi)?_(f64|f32|f16|bf16)|v_dot\w+"
)
_ACCESS = re.compile(r"(buffer|global|flat)_(load|store|atomic)_(\w+)")
_WIDTHS = {"ubyte": 1, "sbyte": 1, "byte": 1, "ushort": 2, "sshort": 2, "short": 2, "dword": 4,
           "u8": 1, "i8": 1, "b8": 1, "u16": 2, "i16": 2, "b16": 2, "b32": 4, "b64": 8, "b96": 12,
           "b128": 16}  # fmt: skip
_SOURCES = ("registers", "registers")  # of a and b
_COUNT = re.compile(r"^\s+(?:- )?\.(\w+):\s+(\d+)\s*$", re.MULTILINE)


@dataclass(slots=True)
class AmdAssembly:
    """The relevant instructions of a text, and the counts of its metadata by name."""

    products: list[tuple[Place, DotInstruction]] = field(default_factory=list)
    accesses: list[tuple[Place, str, int]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def read_amdgcn(text: str) -> AmdAssembly:
    """Parse the assembly of one kernel."""
    files: dict[int, str] = {}
    assembly, location = AmdAssembly(), UNKNOWN_PLACE
    code, _, metadata = text.partition(".amdgpu_metadata")
    for line in code.splitlines():
        if file_match := _FILE.match(line):
            files[int(file_match[1])] = "/".join(x for x in (file_match[2], file_match[3]) if x)
        elif loc := _LOC.match(line):
            location = (files.get(int(loc[1]), ""), int(loc[2]), int(loc[3]))
        elif (instruction := _INSTRUCTION.match(line)) and not line.lstrip().startswith("."):
            product = _read_product(instruction[1], instruction[2] or "")
            if product is not None:
                assembly.products.append((location, product))
            access = _read_access(instruction[1], instruction[2] or "")
            if access is not None:
                assembly.accesses.append((location, *access))
    assembly.counts = {name: int(count) for name, count in _COUNT.findall(metadata)}
    return assembly


def _read_product(name: str, operands: str) -> DotInstruction | None:
    if name.startswith(("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")):
        match = _MATRIX.match(name) or _WMMA.match(name)
        if match is None:
            return DotInstruction(name, UNKNOWN, 1, operands=_SOURCES)
        shape = (int(match[2]), int(match[3]), int(match[4]))
        formats = _FORMATS.findall(match[5])
        a, b = (formats * 2)[:2] if formats else ("", "")
        added, unit = operands.split(", ")[3:4], name.split("_")[1]
        return DotInstruction(name, unit, 1, shape, a, b, match[1], _SOURCES, int(added == ["0"]))
    bare = _ENCODING.sub("", name)
    fused = _AMD_FUSED.fullmatch(bare)
    if fused is None:
        return None
    return DotInstruction(bare, FMA, 1, accumulator=fused[1] or "", operands=_SOURCES)


def _read_access(name: str, operands: str) -> tuple[str, int] | None:
    match = _ACCESS.match(name)
    if match is None:
        return None
    kind = "lds load" if match[2] == "load" and re.search(r"\blds\b", operands) else match[2]
    return kind, _count_bytes(match[3])


def _count_bytes(suffix: str) -> int:
    """Return the bytes of "dwordx4", "short_d16_hi", "lds_dwordx4"; 0 if unknown."""
    parts = suffix.removeprefix("lds_").split("_")
    if vector := re.fullmatch(r"dwordx(\d+)", parts[0]):
        return 4 * int(vector[1])
    return _WIDTHS.get(parts[0], 0)


# -- cubin ---------------------------------------------------------------------------------------
_BYTES_FOLLOW = 4  # EIFMT_SVAL
_REQNTID, _FRAME_SIZE, _MIN_STACK_SIZE, _REGCOUNT = 0x10, 0x11, 0x12, 0x2F


@dataclass(frozen=True, slots=True)
class CubinFacts:
    """The facts of one kernel: registers per thread, stack bytes, static shared memory, threads."""

    registers: int
    stack: int
    shared: int
    threads: int | None


def read_cubin(binary: bytes, kernel: str) -> CubinFacts:
    """Read the facts of a kernel by name. Raises ValueError, in one line, if they are missing."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        elf = ELFFile(BytesIO(binary))
        sections = {section.name: section for section in elf.iter_sections()}
        symbols = next(x for x in sections.values() if isinstance(x, SymbolTableSection))
        common = list(_list_attributes(sections[".nv.info"].data()))
        specific = list(_list_attributes(sections[f".nv.info.{kernel}"].data()))
    except (ELFError, KeyError, StopIteration, struct.error) as error:
        raise ValueError(f"cubin: got {error}, expected an ELF with .nv.info.{kernel}") from None

    def find(name: int) -> int:
        for attribute, value in common:
            if attribute == name and len(value) == 8:
                index, number = struct.unpack("<II", value)
                if symbols.get_symbol(index).name == kernel:
                    return int(number)
        raise ValueError(f"cubin: got no attribute {name:#x} of {kernel}, expected one")

    shared = sections.get(f".nv.shared.{kernel}")
    threads = next((_product(x) for name, x in specific if name == _REQNTID and len(x) == 12), None)
    stack = max(find(_FRAME_SIZE), find(_MIN_STACK_SIZE))  # the minimum includes its callees
    return CubinFacts(
        find(_REGCOUNT), stack, 0 if shared is None else int(shared["sh_size"]), threads
    )


def _list_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + 4 <= len(data):
        form, name, size = struct.unpack_from("<BBH", data, offset)
        offset += 4
        if form == _BYTES_FOLLOW:
            yield name, data[offset : offset + size]
            offset += size


def _product(value: bytes) -> int:
    x, y, z = struct.unpack("<III", value)
    return int(x * y * z)
