"""Guarantees of compiled code: planned launches, each assessed."""

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
    """A launch that is to be compiled for `gpu`: of which kernel, at which case, as JSON.

    `configuration` is the words of a tuned one, "" for others; `where` and `file` are the wrapper's
    line that launches it, `name` says all of it.
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
    """Every launch once that compiles to something of its own, and the `calls` that make them.

    A call is the numbers of its launches, where none of M, N and K is 1 or 0. `lacks` says in a
    line each what is not compiled.
    """

    launches: tuple[PlannedLaunch, ...] = ()
    calls: tuple[tuple[int, ...], ...] = ()
    lacks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> LaunchPlan:
        """The plan that `to_dict` gave, also after JSON."""
        launches = tuple(PlannedLaunch(**one) for one in data["launches"])
        return LaunchPlan(launches, tuple(map(tuple, data["calls"])), tuple(data["lacks"]))


@dataclass(frozen=True, slots=True)
class LaunchAssessment:
    """What one compiled launch says of the claims: of those that it bears on, what is wrong.

    `unknown` is why nothing is known of one, by its name. `has_dot`: whether anything in it
    multiplies matrices; None where that is not known.
    """

    judged: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    has_dot: bool | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        found = [one.to_dict() for one in self.findings]
        return {**asdict(self), "findings": found}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> LaunchAssessment:
        """What `to_dict` gave, also after JSON."""
        found = tuple(Finding.from_dict(one) for one in data["findings"])
        return LaunchAssessment(tuple(data["judged"]), found, data["unknown"], data["has_dot"])


# -- reasons -------------------------------------------------------------------------------------
_WIDTH = re.compile(r"[a-zA-Z]+(\d+)")
# what the IR calls a format -> its name here; of formats that share a word the first one
_NAMES: Mapping[str, str] = MappingProxyType(
    {fmt.ttir: fmt.name for fmt in tuple(FORMATS.values())[::-1]}
)
# the smallest tiles of which Triton makes AMD's matrix instructions, by the IR's formats: measured,
# as a test compiles them and those that are half as deep
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
    """Why a dot has no tensor core on a GPU; "" where that is not known."""
    if not GPUS[gpu].triton_uses_cores:
        return f"Triton makes fused multiply-adds of every dot on {gpu}"
    if GPUS[gpu].is_amd:
        return _explain_no_mfma(dot, gpu)
    known = {name for core in GPUS[gpu].cores for name in core.formats}
    if not known or dot.asked[0] != dot.asked[1]:
        return ""
    if dot.asked[0] == "f32":
        return "fp32 ieee has no tensor core" if dot.precision == "ieee" else ""
    name = _NAMES.get(dot.asked[0], "")
    return f"{name} has no tensor core on {gpu}" if name and name not in known else ""


def _explain_no_mfma(dot: DotLowering, gpu: str) -> str:
    kind, other, _ = dot.asked
    smallest = (_MFMA_950 if gpu == "gfx950" else _MFMA).get(kind, ())
    own = dot.tile[-3:]
    is_covered = any(all(x >= y for x, y in zip(own, one, strict=True)) for one in smallest)
    if kind != other or not smallest or is_covered:
        return ""
    told = " ".join("x".join(map(str, one)) for one in smallest)
    return f"Triton's smallest mfma for {_NAMES.get(kind, kind)} take {told}"


def explain_shared(buffers: Buffers, shared: int, stages: int) -> str:
    """Which buffers take the shared memory of a block; "" where they are not most of it."""
    taken = sum(_count_bytes(shape, kind) for _, shape, kind in buffers)
    if not shared // 2 < taken <= shared:  # the rest is for what has no buffer of its own
        return ""
    shown = [f"{'x'.join(map(str, shape))} {kind}" for _, shape, kind in buffers]
    return f"buffers of {' and '.join(shown)} with num_stages={stages}"


def explain_spills(dots: Sequence[IrDot], threads: int | None, registers: int | None) -> str:
    """The accumulator that alone takes all registers of a thread; "" where none does."""
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
    """The place of the largest of them, None where there is none with a line."""
    placed = [one for one in buffers if one[0][0]]
    return max(placed, key=lambda one: _count_bytes(one[1], one[2]))[0] if placed else None


def _count_bytes(shape: tuple[int, ...], kind: str) -> int:
    found = _WIDTH.match(kind)
    return math.prod(shape) * (int(found[1]) if found else 0) // 8


# -- plan ----------------------------------------------------------------------------------------
USUAL, ODD, FEW_ROWS = (1024, 1024, 1024), (1023, 1023, 1023), (16, 1024, 1024)
LEAST_MOST = 64  # of a format and a GPU that are compiled, whatever few cases are asked for
COLUMNS = "column"  # the other common layout of b


def list_cases(contract: Contract, dtype: str) -> Iterator[Case]:
    """The cases of one format whose launches are compiled, the usual one first."""
    seen: set[Case] = set()
    sizes = []
    for sides in (USUAL, ODD, None, FEW_ROWS, WHOLE):
        # beside a side that is long by contract others may be too much for a case
        with suppress(ValueError):
            one = smallest(contract, dtype) if sides is None else probe(contract, dtype, sides)
            sizes.append(one)
    simplest, columns = contract.layout_names[0], COLUMNS in contract.layout_names
    placed = [one.with_layout("a", simplest).with_layout("b", simplest) for one in sizes]
    for case in (*placed, *([placed[0].with_layout("b", COLUMNS)] if columns else ())):
        if case not in seen and is_admitted(case, contract):
            seen.add(case)
            yield case


def plan_launches(
    kernel: KernelUnderTest, target: str | None, case: Case | None, most: int
) -> tuple[LaunchPlan, list[CapturedLaunch]]:
    """What is to be compiled, and the launches themselves, at most so many of a format and a GPU.

    With a `case` it is that one alone, in its own configuration of a tuner.
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
            left_out: set[tuple[str, str]] = set()
            for one in [case] if case else list_cases(contract, dtype):
                state.restore()  # what a wrapper keeps of one GPU is not so on another
                made, lack = _capture(kernel, one, gpu)
                lacks += [lack] if lack else []
                call = []
                for launch in made:
                    is_tuned = launch.configurations > 1
                    if case is not None and is_tuned and launch.index != case.config:
                        continue
                    key = launch.key
                    if key not in numbers and len(numbers) == most:
                        left_out.add(key)
                        continue
                    if key not in numbers:
                        numbers[key] = len(captured)
                        captured.append(launch)
                        planned.append(_describe(launch, one))
                    call.append(numbers[key])
                # a vector has a kernel without a dot; of K = 1 nothing is left of a loop over tiles
                if min(one.M, one.N, one.K) > 1:
                    calls.append(tuple(dict.fromkeys(call)))
            if left_out:
                got = f"{format_count(len(left_out), 'launch')} more than {most}"
                lacks.append(f"{dtype} for {gpu}: got {got}, compiled with a larger --max-examples")
    state.restore()
    return LaunchPlan(tuple(planned), tuple(calls), tuple(lacks)), captured


