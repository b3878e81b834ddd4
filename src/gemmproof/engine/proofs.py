"""A proof within a check: the cases it asks for, and whether the judged cases agree with it.

Each property that a solver tries to decide for every admitted size has one of three outcomes.
Proved: it has no finding. Refuted: it fails at a case, which is judged like any other, and only
then is it a finding. Not decided: the cases alone count; one of them may be where the property is
suspected to fail, which is then a refutation. If a judged case contradicts the proof, gemmproof
contradicts itself, which is an error and no finding.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

from gemmproof.engine.observe import CaseResult
from gemmproof.properties import property_table as table
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted, smallest
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import SIMULATOR
from gemmproof.properties.proof import NOT_DECIDED, PROVED, REFUTED, Proof, Proofs
from gemmproof.reference.provenance import format_error, is_interrupt, owner
from gemmproof.reference.simulation import Where
from gemmproof.report.record import CONTRADICTED, NOT_JUDGED, Note, ProofResult, Report
from gemmproof.worker.protocol import Listener, ProofEnded, ProofStarted

Prover = Callable[[KernelUnderTest, str | None, float], Proofs]

# properties that a proof may decide: if it fails for an outside reason, each is reported so
PROVABLE = (
    memory_use.BOUNDS,
    memory_use.FIT,
    memory_use.HINTS,
    memory_use.ONCE,
    memory_use.LANES,
    exact_values.EXACT,
)


@dataclass(frozen=True, slots=True)
class ProofAttempt:
    """The proofs of a kernel, and the cases that they ask for.

    `refuting`: by property, the admitted case that should show a refutation or a suspicion;
    `cases`: those on either side of a guard that the contract admits; `paths`: a case for each
    path that has a description.
    """

    proofs: Proofs = field(default_factory=Proofs)
    refuting: Mapping[str, Case] = field(default_factory=dict)
    cases: tuple[Case, ...] = ()
    paths: tuple[tuple[str, Case], ...] = ()

    def list_refuting(self, kernel: KernelUnderTest, dtype: str) -> list[Case]:
        """Return the cases of one format at which refutations show, except the smallest."""
        cases = dict.fromkeys(case for case in self.refuting.values() if case.dtype == dtype)
        return [case for case in cases if case != smallest(kernel.contract, dtype)]

    def is_spent_on(self, judged: CaseResult) -> bool:
        """Return whether a case was tried for a refutation and ran out of time or memory."""
        tried = judged.case in self.refuting.values() and not judged.applied
        return tried and judged.raised is not None and judged.raised.kind == "exhausted"


NOTHING = ProofAttempt()


def attempt(
    kernel: KernelUnderTest,
    target: str | None,
    seconds: float,
    tell: Listener,
    prove: Prover | None = None,
) -> ProofAttempt:
    """Return the prover's result; if it raises, nothing is decided.

    Between the two events a worker may die: worker/supervisor.py then runs the check without it.
    """
    tell(ProofStarted(PROVABLE, seconds))
    try:
        with _interrupt_loops(STUCK * seconds):
            result = _read(kernel, (prove or _load())(kernel, target, seconds))
    except BaseException as error:  # it runs the wrapper, which may raise anything
        if is_interrupt(error):
            raise
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == "z3"
        reason = f"the proof raised {format_error(error)}"
        if is_missing or isinstance(error, EndlessLoop):
            reason = "z3-solver is not installed" if is_missing else str(error)
        result = ProofAttempt(
            Proofs(tuple(Proof(name, NOT_DECIDED, why=reason) for name in PROVABLE))
        )
    tell(ProofEnded())
    return result


STUCK = 0.3  # of a proof's seconds: the CPU time that a wrapper may take between two launches
TICKS = 6  # looks at its stack in this time


class EndlessLoop(BaseException):
    """A traced wrapper takes too long to make its next launch.

    No Exception, because the wrapper or the tracer would go on.
    """


@contextmanager
def _interrupt_loops(seconds: float) -> Iterator[None]:
    """Within this context EndlessLoop is raised in a wrapper that loops for so much CPU time.

    The solver counts its own work, and a wrapper's loop does none. Only the main thread can be
    interrupted; elsewhere, and in a call that does not return to Python, nothing is raised.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGPROF) is not signal.SIG_DFL:
        yield
        return
    looping: FrameType | None = None
    looks = 0

    def look(number: int, frame: FrameType | None) -> None:
        nonlocal looping, looks
        wrapper = _find_wrapper(frame)
        looks = looks + 1 if wrapper is not None and wrapper is looping else 0
        looping = wrapper
        if looping is not None and looks >= TICKS:
            where = Where(looping.f_code.co_filename, looping.f_lineno, looping.f_code.co_name)
            raise EndlessLoop(f"{where}: the wrapper loops without a launch for {seconds:g} s")

    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, seconds / TICKS, seconds / TICKS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)


