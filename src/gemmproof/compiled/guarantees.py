"""Guarantees of compiled code: each compiled launch assessed, and the outcome in the report."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gemmproof.compiled.record import (
    FMA,
    UNKNOWN,
    CompiledDot,
    Failure,
    LoweredLaunch,
    SharedBuffer,
    list_excess,
)
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import COMPILER, FITS, SPILLS, TENSOR_CORES
from gemmproof.properties.finding import UNEXPECTED, Finding, Key, find_reasons
from gemmproof.properties.help.pages import CLAIMS
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import format_count
from gemmproof.report.record import PropertyResult, Report


# -- plan ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Every launch that compiles to different code, once, and the `calls` that make them.

    A call is the numbers of its launches; only cases whose M, N and K all exceed 1 have one.
    `lacks` has a line for each thing that is not compiled, `spills` the bytes of a thread that the
    contract allows.
    """

    launches: tuple[LoweredLaunch, ...] = ()
    calls: tuple[tuple[int, ...], ...] = ()
    lacks: tuple[str, ...] = ()
    spills: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> LaunchPlan:
        """Rebuild the plan that `to_dict` gave, also after JSON."""
        launches = tuple(map(LoweredLaunch.from_dict, data["launches"]))
        calls = tuple(map(tuple, data["calls"]))
        return LaunchPlan(launches, calls, tuple(data["lacks"]), data["spills"])


def label_launch(launch: LoweredLaunch) -> str:
    """Label a launch for progress and messages."""
    choice = f", {launch.choice}" if launch.choice else ""
    return f"{launch.kernel} {launch.dtype} for {launch.target}{choice}"


# -- reasons -------------------------------------------------------------------------------------
_WIDTH = re.compile(r"[a-zA-Z]+(\d+)")
# a format's name in the IR -> its name here; of formats that share a name the first one
_NAMES: Mapping[str, str] = MappingProxyType(
    {fmt.ttir: fmt.name for fmt in tuple(FORMATS.values())[::-1]}
)
# the smallest tiles that Triton compiles to AMD's matrix instructions, by the IR's formats:
# measured, as a test compiles them and those that are half as deep
_LONG = ((4, 64, 64), (64, 4, 64))
_MFMA: Mapping[str, tuple[tuple[int, int, int], ...]] = MappingProxyType(
    {
        **dict.fromkeys(("f16", "bf16"), ((16, 16, 16), (32, 32, 8), *_LONG)),
        "f32": ((16, 16, 4), (32, 32, 2), (4, 64, 16), (64, 4, 16)),
        "i8": ((16, 16, 32), (32, 32, 16), *_LONG),
    }
)
_MFMA_950 = MappingProxyType(
    {**_MFMA, **dict.fromkeys(("f8E4M3FN", "f8E5M2"), ((16, 16, 32), (32, 32, 16)))}
)


def explain_no_core(dot: CompiledDot, gpu: str) -> str:
    """Return the reason why a dot has no tensor core on a GPU; "" if unknown."""
    if not GPUS[gpu].triton_uses_cores:
        return f"Triton makes fused multiply-adds of every dot on {gpu}"
    if GPUS[gpu].is_amd:
        return _explain_no_mfma(dot, gpu)
    formats = {name for core in GPUS[gpu].cores for name in core.formats}
    if not formats or dot.asked[0] != dot.asked[1]:
        return ""
    if dot.asked[0] == "f32":
        return "fp32 ieee has no tensor core" if dot.precision == "ieee" else ""
    name = _NAMES.get(dot.asked[0], "")
    return f"{name} has no tensor core on {gpu}" if name and name not in formats else ""


def _explain_no_mfma(dot: CompiledDot, gpu: str) -> str:
    kind, other, _ = dot.asked
    smallest = (_MFMA_950 if gpu == "gfx950" else _MFMA).get(kind, ())
    dot_tile = dot.tile[-3:]
    is_covered = any(all(x >= y for x, y in zip(dot_tile, tile, strict=True)) for tile in smallest)
    if kind != other or not smallest or is_covered:
        return ""
    tiles = " ".join("x".join(map(str, tile)) for tile in smallest)
    return f"Triton's smallest mfma for {_NAMES.get(kind, kind)} take {tiles}"


