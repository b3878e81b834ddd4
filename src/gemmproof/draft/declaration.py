"""The declaration of a draft: the options that state the call, the operands and the formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmproof.draft.formula import Sum, list_elements, list_products
from gemmproof.draft.index_functions import IndexFunction
from gemmproof.draft.polynomials import Unreadable
from gemmproof.draft.read_wrapper import WrapperSource
from gemmproof.draft.record import Guess
from gemmproof.draft.search import EXPERTS, ROOM, DraftedCall, is_unpacked
from gemmproof.draft.write_formula import FormulaWriter
from gemmproof.target import Calling

_LETTERS = {"M": "M", "N": "N", "batch": "batch"}
FULL = f" {-(2**31)}..{2**31 - 1}"  # of words from which bits are taken
_RESERVED = ("a", "b", "c", "M", "N", "K", "batch")


@dataclass(frozen=True, slots=True)
class Declaration:
    """The values of options, the origin of each, and the sizes of the call it was read from."""

    dtype: str
    batched: bool
    calling: Calling
    guesses: tuple[Guess, ...]
    sizes: Mapping[str, int]


def declare(source: WrapperSource, drafted: DraftedCall, name: str) -> Declaration:
    """Return the declaration of a call of the function that a target names so.

    Raises Unreadable if no two factors are seen, or if an option cannot state an operand.
    """
    for element in list_elements(drafted.formula):
        for function in element.index:
            if function.counts:  # numbers in any other order would accuse a right kernel
                reason = "are offsets, in an order that --operand cannot state: use conftest.py"
                raise Unreadable(f"{function.gather} {reason}")
    left, right, summed = _find_factors(drafted.formula, drafted.axes)
    letters = {**_LETTERS, summed: "K"}
    known_sizes = drafted.reader.sizes
    sizes = {x: known_sizes[axis] for axis, x in letters.items() if axis in known_sizes}
    names = _label_operands(drafted, left, right)
    sides = {n: _sides(source, drafted, n, letters) for n in drafted.call.tensors}
    operands, guesses = [], []
    formats = {n: t.format for n, t in drafted.call.tensors.items()}
    batched = "batch" in drafted.axes
    first = formats[left]
    usual = {
        left: (["batch"] * batched) + ["M", "K"], right: (["batch"] * batched) + ["K", "N"],
    }  # fmt: skip
    for n, draft in drafted.call.tensors.items():
        text = f"{formats[n]}[{', '.join(sides[n])}]"
        parameter = source.parameters[n]
        known = names[n] if names[n] == n else f"{names[n]} ({n})"
        guesses.append(Guess(f"{known} = {text}", _explain(source, n, parameter.why)))
        if usual.get(n) == sides[n] and formats[n] == first:
            continue
        if draft.format in ("int32", "int64"):
            text += FULL if is_unpacked(drafted.formula, n) else f" 0..{EXPERTS - 1}"
        read = any(e.tensor == n for e in list_elements(drafted.formula))
        use = (" updated" if read else " written") if draft.written else ""
        operands.append(f"{names[n]}={text}{use}")
    scalars = {x: n for n, x in drafted.call.values.items() if isinstance(x, float)}
    writer = FormulaWriter(drafted.reader.sizes, drafted.shapes, names, scalars)
    spec = writer.write(drafted.formula, drafted.axes)
    values = {
        n: _value_text(drafted, names, letters, sides, x) for n, x in drafted.call.values.items()
    }
    given = {**{n: names[n] for n in drafted.call.tensors}, **values}
    by_position, by_name = source.arrange(given)
    arguments = [*by_position, *(f"{n}={x}" for n, x in by_name.items())]
    for p in source.parameters.values():
        if not p.required and p.name not in given:
            guesses.append(Guess(f"{p.name} = {p.default!r}", "left at its default"))
        elif p.name in values:
            guesses.append(Guess(f"{p.name} = {values[p.name]}", "by its name only"))
    operands += [f"{n}={x}|1.0" for x, n in scalars.items()]
    call = f"{name}({', '.join(arguments)})"
    is_plain = not operands and arguments == ["a", "b"]
    spec = "" if spec == "a @ b" and not operands else spec
    guesses.append(Guess(f"c = {spec or 'a @ b'}", "read from the kernel"))
    calling = Calling(None if is_plain else call, tuple(operands), spec or None)
    return Declaration(first, batched, calling, tuple(guesses), sizes)


def _find_factors(formula: Sum, axes: tuple[str, ...]) -> tuple[str, str, str]:
    """Return the tensors of the first contraction's rows and columns, and its summed axis."""
    row, column = axes[-2:] if len(axes) > 1 else (axes[0], "")
    for product in list_products(formula):
        for over in reversed(product.over):
            left = right = ""
            for element in list_elements(product):
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


def _label_operands(drafted: DraftedCall, left: str, right: str) -> dict[str, str]:
    """Return the names of the operands: a, b, and those of the parameters."""
    names = {left: "a", right: "b"}
    for n in drafted.call.tensors:
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


def _value_text(
    drafted: DraftedCall,
    names: dict[str, str],
    letters: dict[str, str],
    sides: dict[str, list[str]],
    x: Any,
) -> str:
    """Return the text of a value in --call: a size by a shape that has it."""
    if isinstance(x, float):
        return next(n for n, other in drafted.call.values.items() if other == x)
    if type(x).__name__ == "Config":
        return f"triton.Config({x.kwargs}, num_warps={x.num_warps}, num_stages={x.num_stages})"
    if not isinstance(x, str):
        return str(x)
    for n, own in sides.items():
        for dim, side in enumerate(own):
            if side == x:
                return f"{names[n]}.shape[{dim}]"
    return str(drafted.call.sizes.get(x, repr(x)))
