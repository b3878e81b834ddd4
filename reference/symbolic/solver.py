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


# -- search --------------------------------------------------------------------------------------
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


# -- solver --------------------------------------------------------------------------------------
YES, NO, UNKNOWN = "yes", "no", "unknown"
SEARCH = 4.0  # counted seconds in which values are sought, of all questions together
MOST_TURNS = 3  # of multiplying, each with what the last one found out
MOST_MEMORY = 900  # MiB, of z3


class OutOfTime(Exception):
    """The time for a kernel is spent."""


@dataclass(slots=True)
class Solver:
    """What is known of the symbols of one kernel, and questions about it.

    `domain` holds always: the sizes that the contract admits. `known` is what holds of single
    atoms (a program is below the grid) and is used where an atom is named. `plainest` narrows the
    domain where values are sought: to operands that are dense. `deadline` is in counted seconds
    (work.py), `search` those that are left to look for values. `checked` is what z3 said to a text,
    `proved` are obligations with what was known of them; solvers may share both. `example`: values
    of symbols, by name, at which the domain holds, as far as they are known.
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
        """Whether this was proved of the same domain and of what was known at first."""
        return (self._context, obligation) in self.proved

    def recall(self, what: Any, decide: Callable[[], Any], *conds: Cond) -> Any:
        """An answer that was kept, or is decided now; kept unless `conds` name own symbols."""
        asked = (self._context, what)
        if asked in self.proved:
            return self.proved[asked]
        said = decide()
        if not any(x in self._new for x in walk(*conds)):
            self.proved[asked] = said
        return said

    def remember(self, *obligation: Any) -> None:
        """Keep what was proved; it must not name symbols that this solver made."""
        self.proved.setdefault((self._context, obligation), 0)

    def new_symbol(self, name: str, most: int | None = None) -> Poly:
        """A symbol from 0 up, of which nothing else is known; one after another in a fixed order.

        Solvers that are asked the same then write the same text. One of at most 0 is 0.
        """
        if most == 0:
            return term(0)
        number = f"new{len(self._new)}"
        atom = Atom("symbol", name, number, most, is_natural=True, most=most)
        self._new.add(atom)
        return term(atom)

    def follows(self, goal: Cond, *given: Cond) -> str:
        """Whether a condition holds wherever the given ones and all that is known do.

        YES is a proof. NO means that z3 found values at which it does not.
        """
        if goal == TRUE or is_said(goal, list(list_parts(given))):
            return YES
        if goal.kind == "all":
            said = {self.follows(part, *given) for part in goal.parts}
            return next((x for x in (NO, UNKNOWN) if x in said), YES)
        return {"unsat": YES, "sat": NO, "unknown": UNKNOWN}[self.decide(~goal, *given)]

    def decide(self, goal: Cond, *given: Cond) -> str:
        """Say "unsat", "sat" or "unknown": whether the goal can hold where the given ones do."""
        key = frozenset(list_parts((goal, *given)))
        if key not in self.answers:
            said = self.recall(key, lambda: self._decide(goal, *list_parts(given)), *key)
            self.answers[key] = said
        return self.answers[key]

    def unfold(self, *conds: Cond) -> list[Cond]:
        """The conditions with all that is known and all definitions of what they name."""
        return self.knowledge.close((*conds, self.domain))

    def unfold_near(self, *conds: Cond) -> list[Cond]:
        """The same without what is known of other atoms, or of what numbers of tiles are made."""
        return self.knowledge.close_near(conds)

    def is_ruled_out(self, unfolded: list[Cond]) -> bool:
        """Whether unfolded conditions contradict each other, as far as lemmas show."""
        if self._is_ruled_out(unfolded):
            return True
        text = f"; by lemmas\n{Writer(exact=True).write(unfolded)}"  # z3 may say more than these
        if text not in self.checked:
            said = [*unfolded, *aim(TRUE, unfolded, find_positive(unfolded))]
            self.checked[text] = self.check(Writer(exact=False, sort="Real"), said, LINEAR)
        return self.checked[text] == "unsat"

    def learn(self, *conds: Cond) -> None:
        """Find out which factors of products are positive, before questions about them."""
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
            # configurations and formats, which differ elsewhere, ask this in the same words
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
        """Whether conditions contradict each other, by questions of products that are linear."""
        positive, facts = find_positive(everything), list[Cond]()
        for _ in range(MOST_TURNS):
            said = [*everything, *facts]
            said += aim(goal, said, positive)
            if self.check(Writer(exact=False, sort="Real"), said, LINEAR) == "unsat":
                return True
            new = self._find_facts(everything, said, positive, set(facts))
            if not new:
                break
            facts += new
        return self._is_ruled_out(multiply(plain))

    def _find_facts(
        self, whole: list[Cond], said: list[Cond], positive: set[Atom], known: set[Cond]
    ) -> list[Cond]:
        """Signs of factors, and orders of quotients by one divisor: more to multiply."""
        products = find_products(said)
        factors = dict.fromkeys(x for m in products for x in m)
        doubtful = [x for x in factors if not x.is_natural and x not in positive]
        signs = [le(n, term(x)) for x in doubtful for n in (1, 0)]
        made = (x for x in factors if x.is_natural and not x.least and not x.is_leaf)
        signs += [le(1, term(x)) for x in made]
        found = self._pick(Writer(exact=False, sort="Real"), said, signs)
        positive |= {x for cond in found if cond.term is not None for x in cond.term.atoms}
        orders = dict.fromkeys(lt(x, y) for x, y in find_comparable(products, whole))
        plain = [cond for cond in whole if not find_products([cond])]
        new = [cond for cond in orders if cond not in known]
        return found + self._pick(Writer(exact=False), plain, new)

    def _pick(self, writer: Writer, said: list[Cond], doubted: list[Cond]) -> list[Cond]:
        """Those of the conditions that follow from what is said."""
        if not doubted:
            return []
        solver = self.make_z3(LINEAR, several=True)
        solver.from_string(writer.write_options(said, [~cond for cond in doubted]))
        options = ((z3.Bool(f"option{i}", solver.ctx), cond) for i, cond in enumerate(doubted))
        return [cond for option, cond in options if ask(solver, option) == "unsat"]

    def find(self, *conds: Cond, small: Iterable[Atom] = ()) -> Model | None:
        """Values at which all of them hold, the atoms of `small` as small as was found at once.

        None where there are none, or none was found.
        """
        began = counted_seconds()
        try:
            return find_values(self, conds, tuple(small)) if self.search > 0 else None
        finally:
            self.search -= counted_seconds() - began

    def check(self, writer: Writer, conds: Iterable[Cond], steps: int) -> str:
        """What z3 says to conditions within so many steps: once for each text."""
        text = writer.write(conds)
        if text not in self.checked:
            solver = self.make_z3(steps)
            solver.from_string(text)
            self.checked[text] = ask(solver)
        return self.checked[text]

    def is_true(self, conds: list[Cond], model: Model) -> bool:
        """Whether conditions hold where symbols have these values."""
        try:
            memo: dict[Any, Any] = {}
            return all(bool(evaluate(cond, model, memo)) for cond in conds)
        except KeyError:
            return False

    def _holds_at_example(self, conds: list[Cond]) -> bool:
        """Whether conditions hold there, all others being as small as can be: it is soon seen."""
        leaves = (x for x in walk(*conds) if x.is_leaf)
        return self.is_true(conds, {x: self.example.get(str(x), x.least) for x in leaves})

    def make_z3(self, steps: int, several: bool = False) -> z3.Solver:
        """A solver of z3's for so many steps. Raises OutOfTime."""
        if counted_seconds() >= self.deadline:
            raise OutOfTime
        return make_solver(steps, several)

    def _find_signs(self, conds: list[Cond]) -> None:
        """Learn which factors of products are positive: what is multiplied must know."""
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
    """Make atoms anew, ask a new context of z3's, and collect garbage at the end: a decorator.

    Only the youngest generation is examined, where all that is: a whole collection takes 0.25 s
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
