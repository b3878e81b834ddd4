"""The open obligations of a proof, and the queries to solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import REFUTED, Proof
from gemmproof.properties.proof.branch_coverage import BranchCoverage
from gemmproof.properties.proof.counterexamples import SECONDS as SEEKING
from gemmproof.properties.proof.wrapper_paths import TraceCache, TracedPath, Untraced
from gemmproof.reference.symbolic.interpreter.interpret import Claim
from gemmproof.reference.symbolic.interpreter.symbolic_values import Access
from gemmproof.reference.symbolic.lemmas import list_parts
from gemmproof.reference.symbolic.obligations.in_bounds import judge_bounds, judge_claim, judge_fit
from gemmproof.reference.symbolic.obligations.indices import PROVED, Verdict, is_program
from gemmproof.reference.symbolic.solver import Solver
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, every, term, walk

# -- ledger --------------------------------------------------------------------------------------
ABOUT = (
    memory_use.BOUNDS,
    memory_use.FIT,
    memory_use.HINTS,
    memory_use.ONCE,
    memory_use.LANES,
    exact_values.EXACT,
)


@dataclass(slots=True)
class ProofLedger:
    """The results on each property so far.

    `open`: the reasons why properties are not decided, and `late` those of them for which time ran
    out. `suspected`: cases at which properties may not hold; `paths` are searched for more of them
    for at most `seeking` seconds. `proved` are the proved conditions, `narrow` the solvers that
    have only some of the assumptions, by these assumptions.
    """

    kernel: KernelUnderTest
    visits: BranchCoverage
    open: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    refuted: dict[str, Proof] = field(default_factory=dict)
    suspected: dict[str, Case] = field(default_factory=dict)
    paths: list[TracedPath] = field(default_factory=list)
    seeking: float = SEEKING
    unvisited: dict[str, None] = field(default_factory=dict)
    cache: TraceCache = field(default_factory=TraceCache)
    proved: dict[Any, int] = field(default_factory=dict)
    narrow: dict[Any, Solver] = field(default_factory=dict)
    # released atoms would be different objects when created again: checked results would be lost
    solvers: list[Solver] = field(default_factory=list)

    def leave_open(self, name: str, why: str, late: bool = False) -> None:
        if late and name not in self.open:
            self.late.add(name)
        self.open.setdefault(name, why)

    def leave_all_open(self, why: str, late: bool = False) -> None:
        for name in ABOUT:
            self.leave_open(name, why, late)

    def leave_untraced(self, part: Untraced) -> None:
        self.leave_all_open(part.why, part.late)
        if part.unvisited:
            self.unvisited[part.unvisited] = None

    def refute(self, name: str, why: str, case: Case) -> None:
        """Record a refutation of a property; of several cases the simplest."""
        held = self.refuted.get(name)
        if held is None or case.rank < Case.from_json(held.case or "").rank:
            self.refuted[name] = Proof(name, REFUTED, why=why, case=case.to_json())

    def suspect(self, name: str, case: Case) -> None:
        held = self.suspected.get(name)
        if held is None or case.rank < held.rank:
            self.suspected[name] = case


# -- queries to solvers --------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Obligation:
    """A condition to be proved: `terms` are all its parts, `judge` has a solver judge it."""

    terms: tuple[Any, ...]
    judge: Callable[[Solver], Iterable[Verdict]]


@dataclass(slots=True)
class Asker:
    """The queries of one path: `whole` has all its assumptions, `conds` of every path and `guards`.

    `small` are the sizes.
    """

    book: ProofLedger
    whole: Solver
    conds: tuple[Cond, ...]
    guards: Cond
    small: tuple[Atom, ...]
    _parts: tuple[list[tuple[Cond, set[Atom]]], ...] = ()

    def __post_init__(self) -> None:
        both = (self.conds, (self.guards,))
        self._parts = tuple(
            [(x, {atom for atom in walk(x) if atom.is_leaf}) for x in list_parts(conds)]
            for conds in both
        )

    def ask(self, kind: str, obligations: Iterable[Obligation]) -> Iterator[Verdict]:
        """Yield the verdicts on obligations; once one is not proved, only `whole` is asked."""
        all_proved = True
        for obligation in obligations:
            verdicts: list[Verdict] = []
            for solver in (*self._list_narrow(obligation.terms), self.whole)[
                0 if all_proved else -1 :
            ]:
                if solver.remembers(kind, *obligation.terms):
                    verdicts = []
                    break
                verdicts = list(obligation.judge(solver))
                if all(verdict.status == PROVED for verdict in verdicts):
                    solver.remember(kind, *obligation.terms)
                    break
            else:
                all_proved = False
            yield from verdicts

    def _list_narrow(self, terms: tuple[Any, ...]) -> Iterator[Solver]:
        """Yield solvers with the assumptions on terms and sizes, without and with the path's."""
        named: dict[Atom, None] = {}
        waiting = list(walk(*_flatten(terms)))
        while waiting:
            atom = waiting.pop()
            if atom.is_leaf and atom not in named:
                named[atom] = None
                waiting += walk(self.whole.known[atom]) if atom in self.whole.known else ()
        own = {*named, *self.small}
        # the existence of programs along an axis matters most if no term names them
        known = {x: c for x, c in self.whole.known.items() if x in named or is_program(x)}
        conds: list[Cond] = []
        for parts in self._parts:
            new = [cond for cond, leaves in parts if leaves <= own]
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


def _flatten(terms: Iterable[Any]) -> Iterator[Poly | Cond]:
    for x in terms:
        if isinstance(x, Poly | Cond):
            yield x
        elif isinstance(x, Atom):
            yield term(x)
        elif isinstance(x, tuple):
            yield from _flatten(x)


def list_fits(accesses: Iterable[Access], small: tuple[Atom, ...]) -> Iterator[Obligation]:
    """Yield the obligations that the steps of offsets fit."""
    for x in accesses:
        if x.steps:
            yield Obligation((*x.footprint, x.steps), partial(judge_fit, access=x, small=small))


def list_bounds(accesses: Iterable[Access], small: tuple[Atom, ...]) -> Iterator[Obligation]:
    """Yield the obligations that accesses stay within their tensors."""
    for x in accesses:
        yield Obligation(x.footprint, partial(judge_bounds, access=x, small=small))


def list_claims(claims: Iterable[Claim], small: tuple[Atom, ...]) -> Iterator[Obligation]:
    """Yield the obligations that the claims of a kernel's integers are true of every lane."""
    for x in claims:
        yield Obligation((x.cond, x.path), partial(_judge_one, claim=x, small=small))


def _judge_one(solver: Solver, claim: Claim, small: tuple[Atom, ...]) -> list[Verdict]:
    return [judge_claim(solver, claim, small)]
