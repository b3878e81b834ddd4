"""Obligations put to a solver that knows little first, and to one that knows all where that fails.

What an obligation does not name seldom decides it. Proved of what it names alone it holds on every
path of a wrapper, in every format and way of calling it, and is not asked there again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gemmproof.properties.proof.book import Book
from gemmproof.reference.symbolic.interpreter.interpret import Claim
from gemmproof.reference.symbolic.interpreter.symbolic_values import Access
from gemmproof.reference.symbolic.lemmas import list_parts
from gemmproof.reference.symbolic.obligations.in_bounds import judge_bounds, judge_claim, judge_fit
from gemmproof.reference.symbolic.obligations.indices import PROVED, Verdict, is_program
from gemmproof.reference.symbolic.solver import Solver
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, every, term, walk


@dataclass(frozen=True, slots=True)
class Obligation:
    """What must hold: `terms` are all that it is made of, `judge` has a solver judge it."""

    terms: tuple[Any, ...]
    judge: Callable[[Solver], Iterable[Verdict]]


@dataclass(slots=True)
class Asker:
    """Asks of one path: `whole` knows all that holds there: `conds` on every path, and `guards`.

    `small` are the sizes.
    """

    book: Book
    whole: Solver
    conds: tuple[Cond, ...]
    guards: Cond
    small: tuple[Atom, ...]
    _told: tuple[list[tuple[Cond, set[Atom]]], ...] = ()

    def __post_init__(self) -> None:
        both = (self.conds, (self.guards,))
        self._told = tuple(
            [(x, {atom for atom in walk(x) if atom.is_leaf}) for x in list_parts(conds)]
            for conds in both
        )

    def ask(self, kind: str, obligations: Iterable[Obligation]) -> Iterator[Verdict]:
        """What is said of obligations; once one is not proved, all is asked at once."""
        all_proved = True
        for one in obligations:
            said: list[Verdict] = []
            for solver in (*self._list_narrow(one.terms), self.whole)[0 if all_proved else -1 :]:
                if solver.remembers(kind, *one.terms):
                    said = []
                    break
                said = list(one.judge(solver))
                if all(verdict.status == PROVED for verdict in said):
                    solver.remember(kind, *one.terms)
                    break
            else:
                all_proved = False
            yield from said

    def _list_narrow(self, terms: tuple[Any, ...]) -> Iterator[Solver]:
        """Solvers that know of what terms name and of the sizes: without the path, and with it."""
        named: dict[Atom, None] = {}
        waiting = list(walk(*_flatten(terms)))
        while waiting:
            atom = waiting.pop()
            if atom.is_leaf and atom not in named:
                named[atom] = None
                waiting += walk(self.whole.known[atom]) if atom in self.whole.known else ()
        own = {*named, *self.small}
        # that there are programs along an axis matters most where nothing names them
        known = {x: c for x, c in self.whole.known.items() if x in named or is_program(x)}
        conds: list[Cond] = []
        for told in self._told:
            new = [cond for cond, leaves in told if leaves <= own]
            if new or not conds:
                conds += new
                yield self._get_solver(conds, known)

    def _get_solver(self, conds: list[Cond], known: dict[Atom, Cond]) -> Solver:
        key = (frozenset(conds), frozenset(known.items()))
        if key not in self.book.narrow:
            self.book.narrow[key] = replace(
                self.whole, domain=every(conds), known=dict(known), search=0.0, signed=set(),
                answers={}, _new=set(),
            )  # fmt: skip
        solver = self.book.narrow[key]
        solver.deadline = self.whole.deadline
        return solver


def _flatten(what: Iterable[Any]) -> Iterator[Poly | Cond]:
    for x in what:
        if isinstance(x, Poly | Cond):
            yield x
        elif isinstance(x, Atom):
            yield term(x)
        elif isinstance(x, tuple):
            yield from _flatten(x)


def list_fits(accesses: Iterable[Access], small: tuple[Atom, ...]) -> Iterator[Obligation]:
    """That the steps of offsets fit."""
    for x in accesses:
        if x.steps:
            yield Obligation((*x.place, x.steps), partial(judge_fit, access=x, small=small))


def list_bounds(accesses: Iterable[Access], small: tuple[Atom, ...]) -> Iterator[Obligation]:
    """That accesses stay within their tensors."""
    for x in accesses:
        yield Obligation(x.place, partial(judge_bounds, access=x, small=small))


def list_claims(claims: Iterable[Claim], small: tuple[Atom, ...]) -> Iterator[Obligation]:
    """That what a kernel's integers claim is true of every lane."""
    for x in claims:
        yield Obligation((x.cond, x.path), partial(_judge_one, claim=x, small=small))


def _judge_one(solver: Solver, claim: Claim, small: tuple[Atom, ...]) -> list[Verdict]:
    return [judge_claim(solver, claim, small)]
