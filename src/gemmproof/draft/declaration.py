"""The declaration of a draft: the options that state the call, the operands and the formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from gemmproof.draft.candidates import EXPERTS, OFFSETS, ROOM, CandidateCall
from gemmproof.draft.formula import Sum, list_elements, list_products
from gemmproof.draft.index_functions import IndexFunction
from gemmproof.draft.polynomials import Unreadable
from gemmproof.draft.read_wrapper import WrapperSource
from gemmproof.draft.record import Guess
from gemmproof.draft.search import AcceptedCall, DraftedCall, is_unpacked
from gemmproof.draft.write_formula import FormulaWriter
from gemmproof.properties.contract import Contract
from gemmproof.reference.formats import FORMATS
from gemmproof.target import Calling

_LETTERS = {"M": "M", "N": "N", "batch": "batch"}
FULL = f" {-(2**31)}..{2**31 - 1}"  # of words from which bits are taken
OFFSETS_LEFT = "are offsets of groups, which are not drafted: --operand 'NAME=int32[5] offsets'"
_RESERVED = ("a", "b", "c", "M", "N", "K", "batch")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The values of options, the origin of each, and the sizes of the call it was read from."""

    dtype: str
    batched: bool
    calling: Calling
    guesses: tuple[Guess, ...]
    sizes: Mapping[str, int]
    accumulator: str
    any_order: bool


def declare(source: WrapperSource, drafted: DraftedCall, name: str) -> Declaration:
    """Return the declaration of a call of the function that a target names so.

    Raises Unreadable if no two factors are seen, or if an option cannot state an operand.
    """
    for element in list_elements(drafted.formula):
        for function in element.index:
            if function.counts:  # numbers in any other order would accuse a right kernel
                raise Unreadable(f"{function.gather} {OFFSETS_LEFT}")
    left, right, summed = _find_factors(drafted.formula, drafted.axes)
    letters = {**_LETTERS, summed: "K"}
    known_sizes = drafted.reader.sizes
    sizes = {x: known_sizes[axis] for axis, x in letters.items() if axis in known_sizes}
    names = _label_operands(drafted.call, left, right)
    sides = {n: _sides(source, drafted, n, letters) for n in drafted.call.tensors}
    uses = dict.fromkeys(drafted.call.tensors, "")
    for n, draft in drafted.call.tensors.items():
        if draft.format in ("int32", "int64"):
            uses[n] = FULL if is_unpacked(drafted.formula, n) else f" 0..{EXPERTS - 1}"
        read = any(e.tensor == n for e in list_elements(drafted.formula))
        uses[n] += (" updated" if read else " written") if draft.written else ""
    scalars = {x: n for n, x in drafted.call.values.items() if isinstance(x, float)}
    spec = FormulaWriter(drafted.reader.sizes, drafted.shapes, names, scalars).write(
        drafted.formula, drafted.axes
    )
    shapes = OperandShapes(names, sides, uses, sizes, "batch" in drafted.axes)
    declared = _assemble(source, drafted.call, name, shapes, spec)
    parts = drafted.reader.polynomials.partial_format
    sums = FORMATS[declared.dtype].declarable_sums
    named = (name for name in sums if parts and FORMATS[name].ttir == parts)
    accumulator = next(named, declared.accumulator)
    return replace(declared, accumulator=accumulator, any_order=drafted.adds_atomically)