def explain_shared(buffers: Sequence[SharedBuffer], shared: int, stages: int) -> str:
    """Describe the buffers that take most of the shared memory of a block; "" if they do not."""
    total = sum(_count_bytes(x.shape, x.format) for x in buffers)
    if not shared // 2 < total <= shared:  # the rest has no buffer
        return ""
    shown = [f"{_tile(x.shape)} {x.format}" for x in buffers]
    return f"buffers of {' and '.join(shown)} with num_stages={stages}"


def explain_spills(dots: Iterable[CompiledDot], threads: int | None, registers: int | None) -> str:
    """Describe the accumulator that alone takes all registers of a thread; "" if none does."""
    for dot in dots:
        kind, layout = dot.asked[2], dot.layouts[2]
        is_held = layout.startswith(("blocked", "nvidia_mma", "amd_mfma"))
        if not is_held or not threads or not registers or not dot.tile:
            continue
        size = _count_bytes((*dot.tile[:-3], dot.tile[-3], dot.tile[-2]), kind) // 4
        if size >= registers * threads:
            tile = _tile(dot.tile[-3:-1])
            needs = f"the accumulator of {tile} {kind} alone takes {math.ceil(size / threads)}"
            return f"{needs} registers of a thread, which has {registers}"
    return ""


def _count_bytes(shape: tuple[int, ...], kind: str) -> int:
    match = _WIDTH.match(kind)
    return math.prod(shape) * (int(match[1]) if match else 0) // 8


def _tile(tile: tuple[int, ...]) -> str:
    return "x".join(map(str, tile))


# -- assessment of a launch ----------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LaunchAssessment:
    """The assessment of one compiled launch: the guarantees it bears on, and the findings.

    `unknown` has the reason why a guarantee is undecided, by its name. `has_dot`: whether anything
    in it multiplies matrices; None if unknown.
    """

    judged: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    has_dot: bool | None = None


class _Unknown(Exception):
    """The reason why a program does not decide a guarantee."""


def assess(promised: Iterable[str], spills: int, launch: LoweredLaunch) -> LaunchAssessment:
    """Assess a compiled launch against the guarantees of a contract that allows some `spills`."""
    if launch.error:
        return _assess_refusal(promised, launch)
    rules: dict[str, Callable[[], Iterator[Finding]]] = {
        TENSOR_CORES: lambda: _list_coreless(launch),
        SPILLS: lambda: _list_spills(launch, spills),
        FITS: lambda: _list_large(launch),
    }
    by_name: dict[str, list[Finding]] = {}
    unknown: dict[str, str] = {}
    for name in promised:
        try:
            by_name[name] = list(rules[name]())
        except _Unknown as reason:
            unknown[name] = f"{label_launch(launch)}: {reason}"
    findings = tuple(finding for group in by_name.values() for finding in group)
    return LaunchAssessment(tuple(by_name), findings, unknown, bool(_list_requested(launch)))


def _assess_refusal(promised: Iterable[str], launch: LoweredLaunch) -> LaunchAssessment:
    """Assess a launch that failed to compile: a finding of `fits`, unless the tools failed."""
    message = launch.error.removeprefix(f"compiling {launch.kernel} for {launch.target}: ")
    unknown = dict.fromkeys(promised, f"{label_launch(launch)}: not compiled: {message}")
    if FITS not in unknown or launch.tools_failed:
        return LaunchAssessment(unknown=unknown)
    del unknown[FITS]
    # an assembler's lines are not those of the source
    in_source = Path(launch.where.rpartition(":")[0]).is_file()
    where = launch.where if in_source else launch.launched_at
    got = f'"{message}" from the compiler for {launch.target}'
    expected = f"{launch.kernel} to compile for it"
    finding = _find(launch, FITS, "refused", where, got, expected)
    return LaunchAssessment((FITS,), (finding,), unknown)


