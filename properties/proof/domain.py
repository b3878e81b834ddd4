"""What a contract admits, over symbols: sizes, strides, and the operands that are made of them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import smallest
from gemmproof.properties.cases.layouts import CONTIGUOUS
from gemmproof.properties.contract import MAX_BATCH, MAX_SIDE, ROLES, Contract
from gemmproof.properties.kernel import NONE, KernelUnderTest
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.symbolic.terms import (
    FALSE,
    Atom,
    Cond,
    Poly,
    eq,
    every,
    flag,
    le,
    lt,
    make,
    some,
    symbol,
    term,
)
from gemmproof.reference.symbolic.tracing import Symbolic

# Sizes that no contract bounds stay below this, so that a size rounded up to a tile fits 32 bits.
MOST = 2**30
# Elements from the first of a tensor to behind its last: what a 32-bit offset and a 32-bit count
# reach; and where the contract says huge, what no device's memory holds.
SPAN, HUGE_SPAN = 2**31 - 1, 2**38
MOST_WAYS = 48  # of calling a wrapper: values, operands left out, formats


class NotExpressible(Exception):
    """A contract, or an operand, that terms cannot say; the message is one line."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Everything that one way of calling a wrapper admits, of sizes that are 0 or are not.

    `case` is the smallest of it, whose sizes alone change; `sizes` are symbols, or 0, by axis,
    `operands` the tensors by name, `condition` what holds of all symbols, `plainest` what
    makes every operand dense.
    """

    case: Case
    sizes: Mapping[str, Poly]
    operands: Mapping[str, Symbolic]
    condition: Cond
    plainest: Cond
    any_strides: bool

    @property
    def axes(self) -> tuple[Atom, ...]:
        """The symbols of the sizes."""
        return tuple(x.atom for x in self.sizes.values() if x.atom is not None)

    def fit(self, case: Case) -> Case | None:
        """A case with the sizes that are 0 here; None if another one of it is."""
        empty = {axis: 0 for axis, size in self.sizes.items() if size.constant is not None}
        atoms = {axis: size.atom for axis, size in self.sizes.items() if size.atom is not None}
        if any(case.sides[axis] < min(atom.least, 1) for axis, atom in atoms.items()):
            return None
        sides: dict[str, Any] = empty
        return replace(case, **sides) if empty else case

    def read_sides(self, values: Mapping[Any, int], default: Case | None = None) -> dict[str, int]:
        """The size of each axis where symbols, by themselves or their names, have these values."""
        sides = {}
        for axis, size in self.sizes.items():
            if size.constant is not None:
                sides[axis] = size.constant
            elif size.atom in values or axis in values:
                sides[axis] = values.get(size.atom, values.get(axis, 0))
            elif default is not None:
                sides[axis] = getattr(default, axis)
        return sides


def list_domains(kernel: KernelUnderTest) -> Iterator[Domain]:
    """Every way of calling a wrapper: each format, value, and operand that may be left out.

    Raises NotExpressible.
    """
    options = []
    for name, one in kernel.choices.items():
        options.append([(name, said) for said in one.names])
    for name, stated in kernel.tensors.items():
        if stated.optional:
            options.append([(name, ""), (name, NONE)])
    ways = list(itertools.product(kernel.contract.formats, itertools.product(*options)))
    if len(ways) > MOST_WAYS:
        raise NotExpressible(f"{len(ways)} ways of calling it, where {MOST_WAYS} are tried")
    for dtype, chosen in ways:
        first = smallest(kernel.contract, dtype)
        said = tuple((name, word) for name, word in chosen if word)
        for sizes in _list_sizes(kernel.contract):
            domain = _make(kernel, replace(first, arguments=said), sizes)
            if domain.condition != FALSE:
                yield domain


def _list_axes(contract: Contract) -> tuple[str, ...]:
    return ("batch", "M", "N", "K") if contract.batched else ("M", "N", "K")


def _list_sizes(contract: Contract) -> Iterator[dict[str, Poly]]:
    """Sizes of which none is 0, then those of which an axis is the first to be 0.

    An empty operand has other strides of torch's, and its own path through most wrappers. A depth
    of 0 is one like any other where strides are any: they tell nothing of it.
    """
    axes = _list_axes(contract)
    plain = () if contract.layouts == CONTIGUOUS else ("K",)
    may_be = [x for x in axes if contract.sizes(x).low == 0 and x not in plain]
    for empty in ("", *may_be):
        later = (*(may_be[may_be.index(empty) + 1 :] if empty else ()), *plain)
        least = {x: max(contract.sizes(x).low, x not in later) for x in axes}
        sizes = {axis: symbol(axis, is_natural=True, least=n) for axis, n in least.items()}
        yield {**sizes, empty: term(0)} if empty else sizes


def _make(kernel: KernelUnderTest, case: Case, sizes: dict[str, Poly]) -> Domain:
    contract = kernel.contract
    conds = [cond for axis in sizes for cond in _admit(contract, axis, sizes[axis])]
    if contract.where is not None:
        if not isinstance(contract.where, str):
            raise NotExpressible("a condition on the sizes that is a function")
        whole = {**sizes, "batch": sizes.get("batch", term(1))}
        conds.append(_relate(contract.where, whole))
    integers = {n: term(x) for n, x in kernel.values_of(case).items() if type(x) is int}
    left_out = {name for name, said in case.arguments if said == NONE}
    operands = {}
    for name, role in ROLES.items():
        shape = tuple(sizes[axis] for axis in (("batch",) if contract.batched else ()) + role.axes)
        stated = kernel.tensors.get(name)
        fmt = case.dtype if stated is None else stated.format
        if stated is not None:
            shape = _shape(stated.axes, sizes, integers)
        is_dense = contract.layouts == CONTIGUOUS
        operands[name] = _operand(name, fmt, shape, is_dense, contract, conds)
    for name, stated in kernel.tensors.items():
        if name not in ROLES and name not in left_out:
            shape = _shape(stated.axes, sizes, integers)
            is_dense = stated.layouts == CONTIGUOUS
            operands[name] = _operand(name, stated.format, shape, is_dense, contract, conds)
    dense = [cond for operand in operands.values() for cond in _make_dense(operand)]
    any_strides = contract.layouts != CONTIGUOUS
    return Domain(case, sizes, operands, every(conds), every(dense), any_strides)


def _make_dense(operand: Symbolic) -> Iterator[Cond]:
    step = term(1)
    for n, stride in reversed(list(zip(operand.shape, operand.strides, strict=True))):
        yield eq(stride, step)
        step = step * n


def _admit(contract: Contract, axis: str, size: Poly) -> Iterator[Cond]:
    sizes = contract.sizes(axis)
    if size.atom is not None:
        yield le(size.atom.least, size)
    is_open = sizes.high == (MAX_BATCH if axis == "batch" else MAX_SIDE)
    yield lt(size, MOST) if is_open else le(size, sizes.high)
    if sizes.step > 1:
        yield eq(make("mod", size, sizes.step), 0)


def _operand(
    name: str, fmt: str, shape: tuple[Poly, ...], is_dense: bool, contract: Contract,
    conds: list[Cond],
) -> Symbolic:  # fmt: skip
    strides: list[Poly] = []
    step = term(1)
    for n in reversed(shape):
        strides.append(step)
        step = step * n
    if not is_dense:
        axes = reversed(range(len(shape)))
        strides = [symbol(f"stride_{name}{axis}", is_natural=True) for axis in axes]
        conds += [lt(x, SPAN) for x in strides]
    strides.reverse()
    last = sum(((n - 1) * x for n, x in zip(shape, strides, strict=True)), term(0))
    conds.append(lt(last, HUGE_SPAN if contract.huge else SPAN))
    dtype = getattr(torch, FORMATS[fmt].stored.dtype)
    return Symbolic(dtype, shape, tuple(strides))


def _shape(
    axes: tuple[str | int, ...], sizes: Mapping[str, Poly], integers: Mapping[str, Poly]
) -> tuple[Poly, ...]:
    given = {"batch": term(1), **sizes, **integers}
    return tuple(term(x) if isinstance(x, int) else _evaluate(x, given) for x in axes)


# -- text over sizes -----------------------------------------------------------------------------
def _evaluate(text: str, sizes: Mapping[str, Poly]) -> Poly:
    found = _read(ast.parse(text, mode="eval").body, sizes)
    return flag(found) if isinstance(found, Cond) else found


def _relate(text: str, sizes: Mapping[str, Poly]) -> Cond:
    return _truth(_read(ast.parse(text, mode="eval").body, sizes))


def _truth(x: Poly | Cond) -> Cond:
    return x if isinstance(x, Cond) else ~eq(x, 0)


_COMPARED = {
    ast.Eq: eq,
    ast.NotEq: lambda x, y: ~eq(x, y),
    ast.Lt: lt,
    ast.LtE: le,
    ast.Gt: lambda x, y: lt(y, x),
    ast.GtE: lambda x, y: le(y, x),
}


def _read(node: ast.expr, sizes: Mapping[str, Poly]) -> Poly | Cond:
    def number(inner: ast.expr) -> Poly:
        found = _read(inner, sizes)
        return flag(found) if isinstance(found, Cond) else found

    match node:
        case ast.Constant(value=int(n)):
            return term(n)
        case ast.Name(id=name) if name in sizes:
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right):
            x, y = number(left), number(right)
            match op:
                case ast.Add():
                    return x + y
                case ast.Sub():
                    return x - y
                case ast.Mult():
                    return x * y
                case ast.FloorDiv() | ast.Mod():
                    if y.constant == 0:
                        return term(0)
                    return make("floordiv" if isinstance(op, ast.FloorDiv) else "mod", x, y)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return ~_truth(_read(inner, sizes))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -number(inner)
        case ast.BoolOp(op=op, values=values):
            parts = [_truth(_read(part, sizes)) for part in values]
            return every(parts) if isinstance(op, ast.And) else some(parts)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARED for op in ops
        ):
            terms = [number(x) for x in (left, *others)]
            pairs = zip(ops, terms, terms[1:], strict=False)
            return every(_COMPARED[type(op)](x, y) for op, x, y in pairs)
    raise NotExpressible(f"{ast.unparse(node)}, which terms cannot say")
