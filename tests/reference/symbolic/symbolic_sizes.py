"""Symbols for the operands of a product, and a search for sizes that meet a condition."""

from __future__ import annotations

import torch
import z3

from gemmproof.reference.symbolic.terms import TRUE, Cond, symbol
from gemmproof.reference.symbolic.tracing import trace_wrapper
from gemmproof.reference.symbolic.tracing.trace import Symbolic

M, N, K, BATCH = (symbol(name, is_natural=True) for name in ("M", "N", "K", "batch"))
STEPS = {
    name: symbol(f"stride_{name}", is_natural=True) for name in ("ab", "am", "ak", "bb", "bk", "bn")
}
HINT = {x.atom: n for x, n in ((M, 37), (N, 53), (K, 29), (BATCH, 3))} | {
    STEPS[name].atom: n
    for name, n in (("ab", 1200), ("am", 31), ("ak", 1), ("bb", 2000), ("bk", 61), ("bn", 1))
}


def operands(dtype=torch.float16, batched=False, row_major=False):
    """a and b over the symbols: with strides of their own, or row-major and dense."""
    given = (("a", (M, K), ("ab", "am", "ak")), ("b", (K, N), ("bb", "bk", "bn")))
    tensors = {}
    for name, (rows, columns), steps in given:
        strides = tuple(STEPS[step] for step in steps)
        if row_major:
            unit = symbol("", True) * 0 + 1
            strides = (rows * columns, columns, unit)
        shape = (BATCH, rows, columns)
        cut = 0 if batched else 1
        tensors[name] = Symbolic(dtype, shape[cut:], strides[cut:])
    return tensors


def find(cond: Cond, most: int = 4000):
    """Sizes up to `most` that meet a condition, or None."""
    known: dict = {}
    solver = z3.Solver()
    solver.set(timeout=2000)
    try:
        solver.add(_cond(cond, known))
    except KeyError:  # an operation on bits
        return None
    solver.add(*(x <= most for x in known.values()))
    solver.add(*(x >= 0 for atom, x in known.items() if atom.is_natural))
    if solver.check() != z3.sat:
        return None
    model = solver.model()
    return {atom: model.eval(x, model_completion=True).as_long() for atom, x in known.items()}


def _cond(cond, known):
    if cond.term is not None:
        x = _term(cond.term, known)
        return x <= 0 if cond.kind == "le" else x == 0 if cond.kind == "eq" else x != 0
    parts = [_cond(part, known) for part in cond.parts]
    return z3.And(*parts) if cond.kind == "all" else z3.Or(*parts)


def _term(what, known):
    total = z3.IntVal(0)
    for monomial, coefficient in what.terms.items():
        product = z3.IntVal(coefficient)
        for atom in monomial:
            product = product * _atom(atom, known)
        total = total + product
    return total


def _atom(atom, known):
    if atom.is_leaf:
        return known.setdefault(atom, z3.Int(f"{atom} {atom.number}"))
    if atom.kind == "flag":
        return z3.If(_cond(atom.args[0], known), 1, 0)
    x, y = (_term(part, known) for part in atom.args)
    expressions = {"floordiv": x / y, "mod": x % y}
    expressions |= {"min": z3.If(x < y, x, y), "max": z3.If(x > y, x, y)}
    return expressions[atom.kind]


def trace(wrapper, domain=TRUE, most=4000, given=None, hint=None, **options):
    """The paths of wrapper(a, b)."""
    return trace_wrapper(
        lambda tensors: wrapper(*tensors.values()),
        given or operands(),
        domain,
        None,
        HINT | (hint or {}),
        lambda cond: find(cond, most),
        **options,
    )
