"""The facts of one compiled launch: those of its IR, its assembly and its binary, joined.

A dot of the source and its instructions have the same place: that of the debug locations, which the
compiler keeps from the source's line to the assembly.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import triton.language

from gemmproof.compiled.assembly import (
    count_buffers,
    has_specialised_warps,
    list_buffers,
    list_dots,
    read_amdgcn,
    read_cubin,
)
from gemmproof.compiled.ptx import (
    CoreInstruction,
    PtxProgram,
    find_promotion,
    list_accesses,
    list_core_instructions,
    list_fused,
    read_ptx,
)
from gemmproof.compiled.record import (
    FMA,
    UNKNOWN,
    CompiledDot,
    DotInstruction,
    GlobalAccess,
    LoweredLaunch,
    MultiplyAdds,
    Place,
    Resources,
    count_instructions,
    format_place,
)
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS

LineColumn = tuple[str, int]  # ("", 0) if unknown
ByPlace = Mapping[LineColumn, tuple[DotInstruction, ...]]
_LIBRARY = os.path.join(os.path.realpath(os.path.dirname(triton.language.__file__)), "")


def read_facts(planned: LoweredLaunch, asm: Mapping[str, Any], metadata: Any) -> LoweredLaunch:
    """Return the record of a launch with what Triton made of it: `asm` by the name of each form."""
    ttgir = asm.get("ttgir", "")
    source, optimised = list_dots(asm.get("ttir", "")), list_dots(ttgir)
    gpu = GPUS[planned.target]
    # AMD's binary limits its own number of threads to what a block may have
    threads = int(metadata.num_warps) * gpu.warp_size
    needs = Resources(None, None, 0, int(metadata.shared), gpu.shared_memory, threads)
    promoted: dict[LineColumn, tuple[int, int | None]] = {}
    accesses: Iterable[tuple[Place, str, int]]
    resources, has_calls = None, False
    if "ptx" in asm:
        program = read_ptx(asm["ptx"])
        cores, promoted = _read_cores(program)
        fused = _group(list_fused(program))
        fused |= _find_lost(source, fused, cores, threads)
        accesses = list_accesses(program)
        has_calls = any(x.parts[0] == "call" for x in program.statements)
        if asm.get("cubin"):
            resources = _read_nvidia(needs, asm, metadata, program)
    else:
        assembly = read_amdgcn(asm["amdgcn"])
        cores = _group(x for x in assembly.products if x[1].unit != FMA)
        fused = _group(x for x in assembly.products if x[1].unit == FMA)
        accesses = assembly.accesses
        resources = _read_amd(needs, assembly.counts)
    dots = _join_dots(source, optimised, cores, fused, promoted)
    counted = Counter((format_place(location), kind, width) for location, kind, width in accesses)
    binary = asm.get("cubin") or asm.get("hsaco")
    return replace(
        planned,
        dots=dots,
        multiply_adds=() if dots else tuple(_list_multiply_adds(fused)),
        source_dots=source,
        optimised_dots=optimised,
        accesses=tuple(GlobalAccess(*key, count) for key, count in counted.items()),
        resources=resources,
        buffers=count_buffers(ttgir),
        shared_buffers=list_buffers(ttgir),
        specialised_warps=has_specialised_warps(ttgir),
        has_calls=has_calls,
        unrecognised=tuple(_list_unrecognised(dots)),
        binary=sha256(binary).hexdigest() if binary else "",
    )


# -- dots ----------------------------------------------------------------------------------------
def _join_dots(
    source: Sequence[CompiledDot],
    optimised: Sequence[CompiledDot],
    cores: ByPlace,
    fused: ByPlace,
    promoted: Mapping[LineColumn, tuple[int, int | None]],
) -> tuple[CompiledDot, ...]:
    """Join the dots of the source by place, once each, and instructions that belong to none."""
    compiled_at = _find_moved(source, optimised)
    firsts: dict[LineColumn, CompiledDot] = {}
    for dot in (*source, *optimised):
        firsts.setdefault((dot.where, dot.column), dot)
    layouts = {(x.where, x.column): x.layouts for x in reversed(optimised)}  # of the first
    unmade = ("", "", "")
    joined = []
    for location in dict.fromkeys((*firsts, *cores)):
        if location in compiled_at.values():
            continue
        where, column = location
        first = firsts.get(location, CompiledDot(where, unmade, (), "", unmade, column=column))
        compiled = compiled_at.get(location, location)
        instructions = cores.get(compiled) or fused.get(compiled, ())
        count, longest = promoted.get(compiled, (0, None))
        joined.append(
            replace(
                first,
                layouts=layouts.get(compiled, unmade),
                instructions=instructions or (DotInstruction("", UNKNOWN, 0),),
                promoted=count,
                promoted_k=longest,
                implicit=os.path.realpath(where).startswith(_LIBRARY),
            )
        )
    return tuple(joined)


def _find_moved(
    source: Sequence[CompiledDot], optimised: Sequence[CompiledDot]
) -> dict[LineColumn, LineColumn]:
    """Return the compiled place of each dot of the source that is at another place.

    The dots that bf16x3 and bf16x6 make of a dot are at the place where its operand a was computed.
    They belong to it if no other dot of that tile lost its place.
    """
    before, after = ({(x.where, x.column): x.tile for x in dots} for dots in (source, optimised))
    lost = {location: tile for location, tile in before.items() if location not in after}
    compiled_at = {}
    for location, tile in lost.items():
        others = {
            (x.where, x.column)
            for x in optimised
            if (x.where, x.column) not in before and x.tile == tile
        }
        if len(others) == 1 and list(lost.values()).count(tile) == 1:
            compiled_at[location] = others.pop()
    return compiled_at


def _group(
    instructions: Iterable[tuple[Place, DotInstruction]],
) -> dict[LineColumn, tuple[DotInstruction, ...]]:
    """Group instructions by place, and count those of each kind."""
    groups: dict[Place, list[DotInstruction]] = defaultdict(list)
    for location, instruction in instructions:
        groups[location].append(instruction)
    return {_show(location): count_instructions(group) for location, group in groups.items()}


def _show(location: Place) -> LineColumn:
    return format_place(location), location[2]


def _read_cores(
    program: PtxProgram,
) -> tuple[dict[LineColumn, tuple[DotInstruction, ...]], dict[LineColumn, tuple[int, int | None]]]:
    """Group tensor core instructions by place, and find what their sums are added to."""
    cores = list(list_core_instructions(program))
    dots: dict[Place, list[CoreInstruction]] = defaultdict(list)
    for core in cores:
        dots[core.statement.location].append(core)
    promoted = {_show(location): find_promotion(program, x, cores) for location, x in dots.items()}
    return _group((x.statement.location, x.instruction) for x in cores), promoted


def _find_lost(
    source: Sequence[CompiledDot], fused: ByPlace, cores: ByPlace, threads: int
) -> dict[LineColumn, tuple[DotInstruction, ...]]:
    """Return the fused multiply-adds of a kernel's only dot, if the compiler moved their line.

    They belong to it if they are as many as a thread needs for the tile.
    """
    if len(source) != 1 or cores or (location := (source[0].where, source[0].column)) in fused:
        return {}
    floats = {fmt.ptx for fmt in FORMATS.values() if fmt.kind == "float"}
    for instructions in fused.values():
        same = tuple(x for x in instructions if x.accumulator in floats)
        if sum(x.count for x in same) * threads == math.prod(source[0].tile):
            return {location: same}
    return {}


def _list_unrecognised(dots: Iterable[CompiledDot]) -> Iterable[str]:
    """Yield a line on each instruction that is not recognised."""
    for dot in dots:
        for x in dot.instructions:
            if x.unit == UNKNOWN:
                label = x.name or "no instruction that multiplies, of this dot"
                yield f"{dot.where or 'line unknown'}: {label}"
            elif x.unit != FMA and (x.shape is None or not x.a or not x.accumulator):
                yield f"{dot.where or 'line unknown'}: shape or formats of {x.name}"


def _list_multiply_adds(fused: ByPlace) -> Iterator[MultiplyAdds]:
    """Yield the fused multiply-adds of floats at each line; those of integers compute addresses."""
    by_line: dict[str, list[DotInstruction]] = defaultdict(list)
    for (where, _), instructions in fused.items():
        by_line[where] += (x for x in instructions if not x.accumulator.startswith(("s", "u", "b")))
    for where, of_floats in by_line.items():
        if of_floats:
            yield MultiplyAdds(where, count_instructions(of_floats))


# -- resources -----------------------------------------------------------------------------------
# a line for the kernel, and one for each function that it calls
_SPILLS = re.compile(r"bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def _read_nvidia(
    needs: Resources, asm: Mapping[str, Any], metadata: Any, program: PtxProgram
) -> Resources:
    facts = read_cubin(asm["cubin"], metadata.name)
    spills = [(int(stored), int(loaded)) for stored, loaded in _SPILLS.findall(asm["ptxas"])]
    return replace(
        needs,
        registers=facts.registers,
        stack=facts.stack,
        declared=program.declared,
        threads=facts.threads,
        static_shared=facts.shared,
        tensor_memory=int(getattr(metadata, "tmem_size", None) or 0),
        spill_stores=sum(stored for stored, _ in spills) if spills else None,
        spill_loads=sum(loaded for _, loaded in spills) if spills else None,
    )


def _read_amd(needs: Resources, counts: Mapping[str, int]) -> Resources:
    return replace(
        needs,
        registers=counts.get("vgpr_count"),
        stack=counts.get("private_segment_fixed_size"),
        static_shared=counts.get("group_segment_fixed_size", 0),
        accumulation_registers=counts.get("agpr_count"),
        scalar_registers=counts.get("sgpr_count"),
        spilled_registers=counts.get("vgpr_spill_count"),
    )
