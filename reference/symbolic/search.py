"""Values at which conditions hold: tried at small sizes first, then sought by z3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from gemmproof.reference.symbolic.knowledge import Knowledge
from gemmproof.reference.symbolic.questions import (
    find_products,
    list_named,
    list_sizes,
    read_off,
)
from gemmproof.reference.symbolic.smt import LINEAR, MODEL, Model, Writer, ask
from gemmproof.reference.symbolic.terms import (
    FALSE,
    Atom,
    Cond,
    Poly,
    le,
    substitute,
    term,
    walk,
)


class Asked(Protocol):
    """The solver of which values are asked."""

    domain: Cond
    plainest: Cond
    knowledge: Knowledge

    def check(self, writer: Writer, conds: Iterable[Cond], steps: int) -> str: ...
    def make_z3(self, steps: int, several: bool = False) -> Any: ...
    def is_true(self, conds: list[Cond], model: Model) -> bool: ...


def find_values(solver: Asked, conds: tuple[Cond, ...], small: tuple[Atom, ...]) -> Model | None:
    """Values at which conditions hold, the atoms of `small` as small as was found at once."""
    whole = solver.knowledge.close((*conds, solver.domain, solver.plainest))
    others = [x for x in walk(*whole) if x.kind == "symbol" and x not in small]
    if solver.check(Writer(exact=False), whole, LINEAR) == "unsat":
        return None
    for sizes in list_sizes(len(small), list_named(conds)):
        model = find_at(solver, whole, dict(zip(small, map(term, sizes), strict=True)))
        if model is not None:
            return model
    suggested = _suggest(solver, whole, small)
    model = find_at(solver, whole, suggested) if suggested else None
    if model is not None:
        return model
    for bound in (400, None) if small else (None,):
        limits = []
        if bound is not None:  # strides and programs follow the sizes
            limits = [le(term(x), bound) for x in small]
            limits += [le(term(x), bound * bound) for x in others]
        if limits and solver.check(Writer(exact=False), [*whole, *limits], LINEAR) == "unsat":
            continue
        writer, z3_ = Writer(exact=True), solver.make_z3(MODEL)
        z3_.from_string(writer.write([*whole, *limits]))
        answer = ask(z3_)
        if answer == "unsat" and bound is None:
            return None
        if answer == "sat":
            model = writer.read(z3_.model())
            if solver.is_true(whole, model):
                return model
    return None


def _suggest(solver: Asked, whole: list[Cond], small: tuple[Atom, ...]) -> dict[Atom, Poly]:
    """Sizes at which everything holds that speaks of no products."""
    writer, z3_ = Writer(exact=True), solver.make_z3(LINEAR)
    z3_.from_string(writer.write(c for c in whole if not find_products([c])))
    if ask(z3_) != "sat":
        return {}
    model = writer.read(z3_.model())
    return {x: term(model[x]) for x in small if x in model}


def find_at(solver: Asked, whole: list[Cond], sizes: dict[Atom, Poly]) -> Model | None:
    """Values at which conditions hold with these sizes: with numbers for them all is linear."""
    values = dict(sizes)
    conds = [substitute(cond, values) for cond in whole]
    while FALSE not in conds:
        fixed = dict(read_off(conds))
        if not fixed:
            break
        values |= fixed
        conds = [substitute(cond, fixed) for cond in conds]
    if FALSE in conds or find_products(conds):
        return None
    writer, z3_ = Writer(exact=True), solver.make_z3(LINEAR)
    z3_.from_string(writer.write(solver.knowledge.close(conds)))
    if ask(z3_) != "sat":
        return None
    model = writer.read(z3_.model())
    model |= {x: y.constant for x, y in values.items() if y.constant is not None}
    named = (x for x in walk(*whole) if x.is_leaf)
    model = {**dict.fromkeys(named, 0), **model}
    return model if solver.is_true(whole, model) else None
