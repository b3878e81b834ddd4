"""Proofs of a kernel's properties, for every case that its contract admits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import ROLES
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import NOT_DECIDED, PROVED, REFUTED, SECONDS, TIME, Proof, Proofs
from gemmproof.properties.proof.cases_of_paths import (
    SEEKING,
    SHARE,
    BranchCoverage,
    find_layouts,
    seek,
    visit_branches,
    visit_run,
)
from gemmproof.properties.proof.domain import (
    HUGE_SPAN,
    SPAN,
    Domain,
    NotExpressible,
    TraceCache,
    TracedPath,
    Untraced,
    iter_traced_paths,
    list_domains,
)
from gemmproof.properties.proof.workspaces import StoredResults, find_stored_results
from gemmproof.reference.symbolic.interpreter.interpret import Claim, Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import SymbolicAccess
from gemmproof.reference.symbolic.lemmas import list_parts
from gemmproof.reference.symbolic.obligations.in_bounds import (
    judge_bounds,
    judge_claim,
    judge_fit,
    judge_hint,
)
from gemmproof.reference.symbolic.obligations.indices import OPEN, Obligation, Verdict, is_program
from gemmproof.reference.symbolic.obligations.indices import PROVED as HOLDS
from gemmproof.reference.symbolic.obligations.indices import REFUTED as FAILS
from gemmproof.reference.symbolic.obligations.product import WantedProduct
from gemmproof.reference.symbolic.solver import SEARCH, OutOfTime, Solver, fresh_state
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, every, lt, term, walk
from gemmproof.reference.work import counted_seconds

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
                if all(verdict.status == HOLDS for verdict in verdicts):
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


def list_fits(accesses: Iterable[SymbolicAccess], small: tuple[Atom, ...]) -> Iterator[Obligation]:
    """Yield the obligations that the steps of offsets fit."""
    for x in accesses:
        if x.steps:
            yield Obligation((*x.footprint, x.steps), partial(judge_fit, access=x, small=small))


def list_bounds(
    accesses: Iterable[SymbolicAccess], small: tuple[Atom, ...]
) -> Iterator[Obligation]:
    """Yield the obligations that accesses stay within their tensors."""
    for x in accesses:
        yield Obligation(x.footprint, partial(judge_bounds, access=x, small=small))


def list_claims(claims: Iterable[Claim], small: tuple[Atom, ...]) -> Iterator[Obligation]:
    """Yield the obligations that the claims of a kernel's integers are true of every lane."""
    for x in claims:
        yield Obligation((x.cond, x.path), partial(_judge_one, claim=x, small=small))


def _judge_one(solver: Solver, claim: Claim, small: tuple[Atom, ...]) -> list[Verdict]:
    return [judge_claim(solver, claim, small)]


# -- proofs ----------------------------------------------------------------------------------------
# seconds for a first search: obvious faults are found quickly, without the solver
GLANCE = 0.2


@fresh_state()
def prove(kernel: KernelUnderTest, target: str | None = None, seconds: float = SECONDS) -> Proofs:
    """Prove the properties of a kernel for every case that its contract admits, within `seconds`.

    `target` is the GPU that it is compiled for, None for none in particular. It runs the wrapper,
    and raises the wrapper's exceptions other than those that a path may end with.
    """
    began = counted_seconds()
    until = began + seconds - min(SEEKING, seconds) / 4  # the rest is for trials
    book = ProofLedger(kernel, BranchCoverage(seconds * SHARE))
    scope = ""
    try:
        for domain in list_domains(kernel):
            scope = scope or domain.scope
            _prove(book, domain, target, until)
    except NotExpressible as why:
        book.leave_all_open(str(why))
    except OutOfTime:
        book.leave_all_open(f"{seconds:g} s were not enough", late=True)
    if not any(traced.path.launches for traced in book.paths):
        book.leave_all_open("no path of the wrapper that was followed launches a kernel")
    left = [name for name in book.open if name not in book.suspected and _is_about(kernel, name)]
    if left:
        _seek(book, book.paths, left, began + seconds)
    verdicts = tuple(_conclude(book, name, scope) for name in ABOUT if _is_about(kernel, name))
    spent = counted_seconds() - began
    unvisited = tuple({**book.unvisited, **book.visits.unvisited})
    return Proofs(verdicts, book.visits.cases, unvisited, spent, tuple(book.visits.covered))


