"""Writes conditions as text for z3, and reads the values of its models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import z3

from gemmproof.reference.symbolic.terms import Atom, Cond, Monomial, Poly
from gemmproof.reference.work import METER

Model = dict[Atom, int]
# z3's own count of steps, so that load changes no answer to a question
LINEAR, FULL, MODEL = 500_000, 500_000, 1_000_000
_context: z3.Context | None = None  # None is the context that z3 has from the start
_counted = 0  # of that context's steps, how many METER knows of


@contextmanager
def own_context() -> Iterator[None]:
    """Give solvers that are made meanwhile a context of z3's that was asked nothing."""
    global _context, _counted
    outside = _context, _counted
    _context, _counted = z3.Context(), 0
    try:
        yield
    finally:
        _context, _counted = outside


def make_solver(steps: int, several: bool = False) -> z3.Solver:
    """A solver for so many steps, asked once or, with other assumptions, `several` times."""
    # z3's default tries tactics before, which takes several times as long and decides less
    solver = z3.SimpleSolver(_context) if several else z3.Tactic("smt", _context).solver()
    solver.set("rlimit", steps)
    return solver


def ask(solver: z3.Solver, *assumptions: z3.BoolRef) -> str:
    """Ask a solver whether its conditions can hold, and count the steps that z3 took.

    Every solver of a context adds to one count of z3's.
    """
    global _counted
    answer = str(solver.check(*assumptions))
    total = int(solver.statistics().get_key_value("rlimit count"))
    METER.solver += total - _counted
    _counted = total
    return answer


class Writer:
    """Writes conditions for z3, as text; products are unknowns unless it is exact.

    Atoms are named in the order in which they come, so that the same of other sizes reads alike.
    `sort`: "Int", or "Real" for what follows already where values need not be integers.
    """

    def __init__(self, exact: bool, sort: str = "Int") -> None:
        self.exact, self.sort = exact, sort
        self.names: dict[str, Atom | None] = {}
        self._numbers: dict[Atom, int] = {}
        self.products: set[Monomial] = set()

    def write(self, conds: Iterable[Cond]) -> str:
        lines = [f"(assert {self._cond(cond)})" for cond in conds]
        names = (f"(declare-const {name} {self.sort})" for name in self.names)
        return "\n".join([*names, *lines])

    def write_options(self, conds: Iterable[Cond], options: Sequence[Cond]) -> str:
        """Conditions, and others that hold where the Boolean option0, option1, ... does."""
        lines = [f"(assert (=> option{i} {self._cond(x)}))" for i, x in enumerate(options)]
        declared = (f"(declare-const option{i} Bool)" for i in range(len(options)))
        return "\n".join([self.write(conds), *declared, *lines])

    def read(self, values: z3.ModelRef) -> Model:
        """The values of the symbols in a model; what it leaves open may be anything: 0."""
        given = {x.name(): values[x].as_long() for x in values.decls()}
        leaves = ((n, x) for n, x in self.names.items() if x is not None and x.is_leaf)
        return {atom: given.get(name, 0) for name, atom in leaves}

    def _number(self, atom: Atom) -> int:
        return self._numbers.setdefault(atom, len(self._numbers))

    def _name(self, atom: Atom) -> str:
        name = f"x{self._number(atom)}"
        self.names[name] = atom
        return name

    def _monomial(self, monomial: Monomial) -> str:
        if len(monomial) == 1:
            return self._name(monomial[0])
        self.products.add(monomial)
        if self.exact:
            return f"(* {' '.join(map(self._name, monomial))})"
        name = "y" + "_".join(str(self._number(x)) for x in monomial)
        self.names[name] = None
        return name

    def _poly(self, poly: Poly) -> str:
        parts = []
        for monomial, c in poly.terms.items():
            number = str(c) if c >= 0 else f"(- {-c})"
            if not monomial:
                parts.append(number)
            else:
                name = self._monomial(monomial)
                parts.append(name if c == 1 else f"(* {number} {name})")
        return f"(+ {' '.join(parts)})" if len(parts) > 1 else "".join(parts) or "0"

    def _cond(self, cond: Cond) -> str:
        if cond.term is not None:
            left = self._poly(cond.term)
            if cond.kind == "le":
                return f"(<= {left} 0)"
            return f"(= {left} 0)" if cond.kind == "eq" else f"(not (= {left} 0))"
        if not cond.parts:
            return "true" if cond.kind == "all" else "false"
        parts = " ".join(map(self._cond, cond.parts))
        return f"({'and' if cond.kind == 'all' else 'or'} {parts})"