def declare_memory_only(source: WrapperSource, accepted: AcceptedCall, name: str) -> Declaration:
    """Return the declaration of an accepted call without a formula: --memory-only.

    Raises Unreadable if an option cannot state an operand.
    """
    call = accepted.call
    left, *others = call.factors
    if accepted.indexing:
        raise Unreadable(f"{', '.join(sorted(accepted.indexing))} are indices of other operands")
    names = _label_operands(call, left, others[0] if others else "")
    sides, uses = {}, {}
    for n, draft in call.tensors.items():
        if draft.format in ("int32", "int64") and OFFSETS.search(n):
            raise Unreadable(f"{n} {OFFSETS_LEFT}")
        extents = accepted.extents.get(n, (0,) * len(draft.sides))
        pairs = zip(draft.sides, extents, strict=True)
        sides[n] = [_side_by_extent(side, extent, call.sizes) for side, extent in pairs]
        if len(draft.sides) == 1 and " // " in sides[n][0]:
            raise Unreadable(f"the size of {n} is not known")
        uses[n] = FULL if draft.format in ("int32", "int64") else ""
        uses[n] += " updated" if draft.written else ""
    known = {axis: size for axis, size in call.sizes.items() if axis != "experts"}
    batched = "batch" in call.tensors[left].sides
    shapes = OperandShapes(names, sides, uses, known, batched)
    declared = _assemble(source, call, name, shapes, None)
    return replace(declared, any_order=accepted.adds_atomically)