def _is_about(kernel: KernelUnderTest, name: str) -> bool:
    return name != exact_values.EXACT or kernel.spec is None


# results on addresses depend on offsets that fit, results on values on both
RESTS: dict[str, tuple[str, ...]] = {
    memory_use.BOUNDS: (memory_use.FIT,),
    memory_use.HINTS: (memory_use.FIT,),
    memory_use.ONCE: (memory_use.FIT,),
    memory_use.LANES: (memory_use.FIT, memory_use.BOUNDS, memory_use.HINTS),
    exact_values.EXACT: (
        memory_use.FIT,
        memory_use.BOUNDS,
        memory_use.HINTS,
        memory_use.ONCE,
        memory_use.LANES,
    ),
}


def _conclude(book: ProofLedger, name: str, scope: str) -> Proof:
    if name in book.refuted:
        return book.refuted[name]
    resting = (x for x in RESTS.get(name, ()) if x in book.open or x in book.refuted)
    left = name if name in book.open else next(resting, "")
    if not left:
        return Proof(name, PROVED, scope)
    why = book.open[name] if left == name else f"it rests on {left}"
    case = book.suspected.get(name)
    shown, cut = None if case is None else case.to_json(), TIME if left in book.late else ""
    return Proof(name, NOT_DECIDED, why=why, case=shown, cut=cut)


def _prove(book: ProofLedger, domain: Domain, target: str | None, deadline: float) -> None:
    def soon() -> float:
        """Return the time by which the paths are known: half of what is left is for the rest."""
        return (counted_seconds() + deadline) / 2

    see = partial(visit_run, book.visits, book.kernel, domain)
    for parts in iter_traced_paths(book.kernel, domain, target, book.cache, soon, see):
        for part in parts:
            if isinstance(part, Untraced):
                book.leave_untraced(part)
        paths = [part for part in parts if isinstance(part, TracedPath)]
        book.paths += paths
        if book.paths == paths:
            _seek(book, paths, list(ABOUT), deadline, GLANCE)
        for traced in paths:
            _judge_path(book, traced, deadline)


def _judge_path(book: ProofLedger, traced: TracedPath, deadline: float) -> None:
    domain, path, machines = traced.domain, traced.path, traced.machines
    accesses = [access for machine in machines for access in machine.accesses]
    conds = [domain.condition, *list_spans(book.kernel, accesses)]
    conds += [machine.launched for machine in machines]
    # cases are also searched for in the formulas, which takes less time
    known = {atom: cond for machine in machines for atom, cond in machine.known.items()}
    inner = Solver(
        every([*conds, path.condition]), known, domain.plainest, deadline, search=SEARCH / 4,
        checked=book.cache.checked, proved=book.proved, example=path.sizes,
    )  # fmt: skip
    book.solvers.append(inner)
    results = find_stored_results(path, accesses)
    asker = Asker(book, inner, tuple(conds), path.condition, domain.axes)
    for name, verdicts in _judge(book.kernel, domain, machines, results, asker).items():
        if name in book.open or name in book.refuted:  # because of another path or configuration
            continue
        # none takes more than half of the remaining time
        inner.deadline = (counted_seconds() + deadline) / 2
        try:
            _keep(book, traced, name, verdicts, deadline)
        except OutOfTime:
            if counted_seconds() > deadline:
                raise
            book.leave_open(name, "it takes too much of the time", late=True)
    if any(machine.branches for machine in machines):
        inner.deadline = deadline
        looking = replace(inner, search=book.visits.left)
        visit_branches(book.visits, book.kernel, traced, looking, inner.domain)


