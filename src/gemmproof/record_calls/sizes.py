"""Sizes of recorded calls as expressions of M, N and K: dimensions that vary together are one.

A vector is the sizes that one dimension had, call by call. Only what the calls show is derived; any
other dimension that was always the same stays a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gemmproof.properties.contract import evaluate_relation
from gemmproof.record_calls.record import RecordedCall, RecordedTensor
from gemmproof.reference.provenance import format_count

Vector = tuple[int | None, ...]  # None: the call had no such tensor
Vectors = Mapping[tuple[str, int], Vector]  # by tensor and dimension
AXES = ("batch", "M", "N", "K")
BLOCKS = (16, 32, 64, 128, 256)  # of which a dimension may have one element each, rounded up
FREE = "EGHLPQRSTUVW"  # names of sizes that no axis has
# the axes that a dimension of ambiguous size may be, by its position
_LAST, _LEADING, _OUTER = ("N", "K", "M"), ("M", "K", "N"), ("batch",)
MOST_VALUES = 6  # that a message lists


@dataclass(slots=True)
class SizeNames:
    """The names of sizes in the calls of one wrapper, each with its vector.

    `axes` are M, N, K and batch, `further` the names of others, which vary on their own.
    """

    parameters: frozenset[str]
    axes: dict[str, Vector] = field(default_factory=dict)
    further: dict[str, Vector] = field(default_factory=dict)

    def express(self, vector: Vector, order: Sequence[str]) -> str:
        """Return an expression of a vector, which gets a new name if it has none.

        Of axes with the same vector the first of `order` is meant.
        """
        axes = {n: self.axes[n] for n in order if n in self.axes}
        own, known = keep_given(vector, {**axes, **self.further})
        if set(own) == {1}:
            return "1"
        for name, other in known.items():
            if other == own:
                return name
        if len(set(own)) == 1:
            return str(own[0])
        for name, other in known.items():
            if text := relate(name, other, own):
                return text
        for first, second in ((x, y) for x in known for y in known if x < y):
            if own == [x * y for x, y in zip(known[first], known[second], strict=True)]:
                return f"{first} * {second}"
        name = next(x for x in FREE if x not in self.parameters and x not in self.further)
        self.further[name] = vector
        return name


def keep_given(
    vector: Vector, others: Mapping[str, Vector]
) -> tuple[list[int], dict[str, list[int]]]:
    """Return the sizes of the calls that have them, and of other vectors those of these calls.

    Vectors that lack one of them do not count.
    """
    at = [i for i, n in enumerate(vector) if n is not None]
    pairs = {name: [own[i] for i in at] for name, own in others.items()}
    whole = {name: [n for n in own if n is not None] for name, own in pairs.items()}
    kept = {name: own for name, own in whole.items() if len(own) == len(at)}
    return [n for n in vector if n is not None], kept


def express_shapes(
    names: SizeNames, factors: tuple[str, str], vectors: Vectors, ranks: Mapping[str, int]
) -> dict[str, list[str]]:
    """Return the shape of each tensor in expressions, after naming the axes by the factors."""
    known = assign_axes(names, *factors, vectors, ranks)
    shapes: dict[str, list[str]] = {}
    for name in sorted(ranks, key=lambda x: x not in factors):  # a further size is named once
        orders = [_OUTER, _LEADING, _LAST][-ranks[name] :] if ranks[name] else []
        dims = [(name, i) for i in range(ranks[name])]
        shapes[name] = [
            known.get(dim) or names.express(vectors[dim], order)
            for dim, order in zip(dims, orders, strict=True)
        ]
    return shapes


def relate(name: str, own: Sequence[int], vector: Sequence[int]) -> str:
    """Return sizes as a multiple, a part or a neighbour of named ones that vary, or ""."""
    if len(set(own)) == 1:
        return ""
    pairs = list(zip(own, vector, strict=True))
    if all(x and y % x == 0 for x, y in pairs) and len({y // x for x, y in pairs}) == 1:
        return f"{name} * {vector[0] // own[0]}"
    if all(y and x % y == 0 for x, y in pairs) and len({x // y for x, y in pairs}) == 1:
        return f"{name} // {own[0] // vector[0]}"
    for block in BLOCKS:
        if all(y == -(-x // block) for x, y in pairs):
            return f"-(-{name} // {block})"
    if {y - x for x, y in pairs} in ({1}, {-1}):
        return f"{name} {'+' if vector[0] > own[0] else '-'} 1"
    return ""


# -- factors -------------------------------------------------------------------------------------
def choose_factors(call: RecordedCall, others: Sequence[RecordedCall] = ()) -> tuple[str, str]:
    """Return the tensors that are a and b, "" for none: matrices that are read.

    All `others` have them too. a is the first one; of the rest b shares a dimension with a, its
    last one if any does, and has most elements.
    """
    always = [n for n in call.tensors if all(n in other.tensors for other in others)]
    read = {n: call.tensors[n] for n in always}
    read = {n: x for n, x in read.items() if not x.written and x.shape}
    matrices = [n for n, x in read.items() if len(x.shape) > 1]
    a = next(iter([*matrices, *read]), "")
    rest = [n for n in matrices if n != a]
    if not rest:
        return a, ""
    own = read[a].shape[-2:]

    def weigh(name: str) -> tuple[bool, bool, int]:
        shape = read[name].shape
        return own[-1] in shape[-2:], own[0] in shape[-2:], math.prod(shape)

    return a, max(rest, key=weigh)


def assign_axes(
    names: SizeNames, a: str, b: str, vectors: Vectors, ranks: Mapping[str, int]
) -> dict[tuple[str, int], str]:
    """Name the axes, and return the axis of each dimension of the factors that is one.

    a is (M, K) and b (K, N), or the reverse if only that makes them share K.
    """
    if not a:
        return {}
    if ranks[a] == 1:
        names.axes["K"] = vectors[a, 0]
        return {(a, 0): "K"}
    rows, columns = (a, ranks[a] - 2), (a, ranks[a] - 1)
    of_b = [(b, i) for i in (ranks[b] - 2, ranks[b] - 1)] if b else []
    shared = [vectors[x] for x in of_b]
    if shared and vectors[columns] not in shared and vectors[rows] in shared:
        rows, columns = columns, rows
    last = vectors[columns]
    known = {rows: "M", columns: "K"}
    if of_b:
        own, known_last = keep_given(shared[1], {"K": last})
        is_part = any(relate(name, x, own) for name, x in known_last.items())
        turned = shared[0] != last and (shared[1] == last or is_part)
        of_k, of_n = reversed(of_b) if turned else of_b
        known |= {of_n: "N", **({of_k: "K"} if vectors[of_k] == last else {})}
    if ranks[a] == 3:
        known[a, 0] = "batch"
        if b and ranks[b] == 3 and vectors[b, 0] == vectors[a, 0]:
            known[b, 0] = "batch"
    names.axes |= {axis: vectors[dim] for dim, axis in reversed(known.items())}
    return known


def list_vectors(calls: Sequence[RecordedCall], ranks: Mapping[str, int]) -> Vectors:
    """Return the vector of each dimension of each tensor, None where a call did not have it."""
    given = [call.tensors for call in calls]
    return {
        (name, i): tuple(x[name].shape[i] if name in x else None for x in given)
        for name, rank in ranks.items()
        for i in range(rank)
    }


# -- sizes of a contract -------------------------------------------------------------------------
def bound(vector: Vector) -> str:
    """Return the sizes from the lowest to the highest that were seen, by their common divisor."""
    seen = [n for n in vector if n is not None]
    low, high, step = min(seen), max(seen), math.gcd(*seen)
    if low == high:
        return str(low)
    return f"{low}..{high}:{step}" if step > 1 else f"{low}..{high}"


def describe(name: str, vector: Vector) -> str:
    """Describe the sizes that were seen of one name, for a comment."""
    seen = [n for n in vector if n is not None]
    values, calls = sorted(set(seen)), format_count(len(seen), "call")
    if len(values) == 1:
        return f"{name}: always {values[0]} in {calls}"
    shown = " ".join(map(str, values[:MOST_VALUES]))
    more = f" and {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else ""
    return f"{name}: {shown}{more} in {calls}"


def fits(text: str, sizes: Mapping[str, Vector], vector: Vector) -> bool:
    """Return whether an expression gives a vector, wherever the sizes that it needs are known."""
    for at, n in enumerate(vector):
        known = {name: own[at] for name, own in sizes.items()}
        values = {name: own for name, own in known.items() if own is not None}
        with suppress(ValueError, KeyError, TypeError):
            if n is not None and evaluate_relation(text, {"batch": 1, **values}) != n:
                return False
    return True


def is_column_major(tensors: Iterable[RecordedTensor]) -> bool:
    """Return whether the last two dimensions are exchanged in memory, densely, in every call."""
    return all(_is_dense(x, exchanged=True) for x in tensors) and any(
        not _is_dense(x) for x in tensors
    )


def is_row_major(tensor: RecordedTensor) -> bool:
    """Return whether a tensor is dense and row-major."""
    return _is_dense(tensor)


def _is_dense(x: RecordedTensor, exchanged: bool = False) -> bool:
    if exchanged and len(x.shape) < 2:
        return False
    dims = list(range(len(x.shape)))
    if exchanged:
        dims[-2:] = dims[-1], dims[-2]
    step = 1
    for dim in reversed(dims):
        if x.shape[dim] != 1 and x.strides[dim] != step:
            return False
        step *= x.shape[dim]
    return True
