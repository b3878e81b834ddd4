"""Guarantees of compiled code: launches planned, compiled and assessed."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import triton.language

from gemmproof.engine.observe import keep_state
from gemmproof.lowering.assembly import IrDot, list_buffers, list_dots
from gemmproof.lowering.compile import (
    CapturedLaunch,
    CompiledLaunch,
    capture_launches,
    compile_launch,
)
from gemmproof.lowering.facts import tell
from gemmproof.lowering.ptx import Place
from gemmproof.lowering.record import FMA, UNKNOWN, DotLowering, Resources, list_excess
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import WHOLE, is_admitted, probe, smallest
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.codec import decode, encode
from gemmproof.properties.contract import (
    COMPILER,
    FITS,
    SPILLS,
    TENSOR_CORES,
    Contract,
    list_gpus,
    list_promised,
)
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import format_count, format_error
from gemmproof.reference.simulation import CompileError, SimulatorError
from gemmproof.reference.triton_frontend import find_def_line
from gemmproof.target import display_path, line_of


# -- record --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """A launch to be compiled for `gpu`: its kernel, and its case as JSON.

    `configuration` is the text of a tuned one, "" for others; `where` and `file` are the wrapper's
    line that launches it, `name` is a label of it all.
    """

    gpu: str
    kernel: str
    case: str
    configuration: str
    where: str
    file: str
    name: str


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Every launch that compiles to different code, once, and the `calls` that make them.

    A call is the numbers of its launches; only cases whose M, N and K all exceed 1 have one.
    `lacks` has a line for each thing that is not compiled.
    """

    launches: tuple[PlannedLaunch, ...] = ()
    calls: tuple[tuple[int, ...], ...] = ()
    lacks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> LaunchPlan:
        """Rebuild the plan that `to_dict` gave, also after JSON."""
        launches = tuple(PlannedLaunch(**fields) for fields in data["launches"])
        return LaunchPlan(launches, tuple(map(tuple, data["calls"])), tuple(data["lacks"]))


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

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        findings = [encode(finding) for finding in self.findings]
        return {**asdict(self), "findings": findings}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> LaunchAssessment:
        """Rebuild the assessment that `to_dict` gave, also after JSON."""
        findings = decode(tuple[Finding, ...], data["findings"], "findings")
        return LaunchAssessment(tuple(data["judged"]), findings, data["unknown"], data["has_dot"])


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
Buffers = Sequence[tuple[tuple[str, int, int], tuple[int, ...], str]]


def explain_no_core(dot: DotLowering, gpu: str) -> str:
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


def _explain_no_mfma(dot: DotLowering, gpu: str) -> str:
    kind, other, _ = dot.asked
    smallest = (_MFMA_950 if gpu == "gfx950" else _MFMA).get(kind, ())
    dot_tile = dot.tile[-3:]
    is_covered = any(all(x >= y for x, y in zip(dot_tile, tile, strict=True)) for tile in smallest)
    if kind != other or not smallest or is_covered:
        return ""
    tiles = " ".join("x".join(map(str, tile)) for tile in smallest)
    return f"Triton's smallest mfma for {_NAMES.get(kind, kind)} take {tiles}"


def explain_shared(buffers: Buffers, shared: int, stages: int) -> str:
    """Describe the buffers that take most of the shared memory of a block; "" if they do not."""
    total = sum(_count_bytes(shape, kind) for _, shape, kind in buffers)
    if not shared // 2 < total <= shared:  # the rest has no buffer
        return ""
    shown = [f"{'x'.join(map(str, shape))} {kind}" for _, shape, kind in buffers]
    return f"buffers of {' and '.join(shown)} with num_stages={stages}"


