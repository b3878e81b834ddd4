"""What Triton's IR says of a kernel: its dots with tiles, formats and layouts; buffers; warps.

The texts are those of MLIR: an operation ends with its types and `loc(#locN)`, and aliases of
locations and layouts stand on lines of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmproof.lowering.binary.ptx import NOWHERE, Place

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


@dataclass(frozen=True, slots=True)
class IrDot:
    """A dot: (M, N, K), formats and layouts of a, b and c in the IR's words, and its place."""

    place: Place
    tile: tuple[int, ...]
    formats: tuple[str, str, str]
    layouts: tuple[str, str, str]
    precision: str


def list_dots(text: str) -> list[IrDot]:
    """Every dot of a text in TTIR or TTGIR, in its order; one that cannot be read raises."""
    aliases = dict(_ALIAS.findall(text))
    found = []
    for name, rest in _DOT.findall(text):
        body, _, loc = rest.rpartition(" loc(")
        types = [_split_type(x) for x in _list_types(body)]
        if "scaled" in name and len(types) > 3 and "gen5" not in name:  # scales stand between
            types = _skip_scales(body)
        if len(types) < 3:
            raise ValueError(f"{name}: got {len(types)} types, expected those of a, b and c")
        a, b, c = types[:3]
        tile = (*a[0][:-2], a[0][-2], b[0][-1], a[0][-1])
        if name == "tt.dot_scaled":  # of which two elements of four bits are a byte
            packed = "lhs = e2m1" in body and "lhs_k_pack = false" not in body
            tile = (*c[0], a[0][-1] * (2 if packed else 1))
        layouts = tuple(_resolve_layout(x[2], aliases) for x in (a, b, c))
        precision = found_[1] if (found_ := _PRECISION.search(body)) else ""
        place = _resolve_place(f"loc({loc.strip()}", aliases)
        found.append(IrDot(place, tile, (a[1], b[1], c[1]), layouts, precision))  # type: ignore[arg-type]
    return found


def list_buffers(text: str) -> list[tuple[Place, tuple[int, ...], str]]:
    """Shared memory by its shape and format, each with the line that it is for, as of a load."""
    aliases = dict(_ALIAS.findall(text))
    return [
        (_resolve_place(loc, aliases), tuple(int(n) for n in shape.split("x") if n), kind)
        for shape, kind, loc in _ALLOCATED.findall(text)
    ]


def count_buffers(text: str) -> int:
    """The most buffers that a loop goes around in, for its operands; 0 for none."""
    sizes = [int(n) for n, _, element in _BUFFERS.findall(text) if element != "i64"]
    return max(sizes, default=0)


def has_specialised_warps(text: str) -> bool:
    """Whether some warps run other code than others."""
    return "ttg.warp_specialize" in text


def _list_types(body: str) -> list[str]:
    """The types after the last " : " that no bracket holds, tensors and memory alone."""
    found, depth, start = [], 0, None
    at = _find_types(body)
    for i in range(at, len(body)):
        c = body[i]
        if c == "<":
            if depth == 0:
                start = max(body.rfind(" ", at, i), body.rfind("!", at, i), at - 1) + 1
            depth += 1
        elif c == ">" and body[i - 1] != "-":
            depth -= 1
            if depth == 0 and start is not None:
                found.append(body[start : i + 1])
    kinds = ("tensor<", "memdesc<", "ttg.memdesc<")
    return [x.removeprefix("ttg.") for x in found if x.startswith(kinds)]


def _find_types(body: str) -> int:
    depth, at = 0, 0
    for i, c in enumerate(body):
        depth += (c in "{[(<") - (c in "}])" or (c == ">" and body[i - 1] != "-"))
        if c == ":" and depth == 0 and body[i - 1 : i + 2] == " : ":
            at = i + 2
    return at


def _skip_scales(body: str) -> list[tuple[tuple[int, ...], str, str]]:
    """Of `A, scale * B, scale -> C` those of a, b and c."""
    types = body[_find_types(body) :]
    left, _, rest = types.partition(" * ")
    right, _, result = rest.partition(" -> ")
    firsts = (_list_types(f" : {x.strip()}")[:1] for x in (left, right, result))
    return [_split_type(x[0]) for x in firsts if x]


def _split_type(text: str) -> tuple[tuple[int, ...], str, str]:
    """The shape, the format and the layout of `tensor<128x32xf16, #blocked>`."""
    found = _TENSOR.match(text)
    if found is None:
        return (), "", ""
    shape = tuple(int(n) for n in found[1].split("x") if n)
    return shape, found[2], found[3].lstrip(", ")


def _resolve_layout(text: str, aliases: dict[str, str]) -> str:
    """A layout with what its names stand for, without its dialects' prefixes."""
    text = text.removesuffix(", mutable")
    for _ in range(4):
        text = re.sub(r"#(\w+)(?![\w.<])", lambda x: aliases.get(x[1], f"#{x[1]}"), text)
    return re.sub(r"#(?:ttg|ttng)\.", "", text)


def _resolve_place(loc: str, aliases: dict[str, str]) -> Place:
    """The line of a location: of what is inlined the inner one, as PTX has it."""
    for _ in range(32):
        if found := _LINE.match(loc):
            return found[1], int(found[2]), int(found[3])
        inner = next((x[1] for kind in (_CALL, _FUSED, _NAMED) if (x := kind.match(loc))), None)
        if inner is None and loc.startswith("loc(#"):
            inner = loc[4:-1]
        if inner is None:
            return NOWHERE
        loc = aliases.get(inner[1:], "") if _REF.match(inner) else inner
        loc = loc if loc.startswith("loc(") else f"loc({loc})"
    return NOWHERE
