"""Guarantees of compiled code: each compiled launch assessed, and the outcome in the report."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from gemmproof.compiled.record import (
    FMA,
    UNKNOWN,
    CompiledDot,
    LoweredLaunch,
    Resources,
    Result,
    SharedBuffer,
    list_excess,
)
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import COMPILER, FITS, SPILLS, TENSOR_CORES
from gemmproof.properties.finding import UNEXPECTED, Finding, Key, find_reasons
from gemmproof.properties.help import read_claim
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


# -- violations of a launch ----------------------------------------------------------------------
class _Unknown(Exception):
    """The reason why a guarantee is undecided for a launch."""


def list_violations(name: str, launch: LoweredLaunch, spills: int) -> list[Finding]:
    """List the violations of a guarantee, of which a thread may have these bytes of `spills`.

    Raises _Unknown if the compiled code does not decide it.
    """
    if launch.error:
        return [_find_refusal(name, launch)]
    if name == TENSOR_CORES:
        return _list_coreless(launch)
    if launch.resources is None:
        raise _Unknown("the launch was not assembled")
    if name == SPILLS:
        return list(_list_spills(launch, launch.resources, spills))
    return list(_list_large(launch, launch.resources))


def _find_refusal(name: str, launch: LoweredLaunch) -> Finding:
    """Return the finding of `fits` that a launch does not compile, unless the tools failed."""
    message = launch.error.removeprefix(f"compiling {launch.kernel} for {launch.target}: ")
    if name != FITS or launch.tools_failed:
        raise _Unknown(f"not compiled: {message}")
    # an assembler's lines are not those of the source
    in_source = Path(launch.where.rpartition(":")[0]).is_file()
    where = launch.where if in_source else launch.launched_at
    got = f'"{message}" from the compiler for {launch.target}'
    return _find(launch, FITS, "refused", where, got, f"{launch.kernel} to compile for it")


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


def _list_coreless(launch: LoweredLaunch) -> list[Finding]:
    """List the dots without tensor cores. Raises _Unknown if it is not known of one."""
    findings, unclear = list[Finding](), list[_Unknown]()
    dots = _list_requested(launch)
    for dot in dots:
        try:
            findings += _assess_dot(launch, dot)
        except _Unknown as reason:
            unclear.append(reason)
    for x in launch.optimised_dots:
        if _is_hidden(x, dots):
            a, b, _ = x.asked
            got = f"a dot {_tile(x.tile)} of {a} x {b} without one, on a line with others"
            findings.append(_find_no_core(launch, x.where, got, ""))
    if unclear and not findings:
        raise unclear[0]
    return findings


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


def _find_no_core(
    launch: LoweredLaunch, where: str, got: str, reason: str, fault: str = "no_tensor_core"
) -> Finding:
    got, expected = f"{got} on {launch.target}", "tensor cores"
    return _find(launch, TENSOR_CORES, fault, where, got, expected, reason)


def _is_hidden(optimised: CompiledDot, dots: Iterable[CompiledDot]) -> bool:
    """Return whether a dot has no tensor core, although the others of its line have."""
    on_line = [dot for dot in dots if dot.where == optimised.where]
    have_cores = all({x.unit for x in dot.instructions} - {FMA, UNKNOWN} for dot in on_line)
    return bool(on_line) and have_cores and optimised.layouts[2].startswith("blocked")


def _list_spills(launch: LoweredLaunch, resources: Resources, most: int) -> Iterator[Finding]:
    """Yield a finding if more bytes per thread are spilled than guaranteed."""
    spills = resources.spills
    if spills is None:
        raise _Unknown("the compiler does not report what is spilled")
    if spills <= most:
        return
    threads = None if launch.specialised_warps else resources.threads
    reason = explain_spills(launch.optimised_dots, threads, resources.registers)
    got = f"{spills} bytes of a thread spilled, with {resources.registers} registers"
    got, expected = f"{got} on {launch.target}", f"at most {most}" if most else "none"
    yield _find(launch, SPILLS, "spilled", launch.defined_at, got, expected, reason)


def _list_large(launch: LoweredLaunch, resources: Resources) -> Iterator[Finding]:
    """Yield a finding for each need of a block beyond the GPU's limit."""
    for need, has, unit in list_excess(resources, GPUS[launch.target]):
        where, reason = launch.defined_at, ""
        if "shared" in unit:
            reason = explain_shared(launch.shared_buffers, need, launch.stages)
            located = [x for x in launch.shared_buffers if x.where]
            if reason and located:
                where = max(located, key=lambda x: _count_bytes(x.shape, x.format)).where
        got = f"{need} {unit} for a block of {launch.kernel} on {launch.target}"
        yield _find(launch, FITS, "too_large", where, got, f"at most {has}", reason)


# -- conclusion ----------------------------------------------------------------------------------
Results = Mapping[int, Result]