def explain_spills(dots: Sequence[IrDot], threads: int | None, registers: int | None) -> str:
    """Describe the accumulator that alone takes all registers of a thread; "" if none does."""
    for dot in dots:
        kind, layout = dot.formats[2], dot.layouts[2]
        is_held = layout.startswith(("blocked", "nvidia_mma", "amd_mfma"))
        if not is_held or not threads or not registers or not dot.tile:
            continue
        size = _count_bytes((*dot.tile[:-3], dot.tile[-3], dot.tile[-2]), kind) // 4
        if size >= registers * threads:
            tile = "x".join(map(str, dot.tile[-3:-1]))
            needs = f"the accumulator of {tile} {kind} alone takes {math.ceil(size / threads)}"
            return f"{needs} registers of a thread, which has {registers}"
    return ""


def find_largest(buffers: Buffers) -> tuple[str, int, int] | None:
    """Return the place of the largest buffer, or None if none has a line."""
    located = [buffer for buffer in buffers if buffer[0][0]]
    return (
        max(located, key=lambda buffer: _count_bytes(buffer[1], buffer[2]))[0] if located else None
    )


def _count_bytes(shape: tuple[int, ...], kind: str) -> int:
    match = _WIDTH.match(kind)
    return math.prod(shape) * (int(match[1]) if match else 0) // 8


# -- plan ----------------------------------------------------------------------------------------
USUAL, ODD, FEW_ROWS = (1024, 1024, 1024), (1023, 1023, 1023), (16, 1024, 1024)
LEAST_MOST = 64  # launches compiled of a format and a GPU, even if fewer cases are asked for
COLUMNS = "column"  # the other common layout of b


def list_cases(contract: Contract, dtype: str) -> Iterator[Case]:
    """Yield the cases of one format whose launches are compiled, the usual one first."""
    yielded: set[Case] = set()
    sizes = []
    for sides in (USUAL, ODD, None, FEW_ROWS, WHOLE):
        # with a side that is long by contract the others may be too large for a case
        with suppress(ValueError):
            sized = smallest(contract, dtype) if sides is None else probe(contract, dtype, sides)
            sizes.append(sized)
    simplest, columns = contract.layout_names[0], COLUMNS in contract.layout_names
    plain = [sized.with_layout("a", simplest).with_layout("b", simplest) for sized in sizes]
    for case in (*plain, *([plain[0].with_layout("b", COLUMNS)] if columns else ())):
        if case not in yielded and is_admitted(case, contract):
            yielded.add(case)
            yield case


def plan_launches(
    kernel: KernelUnderTest, target: str | None, case: Case | None, most: int
) -> tuple[LaunchPlan, list[CapturedLaunch]]:
    """Plan the launches to compile, at most `most` of a format and a GPU, and capture them.

    With a `case` only that one is planned, in its own configuration of a tuner.
    """
    planned: list[PlannedLaunch] = []
    captured: list[CapturedLaunch] = []
    calls: list[tuple[int, ...]] = []
    lacks: list[str] = []
    contract, most = kernel.contract, max(most, LEAST_MOST)
    formats = contract.formats if case is None else (case.dtype,)
    state = keep_state(kernel.launch)
    for gpu in list_gpus(contract, target):
        for dtype in formats:
            numbers: dict[tuple[str, str], int] = {}
            excluded: set[tuple[str, str]] = set()
            for current in [case] if case else list_cases(contract, dtype):
                state.restore()  # what a wrapper caches for one GPU is not valid on another
                launches, reason = _capture(kernel, current, gpu)
                lacks += [reason] if reason else []
                call = []
                for launch in launches:
                    is_tuned = launch.configurations > 1
                    if case is not None and is_tuned and launch.index != case.config:
                        continue
                    key = launch.key
                    if key not in numbers and len(numbers) == most:
                        excluded.add(key)
                        continue
                    if key not in numbers:
                        numbers[key] = len(captured)
                        captured.append(launch)
                        planned.append(_describe(launch, current))
                    call.append(numbers[key])
                # a vector has a kernel without a dot; with K = 1 no loop over tiles is left
                if min(current.M, current.N, current.K) > 1:
                    calls.append(tuple(dict.fromkeys(call)))
            if excluded:
                got = f"{format_count(len(excluded), 'launch')} more than {most}"
                lacks.append(f"{dtype} for {gpu}: got {got}, compiled with a larger --max-examples")
    state.restore()
    return LaunchPlan(tuple(planned), tuple(calls), tuple(lacks)), captured