def _capture(kernel: KernelUnderTest, case: Case, gpu: str) -> tuple[list[CapturedLaunch], str]:
    """What a call launches; and in a line why that is not known, "" where it is."""
    try:
        tensors = {name: x.tensor for name, x in operands(case, kernel).items()}
        with capture_launches(gpu) as made, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel.call(case, tensors)
    except ContractError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # a wrapper may raise anything
        said = str(error) if isinstance(error, SimulatorError) else format_error(error)
        where = line_of(error)
        place = f"{where}: " if where and not said.startswith(where) else ""
        return [], f"{place}got {said} at {case}, expected launches for {gpu}"
    return made, ""


def describe_configuration(launch: CapturedLaunch) -> str:
    """What a tuner chose for a launch, in words; "" where there is none to choose from."""
    if launch.configurations < 2:
        return ""
    told = [f"{name}={x}" for name, x in launch.configuration.items()]
    told += [f"{name}={getattr(launch.options, name)}" for name in ("num_warps", "num_stages")]
    return f"configuration {launch.index}: {' '.join(told)}"


def _describe(launch: CapturedLaunch, case: Case) -> PlannedLaunch:
    tuned = describe_configuration(launch)
    own = replace(case, config=launch.index if launch.configurations > 1 else case.config)
    name = f"{launch.kernel} {case.dtype} for {launch.gpu}{tuned and f', {tuned}'}"
    return PlannedLaunch(
        launch.gpu,
        launch.kernel,
        own.to_json(),
        tuned,
        str(launch.where) if launch.where.line else "",
        display_path(launch.where.file) if launch.where.line else "",
        name,
    )


# -- assessment of a launch ----------------------------------------------------------------------
_LIBRARY = os.path.join(os.path.realpath(os.path.dirname(triton.language.__file__)), "")
_CALLS = re.compile(r"^\s*(?:\{\s*)?call", re.MULTILINE)
# what ptxas says of itself: it ends so by a program only where a code (C7602) or lines say which
_TOOL = re.compile(r"ptxas\S*(?: [^;\n]*;)? +fatal\s*:(?!\s*(?:Ptx assembly aborted|\(C\d+\)))")
# a tool that is not there, or that is of another age than the text it is given
_MISSING = ("Cannot find", "No such file", "not found", ".version", "ISA version")


