"""The condition that an access lacks, as an expression of the names that its source has there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gemmproof.reference.symbolic.definitions import lane
from gemmproof.reference.symbolic.machine.values import Ints
from gemmproof.reference.symbolic.source.formula import Namer, rank
from gemmproof.reference.symbolic.terms import (
    Atom,
    Cond,
    Poly,
    le,
    lt,
    substitute,
    term,
    walk,
)


@dataclass(frozen=True, slots=True)
class Expression:
    """Python in the names of the source, and the condition that it is."""

    text: str
    cond: Cond


def spell_below(
    index: Poly, size: Poly, names: Mapping[str, Ints], constants: Mapping[str, int],
    shape: tuple[int, ...],
) -> Expression | None:  # fmt: skip
    """`index < size`, None where the names do not say it.

    The expression is exact: what it adds to the index on one side, it adds to the size.
    """
    found = []
    for text, value, cost in _list_blocks(index, names, shape):
        limit = spell(size - (index - value), names, constants)
        if limit is not None:
            cost += len(limit.split())
            found.append((cost, Expression(f"({text} < {limit})", lt(index, size))))
    return min(found, key=lambda x: (x[0], len(x[1].text)))[1] if found else None


def spell_natural(
    index: Poly, names: Mapping[str, Ints], constants: Mapping[str, int], shape: tuple[int, ...]
) -> Expression | None:
    """`0 <= index`, None where the names do not say it."""
    found = []
    for text, value, cost in _list_blocks(index, names, shape):
        limit = spell(value - index, names, constants)
        if limit is not None:
            cost += len(limit.split())
            found.append((cost, Expression(f"({text} >= {limit})", le(0, index))))
    return min(found, key=lambda x: (x[0], len(x[1].text)))[1] if found else None


def _list_blocks(
    index: Poly, names: Mapping[str, Ints], shape: tuple[int, ...]
) -> Iterator[tuple[str, Poly, int]]:
    """Blocks that differ from the index by a number that all lanes share: text, value, cost."""
    lanes = _lanes(index)
    for name, value in names.items():
        if not value.shape:
            continue
        for axis in range(len(shape)) if len(value.shape) == 1 else (None,):
            placed = _place(value, axis, shape)
            if placed is None or not lanes or _lanes(placed) != lanes:
                continue
            rest = index - placed
            if not _lanes(rest):
                suffix = "" if axis is None else _suffix(axis, len(shape))
                yield f"{name}{suffix}", placed, 0 if not rest.terms else 2
    if len(lanes) == 1:  # no name has it: a range of its own
        (atom,) = lanes
        axis, size = atom.args[1], atom.args[2]
        if isinstance(axis, int) and not _lanes(index - term(atom)):
            yield f"tl.arange(0, {size}){_suffix(axis, len(shape))}", term(atom), 8
    if not lanes and not shape:
        for name, value in names.items():
            if not value.shape and value.term == index:
                yield name, value.term, 0


def _suffix(axis: int, rank_: int) -> str:
    if rank_ == 1:
        return ""
    return f"[{', '.join(':' if i == axis else 'None' for i in range(rank_))}]"


def _place(value: Ints, axis: int | None, shape: tuple[int, ...]) -> Poly | None:
    """A block's term on the axes of the access; None where it does not fit them."""
    if axis is None:
        fits = len(value.shape) == len(shape) and all(
            n in (1, m) for n, m in zip(value.shape, shape, strict=True)
        )
        return value.term if fits else None
    if value.shape[0] != shape[axis]:
        return None
    own = lane(0, value.shape[0]).atom
    return substitute(value.term, {own: lane(axis, shape[axis])}) if own else None


def _lanes(what: Poly) -> set[Atom]:
    return {x for x in walk(what) if x.kind == "symbol" and x.args[0] == "lane"}


def spell(what: Poly, names: Mapping[str, Ints], constants: Mapping[str, int]) -> str | None:
    """A number of all lanes as an expression, None where the names do not say it."""
    if what.constant is not None:
        return str(what.constant)
    scalars = [(x.term, name) for name, x in names.items() if not x.shape]
    for whole, name in reversed(scalars):
        if whole == what:
            return name
    scalars.sort(key=lambda x: rank(x[0]), reverse=True)
    namer = Namer(scalars, unambiguous(constants))
    said = namer.rewrite(what)
    if not all(map(_is_spelled, walk(said))) or not all(map(_rounds_down, walk(what))):
        return None
    text = namer.say(what).replace("cdiv(", "tl.cdiv(")
    return f"({text})" if " % " in text or " // " in text else text


def _is_spelled(atom: Atom) -> bool:
    """Whether an atom is a name, or a quotient or remainder of names."""
    if atom.is_leaf:
        return atom.kind == "symbol" and atom.args[1:2] == ("a word",)
    return atom.kind in ("floordiv", "mod")


def _rounds_down(atom: Atom) -> bool:
    """Whether a division gives the same in a kernel, which rounds towards zero."""
    divides = atom.kind in ("floordiv", "mod")
    return not divides or all(x.is_natural for x in atom.args)


def unambiguous(constants: Mapping[str, int]) -> dict[int, str]:
    """The names of numbers that a single constant of the kernel has."""
    found: dict[int, list[str]] = {}
    for name, value in constants.items():
        if type(value) is int and value > 1:
            found.setdefault(value, []).append(name)
    return {value: names[0] for value, names in found.items() if len(names) == 1}