def _capture(kernel: KernelUnderTest, case: Case, gpu: str) -> tuple[list[CapturedLaunch], str]:
    """Return the launches of a call, and the reason in a line if they are unknown, else ""."""
    try:
        tensors = {name: x.tensor for name, x in operands(case, kernel).items()}
        with capture_launches(gpu) as launches, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel.call(case, tensors)
    except ContractError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # a wrapper may raise anything
        text = str(error) if isinstance(error, SimulatorError) else format_error(error)
        where = line_of(error)
        prefix = f"{where}: " if where and not text.startswith(where) else ""
        return [], f"{prefix}got {text} at {case}, expected launches for {gpu}"
    return launches, ""


def describe_configuration(launch: CapturedLaunch) -> str:
    """Format the configuration that a tuner chose; "" if there is no choice."""
    if launch.configurations < 2:
        return ""
    parts = [f"{name}={x}" for name, x in launch.configuration.items()]
    parts += [f"{name}={getattr(launch.options, name)}" for name in ("num_warps", "num_stages")]
    return f"configuration {launch.index}: {' '.join(parts)}"


def _describe(launch: CapturedLaunch, case: Case) -> PlannedLaunch:
    tuned = describe_configuration(launch)
    launched_case = replace(case, config=launch.index if launch.configurations > 1 else case.config)
    name = f"{launch.kernel} {case.dtype} for {launch.gpu}{tuned and f', {tuned}'}"
    return PlannedLaunch(
        launch.gpu,
        launch.kernel,
        launched_case.to_json(),
        tuned,
        str(launch.where) if launch.where.line else "",
        display_path(launch.where.file) if launch.where.line else "",
        name,
    )


# -- assessment of a launch ----------------------------------------------------------------------
_LIBRARY = os.path.join(os.path.realpath(os.path.dirname(triton.language.__file__)), "")
_CALLS = re.compile(r"^\s*(?:\{\s*)?call", re.MULTILINE)
# a failure of ptxas itself: for a faulty program the message has a code (C7602) or lines
_TOOL = re.compile(r"ptxas\S*(?: [^;\n]*;)? +fatal\s*:(?!\s*(?:Ptx assembly aborted|\(C\d+\)))")
# a missing tool, or one of another version than its input
_MISSING = ("Cannot find", "No such file", "not found", ".version", "ISA version")


def weigh(
    contract: Contract, launch: CapturedLaunch, planned: PlannedLaunch, workdir: Path
) -> LaunchAssessment:
    """Compile a launch, and assess it against the contract's guarantees."""
    promised = list_promised(contract)
    try:
        compiled = compile_launch(launch, workdir)
    except CompileError as error:
        return _assess_refusal(promised, error, planned)
    read = ReadLaunch(contract, planned, compiled)
    by_name: dict[str, list[Finding]] = {}
    unknown: dict[str, str] = {}
    rules = {
        TENSOR_CORES: read.list_coreless,
        SPILLS: read.list_spills,
        FITS: read.list_large,
    }
    for name in promised:
        try:
            by_name[name] = list(rules[name]())
        except _Unknown as reason:
            unknown[name] = f"{planned.name}: {reason}"
    findings = tuple(finding for group in by_name.values() for finding in group)
    return LaunchAssessment(tuple(by_name), findings, unknown, read.has_dot)


class _Unknown(Exception):
    """The reason why a program does not decide a guarantee."""


