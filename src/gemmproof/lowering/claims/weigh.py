"""One launch, compiled for a GPU and weighed by the claims of a contract.

What the compiler refuses speaks against `fits` alone: of what is not compiled nothing else is
known. A mistake of the tools, and what is not recognised in a program, speak against nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton.language

from gemmproof.lowering.binary.ir import IrDot, list_buffers, list_dots
from gemmproof.lowering.binary.ptx import Place
from gemmproof.lowering.capture import CapturedLaunch
from gemmproof.lowering.claims.reasons import (
    explain_no_core,
    explain_shared,
    explain_spills,
    find_largest,
)
from gemmproof.lowering.claims.record import PlannedLaunch, Weighed
from gemmproof.lowering.compile import CompiledLaunch, compile_launch
from gemmproof.lowering.facts import tell
from gemmproof.lowering.record import FMA, UNKNOWN, DotLowering, Resources
from gemmproof.lowering.room import list_excess
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import (
    COMPILER,
    FITS,
    SPILLS,
    TENSOR_CORES,
    Contract,
    list_promised,
)
from gemmproof.properties.finding import Finding
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.simulation import CompileError
from gemmproof.reference.triton_frontend import find_def_line
from gemmproof.target import display_path

_LIBRARY = os.path.join(os.path.realpath(os.path.dirname(triton.language.__file__)), "")
_CALLS = re.compile(r"^\s*(?:\{\s*)?call", re.MULTILINE)
# what ptxas says of itself: it ends so by a program only where a code (C7602) or lines say which
_TOOL = re.compile(r"ptxas\S*(?: [^;\n]*;)? +fatal\s*:(?!\s*(?:Ptx assembly aborted|\(C\d+\)))")
# a tool that is not there, or that is of another age than the text it is given
_MISSING = ("Cannot find", "No such file", "not found", ".version", "ISA version")


def weigh(
    contract: Contract, launch: CapturedLaunch, planned: PlannedLaunch, room: Path
) -> Weighed:
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
    return Weighed(tuple(found), findings, unknown, judged.has_dot)


class _Unknown(Exception):
    """Why a program does not say whether a claim holds."""


def _weigh_refusal(
    promised: tuple[str, ...], error: CompileError, planned: PlannedLaunch
) -> Weighed:
    """Of a launch that is not compiled: a finding of `fits`, unless the tools are at fault."""
    said = error.message.removeprefix(f"compiling {planned.kernel} for {planned.gpu}: ")
    unknown = dict.fromkeys(promised, f"{planned.name}: not compiled: {said}")
    if FITS not in promised or is_of_tools(error):
        return Weighed(unknown=unknown)
    del unknown[FITS]
    where = error.where
    # an assembler has lines of its own
    known = where is not None and Path(where.file).is_file()
    place = (planned.file, _line_of(planned))
    if where is not None and known:
        place = (display_path(where.file), where.line)
    got = f'"{said}" from the compiler for {planned.gpu}'
    expected = f"{planned.kernel} to compile for it"
    return Weighed((FITS,), (_find(planned, FITS, "refused", place, got, expected),), unknown)


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
