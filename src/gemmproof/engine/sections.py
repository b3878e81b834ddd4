"""The sections of a report: tally, coverage, assumptions, compiled code."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from gemmproof.compiled.assumptions import AssumptionCheck
from gemmproof.engine.observe import CaseResult, Part
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import probe, smallest
from gemmproof.properties.contract import Contract, list_guaranteed
from gemmproof.properties.finding import UNEXPECTED, Finding, find_reasons
from gemmproof.properties.judges import determinism
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.properties.observation import SIMULATOR, parameters_of
from gemmproof.properties.property_table import BY_NAME, Property, list_required
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import (
    AXES,
    NOT_APPLICABLE,
    NOT_EXERCISED,
    NOT_JUDGED,
    NOT_RUN,
    SCHEMA,
    UNKNOWN,
    Bits,
    Coverage,
    Note,
    PropertyResult,
    Report,
    join_residues,
    mark_failures,
    versions,
)
from gemmproof.settings import EXAMPLES
from gemmproof.spelling import require_one
from gemmproof.worker.protocol import Listener, PartialReport

Reasons = Mapping[str, str]  # why a property is expected to fail, by its name


# -- compiled code -------------------------------------------------------------------------------
def judge_compiled(
    report: Report,
    kernel: KernelUnderTest,
    target: str | None,
    case: Case | None,
    most: int,
    began: float,
) -> Report:
    """Return the report with the results of these guarantees, and the seconds of the whole check.

    At most `most` launches of a format and a GPU are compiled, or a few more (`plan_launches`).
    """
    if list_guaranteed(kernel.contract):
        from gemmproof.engine.guarantee_check import add_guarantees  # few need it

        report = add_guarantees(report, kernel, target, case, most)
    return replace(report, seconds=time.perf_counter() - began)


# -- coverage ------------------------------------------------------------------------------------
KEPT = 4  # cases of a format whose bits are kept, plus the smallest and the one of middle size


def cover(contract: Contract, judged: Sequence[CaseResult]) -> Coverage:
    """Return the coverage of the cases to which some property applied."""
    bore = [result for result in judged if result.applied]
    residues = (join_residues(_name(result, axis) for axis in AXES) for result in bore)
    bits = {fmt: _keep_bits(contract, fmt, bore) for fmt in contract.formats}
    return Coverage(dict(sorted(Counter(residues).items())), {k: v for k, v in bits.items() if v})


def _name(judged: CaseResult, axis: str) -> str:
    """Return the residue of a size modulo the tile, by the constexprs of the launch with dots."""
    size = getattr(judged.case, axis)
    # the tiles of a launch that only sums or copies have another meaning
    launches = sorted(judged.launches, key=lambda launch: not launch.tiles)
    for launch in launches:
        for name in (f"BLOCK_{axis}", f"BLOCK_SIZE_{axis}"):
            block = launch.constexprs.get(name)
            if type(block) is int and block > 0:
                rest = size % block
                # the simpler name takes precedence if two apply to a small tile
                return {block - 1: "BLOCK-1", 1: "1", 0: "0"}.get(rest, "other")
    return UNKNOWN


def _keep_bits(contract: Contract, fmt: str, judged: Iterable[CaseResult]) -> tuple[Bits, ...]:
    """Return the bits of cases that are likely the same in every run.

    Cases other than those that every check begins with are chosen by their hash, not by their
    order: the cases of a proof come first, and their number depends on the time there was. With
    special data the bits of a NaN would depend on the machine.
    """
    # the first call is the same for every comparison and number of calls
    known = {
        replace(result.case, calls=1, compare=None): result.bits
        for result in judged
        if result.bits and result.case.dtype == fmt
    }
    always = [case for case in (smallest(contract, fmt), probe(contract, fmt)) if case in known]
    others = [
        case for case in known if case not in always and case.fill not in ("index", "special")
    ]
    chosen = [*always, *sorted(others, key=_hash)[:KEPT]]
    return tuple(Bits(case.to_json(), known[case]) for case in chosen)


def _hash(case: Case) -> str:
    return hashlib.sha256(case.to_json().encode()).hexdigest()


# -- assumptions ---------------------------------------------------------------------------------
def open_model_check(
    asked: bool,
    target: str | None,
    launch: bool,
    seconds: float,
    memory: int | None,
    tell: Listener,
    workdir: str | None = None,
) -> AssumptionCheck:
    """Return the compiler of a check's launches. Raises ValueError if none is predicted."""
    if asked and target not in TARGETS and not launch:
        expected = f"one of {' '.join(TARGETS)}"
        raise ValueError(
            f"check_model: got target {target}, expected {expected}, which are predicted"
        )
    check = AssumptionCheck(tell, seconds, every=asked)
    check.memory, check.workdir = memory or check.memory, workdir
    return check