def weigh(
    contract: Contract, launch: CapturedLaunch, planned: PlannedLaunch, room: Path
) -> LaunchAssessment:
    """Compile a launch, and judge it by what the contract promises of it."""
    promised = list_promised(contract)
    try:
        made = compile_launch(launch, room)
    except CompileError as error:
        return _weigh_refusal(promised, error, planned)
    judged = ReadLaunch(contract, planned, made)
    found: dict[str, list[Finding]] = {}
    unknown: dict[str, str] = {}
    rules = {
        TENSOR_CORES: judged.list_coreless,
        SPILLS: judged.list_spills,
        FITS: judged.list_large,
    }
    for name in promised:
        try:
            found[name] = list(rules[name]())
        except _Unknown as why:
            unknown[name] = f"{planned.name}: {why}"
    findings = tuple(finding for of_one in found.values() for finding in of_one)
    return LaunchAssessment(tuple(found), findings, unknown, judged.has_dot)


class _Unknown(Exception):
    """Why a program does not say whether a claim holds."""


def _weigh_refusal(
    promised: tuple[str, ...], error: CompileError, planned: PlannedLaunch
) -> LaunchAssessment:
    """Of a launch that is not compiled: a finding of `fits`, unless the tools are at fault."""
    said = error.message.removeprefix(f"compiling {planned.kernel} for {planned.gpu}: ")
    unknown = dict.fromkeys(promised, f"{planned.name}: not compiled: {said}")
    if FITS not in promised or is_of_tools(error):
        return LaunchAssessment(unknown=unknown)
    del unknown[FITS]
    where = error.where
    # an assembler has lines of its own
    known = where is not None and Path(where.file).is_file()
    place = (planned.file, _line_of(planned))
    if where is not None and known:
        place = (display_path(where.file), where.line)
    got = f'"{said}" from the compiler for {planned.gpu}'
    expected = f"{planned.kernel} to compile for it"
    return LaunchAssessment(
        (FITS,), (_find(planned, FITS, "refused", place, got, expected),), unknown
    )


def is_of_tools(error: CompileError) -> bool:
    """Whether a compilation failed for want of a tool, or of a tool that knows the GPU."""
    cause = error.__cause__
    said = str(cause)
    if isinstance(cause, OSError | ImportError) or any(words in said for words in _MISSING):
        return True
    # a tool that died, or was killed, judged nothing
    died = "raised SIGSEGV" in said or re.search(r"failed with error code -\d+", said)
    return bool(_TOOL.search(said) or died)


def _line_of(planned: PlannedLaunch) -> int:
    return int(planned.where.rpartition(":")[2] or 0)