def _find(
    launch: LoweredLaunch,
    name: str,
    fault: str,
    where: str,
    got: str,
    expected: str,
    cause: str = "",
) -> Finding:
    """Make a finding at a line, or about the kernel as a whole if no line is known."""
    file = where.rpartition(":")[0]
    short = where.rpartition("/")[2] or None
    reason = f": {cause}" if cause else ""
    tuned = f" ({launch.choice})" if launch.choice else ""
    return Finding(
        name,
        fault,
        f"{short or launch.kernel}: got {got}, expected {expected}{reason}{tuned}",
        Case.from_json(launch.case),
        where=short,
        got=got,
        expected=expected,
        backend=COMPILER,
        file=file or None,
    )


def _list_requested(launch: LoweredLaunch) -> list[CompiledDot]:
    """List the dots that the program has of its source, or that take tensor cores."""
    return [dot for dot in launch.dots if dot.has_cores or not dot.implicit]


def _list_coreless(launch: LoweredLaunch) -> Iterator[Finding]:
    """Yield the dots without tensor cores. Raises _Unknown if one is not recognised."""
    unclear, has_finding = None, False
    dots = _list_requested(launch)
    for dot in dots:
        try:
            for finding in _assess_dot(launch, dot):
                has_finding = True
                yield finding
        except _Unknown as reason:
            unclear = unclear or reason
    for x in launch.optimised_dots:
        if _is_hidden(x, dots):
            has_finding = True
            a, b, _ = x.asked
            got = f"a dot {_tile(x.tile)} of {a} x {b} without one, on a line with others"
            yield _find_no_core(launch, x.where, got, "")
    if unclear and not has_finding:
        raise unclear


def _assess_dot(launch: LoweredLaunch, dot: CompiledDot) -> Iterator[Finding]:
    units = {instruction.unit for instruction in dot.instructions}
    if UNKNOWN in units:
        names = [x.name for x in dot.instructions if x.unit == UNKNOWN and x.name]
        reason = f"{names[0]} is not recognised" if names else "no instruction of it was found"
        raise _Unknown(f"{dot.where or 'a dot without a line'}: {reason}")
    if units - {FMA}:
        return
    layouts = [x.layouts[2] for x in launch.optimised_dots if x.where == dot.where]
    if not any(x.startswith("blocked") for x in layouts):  # if the optimised IR has the dot
        raise _Unknown(f"{dot.where or 'a dot without a line'}: its instructions are not clear")
    most = max(dot.instructions, key=lambda x: x.count)
    a, b, _ = dot.asked
    got = f"{most.count} {most.name} for the dot {_tile(dot.tile)} of {a} x {b}"
    yield _find_no_core(launch, dot.where, got, explain_no_core(dot, launch.target))


def _find_no_core(launch: LoweredLaunch, where: str, got: str, reason: str) -> Finding:
    got, expected = f"{got} on {launch.target}", "tensor cores"
    return _find(launch, TENSOR_CORES, "no_tensor_core", where, got, expected, reason)


def _is_hidden(optimised: CompiledDot, dots: Iterable[CompiledDot]) -> bool:
    """Return whether a dot has no tensor core, although the others of its line have."""
    on_line = [dot for dot in dots if dot.where == optimised.where]
    have_cores = all({x.unit for x in dot.instructions} - {FMA, UNKNOWN} for dot in on_line)
    return bool(on_line) and have_cores and optimised.layouts[2].startswith("blocked")