@dataclass(slots=True)
class GuaranteeOutcome:
    """The violations of a guarantee with the numbers of their launches, and how many were `judged`.

    `undecided` has the reasons why it is not decided for all of them.
    """

    violations: list[tuple[int, Finding]] = field(default_factory=list)
    judged: int = 0
    undecided: list[str] = field(default_factory=list)


def judge(name: str, plan: LaunchPlan, results: Results, mistake: str) -> GuaranteeOutcome:
    """Judge a guarantee by the results of the planned launches."""
    outcome = GuaranteeOutcome(undecided=[*filter(None, [mistake]), *plan.lacks])
    if not plan.launches and not outcome.undecided:
        outcome.undecided.append("got no launch of a Triton kernel, expected one")
    for number, planned in enumerate(plan.launches):
        result = results.get(number)
        if isinstance(result, LoweredLaunch):
            try:
                violations = list_violations(name, result, plan.spills)
            except _Unknown as reason:
                outcome.undecided.append(f"{label_launch(planned)}: {reason}")
            else:
                outcome.judged += 1
                outcome.violations += ((number, finding) for finding in violations)
        elif result is not None:
            outcome.undecided.append(str(result))
        elif not mistake:
            outcome.undecided.append(f"{label_launch(planned)}: not compiled")
    if name == TENSOR_CORES:
        outcome.violations += _list_dotless(plan, results)
    return outcome


def _list_dotless(plan: LaunchPlan, results: Results) -> Iterator[tuple[int, Finding]]:
    """Yield calls without a launch that multiplies matrices, per configuration of a tuner."""
    seen: set[frozenset[int]] = set()
    for call in plan.calls:
        for number in call:
            launches = frozenset(x for x in call if _are_together(plan, x, number))
            if launches not in seen and all(_has_no_dot(results.get(x)) for x in launches):
                seen.add(launches)
                first = min(launches)
                planned = plan.launches[first]
                got, where = f"{planned.kernel} without any dot", planned.launched_at
                yield first, _find_no_core(planned, where, got, "", "no_dot")


def _are_together(plan: LaunchPlan, number: int, other: int) -> bool:
    """Return whether one call makes both launches: a tuner's choice is another call."""
    a, b = plan.launches[number], plan.launches[other]
    return a.kernel != b.kernel or a.choice == b.choice


def _has_no_dot(result: Result | None) -> bool:
    """Return whether it is known that nothing in a launch multiplies matrices."""
    return isinstance(result, LoweredLaunch) and not result.error and not _list_requested(result)


def conclude(
    report: Report,
    plan: LaunchPlan,
    results: Results,
    promised: Iterable[str],
    expected: Mapping[str, str],
    is_whole: bool,
    mistake: str = "",
) -> Report:
    """Add the outcome of the guarantees to a report, from the results of launches by number.

    `expected` has reasons for those expected to fail; that one of them holds after all is reported
    only if the check `is_whole`. `mistake` is the reason why nothing could be compiled.
    """
    outcomes = {name: judge(name, plan, results, mistake) for name in promised}
    findings: list[Finding] = []
    properties = list(report.properties)
    for name, outcome in outcomes.items():
        own = _gather(outcome.violations, plan)
        findings += own
        # it holds only if every launch was judged
        status = "not run" if outcome.undecided or not outcome.judged else "pass"
        if own:
            status = "expected" if name in expected else "fail"
        result = PropertyResult(name, read_claim(name), status, outcome.judged, None, COMPILER)
        properties.append(replace(result, reason=expected.get(name)))
    expected_findings = find_reasons(findings, expected)
    unexpected = [f for f in findings if f not in expected_findings]
    reasons = dict.fromkeys(line for x in outcomes.values() for line in x.undecided)
    if reasons:
        first, *more = reasons
        others = f" and {len(more)} more" if more else ""
        names = ", ".join(name for name, x in outcomes.items() if x.undecided)
        text = f"not fully checked: {names}: {first}{others}"
        report = report.with_note(text, "incomplete")
    report = replace(
        report,
        properties=tuple(properties),
        findings=(*report.findings, *unexpected),
        expected=(*report.expected, *expected_findings),
    )
    return _describe_passes(report, plan, expected) if is_whole else report


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


def _describe_passes(report: Report, plan: LaunchPlan, expected: Mapping[str, str]) -> Report:
    """Add a finding for each guarantee that held and was expected not to."""
    if report.verdict != "pass" or not plan.launches:
        return report
    findings, properties = [], []
    for result in report.properties:
        reason = expected.get(result.name)
        if result.backend == COMPILER and result.status == "pass" and reason is not None:
            got = f"{format_count(result.examples, 'launch')} that held"
            message = f"all launches: got {got}, expected it to fail: {reason}"
            case = Case.from_json(plan.launches[0].case)
            more = {"got": got, "expected": "it to fail", "backend": COMPILER}
            findings.append(Finding(result.name, UNEXPECTED, message, case, **more))  # type: ignore[arg-type]
            result = replace(result, status="fail")
        properties.append(result)
    return replace(report, findings=tuple(findings), properties=tuple(properties))
