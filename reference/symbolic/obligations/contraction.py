"""What a stored number is the sum of: products of two loads, each over some lanes and trips."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmproof.reference.symbolic.machine.arithmetic import is_zero
from gemmproof.reference.symbolic.machine.values import Access, Data
from gemmproof.reference.symbolic.terms import Atom, Cond, every
from gemmproof.reference.ttir.dtypes import DTYPES

# in which sums of integers that are exact in the declared accumulator stay exact
WIDE = ("f32", "f64", "i32", "i64")
MOST = 16  # products in one sum


class NoProduct(Exception):
    """What is stored is not a sum of products that terms show; the message says what it is."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """A sum of products of two loads over lanes and trips, under a condition.

    `precision` is how a dot takes its operands.
    """

    a: Access
    b: Access
    over: tuple[Atom, ...]
    cond: Cond
    precision: str


def find_contractions(value: Data, truncates: bool) -> list[Contraction]:
    """The sums of products that a number is the sum of. Raises NoProduct.

    The last cast is the result's own; sums before it must be wide. With `truncates` a dot may take
    its operands as tf32.
    """
    if value.kind == "cast":
        value = value.parts[0]
    found = []
    for one in _contract(value, (), every(())):
        for load in (one.a, one.b):
            if load.tensor.dtype != load.tensor.memory.dtype:
                raise NoProduct(f"{load.tensor.memory.dtype} read as {load.tensor.dtype}")
        if one.precision != "ieee" and one.a.tensor.dtype == "f32" and not truncates:
            raise NoProduct(f"a product of operands rounded to {one.precision}")
        found.append(one)
        if len(found) > MOST:
            raise NoProduct(f"more than {MOST} sums of products")
    return found


def _contract(value: Data, over: tuple[Atom, ...], cond: Cond) -> Iterator[Contraction]:
    if is_zero(value):
        return
    if value.kind in ("cast", "add", "arith.addi"):
        if value.word and value.word not in WIDE:
            raise NoProduct(f"sums kept in {value.word}")
        for part in value.parts:
            yield from _contract(part, over, cond)
    elif value.kind == "sum":
        assert value.over is not None
        yield from _contract(value.parts[0], (*over, value.over), cond)
    elif value.kind == "choice":
        for part, case in zip(value.parts, (value.cond, ~value.cond), strict=True):
            yield from _contract(part, over, cond & case)
    elif value.kind == "reduce":
        if value.word not in WIDE:
            raise NoProduct(f"sums kept in {value.word}")
        lanes = (value.over,) if value.over is not None else ()
        yield from _contract(value.parts[0], (*over, *lanes), cond)
    elif value.kind in ("dot", "mul", "arith.muli"):
        if value.kind == "mul" and value.word not in WIDE:
            raise NoProduct(f"products kept in {value.word}")
        lanes = (value.over,) if value.over is not None else ()
        precision = value.word if value.kind == "dot" else "ieee"
        a, b = (list(_factors(part, cond)) for part in value.parts)
        for load_a, cond_a in a:
            for load_b, cond_b in b:
                both = cond_a & cond_b
                yield Contraction(load_a, load_b, (*over, *lanes), both, precision)
    else:
        raise NoProduct(value.kind)


def _factors(value: Data, cond: Cond) -> Iterator[tuple[Access, Cond]]:
    """The loads that one side of a product is, each under its condition; 0 is none."""
    if is_zero(value):
        return
    if value.kind == "cast" and _keeps(value):
        yield from _factors(value.parts[0], cond)
    elif value.kind == "choice":
        for part, case in zip(value.parts, (value.cond, ~value.cond), strict=True):
            yield from _factors(part, cond & case)
    elif value.kind == "load":
        yield value.access, cond
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