def _find(
    planned: PlannedLaunch,
    name: str,
    fault: str,
    place: tuple[str, int],
    got: str,
    expected: str,
    why: str = "",
) -> Finding:
    """A finding at a line, or where none is known of the kernel as a whole."""
    file, line = place
    where = f"{file.rsplit('/', 1)[-1]}:{line}" if file and line else None
    reason = f": {why}" if why else ""
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
    """A compiled launch, and what in it is not as the contract promises."""

    def __init__(self, contract: Contract, planned: PlannedLaunch, made: CompiledLaunch) -> None:
        self.contract, self.planned, self.made = contract, planned, made
        facts = tell(made)
        # of a sum of products Triton makes a dot at a line of its own: nobody asked for that one
        self.dots: tuple[DotLowering, ...] = tuple(
            dot for dot in facts["dots"] if dot.has_cores or not _is_of_triton(dot.where)
        )
        self.resources: Resources = facts["resources"]
        self.has_special_warps: bool = facts["specialised_warps"]
        self.ir = made.asm.get("ttgir", "")
        self.laid = list_dots(self.ir)

    @property
    def has_dot(self) -> bool:
        """Whether the program multiplies matrices, in the source's words or in the GPU's."""
        return bool(self.dots)

    def list_coreless(self) -> Iterator[Finding]:
        """The dots that became something else. Raises _Unknown where one is not recognised."""
        unclear, found = None, False
        for dot in self.dots:
            try:
                for finding in self._weigh_dot(dot):
                    found = True
                    yield finding
            except _Unknown as why:
                unclear = unclear or why
        for x in filter(self._is_hidden, self.laid):
            found = True
            a, b, _ = x.formats
            got = f"a dot {_tile(x.tile)} of {a} x {b} without one, on a line with others"
            yield self._find_no_core((display_path(x.place[0]), x.place[1]), got, "")
        if unclear and not found:
            raise unclear

    def _weigh_dot(self, dot: DotLowering) -> Iterator[Finding]:
        units = {one.unit for one in dot.instructions}
        layouts = self._list_layouts(dot.where)
        if UNKNOWN in units:
            names = [x.name for x in dot.instructions if x.unit == UNKNOWN and x.name]
            what = f"{names[0]} is not recognised" if names else "no instruction of it was found"
            raise _Unknown(f"{dot.where or 'a dot without a line'}: {what}")
        if units - {FMA}:
            return
        if not any(x.startswith("blocked") for x in layouts):  # where the optimised IR has it
            raise _Unknown(f"{dot.where or 'a dot without a line'}: its instructions are not clear")
        most = max(dot.instructions, key=lambda x: x.count)
        a, b, _ = dot.asked
        got = f"{most.count} {most.name} for the dot {_tile(dot.tile)} of {a} x {b}"
        file, _, line = dot.where.rpartition(":")
        yield self._find_no_core((file, int(line)), got, explain_no_core(dot, self.planned.gpu))

    def _find_no_core(self, place: tuple[str, int], got: str, why: str) -> Finding:
        got, expected = f"{got} on {self.planned.gpu}", "tensor cores"
        return _find(self.planned, TENSOR_CORES, "no_tensor_core", place, got, expected, why)

    def _list_layouts(self, where: str) -> list[str]:
        """The layouts of what dots on a line add to, in the optimised IR."""
        return [x.layouts[2] for x in self.laid if _show(x.place) == where]

    def _is_hidden(self, laid: IrDot) -> bool:
        """Whether a dot has no tensor core, and all that is told of its line has."""
        here = [dot for dot in self.dots if dot.where == _show(laid.place)]
        told = all({x.unit for x in dot.instructions} - {FMA, UNKNOWN} for dot in here)
        return bool(here) and told and laid.layouts[2].startswith("blocked")

    def list_spills(self) -> Iterator[Finding]:
        """More bytes of a thread in memory than were promised."""
        resources, most = self.resources, self.contract.spills or 0
        spills = resources.spills
        if spills is None:
            raise _Unknown("the binary does not tell what is spilled")
        if resources.spilled_registers == 0:  # what else a thread of AMD's has in memory
            spills = 0
        if spills <= most:
            return
        if _CALLS.search(self.made.asm.get("ptx", "")):
            raise _Unknown("what it calls may have its own part of the stack")
        threads = None if self.has_special_warps else resources.threads
        why = explain_spills(self.laid, threads, resources.registers)
        got = f"{spills} bytes of a thread spilled, with {resources.registers} registers"
        got = f"{got} on {self.planned.gpu}"
        expected = f"at most {most}" if most else "none"
        yield _find(self.planned, SPILLS, "spilled", self._kernel, got, expected, why)

    def list_large(self) -> Iterator[Finding]:
        """What a block needs beyond what the GPU has."""
        for need, has, what in list_excess(self.resources, GPUS[self.planned.gpu]):
            yield self._find_large(need, has, what)

    def _find_large(self, need: int, has: int, what: str) -> Finding:
        place, why = self._kernel, ""
        if "shared" in what:
            buffers = list_buffers(self.ir)
            largest = find_largest(buffers)
            why = explain_shared(buffers, need, int(self.made.launch.options.num_stages))
            place = (display_path(largest[0]), largest[1]) if why and largest else place
        got = f"{need} {what} for a block of {self.planned.kernel} on {self.planned.gpu}"
        return _find(self.planned, FITS, "too_large", place, got, f"at most {has}", why)

    @property
    def _kernel(self) -> tuple[str, int]:
        """The line of the kernel's `def`."""
        function: Any = self.made.launch.source.fn
        code = getattr(function.fn, "__code__", None)
        return (display_path(code.co_filename), find_def_line(function)) if code else ("", 0)


def _is_of_triton(where: str) -> bool:
    """Whether a line is one of the language's own library, such as that of tl.sum."""
    return os.path.realpath(where).startswith(_LIBRARY)


def _show(place: Place) -> str:
    return f"{display_path(place[0])}:{place[1]}" if place[0] else ""


def _tile(tile: tuple[int, ...]) -> str:
    return "x".join(map(str, tile))