def _list_spills(launch: LoweredLaunch, most: int) -> Iterator[Finding]:
    """Yield a finding if more bytes per thread are spilled than guaranteed."""
    resources = launch.resources
    spills = None if resources is None else resources.spills
    if resources is None or spills is None:
        raise _Unknown("the binary does not tell what is spilled")
    if resources.spilled_registers == 0:  # on AMD a thread's stack holds other things, too
        spills = 0
    if spills <= most:
        return
    if launch.has_calls:
        raise _Unknown("what it calls may have its own part of the stack")
    threads = None if launch.specialised_warps else resources.threads
    reason = explain_spills(launch.optimised_dots, threads, resources.registers)
    got = f"{spills} bytes of a thread spilled, with {resources.registers} registers"
    got, expected = f"{got} on {launch.target}", f"at most {most}" if most else "none"
    yield _find(launch, SPILLS, "spilled", launch.defined_at, got, expected, reason)


def _list_large(launch: LoweredLaunch) -> Iterator[Finding]:
    """Yield a finding for each need of a block beyond the GPU's limit."""
    if launch.resources is None:
        raise _Unknown("the binary does not tell what a block needs")
    for need, has, unit in list_excess(launch.resources, GPUS[launch.target]):
        where, reason = launch.defined_at, ""
        if "shared" in unit:
            reason = explain_shared(launch.shared_buffers, need, launch.stages)
            located = [x for x in launch.shared_buffers if x.where]
            if reason and located:
                where = max(located, key=lambda x: _count_bytes(x.shape, x.format)).where
        got = f"{need} {unit} for a block of {launch.kernel} on {launch.target}"
        yield _find(launch, FITS, "too_large", where, got, f"at most {has}", reason)


