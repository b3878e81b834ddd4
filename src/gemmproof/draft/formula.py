"""The formula of a result, read from the terms of its elements: sums, contractions, functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from gemmproof.draft.index_functions import IndexFunction, read_function
from gemmproof.draft.polynomials import Monomial, Polynomial, Polynomials, Unreadable
from gemmproof.reference.simulator.element_terms import ElementTerms

MOST_POINTS = 1 << 19  # elements of the result, times products of each
Axes = dict[str, np.ndarray]  # the coordinate of each point along each axis
Places = tuple[tuple[int, int], ...]  # factors by position, and a dimension of each


@dataclass(frozen=True, slots=True)
class IndexedTensor:
    """A tensor's element: an index along each of its dimensions."""

    tensor: str
    index: tuple[IndexFunction, ...]


@dataclass(frozen=True, slots=True)
class FormulaFunction:
    """A function of sums: the name of an operation, and what else it needs."""

    name: str
    detail: Any
    args: tuple[Sum, ...]


@dataclass(frozen=True, slots=True)
class SummedProduct:
    """A coefficient times factors, summed over the axes `over`."""

    coefficient: IndexFunction
    factors: tuple[IndexedTensor | FormulaFunction | Sum, ...]
    over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum of products."""

    products: tuple[SummedProduct, ...]


@dataclass(slots=True)
class Reader:
    """Reads the formulas of one call; `integers` are the data of its integer tensors."""

    terms: ElementTerms
    integers: Mapping[str, np.ndarray]
    polynomials: Polynomials = field(init=False)
    sizes: dict[str, int] = field(default_factory=dict)
    _inner: int = 0

    def __post_init__(self) -> None:
        self.polynomials = Polynomials(self.terms)

    def read(
        self,
        numbers: np.ndarray,
        names: Sequence[str],
        at: Sequence[Sequence[int]] | None = None,
    ) -> Sum:
        """Return the formula of a result from the numbers of its elements' terms.

        `names` are those of its axes, `at` the coordinates along each; all of them by default.
        Raises Unreadable if elements follow different formulas.
        """
        axes = {
            name: np.broadcast_to(
                np.array(at[i] if at else range(n)).reshape(
                    [-1 if i == j else 1 for j in range(numbers.ndim)]
                ),
                numbers.shape,
            ).reshape(-1)
            for i, (name, n) in enumerate(zip(names, numbers.shape, strict=True))
        }
        self.sizes |= dict(zip(names, numbers.shape, strict=True))
        return self._sum([self.polynomials.of(n) for n in numbers.reshape(-1).tolist()], axes)

    def _sum(self, points: list[Polynomial], axes: Axes) -> Sum:
        """Return the sum that gives these polynomials at these points."""
        groups: dict[Any, list[list[Monomial]]] = {}
        for at, polynomial in enumerate(points):
            for coefficient, factors in polynomial:
                ordered = sorted(factors, key=self._order)
                key = tuple(self._key(f) for f in ordered)
                if key not in groups:
                    groups[key] = [[] for _ in points]
                groups[key][at].append((coefficient, tuple(ordered)))
        products = [self._product(group, axes) for group in groups.values()]
        return Sum(tuple(products))

    def _key(self, number: int) -> Any:
        """Return what factors of one kind have in common."""
        kind, detail, args = self.terms.terms[number]
        if kind == "element":
            return "element", detail[0], detail[2], detail[1] is None
        tensors = self.terms.tensors_of(number)
        return kind, str(detail) if kind != "number" else "", len(args), tensors

    def _order(self, number: int) -> Any:
        return str(self._key(number))

    def _product(self, group: list[list[Monomial]], axes: Axes) -> SummedProduct:
        if not any(factors for monomials in group for _, factors in monomials):
            group = [[(sum(c for c, _ in monomials), ())] for monomials in group]  # numbers
        counts = {len(monomials) for monomials in group}
        if len(counts) != 1:
            raise Unreadable("elements that are computed in different ways")
        (count,) = counts
        if count == 1:
            return self._build([m for (m,) in group], axes, ())
        shared = [  # by all products of each element: they are factors of the sum
            position
            for position in range(len(group[0][0][1]))
            if all(len({m[1][position] for m in monomials}) == 1 for monomials in group)
        ]
        outer = [[monomials[0][1][position] for monomials in group] for position in shared]
        factors = tuple(self._factor(numbers, axes) for numbers in outer)
        rest = [
            [(c, tuple(f for i, f in enumerate(fs) if i not in shared)) for c, fs in monomials]
            for monomials in group
        ]
        summed = self._summed(rest, axes, count)
        return replace(summed, factors=(*factors, *summed.factors))

    def _summed(self, group: list[list[Monomial]], axes: Axes, count: int) -> SummedProduct:
        """Return the sum of so many products at each point."""
        if count * len(group) > MOST_POINTS:
            raise Unreadable(f"more than {MOST_POINTS:,} products")
        places = self._find_summed(group)
        over = tuple(self._new_axis() for _ in places)
        points, at = [], []
        for monomials in group:
            keyed = sorted((self._indices(m, places), m) for m in monomials)
            points += [m for _, m in keyed]
            at += [x for x, _ in keyed]
        inner = {name: np.repeat(values, count) for name, values in axes.items()}
        for name, column in zip(over, np.array(at).T, strict=True):
            inner[name] = column
            self.sizes[name] = int(column.max()) + 1
        return self._build(points, inner, over)

    def _new_axis(self) -> str:
        """Return the name of a summed axis."""
        self._inner += 1
        return f"k{self._inner}"

    def _find_summed(self, group: list[list[Monomial]]) -> Places:
        """Return the dimensions of factors whose indices run through the summed axes."""
        first = group[0]
        terms = [self.terms.terms[number] for number in first[0][1]]
        varying = [
            (position, dim)
            for position, term in enumerate(terms)
            if term.kind == "element" and term.detail[1] is not None
            for dim in range(len(term.detail[1]))
            if len({self._indices(m, ((position, dim),)) for m in first}) > 1
        ]
        for count in (1, 2):
            for places in combinations(varying, count):
                seen = [sorted(self._indices(m, places) for m in ms) for ms in group]
                if len(set(seen[0])) == len(first) and all(s == seen[0] for s in seen):
                    return places
        raise Unreadable("a sum over several axes")

    def _indices(self, monomial: Monomial, places: Places) -> tuple[int, ...]:
        indices = (self.terms.terms[monomial[1][position]].detail[1] for position, _ in places)
        return tuple(index[dim] for index, (_, dim) in zip(indices, places, strict=True))

    def _build(self, points: list[Monomial], axes: Axes, over: tuple[str, ...]) -> SummedProduct:
        coefficient = read_function(np.array([c for c, _ in points]), axes)
        columns = zip(*(factors for _, factors in points), strict=True)
        return SummedProduct(coefficient, tuple(self._factor(list(c), axes) for c in columns), over)

    def _factor(self, numbers: list[int], axes: Axes) -> IndexedTensor | FormulaFunction | Sum:
        terms = [self.terms.terms[n] for n in numbers]
        kind, detail = terms[0].kind, terms[0].detail
        if kind == "element":
            name, index, through = detail
            if index is None:
                reason = "read as elements of another size, or beyond its shape"
                raise Unreadable(f"{name}: {reason}", name)
            ways = sorted(self.integers, key=lambda other: other not in through)
            integers = {other: self.integers[other] for other in ways if other != name}
            columns = [np.array(c) for c in zip(*(t.detail[1] for t in terms), strict=True)]
            try:
                return IndexedTensor(name, tuple(read_function(c, axes, integers) for c in columns))
            except Unreadable as error:
                raise Unreadable(f"{name}: {error}", name) from None
        if kind == "number":
            raise Unreadable(f"a factor of {detail}")
        polynomials = [self.polynomials.of(n) for n in numbers]
        if polynomials[0] != ((1.0, (numbers[0],)),):
            return self._sum(polynomials, axes)
        if kind.startswith(("torch.", "atomic ")):
            raise Unreadable(f"{kind.replace('torch.', 'torch.ops.aten.')}, which has no formula")
        arguments = []
        for column in zip(*(t.args for t in terms), strict=True):
            arguments.append(self._sum([self.polynomials.of(n) for n in column], axes))
        return FormulaFunction(kind, detail, tuple(arguments))


# -- parts of formulas ---------------------------------------------------------------------------
Part = IndexedTensor | FormulaFunction | Sum | SummedProduct


def list_inner(part: Part) -> Sequence[Part]:
    """Return the parts of which a part consists."""
    if isinstance(part, FormulaFunction):
        return part.args
    if isinstance(part, Sum):
        return part.products
    return () if isinstance(part, IndexedTensor) else part.factors


def list_elements(part: Part) -> Iterator[IndexedTensor]:
    """Yield the tensors' elements within a part, in order."""
    if isinstance(part, IndexedTensor):
        yield part
    for inner in list_inner(part):
        yield from list_elements(inner)


def list_products(part: Part) -> Iterator[SummedProduct]:
    """Yield the products within a part, the outer ones first."""
    if isinstance(part, SummedProduct):
        yield part
    for inner in list_inner(part):
        yield from list_products(inner)