def _assess_refusal(
    promised: tuple[str, ...], error: CompileError, planned: PlannedLaunch
) -> LaunchAssessment:
    """Assess a launch that failed to compile: a finding of `fits`, unless the tools failed."""
    message = error.message.removeprefix(f"compiling {planned.kernel} for {planned.gpu}: ")
    unknown = dict.fromkeys(promised, f"{planned.name}: not compiled: {message}")
    if FITS not in promised or is_of_tools(error):
        return LaunchAssessment(unknown=unknown)
    del unknown[FITS]
    where = error.where
    # an assembler's lines are not those of the source
    in_source = where is not None and Path(where.file).is_file()
    location = (planned.file, _line_of(planned))
    if where is not None and in_source:
        location = (display_path(where.file), where.line)
    got = f'"{message}" from the compiler for {planned.gpu}'
    expected = f"{planned.kernel} to compile for it"
    return LaunchAssessment(
        (FITS,), (_find(planned, FITS, "refused", location, got, expected),), unknown
    )


def is_of_tools(error: CompileError) -> bool:
    """Return whether a compilation failed because a tool is missing or does not know the GPU."""
    cause = error.__cause__
    text = str(cause)
    if isinstance(cause, OSError | ImportError) or any(phrase in text for phrase in _MISSING):
        return True
    # a tool that died, or was killed, judged nothing
    died = "raised SIGSEGV" in text or re.search(r"failed with error code -\d+", text)
    return bool(_TOOL.search(text) or died)


def _line_of(planned: PlannedLaunch) -> int:
    return int(planned.where.rpartition(":")[2] or 0)


def _find(
    planned: PlannedLaunch,
    name: str,
    fault: str,
    location: tuple[str, int],
    got: str,
    expected: str,
    cause: str = "",
) -> Finding:
    """Make a finding at a line, or about the kernel as a whole if no line is known."""
    file, line = location
    where = f"{file.rsplit('/', 1)[-1]}:{line}" if file and line else None
    reason = f": {cause}" if cause else ""
    tuned = f" ({planned.configuration})" if planned.configuration else ""
    return Finding(
        name,
        fault,
        f"{where or planned.kernel}: got {got}, expected {expected}{reason}{tuned}",
        Case.from_json(planned.case),
        where=where,
        got=got,
        expected=expected,
        backend=COMPILER,
        file=file if where else None,
    )