# -- conclusion ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a plan: the assessments of launches by their numbers, or how they `failed`.

    `mistake` is the reason, in a line, why nothing could be planned or not all of it be compiled.
    """

    plan: LaunchPlan
    weighed: Mapping[int, LaunchAssessment]
    failed: Mapping[int, Failure]
    mistake: str = ""

    def list_open(self, name: str) -> Iterator[str]:
        """Yield the reason why a guarantee is undecided, for each launch that leaves it so."""
        yield from filter(None, [self.mistake])
        yield from self.plan.lacks
        if not self.plan.launches and not self.mistake and not self.plan.lacks:
            yield "got no launch of a Triton kernel, expected one"
        for number, planned in enumerate(self.plan.launches):
            if number in self.failed:
                yield str(self.failed[number])
            elif number not in self.weighed:
                if not self.mistake:
                    yield f"{label_launch(planned)}: not compiled"
            elif name in self.weighed[number].unknown:
                yield self.weighed[number].unknown[name]

    def list_findings(self, name: str) -> Iterator[tuple[int, Finding]]:
        """Yield the violations of a guarantee, each with the number of its launch."""
        for number, assessment in sorted(self.weighed.items()):
            yield from ((number, f) for f in assessment.findings if f.property == name)
        if name == TENSOR_CORES:
            yield from self._list_dotless()

    def _list_dotless(self) -> Iterator[tuple[int, Finding]]:
        """Yield calls without a launch that multiplies matrices, per configuration of a tuner."""
        seen: set[frozenset[int]] = set()
        for call in self.plan.calls:
            for number in call:
                launches = frozenset(x for x in call if self._is_launched_with(x, number))
                have_dots = [
                    self.weighed[x].has_dot if x in self.weighed else None for x in launches
                ]
                if launches not in seen and all(x is False for x in have_dots):
                    seen.add(launches)
                    yield min(launches), self._find_dotless(min(launches))

    def _is_launched_with(self, other: int, number: int) -> bool:
        planned, other_planned = self.plan.launches[number], self.plan.launches[other]
        return planned.kernel != other_planned.kernel or planned.choice == other_planned.choice

    def _find_dotless(self, number: int) -> Finding:
        planned = self.plan.launches[number]
        got = f"{planned.kernel} without any dot on {planned.target}"
        return _find(planned, TENSOR_CORES, "no_dot", planned.launched_at, got, "tensor cores")


def conclude(
    report: Report,
    plan: LaunchPlan,
    results: Mapping[int, LoweredLaunch | Failure],
    promised: Sequence[str],
    expected: Mapping[str, str],
    is_whole: bool,
    mistake: str = "",
) -> Report:
    """Add the outcome of the guarantees to a report, from the results of launches by number.

    `expected` has reasons for those expected to fail; that one of them holds after all is reported
    only if the check `is_whole`. `mistake` is the reason why not all was compiled.
    """
    weighed = {
        number: assess(promised, plan.spills, result)
        for number, result in results.items()
        if isinstance(result, LoweredLaunch)
    }
    failed = {number: x for number, x in results.items() if isinstance(x, Failure)}
    outcome = Outcome(plan, weighed, failed, mistake)
    findings, lines, undecided = list[Finding](), dict[str, None](), list[str]()
    properties = list(report.properties)
    for name in promised:
        own_findings = _gather(list(outcome.list_findings(name)), outcome.plan)
        reasons = list(outcome.list_open(name))
        findings += own_findings
        lines |= dict.fromkeys(reasons)
        undecided += [name] if reasons else []
        properties.append(_summarise(name, outcome, own_findings, bool(reasons), expected))
    expected_findings = find_reasons(findings, expected)
    unexpected = [f for f in findings if f not in expected_findings]
    verdict = report.verdict
    if unexpected:
        verdict = "fail"
    elif verdict == "pass" and lines:
        verdict = "incomplete"
    notes = [report.note] if report.note else []
    if lines:
        first, *more = lines
        others = f" and {len(more)} more" if more else ""
        notes.append(f"not judged wholly: {', '.join(undecided)}: {first}{others}")
    report = replace(
        report,
        verdict=verdict,
        properties=tuple(properties),
        findings=(*report.findings, *unexpected),
        expected=(*report.expected, *expected_findings),
        note="; ".join(notes) or None,
    )
    return _describe_passes(report, outcome, expected) if is_whole else report


def _summarise(
    name: str,
    outcome: Outcome,
    findings: list[Finding],
    is_open: bool,
    expected: Mapping[str, str],
) -> PropertyResult:
    """Summarise one guarantee: it holds only if every launch was assessed for it."""
    reason = expected.get(name)
    count = sum(name in assessment.judged for assessment in outcome.weighed.values())
    status = "not run" if is_open or not count else "pass"
    if findings:
        status = "fail" if reason is None else "expected"
    return PropertyResult(name, CLAIMS[name], status, count, None, COMPILER, reason=reason)


def _gather(findings: list[tuple[int, Finding]], plan: LaunchPlan) -> list[Finding]:
    """Merge equal faults: the first launch's finding, with the number of other launches."""
    groups: dict[Key, list[tuple[int, Finding]]] = {}
    for number, finding in findings:
        groups.setdefault(finding.key, []).append((number, finding))
    merged = []
    for (number, first), *others in groups.values():
        gpus = dict.fromkeys(plan.launches[x].target for x, _ in others)
        gpus.pop(plan.launches[number].target, None)
        count = format_count(len(others), "launch").replace(" ", " more ")
        more = f"; the same in {count}" if others else ""
        more += f", on {' '.join(gpus)} too" if gpus else ""
        merged.append(replace(first, message=f"{first.message}{more}"))
    return merged


def _describe_passes(report: Report, outcome: Outcome, expected: Mapping[str, str]) -> Report:
    """Add a finding for each guarantee that held and was expected not to."""
    if report.verdict != "pass" or not outcome.plan.launches:
        return report
    findings, properties = [], []
    for result in report.properties:
        reason = expected.get(result.name)
        if result.backend == COMPILER and result.status == "pass" and reason is not None:
            got = f"{format_count(result.examples, 'launch')} that held"
            message = f"all launches: got {got}, expected it to fail: {reason}"
            case = Case.from_json(outcome.plan.launches[0].case)
            more = {"got": got, "expected": "it to fail", "backend": COMPILER}
            findings.append(Finding(result.name, UNEXPECTED, message, case, **more))  # type: ignore[arg-type]
            result = replace(result, status="fail")
        properties.append(result)
    verdict = "fail" if findings else report.verdict
    return replace(report, verdict=verdict, findings=tuple(findings), properties=tuple(properties))
