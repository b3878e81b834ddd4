"""The facts of one compiled launch: those of its IR, its assembly and its binary, joined.

A dot of the source and its instructions have the same place: that of the debug locations, which the
compiler keeps from the source's line to the assembly.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from gemmproof.lowering import assembly as amdgcn
from gemmproof.lowering import assembly as ir
from gemmproof.lowering.assembly import read_cubin
from gemmproof.lowering.compile import CompiledLaunch
from gemmproof.lowering.ptx import (
    UNKNOWN_PLACE,
    CoreInstruction,
    Place,
    PtxProgram,
    PtxStatement,
    find_promotion,
    list_accesses,
    list_core_instructions,
    read_ptx,
)
from gemmproof.lowering.record import (
    FMA,
    UNKNOWN,
    DotInstruction,
    DotLowering,
    GlobalAccess,
    Resources,
)
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS
from gemmproof.target import display_path

# if the IR prints a number: Triton's enumeration InputPrecision
_PRECISIONS = {"0": "tf32", "1": "tf32x3", "2": "ieee", "3": "bf16x3", "4": "bf16x6"}
_FUSED = ("fma", "mad", "dp4a")


def list_dots(compiled: CompiledLaunch) -> tuple[DotLowering, ...]:
    """List the dots of a launch for an NVIDIA GPU; no binary is needed."""
    source_dots, optimised = (
        ir.list_dots(compiled.asm.get(name, "")) for name in ("ttir", "ttgir")
    )
    program = read_ptx(compiled.asm["ptx"])
    by_place, promoted = _group_ptx(program)
    fused = _group_fused(program.statements)
    return _join_dots(source_dots, optimised, by_place, fused, promoted)


def tell(compiled: CompiledLaunch) -> dict[str, Any]:
    """Return the fields of a LoweredLaunch that the compiled launch decides."""
    ttgir = compiled.asm.get("ttgir", "")
    source_dots = ir.list_dots(compiled.asm["ttir"]) if "ttir" in compiled.asm else []
    optimised = ir.list_dots(ttgir)
    facts: dict[str, Any] = {"specialised_warps": ir.has_specialised_warps(ttgir)}
    facts["buffers"] = ir.count_buffers(ttgir)
    if "ptx" in compiled.asm:
        program = read_ptx(compiled.asm["ptx"])
        by_place, promoted = _group_ptx(program)
        fused = _group_fused(program.statements)
        fused |= _find_lost(source_dots, fused, by_place, 32 * int(compiled.metadata.num_warps))
        accesses: Iterable[tuple[Place, str, int]] = list_accesses(program)
        resources = _read_nvidia(compiled, program)
    else:
        assembly = amdgcn.read_amdgcn(compiled.asm["amdgcn"])
        by_place, fused, promoted = *_group_amd(assembly), {}
        accesses = assembly.accesses
        resources = _read_amd(compiled, assembly)
    facts["dots"] = _join_dots(source_dots, optimised, by_place, fused, promoted)
    facts["accesses"] = _count_accesses(accesses)
    facts["resources"] = resources
    facts["unrecognised"] = _list_unrecognised(facts["dots"])
    return facts


def _join_dots(
    source_dots: list[ir.IrDot],
    optimised: list[ir.IrDot],
    cores: Mapping[Place, tuple[DotInstruction, ...]],
    fused: Mapping[Place, tuple[DotInstruction, ...]],
    promoted: Mapping[Place, tuple[int, int | None]],
) -> tuple[DotLowering, ...]:
    """Join the dots of the source by place, once each, and instructions that belong to none."""
    compiled_at = _find_moved(source_dots, optimised)
    locations = dict.fromkeys([x.location for x in (*source_dots, *optimised)] + list(cores))
    lowerings = []
    for location in locations:
        if location in compiled_at.values():
            continue
        first = next((x for x in (*source_dots, *optimised) if x.location == location), None)
        compiled = compiled_at.get(location, location)
        ir_dot = next((x for x in optimised if x.location == compiled), None)
        instructions = cores.get(compiled) or fused.get(compiled, ())
        if not instructions:
            instructions = (DotInstruction("", UNKNOWN, 0),)
        lowerings.append(
            DotLowering(
                show(location),
                first.formats if first else ("", "", ""),
                first.tile if first else (),
                _describe_precision(first),
                ir_dot.layouts if ir_dot else ("", "", ""),
                instructions,
                *promoted.get(compiled, (0, None)),
            )
        )
    return tuple(lowerings)


def _find_moved(source_dots: list[ir.IrDot], optimised: list[ir.IrDot]) -> dict[Place, Place]:
    """Return the compiled place of each dot of the source that is at another place.

    The dots that bf16x3 and bf16x6 make of a dot are at the place where its operand a was computed.
    They belong to it if no other dot of that tile lost its place.
    """
    kept_locations, source_locations = (
        {x.location for x in optimised},
        {x.location for x in source_dots},
    )
    lost = {x.location: x.tile for x in source_dots if x.location not in kept_locations}
    compiled_at = {}
    for location, tile in lost.items():
        others = {
            x.location for x in optimised if x.location not in source_locations and x.tile == tile
        }
        if len(others) == 1 and list(lost.values()).count(tile) == 1:
            compiled_at[location] = others.pop()
    return compiled_at


def _describe_precision(dot: ir.IrDot | None) -> str:
    """Return the requested precision of fp32 operands, "" for others."""
    if dot is None or dot.formats[0] != "f32":
        return ""
    return _PRECISIONS.get(dot.precision, dot.precision or "ieee")


def _group_ptx(
    program: PtxProgram,
) -> tuple[dict[Place, tuple[DotInstruction, ...]], dict[Place, tuple[int, int | None]]]:
    """Group tensor core instructions by place, and find what their sums are added to."""
    dots: dict[Place, list[CoreInstruction]] = defaultdict(list)
    cores = list(list_core_instructions(program))
    for core in cores:
        dots[core.statement.location].append(core)
    counted = {}
    for location, instructions in dots.items():
        kinds: dict[tuple[Any, ...], list[CoreInstruction]] = defaultdict(list)
        for x in instructions:
            kinds[x.name, x.unit, x.shape, x.a, x.b, x.accumulator, x.operands].append(x)
        counted[location] = tuple(
            DotInstruction(
                name, unit, len(same), shape, a, b, accumulator, operands,
                sum(x.begins == "zero" for x in same), sum(x.begins == "open" for x in same),
            )
            for (name, unit, shape, a, b, accumulator, operands), same in kinds.items()
        )  # fmt: skip
    return counted, {location: find_promotion(program, x, cores) for location, x in dots.items()}


def _group_fused(statements: Iterable[PtxStatement]) -> dict[Place, tuple[DotInstruction, ...]]:
    """Group fused multiply-adds by place; an instruction on a pair of values counts twice."""
    counts: dict[Place, Counter[str]] = defaultdict(Counter)
    for statement in statements:
        if statement.parts[0] in _FUSED and statement.parts[1:2] != ("wide",):
            counts[statement.location][statement.opcode] += (
                2 if statement.opcode.endswith("x2") else 1
            )
    return {
        location: tuple(
            DotInstruction(name, FMA, count, accumulator=name.split(".")[-1].removesuffix("x2"))
            for name, count in names.items()
        )
        for location, names in counts.items()
    }


def _find_lost(
    source_dots: list[ir.IrDot],
    fused: Mapping[Place, tuple[DotInstruction, ...]],
    cores: Mapping[Place, Any],
    threads: int,
) -> dict[Place, tuple[DotInstruction, ...]]:
    """Return the fused multiply-adds of a kernel's only dot, if the compiler moved their line.

    They belong to it if they are as many as a thread needs for the tile.
    """
    if len(source_dots) != 1 or source_dots[0].location in fused or cores:
        return {}
    needed = math.prod(source_dots[0].tile)
    floats = {fmt.ptx for fmt in FORMATS.values() if fmt.kind == "float"}
    for instructions in fused.values():
        same = tuple(x for x in instructions if x.accumulator in floats)
        if sum(x.count for x in same) * threads == needed:
            return {source_dots[0].location: same}
    return {}


def _group_amd(
    assembly: amdgcn.AmdAssembly,
) -> tuple[dict[Place, tuple[DotInstruction, ...]], dict[Place, tuple[DotInstruction, ...]]]:
    """Group matrix instructions, and fused multiply-adds, by place."""
    counts: dict[bool, dict[Place, Counter[Any]]] = {True: {}, False: {}}
    from_zero: Counter[Any] = Counter()
    for x in assembly.products:
        key = (x.name, x.unit, x.shape, x.a, x.b, x.accumulator)
        counts[x.unit == FMA].setdefault(x.location, Counter())[key] += 1
        from_zero[x.location, key] += x.from_zero
    return _count_amd(counts[False], from_zero), _count_amd(counts[True], from_zero)


def _count_amd(
    named: Mapping[Place, Counter[Any]], from_zero: Mapping[Any, int]
) -> dict[Place, tuple[DotInstruction, ...]]:
    instructions = {}
    for location, names in named.items():
        instructions[location] = tuple(
            DotInstruction(
                name, unit, count, shape, a, b, accumulator, ("registers", "registers"),
                from_zero[location, (name, unit, shape, a, b, accumulator)],
            )
            for (name, unit, shape, a, b, accumulator), count in names.items()
        )  # fmt: skip
    return instructions


def _read_nvidia(compiled: CompiledLaunch, program: PtxProgram) -> Resources:
    facts = read_cubin(compiled.asm["cubin"], compiled.metadata.name)
    return Resources(
        registers=facts.registers,
        stack=facts.stack,
        declared=program.declared,
        shared=int(compiled.metadata.shared),
        shared_limit=GPUS[compiled.launch.gpu].shared_memory,
        threads=facts.threads,
        static_shared=facts.shared,
        tensor_memory=int(getattr(compiled.metadata, "tmem_size", None) or 0),
    )


def _read_amd(compiled: CompiledLaunch, assembly: amdgcn.AmdAssembly) -> Resources:
    counts = assembly.counts
    return Resources(
        registers=counts.get("vgpr_count"),
        stack=counts.get("private_segment_fixed_size"),
        declared=0,
        shared=int(compiled.metadata.shared),
        shared_limit=GPUS[compiled.launch.gpu].shared_memory,
        # the binary's own figure is limited to what a block may have
        threads=int(compiled.metadata.num_warps) * GPUS[compiled.launch.gpu].warp_size,
        static_shared=counts.get("group_segment_fixed_size", 0),
        accumulation_registers=counts.get("agpr_count"),
        scalar_registers=counts.get("sgpr_count"),
        spilled_registers=counts.get("vgpr_spill_count"),
    )


def _count_accesses(accesses: Iterable[tuple[Place, str, int]]) -> tuple[GlobalAccess, ...]:
    counted = Counter((show(location), kind, width) for location, kind, width in accesses)
    return tuple(GlobalAccess(*key, count) for key, count in counted.items())


def _list_unrecognised(dots: tuple[DotLowering, ...]) -> tuple[str, ...]:
    """List what was not recognised, in a line each."""
    lines = []
    for dot in dots:
        for instruction in dot.instructions:
            if instruction.unit == UNKNOWN:
                label = instruction.name or "no instruction that multiplies, of this dot"
                lines.append(f"{dot.where or 'line unknown'}: {label}")
            elif instruction.unit != FMA and (
                instruction.shape is None or not instruction.a or not instruction.accumulator
            ):
                lines.append(
                    f"{dot.where or 'line unknown'}: shape or formats of {instruction.name}"
                )
    return tuple(lines)


def show(location: Place) -> str:
    """Format a line for a report, "" if the compiler keeps none."""
    return (
        ""
        if location == UNKNOWN_PLACE or not location[0]
        else f"{display_path(location[0])}:{location[1]}"
    )
