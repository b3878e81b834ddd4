"""The solver: z3 behind lemmas, examples and a fresh state for each proof."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol

import z3

from gemmproof.reference.symbolic.lemmas import (
    Knowledge,
    aim,
    find_comparable,
    find_positive,
    find_products,
    is_said,
    list_named,
    list_parts,
    list_sizes,
    multiply,
    read_off,
)
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Monomial,
    Poly,
    evaluate,
    le,
    lt,
    own_atoms,
    substitute,
    term,
    walk,
)
from gemmproof.reference.work import METER, counted_seconds

# -- z3 ------------------------------------------------------------------------------------------
Model = dict[Atom, int]
# z3's own count of steps, so that load changes no answer to a question
LINEAR, FULL, MODEL = 500_000, 500_000, 1_000_000
_context: z3.Context | None = None  # None is the context that z3 has from the start
_counted = 0  # steps of that context that METER has counted


@contextmanager
def own_context() -> Iterator[None]:
    """Create solvers in a fresh z3 context while active."""
    global _context, _counted
    outside = _context, _counted
    _context, _counted = z3.Context(), 0
    try:
        yield
    finally:
        _context, _counted = outside


def make_solver(steps: int, several: bool = False) -> z3.Solver:
    """Return a solver for so many steps, asked once or, with other assumptions, `several` times."""
    # z3's default tries tactics before, which takes several times as long and decides less
    solver = z3.SimpleSolver(_context) if several else z3.Tactic("smt", _context).solver()
    solver.set("rlimit", steps)
    return solver


def ask(solver: z3.Solver, *assumptions: z3.BoolRef) -> str:
    """Ask a solver whether its conditions can hold, and count the steps that z3 took.

    All solvers of a context share one count in z3.
    """
    global _counted
    answer = str(solver.check(*assumptions))
    total = int(solver.statistics().get_key_value("rlimit count"))
    METER.solver += total - _counted
    _counted = total
    return answer


class Writer:
    """Writes conditions for z3, as text; products are unknowns unless it is exact.

    Atoms are named in order of appearance, so that the same conditions at other sizes have the same
    text. `sort`: "Int", or "Real" for what follows even if values need not be integers.
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
        """Write conditions, and others that hold if the Boolean option0, option1, ... does."""
        lines = [f"(assert (=> option{i} {self._cond(x)}))" for i, x in enumerate(options)]
        declared = (f"(declare-const option{i} Bool)" for i in range(len(options)))
        return "\n".join([self.write(conds), *declared, *lines])

    def read(self, values: z3.ModelRef) -> Model:
        """Return the values of the symbols in a model; those left open may be anything: 0."""
        assigned = {x.name(): values[x].as_long() for x in values.decls()}
        leaves = ((n, x) for n, x in self.names.items() if x is not None and x.is_leaf)
        return {atom: assigned.get(name, 0) for name, atom in leaves}

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


# -- search --------------------------------------------------------------------------------------
class Asked(Protocol):
    """The part of a solver that the search for values uses."""

    domain: Cond
    plainest: Cond
    knowledge: Knowledge

    def check(self, writer: Writer, conds: Iterable[Cond], steps: int) -> str: ...
    def make_z3(self, steps: int, several: bool = False) -> Any: ...
    def is_true(self, conds: list[Cond], model: Model) -> bool: ...


def find_values(solver: Asked, conds: tuple[Cond, ...], small: tuple[Atom, ...]) -> Model | None:
    """Return values at which conditions hold, those of `small` as small as was found at once."""
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
    """Return sizes at which all conditions without products hold."""
    writer, z3_ = Writer(exact=True), solver.make_z3(LINEAR)
    z3_.from_string(writer.write(c for c in whole if not find_products([c])))
    if ask(z3_) != "sat":
        return {}
    model = writer.read(z3_.model())
    return {x: term(model[x]) for x in small if x in model}