def _keep(
    book: ProofLedger, traced: TracedPath, name: str, verdicts: Iterator[Verdict], deadline: float
) -> None:
    """Record the verdicts on a property on one path in the book."""
    for verdict in verdicts:
        if verdict.status in (OPEN, FAILS) and name not in book.suspected:
            _seek(book, [traced], [name], deadline)
        if verdict.status == OPEN:
            book.leave_open(name, _say(verdict))
        elif verdict.status == FAILS:
            _refute(book, traced, name, verdict)


def list_spans(kernel: KernelUnderTest, accesses: list[SymbolicAccess]) -> Iterator[Cond]:
    """Yield the condition that offsets stay below 2^31 elements, or HUGE_SPAN if huge."""
    span = HUGE_SPAN if kernel.contract.huge else SPAN
    for memory_ in {access.tensor.storage: access.tensor.memory for access in accesses}.values():
        sides = zip(memory_.shape, memory_.strides, strict=True)
        yield lt(sum(((n - 1) * step for n, step in sides), term(0)), span)


def _judge(
    kernel: KernelUnderTest,
    domain: Domain,
    machines: list[Machine],
    results: StoredResults,
    asker: Asker,
) -> dict[str, Iterator[Verdict]]:
    """Return the obligations of each property; none is asked before its turn."""
    small, accesses, solver = domain.axes, results.accesses, asker.whole
    claims = {(c.kind, c.cond, c.path, c.number): c for m in machines for c in m.claims}.values()
    fits = [claim for claim in claims if claim.kind == "fit"]
    verdicts = {
        memory_use.FIT: chain(
            asker.ask("fits", list_fits(accesses, small)),
            asker.ask("claim", list_claims(fits, small)),
        ),
        memory_use.BOUNDS: asker.ask("bounds", list_bounds(accesses, small)),
        memory_use.HINTS: (
            judge_hint(solver, claim, small, machines, results.stores, results.list_stores)
            for claim in claims
            if claim.kind != "fit"
        ),
        memory_use.LANES: results.judge_lanes(solver, machines, small),
        memory_use.ONCE: asker.ask("once", results.list_once(small)),
    }
    if kernel.spec is None:
        shapes = {name: domain.operands[name].shape for name in ROLES}
        product = WantedProduct(shapes, domain.case.dtype == "tf32", small)
        verdicts[exact_values.EXACT] = results.judge_product(solver, product)
    return verdicts


def _say(verdict: Verdict) -> str:
    where = "" if verdict.where is None else str(verdict.where)
    return ": ".join(filter(None, (where, verdict.text, verdict.why)))


def _refute(book: ProofLedger, traced: TracedPath, name: str, verdict: Verdict) -> None:
    case = _make_case(book, traced, verdict)
    if case is None:
        book.leave_open(name, f"{_say(verdict)}: fails only where no case can be")
        return
    why = _say(verdict)
    if name == exact_values.EXACT:  # sums may agree by chance: the simulated case decides
        book.suspect(name, case)
        book.leave_open(name, f"{why}, at {case}")
        return
    book.refute(name, why, case)


def _seek(
    book: ProofLedger,
    paths: list[TracedPath],
    names: list[str],
    until: float,
    most: float = SEEKING,
) -> None:
    """Search for cases, or for simpler ones, that refute unproved properties.

    A property that a case refutes need not be asked of the solver any more.
    """
    began = counted_seconds()
    spared = min(most, book.seeking)
    for name, counterexample in seek(book.kernel, paths, names, spared, until).items():
        if counterexample.is_certain:
            where = f"{counterexample.where}: " if counterexample.where is not None else ""
            book.refute(name, f"{where}{counterexample.text}", counterexample.case)
        else:
            book.suspect(name, counterexample.case)
    book.seeking -= counted_seconds() - began


def _make_case(book: ProofLedger, traced: TracedPath, verdict: Verdict) -> Case | None:
    """Return a case of the sizes at which an obligation fails, in layouts that take the path."""
    assert verdict.model is not None
    domain = traced.domain
    sides = domain.read_sides(verdict.model, domain.case)
    try:
        case = replace(domain.case, config=traced.config).with_sides(sides)
    except ValueError:
        return None
    return find_layouts(book.visits, book.kernel, domain, case, traced.path.guards)