def add_model_check(
    report: Report, assumptions: AssumptionCheck, target: str | None, judged: Iterable[CaseResult]
) -> Report:
    """Return the report with the checked assumptions; incomplete if one does not hold.

    The report is emitted before any launch is compiled, so that it survives the compiler's death.
    """
    if assumptions.every and report.verdict != "error":
        for result in judged:
            assumptions.note(target, result.launches)
        emit_partial(assumptions.tell, report, judged=True)
        assumptions.check_noted()
    checked = assumptions.conclude()
    if checked is None:
        return report
    report = replace(report, model_check=checked)
    if checked.is_kept or report.verdict == "error":
        return report
    note = report.note or ""  # a launch whose bits differ has added its line already
    for line in (*checked.contradicted[:1], *checked.failed[:1]):
        report = report.with_note(line, "incomplete") if line not in note else report
    return report


# -- tally ---------------------------------------------------------------------------------------
@dataclass(slots=True)
class Tally:
    """The cases of one backend that exercised each property, and their largest ratios, by its name.

    `parts` counts them by format and part; `barred` has the reason why none can exercise a part.
    `pairs` counts the pairs of M at which rows were compared.
    """

    backend: str
    examples: Counter[str] = field(default_factory=Counter)
    ratios: dict[str, float] = field(default_factory=dict)
    parts: Counter[tuple[str, Part]] = field(default_factory=Counter)
    barred: dict[tuple[str, Part], str] = field(default_factory=dict)
    pairs: int = 0

    def add(self, judged: CaseResult) -> None:
        """Count one case."""
        self.examples.update({name for name, _ in judged.exercised})
        self.parts.update((judged.case.dtype, part) for part in judged.exercised)
        for part, reason in judged.barred.items():
            self.barred.setdefault((judged.case.dtype, part), reason)
        self.pairs += judged.pairs
        for name, ratio in judged.ratios.items():
            self.ratios[name] = max(ratio, self.ratios.get(name, ratio))

    def list_results(self, kernel: KernelUnderTest) -> Iterator[PropertyResult]:
        """Yield the result of each property required of a kernel, as if nothing had failed."""
        for each in list_required(kernel, self.backend != SIMULATOR):
            count, ratio = self.examples[each.name], self.ratios.get(each.name)
            status = "pass" if count else NOT_RUN
            result = PropertyResult(each.name, each.claim, status, count, ratio, self.backend)
            if each.of_values and kernel.memory_only:
                result = replace(result, status=NOT_JUDGED, why="--memory-only")
            pairs = self.pairs if each.name == determinism.ROWS else None
            yield replace(result, parts=self._count_parts(each.name), pairs=pairs)

    def _count_parts(self, name: str) -> dict[str, int]:
        """Count the cases of each part of a property."""
        counts: Counter[str] = Counter()
        for (_, (owner, part)), cases in self.parts.items():
            if owner == name and part:
                counts[part] += cases
        return dict(sorted(counts.items()))

    def conclude(self, result: PropertyResult, kernel: KernelUnderTest) -> PropertyResult:
        """Return the result after the last case: with its status if no case exercised it all.

        Each format of the contract in which the kernel must have the property counts.
        """
        if result.backend != self.backend or result.status not in ("pass", NOT_RUN):
            return result
        each, launched = BY_NAME[result.name], self.backend != SIMULATOR
        every, missing, barred = 0, [], dict[str, None]()
        for fmt in kernel.contract.formats:
            own = replace(kernel, contract=replace(kernel.contract, formats=(fmt,)))
            if not each.required(own, launched):
                continue
            for part in each.exercise.parts(own):
                every += 1
                key = fmt, (each.name, part)
                if not self.parts[key] and key in self.barred:
                    barred.setdefault(self.barred[key])
                elif not self.parts[key]:
                    missing.append((fmt, part))
        if not missing:
            if result.examples or not barred:
                return result
            return replace(result, status=NOT_APPLICABLE, why=next(iter(barred)))
        whole = len(missing) == every
        labels = () if whole else tuple(_label_missing(missing, kernel, each))
        why = f"{', '.join(labels)}: " * bool(labels) + f"no case had {each.exercises}"
        return replace(result, status=NOT_EXERCISED, why=why, missing=labels)


def _label_missing(
    missing: Sequence[tuple[str, str]], kernel: KernelUnderTest, each: Property
) -> Iterator[str]:
    """Yield the parts that are missing in every format, then the others with their format."""
    formats, parts = kernel.contract.formats, each.exercise.parts(kernel)
    lacking = {part: [fmt for fmt in formats if (fmt, part) in missing] for part in parts}
    by_format = {fmt: [part for part in parts if (fmt, part) in missing] for fmt in formats}
    everywhere = [part for part, lacks in lacking.items() if part and len(lacks) == len(formats)]
    yield from everywhere
    for fmt, lacks in by_format.items():
        others = [part for part in lacks if part not in everywhere]
        if len(lacks) == len(parts) and not everywhere:
            yield fmt
        else:
            yield from (f"{part} in {fmt}" for part in others)


def tally(backend: str, judged: Iterable[CaseResult]) -> Tally:
    """Return the count of one backend's cases."""
    count = Tally(backend)
    for result in judged:
        count.add(result)
    return count


