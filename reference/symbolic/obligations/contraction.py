"""What a stored number is the sum of: products of two elements, each over some lanes and trips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmproof.reference.symbolic.machine.arithmetic import is_number, is_zero
from gemmproof.reference.symbolic.machine.values import Access, Data
from gemmproof.reference.symbolic.obligations.contents import (
    Contents,
    NoProduct,
    Question,
    Tie,
    WhatIsRead,
)
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, every
from gemmproof.reference.ttir.dtypes import DTYPES

# in which sums of integers that are exact in the declared accumulator stay exact
WIDE = ("f32", "f64", "i32", "i64")
# whose word is the type that they are kept in
_KEPT = ("cast", "add", "arith.addi", "reduce", "mul", "arith.muli")
MOST = 16  # products in one sum


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an operand under a condition: what a load gives, through copies in between."""

    load: Access
    name: str
    dtype: str
    at: tuple[Poly, ...]
    cond: Cond


@dataclass(frozen=True, slots=True)
class Over:
    """What a sum runs over, and what ties the programs and lanes that stored a part of it."""

    atoms: tuple[Atom, ...] = ()
    ties: tuple[Tie, ...] = ()

    def add(self, *atoms: Atom | None) -> Over:
        """The same and more lanes or trips."""
        return Over((*self.atoms, *(x for x in atoms if x is not None)), self.ties)

    def follow(self, source: WhatIsRead) -> Over:
        """The same with those that stored what is read."""
        return Over((*self.atoms, *source.tied), (*self.ties, *source.ties))


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products of two elements, under a condition.

    `precision` is how a dot takes its operands.
    """

    a: Element
    b: Element
    over: Over
    cond: Cond
    precision: str


def find_contractions(
    value: Data, contents: Contents, truncates: bool, is_last: bool = True
) -> list[Contraction]:
    """The sums of products that a number is the sum of. Raises NoProduct.

    With `is_last` the last cast is the result's own; sums before it must be wide. With `truncates`
    a dot may take its operands as tf32.
    """
    if is_last and value.kind == "cast":
        value = value.parts[0]
    found = []
    for one in _Sums(contents).contract(value, Over(), every(())):
        rounds = one.precision != "ieee" and "f32" in (one.a.dtype, one.b.dtype)
        if rounds and not truncates:
            raise NoProduct(f"a product of operands rounded to {one.precision}")
        found.append(one)
        if len(found) > MOST:
            raise NoProduct(f"more than {MOST} sums of products")
    return found


@dataclass(slots=True)
class _Sums:
    contents: Contents

    def contract(self, value: Data, over: Over, cond: Cond) -> Iterator[Contraction]:
        """The products that a number is the sum of, over lanes and trips, under a condition."""
        if is_zero(value):
            return
        if value.kind in _KEPT and value.word and value.word not in WIDE:
            said = "products" if value.kind in ("mul", "arith.muli") else "sums"
            raise NoProduct(f"{said} kept in {value.word}")
        if value.kind in ("cast", "add", "arith.addi"):
            for part in value.parts:
                yield from self.contract(part, over, cond)
        elif value.kind in ("sum", "reduce"):
            yield from self.contract(value.parts[0], over.add(value.over), cond)
        elif value.kind == "choice":
            for part, case in zip(value.parts, (value.cond, ~value.cond), strict=True):
                yield from self.contract(part, over, cond & case)
        elif value.kind == "load":
            for source in self.contents.read(value.access, cond):
                if source.value is None:
                    self.require_none(value.access, source, cond)
                else:
                    whole = cond & source.cond
                    yield from self.contract(source.value, over.follow(source), whole)
        elif value.kind in ("dot", "mul", "arith.muli"):
            yield from self.multiply(value, over, cond)
        else:
            raise NoProduct(value.kind)

    def require_none(self, load: Access, source: WhatIsRead, cond: Cond) -> None:
        """An operand's element is no addend: nothing is added where its condition holds."""
        assert source.memory is not None
        what = f"nothing of {source.memory.name} is added"
        self.contents.asked.append(Question(what, load, ~source.cond, (cond,)))

    def multiply(self, value: Data, over: Over, cond: Cond) -> Iterator[Contraction]:
        """A product, of two elements or of a sum and 1."""
        x, y = value.parts
        if value.kind != "dot" and (is_number(x, 1) or is_number(y, 1)):
            yield from self.contract(y if is_number(x, 1) else x, over, cond)
            return
        precision = value.word if value.kind == "dot" else "ieee"
        over = over.add(value.over)
        right = list(self.list_factors(y, over, cond))
        for a, over_a in self.list_factors(x, over, cond):
            for b, over_b in right:
                atoms = tuple(dict.fromkeys((*over_a.atoms, *over_b.atoms)))
                ties = tuple(dict.fromkeys((*over_a.ties, *over_b.ties)))
                yield Contraction(a, b, Over(atoms, ties), a.cond & b.cond, precision)

    def list_factors(self, value: Data, over: Over, cond: Cond) -> Iterator[tuple[Element, Over]]:
        """The elements that one side of a product is, each under its condition; 0 is none."""
        if is_zero(value):
            return
        if value.kind == "cast" and _keeps(value):
            yield from self.list_factors(value.parts[0], over, cond)
        elif value.kind == "choice":
            for part, case in zip(value.parts, (value.cond, ~value.cond), strict=True):
                yield from self.list_factors(part, over, cond & case)
        elif value.kind == "load":
            for source in self.contents.read(value.access, cond):
                whole, memory = cond & source.cond, source.memory
                if source.value is not None:
                    yield from self.list_factors(source.value, over.follow(source), whole)
                elif memory is not None:
                    name, dtype = memory.name, memory.dtype
                    yield Element(value.access, name, dtype, source.at, whole), over
        else:
            raise NoProduct(f"a product of {value.kind}")


def _keeps(value: Data) -> bool:
    """Whether a cast keeps every value of what was loaded."""
    source = value.parts[0]
    while source.kind in ("cast", "choice"):
        source = source.parts[0]
    if source.kind != "load":
        return False
    before, after = DTYPES[source.access.tensor.dtype], DTYPES[value.word]
    if before == after:
        return True
    return after.bits > before.bits and after.is_float >= before.is_float
