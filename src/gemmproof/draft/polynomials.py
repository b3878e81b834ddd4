"""Terms of elements as sums of products, in which a contraction can be seen."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from gemmproof.reference.simulator.element_terms import ElementTerms, Term
from gemmproof.reference.ttir import DTYPES

Monomial = tuple[float, tuple[int, ...]]  # a coefficient, and the numbers of the factors' terms
Polynomial = tuple[Monomial, ...]

MOST_MONOMIALS = 1 << 14  # of one element

# Conversions that round nothing, or only integers beyond 2**24.
_SAME = frozenset({
    *("arith.extf", "arith.sitofp", "arith.uitofp", "arith.extsi", "arith.extui"),
    *("arith.index_cast", "arith.index_castui"),
})  # fmt: skip
_SUMS = {"arith.addf": 1, "arith.addi": 1, "arith.subf": -1, "arith.subi": -1}
_PRODUCTS = ("arith.mulf", "arith.muli")
_NARROWS = ("arith.truncf", "tt.fp_to_fp")
_QUOTIENTS = ("arith.divf", "tt.precise_divf", "tt.approx_divf")


class Unreadable(Exception):
    """A result that no formula of the known kinds describes; the message says why.

    `tensor` is the one whose indices follow no rule, "" if none is to blame.
    """

    def __init__(self, message: str, tensor: str = "") -> None:
        super().__init__(message)
        self.tensor = tensor


class Polynomials:
    """The polynomials of one call's terms, each computed once."""

    def __init__(self, terms: ElementTerms) -> None:
        self.terms = terms
        self.partial_format = ""  # to which parts of a contraction are rounded and added
        self._known: dict[int, Polynomial] = {}
        self._joined: set[int] = set()  # sums of rounded parts

    def of(self, number: int) -> Polynomial:
        """Return a term as a sum of products. Raises Unreadable if it is too long."""
        waiting = [number]
        while waiting:  # a long chain of sums would be too deep a recursion
            last = waiting[-1]
            missing = [n for n in self._needs(self.terms.terms[last]) if n not in self._known]
            if missing and last not in self._known:
                waiting += missing
                continue
            waiting.pop()
            if last not in self._known:
                self._known[last] = self._make(last)
        return self._known[number]

    def _needs(self, term: Term) -> Iterable[int]:
        if term.kind == "dot":
            start, row, column = term.args
            pairs = zip(self.terms.terms[row].args, self.terms.terms[column].args, strict=True)
            return (start, *(n for pair in pairs if not self._vanishes(*pair) for n in pair))
        return term.args

    def _vanishes(self, *numbers: int) -> bool:
        return any(t.kind == "number" and t.detail == 0 for t in map(self._term, numbers))

    def _term(self, number: int) -> Term:
        return self.terms.terms[number]

    def _make(self, number: int) -> Polynomial:
        kind, detail, args = self.terms.terms[number]
        if kind == "number":
            value = float(detail)
            if not isfinite(value):
                return ((1.0, (number,)),)
            return ((value, ()),) if value else ()
        parts = [self._known[n] for n in args] if kind != "dot" else []
        if kind in _SAME or (kind == "tt.fp_to_fp" and _bits(detail[0]) >= _bits(detail[1])):
            return parts[0]
        if kind in _NARROWS and parts[0] == ():
            return ()
        if kind == "arith.addf" and (joined := self._join_parts(args, parts)):
            self._joined.add(number)
            return _add(*joined)
        if kind in _SUMS:
            return _add(parts[0], _times(parts[1], _SUMS[kind]))
        if kind == "arith.negf":
            return _times(parts[0], -1)
        if kind in _PRODUCTS:
            return self._multiply(args, parts)
        if kind == "math.fma":
            return _add(self._multiply(args[:2], parts[:2]), parts[2])
        if kind in _QUOTIENTS:
            return self._divide(args, parts)
        if kind == "dot":
            start, row, column = args
            total = list(self._known[start])
            for x, y in zip(self._term(row).args, self._term(column).args, strict=True):
                if not self._vanishes(x, y):
                    total += self._multiply((x, y), [self._known[x], self._known[y]])
            if len(total) > MOST_MONOMIALS:
                raise Unreadable(f"a sum of more than {MOST_MONOMIALS:,} products")
            return tuple(total)
        return ((1.0, (number,)),)

    def _join_parts(
        self, args: tuple[int, ...], parts: list[Polynomial]
    ) -> list[Polynomial] | None:
        """Return two parts of a contraction without their rounding, as split K adds them."""
        inner, partial_format = [], self.partial_format
        for number, part in zip(args, parts, strict=True):
            term = self._term(part[0][1][0]) if len(part) == 1 and len(part[0][1]) == 1 else None
            if number in self._joined:
                inner.append(part)
            elif term is not None and term.kind in _NARROWS and part[0][0] == 1:
                whole = self._known[term.args[0]]
                if all(len(factors) < 2 for _, factors in whole):
                    return None
                partial_format = term.detail[0]
                inner.append(whole)
            else:
                return None
        self.partial_format = partial_format
        return inner

    def _multiply(self, args: tuple[int, ...], parts: list[Polynomial]) -> Polynomial:
        x, y = parts
        if not x or not y:
            return ()
        if len(x) > 1 and len(y) > 1:
            return ((1.0, tuple(sorted(args))),)
        return tuple((c * d, tuple(sorted((*f, *g)))) for c, f in x for d, g in y)

    def _divide(self, args: tuple[int, ...], parts: list[Polynomial]) -> Polynomial:
        if len(parts[1]) == 1 and not parts[1][0][1]:
            return _times(parts[0], 1 / parts[1][0][0])
        inverse = self.terms.add(Term("inverse", None, (args[1],)))
        self._known[inverse] = ((1.0, (inverse,)),)
        return self._multiply((args[0], inverse), [parts[0], self._known[inverse]])


def _bits(name: str) -> int:
    """Return the width of a type of TTIR."""
    return DTYPES[name].bits


def _times(x: Polynomial, factor: float) -> Polynomial:
    return x if factor == 1 else tuple((c * factor, f) for c, f in x)


def _add(x: Polynomial, y: Polynomial) -> Polynomial:
    """Return the sum; equal products of short sums are joined, so that x - x is nothing."""
    if len(x) + len(y) > MOST_MONOMIALS:
        raise Unreadable(f"a sum of more than {MOST_MONOMIALS:,} products")
    if len(x) > 8 or len(y) > 8:
        return x + y
    total: dict[tuple[int, ...], float] = {}
    for c, factors in (*x, *y):
        total[factors] = total.get(factors, 0.0) + c
    return tuple((c, factors) for factors, c in total.items() if c)