def _side_by_extent(side: str | int, extent: int, sizes: Mapping[str, int]) -> str:
    """Return a dimension as an expression of M, N and K: by how far the kernel reads it."""
    if side != ROOM:
        return str(sizes["experts"]) if side == "experts" else str(side)
    for axis in ("N", "M", "K"):
        if sizes[axis] == extent:
            return axis
    for axis, step in product("KN", (2, 4, 8, 16, 32, 64, 128)):
        if extent > 1 and -(-sizes[axis] // step) == extent:
            return f"-(-{axis} // {step})"
    return str(extent or "M")


@dataclass(frozen=True, slots=True)
class OperandShapes:
    """The operands of a declaration, by parameter: their names, dimensions and uses.

    `uses` are the ends of --operand; `sizes` those of M, N, K and batch in the call.
    """

    names: dict[str, str]
    sides: dict[str, list[str]]
    uses: dict[str, str]
    sizes: Mapping[str, int]
    batched: bool


def _assemble(
    source: WrapperSource, call: CandidateCall, name: str, shapes: OperandShapes, spec: str | None
) -> Declaration:
    """Return the declaration of a call; without a formula it judges memory only."""
    operands, guesses = [], []
    names, batched = shapes.names, shapes.batched
    formats = {names[n]: t.format for n, t in call.tensors.items()}
    lead = ["batch"] * batched
    usual = {"a": [*lead, "M", "K"], "b": [*lead, "K", "N"]}
    for n, draft in call.tensors.items():
        text = f"{draft.format}[{', '.join(shapes.sides[n])}]"
        label = names[n] if names[n] == n else f"{names[n]} ({n})"
        guesses.append(Guess(f"{label} = {text}", _explain(source, n, source.parameters[n].why)))
        if usual.get(names[n]) != shapes.sides[n] or draft.format != formats["a"]:
            operands.append(f"{names[n]}={text}{shapes.uses[n]}")
    values = {n: _value_text(call, shapes, x) for n, x in call.values.items()}
    turned = {n: ".mT.contiguous().mT" * t.turned for n, t in call.tensors.items()}
    given = {n: f"{names[n]}{turned[n]}" for n in call.tensors}
    by_position, by_name = source.arrange({**given, **values})
    arguments = [*map(str, by_position), *(f"{n}={x}" for n, x in by_name.items())]
    for p in source.parameters.values():
        if p.name in values:
            guesses.append(Guess(f"{p.name} = {values[p.name]}", "by name only"))
        elif p.name not in call.tensors:
            guesses.append(Guess(f"{p.name} = {p.default!r}", "left at its default"))
    operands += [f"{n}={x}|1.0" for n, x in call.values.items() if isinstance(x, float)]
    is_plain, memory_only = not operands and arguments == ["a", "b"], spec is None
    if spec is not None:
        guesses.append(Guess(f"c = {spec}", "read from the kernel"))
        spec = None if spec == "a @ b" and not operands else spec
    written = None if is_plain else f"{name}({', '.join(arguments)})"
    calling = Calling(written, tuple(operands), spec, memory_only=memory_only)
    return Declaration(
        formats["a"], batched, calling, tuple(guesses), shapes.sizes, Contract().accumulator, False
    )


def _find_factors(formula: Sum, axes: tuple[str, ...]) -> tuple[str, str, str]:
    """Return the tensors of the first contraction's rows and columns, and its summed axis."""
    row, column = axes[-2:] if len(axes) > 1 else (axes[0], "")
    for part in list_products(formula):
        for over in reversed(part.over):
            left = right = ""
            for element in list_elements(part):
                used = {x for f in element.index for x in f.depends}
                if over not in used:
                    continue
                if column in used:
                    right = right or element.tensor
                elif row in used:
                    left = left or element.tensor
                else:
                    right = right or element.tensor
            if left and right:
                return left, right, over
    raise Unreadable("a result without a product of two tensors")


def _label_operands(call: CandidateCall, left: str, right: str) -> dict[str, str]:
    """Return the names of the operands: a, b, and those of the parameters."""
    names = {left: "a", right: "b"}
    for n in call.tensors:
        if n not in names:
            names[n] = f"{n}_" if n in _RESERVED else n
    return names


def _sides(
    source: WrapperSource, drafted: DraftedCall, name: str, letters: dict[str, str]
) -> list[str]:
    """Return the dimensions of a tensor as expressions of M, N and K, by how it is indexed."""
    shape = drafted.shapes[name]
    uses = [e for e in list_elements(drafted.formula) if e.tensor == name]
    sides = []
    for dim, size in enumerate(shape):
        own = drafted.call.tensors[name].sides[dim]
        known = own if isinstance(own, str) and own != "experts" else ""
        if any(x.index[dim].gather for x in uses):  # its indices are drawn in this range
            sides.append(str(EXPERTS))
            continue
        along = [_side(x.index[dim], size, drafted.reader.sizes, letters) for x in uses]
        text = next((x for x in along if x in letters.values()), "")
        text = text or (known if source.sides.get((name, dim)) else "")
        text = text or next(filter(None, along), "")
        text = text or known
        if not text and size == ROOM:
            text = "1" if uses else "M"
        sides.append(text or str(size))
    return sides


def _side(
    function: IndexFunction, size: int, sizes: dict[str, int], letters: dict[str, str]
) -> str:
    """Return the size of a dimension that is indexed by a function, "" if it does not say."""
    if function.is_constant:
        return "1" if size == ROOM else ""
    letter = letters.get(function.axis or "")
    if letter is None or function.gather or function.period:
        return ""
    if function.step == 1 and function.scale == 1:
        return letter
    if function.scale != 1 or function.start:
        return ""
    n, step = sizes[function.axis or ""], function.step
    if size == ROOM or size * step != n:
        return f"-(-{letter} // {step})"
    return f"{letter} // {step}"


def _explain(source: WrapperSource, name: str, why: str) -> str:
    """Return where a tensor's shape comes from."""
    lines = sorted({line for (n, _), line in source.lines.items() if n == name})
    if lines:
        return f"read, line {lines[0]}"
    return f"a tensor by {why}; its shape is read from the kernel's offsets"


def _value_text(call: CandidateCall, shapes: OperandShapes, x: Any) -> str:
    """Return the text of a value in --call: a size by a shape that has it."""
    if isinstance(x, float):
        return next(n for n, other in call.values.items() if other == x)
    if type(x).__name__ == "Config":
        return f"triton.Config({x.kwargs}, num_warps={x.num_warps}, num_stages={x.num_stages})"
    if not isinstance(x, str):
        return str(x)
    for n, own in shapes.sides.items():
        for dim, side in enumerate(own):
            if side == x:
                return f"{shapes.names[n]}.shape[{dim}]"
    return str(call.sizes.get(x, repr(x)))
