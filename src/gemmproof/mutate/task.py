"""The worker of `gemmproof mutate`: survey the original, or look for a mutant's fault."""

from __future__ import annotations

from collections.abc import Mapping

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.observe import observe_case
from gemmproof.engine.proofs import NOTHING, ProofAttempt, attempt, conclude
from gemmproof.engine.sections import begin_report, emit_partial, make_report
from gemmproof.identity import describe
from gemmproof.mutate.case_search import ENOUGH, FEW, Search, optimise, run_no_grids, watch_programs
from gemmproof.mutate.changed_source import replace_source
from gemmproof.mutate.mutants import Reach, watch_calls, watch_kernels
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import encode
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges.exact_values import EXACT
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import PROVED, Proof
from gemmproof.reference.simulator import run
from gemmproof.report.record import ProofResult, Report
from gemmproof.target import TargetError
from gemmproof.worker.load_kernel import find_kernel
from gemmproof.worker.protocol import Listener, Request


def list_formats(request: Request, emit: Listener) -> None:
    """Emit the formats of the request's kernel; runs in the worker."""
    emit({"event": "ready"})
    emit({"event": "kernels", "names": list(_find(request).contract.formats), "alone": []})


def survey(request: Request, emit: Listener) -> None:
    """Report the lines that the original reaches, the digests of its cases, and any fault."""
    kernel = _find(request)
    reach, programs = Reach(), dict[str, list[str]]()
    backend = Simulator(request.gpu, watch_calls(run, reach), request.seconds)
    search = Search(kernel, backend, emit, request.max_examples, request.seed)
    _announce(kernel, request, emit)

    def note(name: str, text: str) -> None:
        programs.setdefault(name, [optimise(text), search.under_way])

    with watch_kernels(reach), watch_programs(note):
        finding = search.find(request.max_examples)
    files = reach.list_files(request.conftest or "")
    reached = {path: encode(lines) for path, lines in files.items()}
    shown = [[case.to_json(), *digests] for case, digests in search.shown.items()]
    seen = {"reached": reached, "cases": shown, "programs": programs}
    emit({"event": "surveyed", **seen, "source": describe(kernel).digest})
    _answer(search, finding, NOTHING, emit)


def judge_mutant(request: Request, emit: Listener) -> None:
    """Report if a mutant is the same program, or else the finding of the search."""
    plan = request.plan
    replace_source(plan["file"], plan["text"])
    kernel = _find(request)
    backend = Simulator(request.gpu, seconds=request.seconds)
    search = Search(kernel, backend, emit, request.max_examples, request.seed)
    _announce(kernel, request, emit)
    if plan["compiled"] and _is_same_program(search, plan["programs"]):
        many = len(plan["programs"])
        return _conclude(emit, "equivalent", f"same TTIR in all {many}")
    finding, proof_attempt = search.find(min(FEW, request.max_examples)), NOTHING
    if finding is not None and search.never_compiles(finding):
        return _conclude(emit, "invalid", finding.message)
    if finding is None and request.proof:
        proof_attempt = attempt(kernel, request.gpu, request.proof_seconds, emit)
    if finding is None:
        proofs = {proof.property: proof for proof in proof_attempt.proofs.verdicts}
        enough = ENOUGH if find_scope(proofs) else request.max_examples
        finding = search.find(min(enough, request.max_examples), proof_attempt)
    report = _answer(search, finding, proof_attempt, emit)
    if finding is None:
        # a proof that a case contradicts is void
        results = {
            result.name: result.proof for result in report.properties if result.proof is not None
        }
        proved = find_scope(results) if report.verdict == "pass" else ""
        _conclude(emit, *_find_difference(search, bool(proved), plan["cases"]), proved)
    return None


def _conclude(emit: Listener, fate: str, reason: str, proved: str = "") -> None:
    emit({"event": "mutated", "fate": fate, "why": reason, "proved": proved})


def _find(request: Request) -> KernelUnderTest:
    kernel = find_kernel(request)
    if kernel.device_only:
        raise TargetError(f"{kernel.name}: got a kernel for a GPU alone, expected one to simulate")
    return kernel


def _announce(kernel: KernelUnderTest, request: Request, emit: Listener) -> None:
    emit_partial(emit, begin_report(kernel, launched=False))
    count = request.max_examples * len(kernel.contract.formats)
    # each drawn case is observed a second time, for its accesses
    emit({"event": "start", "examples": 2 * count})


def _answer(
    search: Search, finding: Finding | None, proof_attempt: ProofAttempt, emit: Listener
) -> Report:
    drawn = [judged for judged in search.judged.values() if not proof_attempt.is_spent_on(judged)]
    report = make_report(search.kernel, drawn, [] if finding is None else [finding])
    if finding is None:
        report = conclude(report, proof_attempt, search.judged)
    emit({"event": "report", "report": encode(report)})
    return report


def find_scope(proofs: Mapping[str, Proof | ProofResult]) -> str:
    """Return the sizes for which addresses and the product are proved, "" unless all of it is.

    For a kernel with its own formula the correctness of its result is not proved.
    """
    if EXACT not in proofs or any(proof.status != PROVED for proof in proofs.values()):
        return ""
    scopes = {proof.scope for proof in proofs.values()}
    return scopes.pop() if len(scopes) == 1 else ""


def _is_same_program(search: Search, programs: dict[str, list[str]]) -> bool:
    """Return whether the original's specialisations, and no others, have the same TTIR here."""
    originals = {name: text for name, (text, _) in programs.items()}
    texts = dict[str, str]()
    with watch_programs(texts.setdefault), run_no_grids():
        for case in dict.fromkeys(case for _, case in programs.values()):
            observe_case(search.kernel, Case.from_json(case), search.backend, traced=True)
            if any(originals.get(name) != optimise(text) for name, text in texts.items()):
                return False
    return len(originals) > 0 and texts.keys() == originals.keys()


def _find_difference(search: Search, proved: bool, cases: list[list[str]]) -> tuple[str, str]:
    """Compare bits and accesses with the original's: the verdict, and the first difference."""
    accesses = ""
    for text, bits, touched in cases:
        case = Case.from_json(text)
        if case not in search.shown and not proved:  # the mutant draws other cases, or fewer
            search.look(case)
        digests = search.shown.get(case, (bits, touched))
        if digests[0] != bits:
            return "other bits", str(case)
        if digests[1] != touched:
            accesses = accesses or str(case)
    return "other accesses" if accesses else "same", accesses
