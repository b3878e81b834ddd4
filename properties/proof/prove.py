"""Proofs of a kernel's properties, for every case that its contract admits."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import inf
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import MAX_SIDE, ROLES
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
from gemmproof.properties.proof.cross_check import compare_path
from gemmproof.properties.proof.domain import (
    HUGE_SPAN,
    SPAN,
    Domain,
    NotExpressible,
    TraceCache,
    TracedPath,
    Untraced,
    asks_sms,
    format_span,
    iter_traced_paths,
    list_domains,
)
from gemmproof.properties.proof.sides import list_sides
from gemmproof.properties.proof.workspaces import ADDED, StoredResults, find_stored_results
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.fake_cuda.multiprocessors import keeps_number, list_other_counts
from gemmproof.reference.gpus import DEFAULT, GPUS
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
from gemmproof.reference.symbolic.solver import SEARCH, YES, OutOfTime, Solver, fresh_state
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, eq, every, le, lt, some, term, walk
from gemmproof.reference.symbolic.tracing.trace import Memory, Path, TensorView
from gemmproof.reference.work import counted_apart, counted_seconds

FAR = 2**30  # a size rounded up to a tile still fits 32 bits
COMPARING = 10.0  # counted apart, to compare paths with the simulation


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
    out. `added`: the same if no other property rests on it: atomics add to the result. `assumed`:
    the assumptions of all proofs. `defects`: differences between models of ours. `suspected`: cases
    at which properties may not hold; `paths` are searched for more of them for at most `seeking`
    seconds, and compared with the simulation for `comparing`. `proved` are the proved conditions,
    `narrow` the solvers that have only some of the assumptions, by these assumptions. While the
    ledger `may_be_late`, it notes only that it `was_late` where time runs out. `is_partial`: there
    are calls whose kernels were not interpreted; `is_followed`: all paths of the wrapper are known.
    """

    kernel: KernelUnderTest
    visits: BranchCoverage
    open: dict[str, str] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)
    added: dict[str, str] = field(default_factory=dict)
    assumed: dict[str, None] = field(default_factory=dict)
    defects: dict[str, None] = field(default_factory=dict)
    refuted: dict[str, Proof] = field(default_factory=dict)
    suspected: dict[str, Case] = field(default_factory=dict)
    paths: list[TracedPath] = field(default_factory=list)
    seeking: float = SEEKING
    comparing: float = COMPARING
    is_partial: bool = False
    is_followed: bool = True
    cache: TraceCache = field(default_factory=TraceCache)
    proved: dict[Any, int] = field(default_factory=dict)
    narrow: dict[Any, Solver] = field(default_factory=dict)
    # released atoms would be different objects when created again: checked results would be lost
    solvers: list[Solver] = field(default_factory=list)
    may_be_late: bool = False
    was_late: bool = False

    def leave_open(self, name: str, why: str, late: bool = False) -> None:
        if late and self.may_be_late:
            self.was_late = True
            return
        if late and name not in self.open:
            self.late.add(name)
        self.open.setdefault(name, why)

    def leave_all_open(self, why: str, late: bool = False) -> None:
        for name in ABOUT:
            self.leave_open(name, why, late)

    def leave_untraced(self, part: Untraced) -> None:
        self.is_partial = True
        self.is_followed &= part.in_kernel
        self.leave_all_open(part.why, part.late)
        if part.defect:
            self.defects[part.defect] = None

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

    Other solvers, which are asked first, have only some of them, and sizes up to FAR.

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
        # z3 decides products of sizes sooner if their limits are far away
        far = {le(term(x), MAX_SIDE): lt(term(x), FAR) for x in self.small}
        self._parts = tuple(
            [(far.get(x, x), {atom for atom in walk(x) if atom.is_leaf}) for x in list_parts(conds)]
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
    find_state(kernel.launch)  # before any call
    began = counted_seconds()
    until = began + seconds - min(SEEKING, seconds) / 4  # the rest is for trials
    book = ProofLedger(kernel, BranchCoverage(seconds * SHARE))
    scope, domains = "", list[Domain]()
    try:
        for domain in list_domains(kernel):
            domains.append(domain)
            scope = scope or domain.scope
            book.assumed |= dict.fromkeys(domain.list_limits(kernel.contract))
            _prove(book, domain, target, until)
        if numbers := _prove_for_others(book, domains, target, until):
            book.assumed[f"a GPU of {numbers} multiprocessors"] = None
    except NotExpressible as why:
        book.is_partial, book.is_followed = True, False
        book.leave_all_open(str(why))
    except OutOfTime:
        book.is_partial, book.is_followed = True, False
        book.leave_all_open(f"{seconds:g} s were not enough", late=True)
    if not any(traced.path.launches for traced in book.paths):
        book.leave_all_open("no path of the wrapper that was followed launches a kernel")
    left = [name for name in book.open if name not in book.suspected and _is_about(kernel, name)]
    if left:
        _seek(book, book.paths, left, began + seconds)
    verdicts = tuple(_conclude(book, name, scope) for name in ABOUT if _is_about(kernel, name))
    spent = counted_seconds() - began
    covered, defects = tuple(book.visits.covered), tuple(book.defects)
    sms = GPUS[target or DEFAULT].multiprocessors
    sides = tuple(list_sides(kernel, book.visits.sides.values(), sms))
    ruled_out = frozenset(side for side, may_be in book.visits.reached.items() if not may_be)
    ruled_out = frozenset() if book.is_partial or defects else ruled_out
    return Proofs(
        verdicts, book.visits.cases, spent, covered, defects, sides, ruled_out, book.is_followed,
        ruled_out & book.visits.not_laid_out,
    )  # fmt: skip


def _prove_for_others(
    book: ProofLedger, domains: list[Domain], target: str | None, deadline: float
) -> str:
    """Prove the same for the GPUs' other numbers of multiprocessors if the wrapper reads it.

    Returns the numbers for which there was time enough, one if the wrapper keeps it from its
    import; "" if it does not read the number. A property that is not proved for one of them is not
    decided.
    """
    asking = [domain for domain in domains if asks_sms(domain, book.cache)]
    is_fixed = keeps_number(_list_files(book.kernel.launch))
    if not asking and not is_fixed:
        return ""
    done = [GPUS[target or DEFAULT].multiprocessors]
    for sms in () if is_fixed else list_other_counts(target):
        book.may_be_late, book.was_late = True, False
        others = [replace(domain, case=replace(domain.case, sms=sms)) for domain in asking]
        try:
            for domain in others:
                _prove(book, domain, target, deadline)
        except OutOfTime:
            book.is_partial = True
            break
        finally:
            book.may_be_late = False
        book.is_partial |= book.was_late
        if book.was_late or not all(asks_sms(domain, book.cache) for domain in others):
            break  # it may keep the number of an earlier call
        done.append(sms)
    *rest, last = map(str, sorted(done))
    return f"{', '.join(rest)} or {last}" if rest else last


def _list_files(launch: Any) -> Iterator[str]:
    """Yield the files of a wrapper, and of what its module names."""
    while isinstance(launch, partial):
        launch = launch.func
    launch = inspect.unwrap(launch)
    for value in (launch, *getattr(launch, "__globals__", {}).values()):
        code = getattr(getattr(value, "fn", value), "__code__", None)
        yield getattr(code, "co_filename", "") or str(getattr(value, "__file__", ""))


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
    if name in book.refuted and not book.defects:
        return book.refuted[name]
    resting = (x for x in RESTS.get(name, ()) if x in book.open or x in book.refuted)
    left = name if name in book.open else next(resting, "")
    if not left and name not in book.added:
        return Proof(name, PROVED, scope, assumptions=tuple(book.assumed))
    if not left:
        return Proof(name, NOT_DECIDED, why=book.added[name])
    why = book.open[name] if left == name else f"it rests on {left}"
    case = book.suspected.get(name)
    shown, cut = None if case is None else case.to_json(), TIME if left in book.late else ""
    return Proof(name, NOT_DECIDED, why=why, case=shown, cut=cut)


def _prove(book: ProofLedger, domain: Domain, target: str | None, deadline: float) -> None:
    def soon() -> float:
        """Return the time by which the paths are known: half of what is left is for the rest."""
        return (counted_seconds() + deadline) / 2

    # the runs for other numbers of multiprocessors decide the same
    see = None if book.may_be_late else partial(visit_run, book.visits, book.kernel, domain)
    for parts in iter_traced_paths(book.kernel, domain, target, book.cache, soon, see):
        for part in parts:
            if isinstance(part, Untraced):
                book.leave_untraced(part)
        paths = [part for part in parts if isinstance(part, TracedPath)]
        book.paths += paths
        if book.paths == paths:
            _seek(book, paths, list(ABOUT), deadline, GLANCE)
        for traced in paths:
            _judge_path(book, traced, target, deadline)


def _judge_path(book: ProofLedger, traced: TracedPath, target: str | None, deadline: float) -> None:
    domain, path, machines = traced.domain, traced.path, traced.machines
    accesses = [access for machine in machines for access in machine.accesses]
    conds = [domain.condition, *list_spans(book.kernel, path, accesses)]
    before = Solver(  # before any launch
        every([*conds, path.condition]), deadline=deadline, checked=book.cache.checked,
        example=path.sizes,
    )  # fmt: skip
    book.solvers.append(before)
    if not _has_effect(book, traced, accesses, before):
        book.is_partial |= any(machine.branches for machine in machines)
        return
    conds += _assume_spans(book, accesses, conds, before)
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
    for name, verdicts in _judge(book.kernel, domain, machines, results, asker, before).items():
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
    if not {*ABOUT} <= {*book.open, *book.refuted}:
        inner.deadline = deadline
        _cross_check(book, traced, target, inner)
    if any(machine.branches for machine in machines):
        inner.deadline = deadline
        looking = replace(inner, search=book.visits.left)
        visit_branches(book.visits, book.kernel, traced, looking, inner.domain)


def _cross_check(book: ProofLedger, traced: TracedPath, target: str | None, solver: Solver) -> None:
    """Leave everything open if the path's formulas are not those of the simulated kernel."""
    if not traced.path.launches:
        return
    guards = traced.path.guards
    where = f"{guards[-1][1]}: " if guards else ""
    if book.comparing <= 0:
        why = f"{where}{COMPARING:g} s were not enough to compare its model with the simulation"
        book.leave_all_open(why, late=True)
        return
    with counted_apart():
        began = counted_seconds()
        comparison = compare_path(book.kernel, traced, target, replace(solver, deadline=inf))
        book.comparing -= counted_seconds() - began
    if comparison.difference:
        book.defects[comparison.difference] = None
        book.leave_all_open(
            f"{where}the model differs from the simulation: {comparison.difference}"
        )
    elif not comparison.agreed:
        book.leave_all_open(f"{where}no small case takes this path, to compare its model with")


def _keep(
    book: ProofLedger, traced: TracedPath, name: str, verdicts: Iterator[Verdict], deadline: float
) -> None:
    """Record the verdicts on a property on one path in the book."""
    for verdict in verdicts:
        if verdict.status in (OPEN, FAILS) and name not in book.suspected:
            _seek(book, [traced], [name], deadline)
        if verdict.status == OPEN and verdict.why == ADDED:
            book.added.setdefault(name, _say(verdict))
        elif verdict.status == OPEN:
            suspected = None if verdict.model is None else _make_case(book, traced, verdict)
            if suspected is not None and name not in book.suspected:
                book.suspect(name, suspected)
            book.leave_open(name, _say(verdict))
        elif verdict.status == FAILS:
            _refute(book, traced, name, verdict)


def list_spans(
    kernel: KernelUnderTest, path: Path, accesses: list[SymbolicAccess]
) -> Iterator[Cond]:
    """Yield the condition that operands and results stay below 2^31 elements, more if huge."""
    results = {view.storage for view in path.results if isinstance(view, TensorView)}
    for memory_ in _list_memories(accesses):
        if memory_.is_operand or memory_.number in results:
            yield _limit_span(kernel, memory_)


def _list_memories(accesses: Iterable[SymbolicAccess]) -> list[Memory]:
    return list({access.tensor.storage: access.tensor.memory for access in accesses}.values())


def _limit_span(kernel: KernelUnderTest, memory_: Memory) -> Cond:
    span = HUGE_SPAN if kernel.contract.huge else SPAN
    sides = zip(memory_.shape, memory_.strides, strict=True)
    return lt(sum(((n - 1) * step for n, step in sides), term(0)), span)


def _assume_spans(
    book: ProofLedger, accesses: list[SymbolicAccess], conds: list[Cond], solver: Solver
) -> list[Cond]:
    """Return the limits of workspaces that do not follow from those of operands and results.

    They are assumptions of the proof: a workspace may have more elements than any operand.
    """
    assumed, span = [], format_span(book.kernel.contract)
    for memory_ in _list_memories(accesses):
        limit = _limit_span(book.kernel, memory_)
        if limit not in conds and solver.follows(limit) != YES:
            sides = ", ".join(map(str, memory_.shape))
            book.assumed[f"a workspace of shape ({sides}) below {span} elements"] = None
            assumed.append(limit)
    return assumed


def _has_effect(
    book: ProofLedger, traced: TracedPath, accesses: Sequence[SymbolicAccess], solver: Solver
) -> bool:
    """Return whether a path has accesses to judge, or is one of empty operands.

    Without any, its result comes from elsewhere. Of a path that launches nothing the properties of
    accesses hold all the same.
    """
    if accesses:
        return True
    if solver.follows(some(eq(n, 0) for n in traced.domain.sizes.values())) == YES:
        return True
    guards = traced.path.guards
    where = f"{guards[-1][1]}: " if guards else ""
    if traced.path.launches:
        book.leave_all_open(f"{where}a path that accesses no memory in a kernel")
    for name in (memory_use.ONCE, exact_values.EXACT):
        book.leave_open(name, f"{where}a path that launches no kernel")
    return False


def _judge(
    kernel: KernelUnderTest,
    domain: Domain,
    machines: list[Machine],
    results: StoredResults,
    asker: Asker,
    before: Solver,
) -> dict[str, Iterator[Verdict]]:
    """Return the obligations of each property; none is asked before its turn.

    `before` has what holds before any launch.
    """
    small, accesses, solver = domain.axes, results.accesses, asker.whole
    claims = {(c.kind, c.cond, c.path, c.number): c for m in machines for c in m.claims}.values()
    fits = [claim for claim in claims if claim.kind == "fit"]
    grids = [claim for machine in machines for claim in machine.list_grids()]
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
        memory_use.ONCE: chain(
            (judge_claim(before, grid, small) for grid in grids),
            asker.ask("once", results.list_once(small)),
        ),
    }
    if kernel.spec is None:
        shapes = {name: domain.operands[name].shape for name in ROLES}
        is_integer = domain.case.format.kind == "int"
        largest = int(domain.case.format.max) + 1 if is_integer else 0
        product = WantedProduct(shapes, domain.case.dtype == "tf32", largest, small)
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
    # sums may agree by chance, and the model's offsets are no layout's: the simulated case decides
    if name == exact_values.EXACT or _names_addresses(verdict):
        book.suspect(name, case)
        book.leave_open(name, f"{why}, at {case}")
        return
    book.refute(name, why, case)


def _names_addresses(verdict: Verdict) -> bool:
    """Return whether the values at which an obligation fails are also of offsets or addresses."""
    names = map(str, verdict.model or ())
    return any(name.startswith(("offset of ", "address of ")) for name in names)


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
