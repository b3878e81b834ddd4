"""The worker of `gemmproof mutate`: survey the original, or look for a mutant's fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.observe import observe_case
from gemmproof.engine.proofs import NOTHING, ProofAttempt, attempt, conclude
from gemmproof.engine.request import CheckRequest
from gemmproof.engine.sections import begin_report, emit_partial, make_report
from gemmproof.engine.unvisited import list_unvisited
from gemmproof.identity import describe
from gemmproof.mutate.case_search import ENOUGH, FEW, Search, optimise, run_no_grids, watch_programs
from gemmproof.mutate.changed_source import replace_source
from gemmproof.mutate.mutants import Reach, watch_calls, watch_kernels
from gemmproof.mutate.record import (
    EQUIVALENT,
    INVALID,
    REPORT,
    MutantJudgement,
    MutantRequest,
    OriginalProgram,
    OriginalSurvey,
    SeenCase,
)
from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges.exact_values import EXACT
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import PROVED, Proof
from gemmproof.reference.simulator import run
from gemmproof.report.record import ProofResult, Report
from gemmproof.target import KernelRef, TargetError
from gemmproof.worker.load_kernel import find_kernel
from gemmproof.worker.protocol import Listener, PartialResult, Ready, Started, WorkerContext


def list_formats(request: KernelRef, context: WorkerContext) -> tuple[str, ...]:
    """Return the formats of a kernel."""
    context.emit(Ready())
    return _find(request).contract.formats


def survey(request: CheckRequest, context: WorkerContext) -> OriginalSurvey:
    """Return the lines that the original reaches, the digests of its cases, and its report."""
    kernel = _find(request.kernel)
    reach, programs = Reach(), dict[str, OriginalProgram]()
    backend = Simulator(request.gpu, watch_calls(run, reach), context.seconds)
    search = Search(kernel, backend, context.emit, request.max_examples, request.seed)
    _begin(kernel, request, context.emit)

    def note(name: str, text: str) -> None:
        programs.setdefault(name, OriginalProgram(optimise(text), search.under_way))

    with watch_kernels(reach), watch_programs(note):
        finding = search.find(request.max_examples)
    reached = reach.list_files(request.kernel.conftest or "")
    shown = [SeenCase(case.to_json(), *digests) for case, digests in search.shown.items()]
    report = _report(search, finding, NOTHING)
    return OriginalSurvey(report, reached, tuple(shown), programs, describe(kernel).digest)


def judge_mutant(request: MutantRequest, context: WorkerContext) -> MutantJudgement:
    """Judge a mutant: it is the same program, or has a finding, or differs from the original."""
    replace_source(request.file, request.text)
    asked, emit = request.check, context.emit
    kernel = _find(asked.kernel)
    backend = Simulator(asked.gpu, seconds=context.seconds)
    search = Search(kernel, backend, emit, asked.max_examples, asked.seed)
    _begin(kernel, asked, emit)
    if request.is_compiled and _is_same_program(search, request.programs):
        return MutantJudgement(EQUIVALENT, f"same TTIR in all {len(request.programs)}")
    finding, proof_attempt = search.find(min(FEW, asked.max_examples)), NOTHING
    if finding is not None and search.never_compiles(finding):
        return MutantJudgement(INVALID, finding.message)
    if finding is None and asked.proof:
        proof_attempt = attempt(kernel, asked.gpu, asked.proof_seconds, emit)
    if finding is None:
        proofs = {proof.property: proof for proof in proof_attempt.proofs.verdicts}
        enough = ENOUGH if find_scope(proofs) else asked.max_examples
        finding = search.find(min(enough, asked.max_examples), proof_attempt)
    report = _report(search, finding, proof_attempt)
    emit(PartialResult(REPORT, report))
    if finding is not None:
        return MutantJudgement()
    # a proof that a case contradicts is void
    results = {
        result.name: result.proof for result in report.properties if result.proof is not None
    }
    proved = find_scope(results) if report.verdict == "pass" else ""
    fate, reason = _find_difference(search, bool(proved), request.cases)
    return MutantJudgement(fate, reason, proved)


def _find(ref: KernelRef) -> KernelUnderTest:
    kernel = find_kernel(ref)
    if kernel.device_only:
        raise TargetError(f"{kernel.name}: got a kernel for a GPU alone, expected one to simulate")
    return kernel


def _begin(kernel: KernelUnderTest, request: CheckRequest, emit: Listener) -> None:
    emit_partial(emit, begin_report(kernel, launched=False))
    count = request.max_examples * len(kernel.contract.formats)
    # each drawn case is observed a second time, for its accesses
    emit(Started(2 * count))


def _report(search: Search, finding: Finding | None, proof_attempt: ProofAttempt) -> Report:
    drawn = [judged for judged in search.judged.values() if not proof_attempt.is_spent_on(judged)]
    report = make_report(search.kernel, drawn, [] if finding is None else [finding])
    if finding is None:
        report = conclude(report, proof_attempt, search.judged)
        lines = search.backend.lines
        unvisited = list_unvisited(search.kernel, proof_attempt.proofs, search.judged, lines)
        report = replace(report, unvisited=tuple(unvisited))
    return report


def find_scope(proofs: Mapping[str, Proof | ProofResult]) -> str:
    """Return the sizes for which addresses and the product are proved, "" unless all of it is.

    For a kernel with its own formula the correctness of its result is not proved.
    """
    if EXACT not in proofs or any(proof.status != PROVED for proof in proofs.values()):
        return ""
    scopes = {proof.scope for proof in proofs.values()}
    return scopes.pop() if len(scopes) == 1 else ""


def _is_same_program(search: Search, programs: Mapping[str, OriginalProgram]) -> bool:
    """Return whether the original's specialisations, and no others, have the same TTIR here."""
    originals = {name: program.text for name, program in programs.items()}
    texts = dict[str, str]()
    with watch_programs(texts.setdefault), run_no_grids():
        for case in dict.fromkeys(program.case for program in programs.values()):
            observe_case(search.kernel, Case.from_json(case), search.backend, traced=True)
            if any(originals.get(name) != optimise(text) for name, text in texts.items()):
                return False
    return len(originals) > 0 and texts.keys() == originals.keys()


def _find_difference(search: Search, proved: bool, cases: Iterable[SeenCase]) -> tuple[str, str]:
    """Compare bits and accesses with the original's: the verdict, and the first difference."""
    accesses = ""
    for seen in cases:
        case = Case.from_json(seen.case)
        if case not in search.shown and not proved:  # the mutant draws other cases, or fewer
            search.look(case)
        digests = search.shown.get(case, (seen.bits, seen.accesses))
        if digests[0] != seen.bits:
            return "other bits", str(case)
        if digests[1] != seen.accesses:
            accesses = accesses or str(case)
    return "other accesses" if accesses else "same", accesses
