"""What a worker does for `gemmproof mutate`: look at the original, or look for a mutant's fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.proofs import NOTHING, ProofAttempt, attempt, conclude
from gemmproof.engine.sections import list_claims, make_report
from gemmproof.mutate.generate import Reach, watch_calls, watch_launches, watch_translation
from gemmproof.mutate.search import ENOUGH, FEW, Search, optimise, run_no_grids, watch_programs
from gemmproof.mutate.source import replace_source
from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges.exact_values import EXACT
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import parameters_of
from gemmproof.properties.proof import PROVED, Proof
from gemmproof.reference.simulator import run
from gemmproof.report.record import ProofResult, Report
from gemmproof.signoff.source import describe
from gemmproof.target import TargetError
from gemmproof.worker.protocol import Listener, Request

Find = Callable[[Request], KernelUnderTest]


def serve(request: Request, find_kernel: Find, emit: Listener) -> None:
    """In the worker: what the request's `plan` asks for, a survey or one mutant."""
    emit({"event": "ready"})
    if request.plan["step"] == "formats":
        formats = list(_find(request, find_kernel).contract.formats)
        return emit({"event": "kernels", "names": formats, "alone": []})
    if request.plan["step"] == "survey":
        return _survey(request, find_kernel, emit)
    return _judge_mutant(request, find_kernel, emit)


def _survey(request: Request, find_kernel: Find, emit: Listener) -> None:
    """Tell what the original reaches, what each of its cases gives, and that it has no fault."""
    kernel = _find(request, find_kernel)
    reach, programs = Reach(), dict[str, list[str]]()
    backend = Simulator(request.gpu, watch_calls(run, reach), request.seconds)
    search = Search(kernel, backend, emit, request.max_examples, request.seed)
    _announce(kernel, request, emit)

    def note(name: str, text: str) -> None:
        programs.setdefault(name, [optimise(text), search.under_way])

    with watch_translation(reach), watch_launches(reach), watch_programs(note):
        finding = search.find(request.max_examples)
    files = reach.list_files(request.conftest or "")
    reached = {path: lines.to_dict() for path, lines in files.items()}
    shown = [[case.to_json(), *said] for case, said in search.shown.items()]
    seen = {"reached": reached, "cases": shown, "programs": programs}
    emit({"event": "surveyed", **seen, "source": describe(kernel).digest})
    _answer(search, finding, NOTHING, emit)


def _judge_mutant(request: Request, find_kernel: Find, emit: Listener) -> None:
    """Tell whether a mutant is the same program, and else what is found of it."""
    plan = request.plan
    replace_source(plan["file"], plan["text"])
    kernel = _find(request, find_kernel)
    backend = Simulator(request.gpu, seconds=request.seconds)
    search = Search(kernel, backend, emit, request.max_examples, request.seed)
    _announce(kernel, request, emit)
    if plan["compiled"] and _is_same_program(search, plan["programs"]):
        many = len(plan["programs"])
        return _conclude(emit, "equivalent", f"same TTIR in all {many}")
    finding, made = search.find(min(FEW, request.max_examples)), NOTHING
    if finding is not None and search.never_compiles(finding):
        return _conclude(emit, "invalid", finding.message)
    if finding is None and request.proof:
        made = attempt(kernel, request.gpu, request.proof_seconds, emit)
    if finding is None:
        told = {proof.property: proof for proof in made.proofs.verdicts}
        enough = ENOUGH if find_scope(told) else request.max_examples
        finding = search.find(min(enough, request.max_examples), made)
    report = _answer(search, finding, made, emit)
    if finding is None:
        # a proof that a case contradicts says nothing
        results = {one.name: one.proof for one in report.properties if one.proof is not None}
        proved = find_scope(results) if report.verdict == "pass" else ""
        _conclude(emit, *_find_difference(search, bool(proved), plan["cases"]), proved)
    return None


def _conclude(emit: Listener, fate: str, why: str, proved: str = "") -> None:
    emit({"event": "mutated", "fate": fate, "why": why, "proved": proved})


def _find(request: Request, find_kernel: Find) -> KernelUnderTest:
    kernel = find_kernel(request)
    if kernel.device_only:
        raise TargetError(f"{kernel.name}: got a kernel for a GPU alone, expected one to simulate")
    return kernel


def _announce(kernel: KernelUnderTest, request: Request, emit: Listener) -> None:
    names = parameters_of(kernel.launch)
    emit({"event": "properties", "claims": list_claims(kernel, False), "names": names})
    count = request.max_examples * len(kernel.contract.formats)
    # what is drawn is looked at a second time, for what it touches
    emit({"event": "start", "examples": 2 * count})


def _answer(search: Search, finding: Finding | None, made: ProofAttempt, emit: Listener) -> Report:
    drawn = [judged for judged in search.judged.values() if not made.is_spent_on(judged)]
    report = make_report(search.kernel, drawn, [] if finding is None else [finding])
    if finding is None:
        report = conclude(report, made, search.judged)
    emit({"event": "report", "report": report.to_dict()})
    return report


def find_scope(proofs: Mapping[str, Proof | ProofResult]) -> str:
    """For which sizes addresses and the product are proved, "" unless all of it is.

    Of a kernel with a formula of its own nothing says that its result is right.
    """
    if EXACT not in proofs or any(proof.status != PROVED for proof in proofs.values()):
        return ""
    scopes = {proof.scope for proof in proofs.values()}
    return scopes.pop() if len(scopes) == 1 else ""


def _is_same_program(search: Search, programs: dict[str, list[str]]) -> bool:
    """Whether the original's specialisations have the same TTIR here, and there is no other."""
    known = {name: text for name, (text, _) in programs.items()}
    found = dict[str, str]()
    with watch_programs(found.setdefault), run_no_grids():
        for case in dict.fromkeys(case for _, case in programs.values()):
            search.call(Case.from_json(case))
            if any(known.get(name) != optimise(text) for name, text in found.items()):
                return False
    return len(known) > 0 and found.keys() == known.keys()


def _find_difference(search: Search, proved: bool, cases: list[list[str]]) -> tuple[str, str]:
    """Whether some case has other bits or accesses than the original's, and the first that has."""
    accesses = ""
    for text, bits, touched in cases:
        case = Case.from_json(text)
        if case not in search.shown and not proved:  # it draws others, or fewer
            search.look(case)
        own = search.shown.get(case, (bits, touched))
        if own[0] != bits:
            return "other bits", str(case)
        if own[1] != touched:
            accesses = accesses or str(case)
    return "other accesses" if accesses else "same", accesses