def _find_wrapper(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of a traced wrapper, None if none runs or if it launches."""
    while frame is not None and os.path.basename(frame.f_code.co_filename) not in _BOUNDARIES:
        if owner(frame.f_code.co_filename) != "library":
            return frame
        frame = frame.f_back
    return None


# the files of the prover that calls wrappers, and of the hook that makes TTIR of a launch
_BOUNDARIES = ("prove.py", "traced_launches.py", os.path.basename(__file__))


def _load() -> Prover:
    from gemmproof.properties.proof.prove import prove  # imports the solver, which takes a while

    return prove


def _read(kernel: KernelUnderTest, proofs: Proofs) -> ProofAttempt:
    """Return the proofs with cases as records. Raises ValueError or KeyError for invalid ones."""
    verdicts, refuting = [], {}
    for proof in proofs.verdicts:
        table.BY_NAME[proof.property]
        if proof.status == REFUTED:
            case = None if proof.case is None else Case.from_json(proof.case)
            if case is None or not _is_admitted(kernel, case):
                missing = "no case" if case is None else "a case that the contract does not admit"
                proof = _undecided(proof, f"{proof.why or 'refuted'}: shown by {missing}")
            else:
                refuting[proof.property] = case
        elif proof.status == NOT_DECIDED and proof.case is not None:
            case = Case.from_json(proof.case)
            if _is_admitted(kernel, case):
                refuting[proof.property] = case
        verdicts.append(proof)
    cases = map(Case.from_json, proofs.cases)
    admitted = (case for case in cases if _is_admitted(kernel, case))
    paths = tuple((label, Case.from_json(case)) for label, case in proofs.paths if label)
    return ProofAttempt(replace(proofs, verdicts=tuple(verdicts)), refuting, tuple(admitted), paths)


def _is_admitted(kernel: KernelUnderTest, case: Case) -> bool:
    try:
        kernel.require(case)
    except ValueError:
        return False
    return is_admitted(case, kernel.contract)


def conclude(report: Report, attempt: ProofAttempt, judged: Mapping[Case, CaseResult]) -> Report:
    """Return the report with the proof of each simulated property, and with our own mistakes.

    A mistake makes the report an error, whose findings are still shown: no proof hides them.
    """
    results, mistakes = [], []
    for result in report.properties:
        proof = attempt.proofs.find(result.name)
        is_judged = result.backend == SIMULATOR and result.status != NOT_JUDGED
        if proof is not None and is_judged:
            case = attempt.refuting.get(result.name)
            result_at_case = None if case is None else judged.get(case)
            failed = result.status in ("fail", "expected")
            if proof.status == REFUTED and case is not None:
                proof, error = _weigh(proof, case, result_at_case)
            elif result_at_case is not None and proof.status == NOT_DECIDED and failed:
                proof, error = _confirm(proof, result_at_case), None
            else:
                error = _contradict(proof, (*report.findings, *report.expected))
            shown = ProofResult(proof.status, proof.scope, proof.why, proof.cut, proof.assumptions)
            if error:
                mistakes.append(error)
                shown = ProofResult(CONTRADICTED, proof.scope, error)
            result = replace(result, proof=shown)
        results.append(result)
    report = replace(report, properties=tuple(results))
    for defect in attempt.proofs.defects:
        text = f"nothing is proved, because the prover's formulas and a call differ: {defect}"
        report = report.with_note(f"{text}; please report it")
    if not mistakes:
        return report
    text = f"gemmproof contradicts itself: {'; '.join(mistakes)}; please report it"
    return replace(report, notes=(Note(text, "error"), *report.notes))


def _contradict(proof: Proof, findings: Iterable[Finding]) -> str | None:
    """Return how a case contradicts a proof, or None if none does.

    A consequence of another property's finding is no contradiction: the proof may assume that one.
    """
    key = (proof.property, SIMULATOR, None)
    own = (f for f in findings if (f.property, f.backend, f.cause) == key)
    finding = next(own, None) if proof.status == PROVED else None
    if finding is None:
        return None
    scope = f" for {proof.scope}" if proof.scope else ""
    text = f"{proof.property} is proved{scope}, but the simulation says"
    return f"{text} at {finding.case}: {finding.message}"


def _weigh(proof: Proof, case: Case, judged: CaseResult | None) -> tuple[Proof, str | None]:
    """Return a refutation after its case was judged, and how that contradicts it, or None."""
    if judged is None:
        return _undecided(proof, f"its case was not run: {case}"), None
    failed = {finding.property for finding in judged.findings}
    if proof.property in failed:
        return proof, None
    causes = [name for name in table.BY_NAME[proof.property].follows if name in failed]
    if causes:
        return _undecided(proof, f"{causes[0]} does not hold, at {case}"), None
    if judged.raised is not None or not judged.followed or case.is_sampled:
        return _undecided(proof, f"its case could not be run: {case}"), None
    if proof.property not in judged.applied:
        return _undecided(proof, f"its case could not be judged: {case}"), None
    reason = f"{proof.property} is refuted" if not proof.why else proof.why
    return proof, f"the proof says {reason} at {case}, the simulation does not"


def _confirm(proof: Proof, judged: CaseResult) -> Proof:
    """Return a suspicion after its case was judged: refuted if the case shows the fault."""
    own = (f for f in judged.findings if f.property == proof.property and f.cause is None)
    finding = next(own, None)
    return proof if finding is None else replace(proof, status=REFUTED, why=finding.message, cut="")


def _undecided(proof: Proof, reason: str) -> Proof:
    return replace(
        proof, status=NOT_DECIDED, scope="", why=reason, case=None, cut="", assumptions=()
    )
