"""A check: proof, saved cases, drawn cases, shrinking, explanation."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from gemmproof.backends.cuda import check_alone, launch_cases
from gemmproof.backends.simulate import SECONDS, Runner, Simulator
from gemmproof.contract_search.limits import find_limits, find_needed, sharpen
from gemmproof.contract_search.steps import ContractStep
from gemmproof.engine.checker_reads import find_reads, note_reads
from gemmproof.engine.draw import list_cases, require_arguments
from gemmproof.engine.findings import (
    DIAGNOSED,
    INEXACT,
    dedupe,
    explain,
    find_no_launch,
    join,
    judge_on_integers,
    keep,
    label_axis,
    label_configuration,
    label_line,
    label_missing,
    same_fault,
)
from gemmproof.engine.observe import CaseResult, judge, observe_case
from gemmproof.engine.proofs import NOTHING, ProofAttempt, Prover, attempt, conclude
from gemmproof.engine.request import PRINTED, SAVED, SavedTried
from gemmproof.engine.sections import (
    Tally,
    add_model_check,
    begin_report,
    describe_passes,
    emit_partial,
    find_unexpected,
    judge_compiled,
    make_report,
    open_model_check,
    update_report,
)
from gemmproof.engine.unvisited import list_unvisited
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Survey, is_admitted
from gemmproof.properties.cases.shrink import shrink
from gemmproof.properties.finding import Finding, Key
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.properties.observation import SIMULATOR, ObservedCase
from gemmproof.properties.proof import SECONDS as PROOF_SECONDS
from gemmproof.properties.wrapper_state import State, find_state
from gemmproof.reference.work import counted_seconds
from gemmproof.report.record import Limit, Report
from gemmproof.settings import EXAMPLES
from gemmproof.worker.protocol import CaseStarted, Listener, PartialResult, Phase, Started

if TYPE_CHECKING:
    from gemmproof.backends.cuda_device import Gpu


# -- saved cases first ---------------------------------------------------------------------------
def try_first(
    kernel: KernelUnderTest,
    cases: Iterable[Case],
    judge: Callable[[Case, Phase], CaseResult],
    tell: Listener,
) -> list[CaseResult]:
    """Judge the cases that the contract still admits, and report those to drop.

    Dropped are those that it no longer admits, and those that hold now. A case whose result is
    unknown stays.
    """
    tried, dropped = [], []
    for case in cases:
        judged = _judge_saved(kernel, case, judge)
        if judged is None or (judged.applied and not judged.findings):
            dropped.append(case.to_json())
        if judged is not None:
            tried.append(judged)
    if tried or dropped:
        tell(PartialResult(SAVED, SavedTried(len(tried), tuple(dropped))))
    return tried


def _judge_saved(
    kernel: KernelUnderTest, case: Case, judge: Callable[[Case, Phase], CaseResult]
) -> CaseResult | None:
    """Return the result of a saved case, or None if the kernel no longer takes it."""
    try:
        kernel.require(case)
    except ValueError:
        return None
    if not is_admitted(case, kernel.contract):
        return None
    try:
        judged = judge(case, "kept")
        judged.require_config()
    except ContractError:
        return None
    return judged


# -- check ---------------------------------------------------------------------------------------
MORE = 12  # cases drawn after the first finding, to find other faults
RUNS_TO_SHRINK = 60  # per fault
PATIENCE = 30.0  # counted seconds after a finding, to find more and to shrink each
MOST_SPENT = 3  # cases that may run out of time or memory before drawing stops
REPEATS = 1000  # draws in a row without a new case
SHRUNK_FAULTS = 8  # the rest are reported at the smallest case that was drawn


@dataclass(slots=True)
class _CheckState:
    """One check in progress: the kernel, its backend, the listener, and all cases judged so far.

    `before` are the cases judged before any was drawn, `kept` the observations of wrong values that
    are still to be explained. `begun` is the report before any case; `findings` are the first of
    each fault, and with `tally` they make the report so far.
    """

    kernel: KernelUnderTest
    backend: Simulator
    listener: Listener
    begun: Report
    state: State
    judged: dict[Case, CaseResult] = field(default_factory=dict)
    before: dict[Case, CaseResult] = field(default_factory=dict)
    kept: dict[Case, ObservedCase] = field(default_factory=dict)
    attempt: ProofAttempt = NOTHING
    findings: dict[Key, Finding] = field(default_factory=dict)
    tally: Tally = field(default_factory=lambda: Tally(SIMULATOR))


def check(
    kernel: KernelUnderTest,
    *,
    max_examples: int = EXAMPLES,
    seed: int = 0,
    target: str | None = None,
    case: Case | None = None,
    first: Sequence[Case] = (),
    listener: Listener | None = None,
    launch: bool = False,
    device: Gpu | None = None,
    limits: bool = False,
    seconds: float = SECONDS,
    memory: int | None = None,
    check_model: bool = False,
    workdir: str | None = None,
    proof: bool = False,
    proof_seconds: float = PROOF_SECONDS,
    _run: Runner | None = None,
    _prove: Prover | None = None,
) -> Report:
    """Judge a kernel by every property over `max_examples` cases of each format of its contract.

    The same seed draws the same cases.

    Args:
        kernel: The kernel.
        max_examples: The number of cases of each format.
        seed: The seed of the drawn cases.
        target: The GPU whose dot products are predicted, such as "sm_90"; None for exact IEEE
            chains of fused multiply-adds.
        case: A case to replay, unchanged, in place of drawn ones.
        first: Cases that are tried before any is drawn.
        listener: A function that is called with each event except the answer: each case before it
            runs, each fault when it is first seen.
        launch: Cases that hold when simulated are launched on `device`, too, and what the simulator
            cannot run is judged there.
        device: The GPU for `launch`. With None and `launch`, the report is incomplete.
        limits: A kernel that keeps its contract is tried beyond it.
        seconds: The counted seconds that a call may take.
        memory: The memory of a process that compiles, in bytes.
        check_model: Each launch whose bits are predicted is compiled and compared with its model.
        workdir: The folder for `check_model`.
        proof: A solver first tries to decide properties for every size. No proof hides a finding.
        proof_seconds: The counted seconds of the proof.

    Returns:
        The report.

    Raises:
        ValueError: An argument is out of range.
        TypeError: `kernel` is not a KernelUnderTest.
    """
    require_arguments(kernel, max_examples, seed, case)
    tell: Listener = listener or (lambda event: None)
    assumptions = open_model_check(check_model, target, launch, seconds, memory, tell, workdir)
    backend = Simulator(target, seconds=seconds, **({} if _run is None else {"runner": _run}))

    def alone() -> Report:
        device_kernel = replace(kernel, device_only=True)
        return check_alone(
            device_kernel, backend, max_examples, seed, case, launch, device, tell, assumptions
        )

    reads = find_reads(kernel)
    if kernel.device_only:
        return note_reads(alone(), reads)
    begun = note_reads(begin_report(kernel, launch), reads)
    ctx = _CheckState(kernel, backend, tell, begun, find_state(kernel.launch))
    emit_partial(tell, ctx.begun)
    began = time.perf_counter()
    try:
        decides = proof and _run is None and _prove is None
        # nothing is proved of a fake simulator's results
        if proof and case is None and (_run is None or _prove is not None):
            ctx.attempt = attempt(kernel, target, proof_seconds, tell, _prove)
        drawn, findings = _check(ctx, max_examples, seed, case, () if case else first)
        if launch and not findings and any(judged.is_unseen for judged in drawn):
            return note_reads(alone(), reads)
        if proof and _run is None:
            findings = label_missing(findings, kernel, target, ctx.state.restore)
        report = make_report(kernel, drawn, findings, whole=case is None)
        if launch:
            cases = [judged.case for judged in drawn]
            whole = case is None
            report = launch_cases(kernel, report, cases, device, tell, assumptions, whole)
        report = conclude(report, ctx.attempt, ctx.judged)
        if case is None and not findings:  # fewer cases are drawn after a finding
            proofs = ctx.attempt.proofs
            unvisited = list_unvisited(kernel, proofs, ctx.judged, backend.lines)
            report = replace(report, unvisited=tuple(unvisited))
        report = describe_passes(report, kernel, () if case else ctx.judged, max_examples)
        report = add_model_check(report, assumptions, target, ctx.judged.values())
        if limits and report.verdict in ("pass", "fail") and case is None:
            emit_partial(tell, report, judged=True)
            more = _find_needed if report.findings or report.expected else _find_limits
            report = replace(report, limits=more(ctx, report, decides))
    finally:
        ctx.state.restore()  # the next kernel in this process starts from the same state
    report = judge_compiled(report, kernel, target, case, max_examples, began)
    return note_reads(report, reads)


def _check(
    ctx: _CheckState, max_examples: int, seed: int, case: Case | None, first: Sequence[Case]
) -> tuple[list[CaseResult], list[Finding]]:
    """Return the drawn cases, and the faults that cases show, each shrunk and explained."""
    formats = ctx.kernel.contract.formats
    ctx.listener(Started(1 if case else max_examples * len(formats)))
    before = try_first(ctx.kernel, first, partial(_judge, ctx), ctx.listener)
    ctx.before, ctx.judged = ctx.judged, {}
    if case is not None:
        _judge(ctx, case, "replay").require_config()
    else:
        for dtype in formats:
            if not _explore(ctx, dtype, max_examples, random.Random(f"{seed} {dtype}")):
                break
    # a refuting case too large to run decides nothing, and does not count as drawn
    drawn = [judged for judged in ctx.judged.values() if not ctx.attempt.is_spent_on(judged)]
    drawn += (judged for judged in before if not judged.applied)  # their result is unknown now
    findings = find_no_launch(drawn)
    seen = [*before, *drawn]
    ctx.judged = ctx.before | ctx.judged

    def judge_more(case: Case) -> CaseResult:
        return _judge(ctx, case, "shrink")

    if case is None:
        # if other data gave wrong values, a wrong value on index data is more specific
        beyond = (f for f in dedupe(drawn) if f.property in INEXACT and f.cause is None)
        seen += [r for f in beyond for r in judge_on_integers(f.case, ctx.kernel, judge_more)]

    def recall(case: Case) -> ObservedCase:
        return ctx.kept.get(case) or observe_case(ctx.kernel, case, ctx.backend)

    faults = dedupe(seen)
    for position, finding in enumerate(faults):
        if case is None and position < SHRUNK_FAULTS:
            finding = label_axis(_shrink(ctx, finding), finding, faults)
        finding = explain(finding, ctx.kernel, judge_more, recall)
        findings.append(label_configuration(finding, ctx.judged))
    findings = join(findings, judge_more, recall)
    observe_traced = partial(observe_case, ctx.kernel, backend=ctx.backend, traced=True)
    return drawn, [label_line(finding, observe_traced) for finding in findings]


def _explore(ctx: _CheckState, dtype: str, max_examples: int, rng: random.Random) -> bool:
    """Judge up to max_examples cases of one format; False if no property applies to one."""
    extra = ctx.attempt.list_refuting(ctx.kernel, dtype)
    stop_at = len(ctx.judged) + max_examples + len(extra)
    failed, repeats, spent, until = False, 0, 0, float("inf")
    for case in list_cases(ctx.kernel, ctx.judged, ctx.attempt, dtype, rng, max_examples):
        # a contract may admit fewer cases than requested
        if len(ctx.judged) >= stop_at or repeats > REPEATS or counted_seconds() > until:
            break
        if spent >= MOST_SPENT:
            break
        if case in ctx.judged:
            repeats += 1
            continue
        repeats = 0
        judged = _judge(ctx, case, "draw")
        if ctx.attempt.is_spent_on(judged):
            continue
        if judged.raised is not None and judged.raised.kind == "exhausted":
            spent += 1  # other cases may need less
        elif not judged.applied:
            return False
        # an expected failure takes no cases from the search for others
        if not failed and find_unexpected(judged.findings, ctx.kernel):
            failed, until = True, counted_seconds() + PATIENCE
            stop_at = min(stop_at, len(ctx.judged) + MORE)
    return True


def _judge(ctx: _CheckState, case: Case, phase: Phase) -> CaseResult:
    if case in ctx.judged:
        return ctx.judged[case]
    ctx.listener(CaseStarted(case.to_json(), phase, len(ctx.judged)))
    observation = observe_case(ctx.kernel, case, ctx.backend)
    if phase == "replay" and observation.calls and (printed := observation.calls[0].run.prints):
        ctx.listener(PartialResult(PRINTED, printed))
    judged = judge(observation)
    ctx.judged[case] = judged
    if any(f.property in DIAGNOSED and f.cause is None for f in judged.findings):
        keep(ctx.kept, observation)
    ctx.tally.add(judged)
    for finding in judged.findings:
        ctx.findings.setdefault(finding.key, finding)
    report = update_report(ctx.begun, ctx.kernel, ctx.tally, list(ctx.findings.values()))
    emit_partial(ctx.listener, report)
    return judged


def _find_limits(ctx: _CheckState, report: Report, decides: bool) -> tuple[Limit, ...]:
    tiles = (tile for judged in ctx.judged.values() for tile in judged.tiles)

    def try_beyond(kernel: KernelUnderTest, case: Case, step: ContractStep) -> CaseResult:
        beyond = (step.name, step.option)
        ctx.listener(CaseStarted(case.to_json(), "limit", len(ctx.judged), limit=beyond))
        return judge(observe_case(kernel, case, ctx.backend))

    outcomes = []
    for outcome in find_limits(ctx.kernel, next(tiles, Survey().tiles[0][0]), try_beyond):
        outcomes.append(outcome)
        limits = tuple(outcome.limit for outcome in outcomes)
        emit_partial(ctx.listener, replace(report, limits=limits), judged=True)
    if not decides:
        return tuple(outcome.limit for outcome in outcomes)
    # all limits were reported before: the death of a solver loses none of them
    target = ctx.backend.target
    return tuple(sharpen(ctx.kernel, target, outcome, try_beyond) for outcome in outcomes)


def _find_needed(ctx: _CheckState, report: Report, decides: bool) -> tuple[Limit, ...]:
    if not decides:
        return ()
    tiles = {tile for judged in ctx.judged.values() for tile in judged.tiles}

    def judge_one(case: Case) -> CaseResult:
        judged = _judge(ctx, case, "limit")
        emit_partial(ctx.listener, report, judged=True)
        return judged

    target, findings = ctx.backend.target, (*report.findings, *report.expected)
    return find_needed(ctx.kernel, target, findings, sorted(tiles), judge_one)


def _shrink(ctx: _CheckState, finding: Finding) -> Finding:
    runs, until = len(ctx.judged), counted_seconds() + PATIENCE

    def instance(judged: CaseResult) -> Finding | None:
        matches = [f for f in judged.findings if same_fault(f, finding)]
        matches.sort(key=lambda f: f.key != finding.key)  # the same axis first
        return next((f for f in matches if (f.cause is None) >= (finding.cause is None)), None)

    def fails(candidate: Case) -> bool | None:
        spent = len(ctx.judged) - runs >= RUNS_TO_SHRINK or counted_seconds() > until
        if candidate not in ctx.judged and spent:
            return None
        return instance(_judge(ctx, candidate, "shrink")) is not None

    return instance(ctx.judged[shrink(finding.case, ctx.kernel.contract, fails)]) or finding