def begin_report(kernel: KernelUnderTest, launched: bool) -> Report:
    """Return the report before any case: each property that the kernel must have is not run.

    Raises ContractError if the contract expects an unknown property to fail.
    """
    require_properties(kernel)
    backends = (SIMULATOR, *["cuda"] * launched)
    results = chain.from_iterable(Tally(backend).list_results(kernel) for backend in backends)
    properties = mark_failures(results, (), kernel.contract.reasons)
    names = parameters_of(kernel.launch)
    return Report(SCHEMA, kernel.name, properties, (), 0.0, versions(), names=names)


def emit_partial(tell: Listener, report: Report, judged: bool = False) -> None:
    """Emit the report so far; `judged`: on the whole contract, only what lies beyond is left."""
    tell(PartialReport(report, judged))


def update_report(
    begun: Report, kernel: KernelUnderTest, count: Tally, findings: Sequence[Finding]
) -> Report:
    """Return the begun report with the cases so far of one backend, and all findings so far."""
    reasons = kernel.contract.reasons
    counted = {result.name: result for result in count.list_results(kernel)}
    results = (counted[p.name] if p.backend == count.backend else p for p in begun.properties)
    return replace(
        begun,
        properties=mark_failures(results, findings, reasons),
        findings=find_unexpected(findings, kernel),
        expected=tuple(find_reasons(findings, reasons)),
    )


def make_report(
    kernel: KernelUnderTest,
    drawn: list[CaseResult],
    findings: list[Finding],
    whole: bool = False,
) -> Report:
    """Return the report of the simulated cases; `whole`: they are all that a check draws."""
    begun, count = begin_report(kernel, launched=False), tally(SIMULATOR, drawn)
    report = update_report(begun, kernel, count, findings)
    epilogues = dict.fromkeys(text for result in drawn for text in result.epilogues)
    notes = (*_note_unknown(drawn, report.properties), *map(Note, epilogues))
    report = replace(report, notes=notes, coverage=cover(kernel.contract, drawn))
    return conclude_exercise(report, kernel, count) if whole else report


def conclude_exercise(report: Report, kernel: KernelUnderTest, count: Tally) -> Report:
    """Return a report that passes with the properties that no case of one backend exercised.

    With findings fewer cases are drawn, and what they leave open is not run.
    """
    if report.verdict != "pass":
        return report
    properties = (count.conclude(result, kernel) for result in report.properties)
    return replace(report, properties=tuple(properties))


def find_unexpected(findings: Sequence[Finding], kernel: KernelUnderTest) -> tuple[Finding, ...]:
    """Return the findings that the contract does not expect."""
    reasons = find_reasons(findings, kernel.contract.reasons)
    return tuple(finding for finding in findings if finding not in reasons)


def require_properties(kernel: KernelUnderTest) -> None:
    """Raise ContractError, in one line, for an unknown property that is expected to fail."""
    for name in kernel.contract.reasons:
        try:
            require_one(name, BY_NAME)
        except ValueError as error:
            raise ContractError(f"contract expected: {error}") from None


def describe_passes(
    report: Report, kernel: KernelUnderTest, cases: Collection[Case], asked: int
) -> Report:
    """Return the report with a finding for each property that held and was expected to fail.

    Only a run that reached its end has them: one with other findings draws fewer cases. `cases` are
    those that were drawn, of `asked` for each format: fewer than the default would miss a rare
    failure. If another expected failure hides what a property compares, that it held means
    nothing.
    """
    if report.verdict != "pass" or not cases or asked < EXAMPLES:
        return report
    case = min(cases, key=lambda c: c.rank)
    findings, properties = [], []
    for result in report.properties:
        fares = {other.status for other in report.properties if other.name == result.name}
        hidden = bool(report.expected) and BY_NAME[result.name].sound
        expected = kernel.contract.reasons.get(result.name)
        if expected is not None and fares == {"pass"} and not hidden:
            got, expectation = format_count(result.examples, "case") + " that held", "it to fail"
            message = f"all cases: got {got}, expected {expectation}: {expected}"
            more: dict[str, Any] = {"got": got, "expected": expectation, "backend": result.backend}
            findings.append(Finding(result.name, UNEXPECTED, message, case, **more))
            result = replace(result, status="fail")
        properties.append(result)
    return replace(report, findings=tuple(findings), properties=tuple(properties))


def _note_unknown(drawn: list[CaseResult], results: Iterable[PropertyResult]) -> Iterator[Note]:
    """Yield a note on the cases of which nothing is known, if there are any."""
    unknown = [(j.case, j.raised) for j in drawn if j.raised is not None and not j.applied]
    for case, raised in unknown:
        if raised.kind == "internal":
            yield Note(f"gemmproof itself failed at {case}: {raised.text}", "error")
            return
        if raised.kind != "exhausted":
            ran = ", ".join(r.name for r in results if r.examples) or "no property"
            yield Note(f"{raised.text}; judged before: {ran}", "error")
            return
    for (case, raised), *more in [unknown] if unknown else []:
        others = f" and {format_count(len(more), 'more case')}" if more else ""
        yield Note(f"not judged: {case}{others}: {raised.text}", "incomplete")