def find_at(solver: Asked, whole: list[Cond], sizes: dict[Atom, Poly]) -> Model | None:
    """Return values at which conditions hold at these sizes, which make all conditions linear."""
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


# -- solver --------------------------------------------------------------------------------------
YES, NO, UNKNOWN = "yes", "no", "unknown"
SEARCH = 4.0  # counted seconds to search for values, for all questions together
MOST_TURNS = 3  # of multiplying, each with the facts that the last one found
MOST_MEMORY = 900  # MiB, of z3


class OutOfTime(Exception):
    """The time for a kernel is spent."""


@dataclass(slots=True)
class Solver:
    """The conditions known of the symbols of one kernel, and questions about them.

    `domain` holds always: the sizes that the contract admits. `known` holds of single atoms (a
    program is below the grid) and is used where an atom is named. `plainest` narrows the domain
    when values are searched: to operands that are dense. `deadline` is in counted seconds
    (work.py), `search` those that are left to search for values. `checked` is z3's answer to a
    text, `proved` are obligations with what was known of them; solvers may share both. `example`:
    values of symbols, by name, at which the domain holds, as many as are known.
    """

    domain: Cond = TRUE
    known: dict[Atom, Cond] = field(default_factory=dict)
    plainest: Cond = TRUE
    deadline: float = float("inf")
    search: float = SEARCH
    signed: set[Atom] = field(default_factory=set)
    answers: dict[frozenset[Cond], str] = field(default_factory=dict)
    checked: dict[str, str] = field(default_factory=dict)
    proved: dict[Any, Any] = field(default_factory=dict)
    example: Mapping[str, int] = field(default_factory=dict)
    _context: int = 0
    _new: set[Atom] = field(default_factory=set)
    knowledge: Knowledge = field(init=False)

    def __post_init__(self) -> None:
        z3.set_param("memory_max_size", MOST_MEMORY)
        self.knowledge = Knowledge(self.domain, self.known)
        given = (self.domain, frozenset(self.known.items()))
        self._context = self.proved.setdefault(given, len(self.proved))

    def remembers(self, *obligation: Any) -> bool:
        """Return whether this was proved for the same domain and the same initial conditions."""
        return (self._context, obligation) in self.proved

    def recall(self, what: Any, decide: Callable[[], Any], *conds: Cond) -> Any:
        """Return a cached or new answer; cached unless `conds` name this solver's symbols."""
        key = (self._context, what)
        if key in self.proved:
            return self.proved[key]
        answer = decide()
        if not any(x in self._new for x in walk(*conds)):
            self.proved[key] = answer
        return answer

    def remember(self, *obligation: Any) -> None:
        """Record what was proved; it must not name symbols that this solver created."""
        self.proved.setdefault((self._context, obligation), 0)

    def new_symbol(self, name: str, most: int | None = None) -> Poly:
        """Return a symbol from 0 up with no other conditions; symbols are made in a fixed order.

        Solvers that are asked the same then write the same text. A symbol of at most 0 is 0.
        """
        if most == 0:
            return term(0)
        number = f"new{len(self._new)}"
        atom = Atom("symbol", name, number, most, is_natural=True, most=most)
        self._new.add(atom)
        return term(atom)

    def follows(self, goal: Cond, *given: Cond) -> str:
        """Return whether a condition holds wherever the given ones and all known ones do.

        YES is a proof. NO means that z3 found values at which it does not hold.
        """
        if goal == TRUE or is_said(goal, list(list_parts(given))):
            return YES
        if goal.kind == "all":
            answers = {self.follows(part, *given) for part in goal.parts}
            return next((x for x in (NO, UNKNOWN) if x in answers), YES)
        return {"unsat": YES, "sat": NO, "unknown": UNKNOWN}[self.decide(~goal, *given)]

    def decide(self, goal: Cond, *given: Cond) -> str:
        """Return "unsat", "sat" or "unknown": whether the goal can hold where the given ones do."""
        key = frozenset(list_parts((goal, *given)))
        if key not in self.answers:
            answer = self.recall(key, lambda: self._decide(goal, *list_parts(given)), *key)
            self.answers[key] = answer
        return self.answers[key]

    def unfold(self, *conds: Cond) -> list[Cond]:
        """Return the conditions with all known conditions and all definitions of what they name."""
        return self.knowledge.close((*conds, self.domain))

    def unfold_near(self, *conds: Cond) -> list[Cond]:
        """Return the same without conditions of other atoms or of parts of numbers of tiles."""
        return self.knowledge.close_near(conds)

    def is_ruled_out(self, unfolded: list[Cond]) -> bool:
        """Return whether unfolded conditions contradict each other, as far as lemmas show."""
        if self._is_ruled_out(unfolded):
            return True
        text = f"; by lemmas\n{Writer(exact=True).write(unfolded)}"  # z3 may derive more than these
        if text not in self.checked:
            conds = [*unfolded, *aim(TRUE, unfolded, find_positive(unfolded))]
            self.checked[text] = self.check(Writer(exact=False, sort="Real"), conds, LINEAR)
        return self.checked[text] == "unsat"

    def learn(self, *conds: Cond) -> None:
        """Find which factors of products are positive, before questions about them."""
        self._find_signs(self.knowledge.close((*conds, *self.knowledge.plain())))

    def _decide(self, goal: Cond, *given: Cond) -> str:
        known, conds = self.knowledge, (goal, *given)
        near, whole = known.close_near((goal,), given), known.close((*conds, *known.plain()))
        if self._is_ruled_out(near) or self._is_ruled_out(whole):
            return "unsat"
        everything = known.close((*conds, self.domain))
        if self._holds_at_example(everything):
            return "sat"
        if find_products(everything):
            self._find_signs(near)
            near = known.close_near((goal,), given)
            # configurations and formats, which differ elsewhere, ask this in the same text
            text = f"; by steps\n{Writer(exact=True).write(near)}"
            if text not in self.checked:
                self.checked[text] = "unsat" if self._climb(goal, near, near) else "unknown"
            if self.checked[text] == "unsat":
                return "unsat"
            self._find_signs(whole)
            if self._climb(goal, whole, everything):
                return "unsat"
        return self.check(Writer(exact=True), everything, FULL)

    def _climb(self, goal: Cond, plain: list[Cond], everything: list[Cond]) -> bool:
        """Return whether conditions contradict each other, by linear questions about products."""
        positive, facts = find_positive(everything), list[Cond]()
        for _ in range(MOST_TURNS):
            conds = [*everything, *facts]
            conds += aim(goal, conds, positive)
            if self.check(Writer(exact=False, sort="Real"), conds, LINEAR) == "unsat":
                return True
            new = self._find_facts(everything, conds, positive, set(facts))
            if not new:
                break
            facts += new
        return self._is_ruled_out(multiply(plain))

    def _find_facts(
        self, whole: list[Cond], conds: list[Cond], positive: set[Atom], known: set[Cond]
    ) -> list[Cond]:
        """Return signs of factors, and orders of quotients by one divisor: more to multiply."""
        products = find_products(conds)
        factors = dict.fromkeys(x for m in products for x in m)
        doubtful = [x for x in factors if not x.is_natural and x not in positive]
        signs = [le(n, term(x)) for x in doubtful for n in (1, 0)]
        derived = (x for x in factors if x.is_natural and not x.least and not x.is_leaf)
        signs += [le(1, term(x)) for x in derived]
        facts = self._pick(Writer(exact=False, sort="Real"), conds, signs)
        positive |= {x for cond in facts if cond.term is not None for x in cond.term.atoms}
        orders = dict.fromkeys(lt(x, y) for x, y in find_comparable(products, whole))
        plain = [cond for cond in whole if not find_products([cond])]
        new = [cond for cond in orders if cond not in known]
        return facts + self._pick(Writer(exact=False), plain, new)

    def _pick(self, writer: Writer, conds: list[Cond], candidates: list[Cond]) -> list[Cond]:
        """Return those candidates that follow from conditions."""
        if not candidates:
            return []
        solver = self.make_z3(LINEAR, several=True)
        solver.from_string(writer.write_options(conds, [~cond for cond in candidates]))
        options = ((z3.Bool(f"option{i}", solver.ctx), cond) for i, cond in enumerate(candidates))
        return [cond for option, cond in options if ask(solver, option) == "unsat"]

    def find(self, *conds: Cond, small: Iterable[Atom] = ()) -> Model | None:
        """Return values at which all of them hold, those of `small` as small as was found at once.

        Return None if there are none, or none was found.
        """
        began = counted_seconds()
        try:
            return find_values(self, conds, tuple(small)) if self.search > 0 else None
        finally:
            self.search -= counted_seconds() - began

    def check(self, writer: Writer, conds: Iterable[Cond], steps: int) -> str:
        """Return z3's answer to conditions within so many steps: it is asked once for each text."""
        text = writer.write(conds)
        if text not in self.checked:
            solver = self.make_z3(steps)
            solver.from_string(text)
            self.checked[text] = ask(solver)
        return self.checked[text]

    def is_true(self, conds: list[Cond], model: Model) -> bool:
        """Return whether conditions hold at these values of symbols."""
        try:
            memo: dict[Any, Any] = {}
            return all(bool(evaluate(cond, model, memo)) for cond in conds)
        except KeyError:
            return False

    def _holds_at_example(self, conds: list[Cond]) -> bool:
        """Return whether conditions hold at the example, others at their least: it is quick."""
        leaves = (x for x in walk(*conds) if x.is_leaf)
        return self.is_true(conds, {x: self.example.get(str(x), x.least) for x in leaves})

    def make_z3(self, steps: int, several: bool = False) -> z3.Solver:
        """Return a z3 solver for so many steps. Raises OutOfTime."""
        if counted_seconds() >= self.deadline:
            raise OutOfTime
        return make_solver(steps, several)

    def _find_signs(self, conds: list[Cond]) -> None:
        """Find which factors of products are positive: multiplication needs their signs."""
        plain = self.knowledge.plain()
        factors = dict.fromkeys(x for m in find_products(conds) for x in m)
        for atom in [x for x in factors if x not in self.signed]:
            self.signed.add(atom)
            for least in (1,) if atom.is_natural else (1, 0):
                if self._is_at_least(atom, least, plain):
                    self.known[atom] = self.known.get(atom, TRUE) & le(least, term(atom))
                    break

    def _is_at_least(self, atom: Atom, least: int, plain: list[Cond]) -> bool:
        if atom.is_natural and atom.least >= least:
            return True
        doubt = lt(term(atom), least)

        def decide() -> bool:
            near, whole = self.knowledge.close_near((doubt,)), self.knowledge.close((doubt, *plain))
            if self._holds_at_example(whole):
                return False
            multiplied = (multiply(conds) for conds in (near, whole))
            return any(map(self._is_ruled_out, chain((near, whole), multiplied)))

        return self.recall(("sign", doubt), decide, doubt)

    def _is_ruled_out(self, conds: list[Cond]) -> bool:
        return self.check(Writer(exact=False), conds, LINEAR) == "unsat"


# -- fresh state of a proof ----------------------------------------------------------------------
@contextmanager
def fresh_state() -> Iterator[None]:
    """Use separate atoms and a fresh z3 context, and collect garbage at the end: a decorator.

    Only the youngest generation is examined, which has all of it: a full collection takes 0.25 s
    with torch loaded.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with own_atoms(), own_context():
            yield
    finally:
        gc.collect(0)
        if was_enabled:
            gc.enable()