class ReadLaunch:
    """A compiled launch, and the violations of the contract in it."""

    def __init__(
        self, contract: Contract, planned: PlannedLaunch, compiled: CompiledLaunch
    ) -> None:
        self.contract, self.planned, self.compiled = contract, planned, compiled
        facts = tell(compiled)
        # Triton turns a sum of products into a dot at a line of its library: nobody asked for it
        self.dots: tuple[DotLowering, ...] = tuple(
            dot for dot in facts["dots"] if dot.has_cores or not _is_of_triton(dot.where)
        )
        self.resources: Resources = facts["resources"]
        self.has_special_warps: bool = facts["specialised_warps"]
        self.ir = compiled.asm.get("ttgir", "")
        self.laid = list_dots(self.ir)

    @property
    def has_dot(self) -> bool:
        """True if the program multiplies matrices, in the source's terms or in the GPU's."""
        return bool(self.dots)

    def list_coreless(self) -> Iterator[Finding]:
        """Yield the dots without tensor cores. Raises _Unknown if one is not recognised."""
        unclear, has_finding = None, False
        for dot in self.dots:
            try:
                for finding in self._assess_dot(dot):
                    has_finding = True
                    yield finding
            except _Unknown as reason:
                unclear = unclear or reason
        for x in filter(self._is_hidden, self.laid):
            has_finding = True
            a, b, _ = x.formats
            got = f"a dot {_tile(x.tile)} of {a} x {b} without one, on a line with others"
            yield self._find_no_core((display_path(x.location[0]), x.location[1]), got, "")
        if unclear and not has_finding:
            raise unclear

    def _assess_dot(self, dot: DotLowering) -> Iterator[Finding]:
        units = {instruction.unit for instruction in dot.instructions}
        layouts = self._list_layouts(dot.where)
        if UNKNOWN in units:
            names = [x.name for x in dot.instructions if x.unit == UNKNOWN and x.name]
            reason = f"{names[0]} is not recognised" if names else "no instruction of it was found"
            raise _Unknown(f"{dot.where or 'a dot without a line'}: {reason}")
        if units - {FMA}:
            return
        if not any(x.startswith("blocked") for x in layouts):  # if the optimised IR has the dot
            raise _Unknown(f"{dot.where or 'a dot without a line'}: its instructions are not clear")
        most = max(dot.instructions, key=lambda x: x.count)
        a, b, _ = dot.asked
        got = f"{most.count} {most.name} for the dot {_tile(dot.tile)} of {a} x {b}"
        file, _, line = dot.where.rpartition(":")
        yield self._find_no_core((file, int(line)), got, explain_no_core(dot, self.planned.gpu))

    def _find_no_core(self, location: tuple[str, int], got: str, reason: str) -> Finding:
        got, expected = f"{got} on {self.planned.gpu}", "tensor cores"
        return _find(self.planned, TENSOR_CORES, "no_tensor_core", location, got, expected, reason)

    def _list_layouts(self, where: str) -> list[str]:
        """List the accumulator layouts of the dots on a line, in the optimised IR."""
        return [x.layouts[2] for x in self.laid if _show(x.location) == where]

    def _is_hidden(self, ir_dot: IrDot) -> bool:
        """Return whether a dot has no tensor core, although the others of its line have."""
        line_dots = [dot for dot in self.dots if dot.where == _show(ir_dot.location)]
        have_cores = all({x.unit for x in dot.instructions} - {FMA, UNKNOWN} for dot in line_dots)
        return bool(line_dots) and have_cores and ir_dot.layouts[2].startswith("blocked")

    def list_spills(self) -> Iterator[Finding]:
        """Yield a finding if more bytes per thread are spilled than guaranteed."""
        resources, most = self.resources, self.contract.spills or 0
        spills = resources.spills
        if spills is None:
            raise _Unknown("the binary does not tell what is spilled")
        if resources.spilled_registers == 0:  # on AMD a thread's stack holds other things, too
            spills = 0
        if spills <= most:
            return
        if _CALLS.search(self.compiled.asm.get("ptx", "")):
            raise _Unknown("what it calls may have its own part of the stack")
        threads = None if self.has_special_warps else resources.threads
        reason = explain_spills(self.laid, threads, resources.registers)
        got = f"{spills} bytes of a thread spilled, with {resources.registers} registers"
        got = f"{got} on {self.planned.gpu}"
        expected = f"at most {most}" if most else "none"
        yield _find(self.planned, SPILLS, "spilled", self._kernel, got, expected, reason)

    def list_large(self) -> Iterator[Finding]:
        """Yield a finding for each need of a block beyond the GPU's limit."""
        for need, has, unit in list_excess(self.resources, GPUS[self.planned.gpu]):
            yield self._find_large(need, has, unit)

    def _find_large(self, need: int, has: int, unit: str) -> Finding:
        location, reason = self._kernel, ""
        if "shared" in unit:
            buffers = list_buffers(self.ir)
            largest = find_largest(buffers)
            reason = explain_shared(buffers, need, int(self.compiled.launch.options.num_stages))
            location = (display_path(largest[0]), largest[1]) if reason and largest else location
        got = f"{need} {unit} for a block of {self.planned.kernel} on {self.planned.gpu}"
        return _find(self.planned, FITS, "too_large", location, got, f"at most {has}", reason)

    @property
    def _kernel(self) -> tuple[str, int]:
        """The line of the kernel's `def`."""
        function: Any = self.compiled.launch.source.fn
        code = getattr(function.fn, "__code__", None)
        return (display_path(code.co_filename), find_def_line(function)) if code else ("", 0)


def _is_of_triton(where: str) -> bool:
    """Return whether a line is in the language's own library, such as that of tl.sum."""
    return os.path.realpath(where).startswith(_LIBRARY)


def _show(location: Place) -> str:
    return f"{display_path(location[0])}:{location[1]}" if location[0] else ""


def _tile(tile: tuple[int, ...]) -> str:
    return "x".join(map(str, tile))
