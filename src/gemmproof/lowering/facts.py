"""What became of one compiled launch: the facts of its IR, its assembly and its binary, joined.

A dot of the source and the instructions that it became have the same place: that of the debug
locations, which the compiler keeps from the source's line to the assembly.
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

# where the IR prints a number: Triton's enumeration InputPrecision
_PRECISIONS = {"0": "tf32", "1": "tf32x3", "2": "ieee", "3": "bf16x3", "4": "bf16x6"}
_FUSED = ("fma", "mad", "dp4a")


def list_dots(made: CompiledLaunch) -> tuple[DotLowering, ...]:
    """The dots of a launch for an NVIDIA GPU; no binary is needed."""
    asked, optimised = (ir.list_dots(made.asm.get(name, "")) for name in ("ttir", "ttgir"))
    program = read_ptx(made.asm["ptx"])
    by_place, promoted = _group_ptx(program)
    fused = _group_fused(program.statements)
    return _join_dots(asked, optimised, by_place, fused, promoted)


def tell(made: CompiledLaunch) -> dict[str, Any]:
    """The fields of a LoweredLaunch that the compiled launch decides."""
    gated = made.asm.get("ttgir", "")
    asked = ir.list_dots(made.asm["ttir"]) if "ttir" in made.asm else []
    optimised = ir.list_dots(gated)
    told: dict[str, Any] = {"specialised_warps": ir.has_specialised_warps(gated)}
    told["buffers"] = ir.count_buffers(gated)
    if "ptx" in made.asm:
        program = read_ptx(made.asm["ptx"])
        by_place, promoted = _group_ptx(program)
        fused = _group_fused(program.statements)
        fused |= _find_lost(asked, fused, by_place, 32 * int(made.metadata.num_warps))
        accesses: Iterable[tuple[Place, str, int]] = list_accesses(program)
        resources = _read_nvidia(made, program)
    else:
        assembly = amdgcn.read_amdgcn(made.asm["amdgcn"])
        by_place, fused, promoted = *_group_amd(assembly), {}
        accesses = assembly.accesses
        resources = _read_amd(made, assembly)
    told["dots"] = _join_dots(asked, optimised, by_place, fused, promoted)
    told["accesses"] = _count_accesses(accesses)
    told["resources"] = resources
    told["unrecognised"] = _list_unrecognised(told["dots"])
    return told


def _join_dots(
    asked: list[ir.IrDot],
    optimised: list[ir.IrDot],
    cores: Mapping[Place, tuple[DotInstruction, ...]],
    fused: Mapping[Place, tuple[DotInstruction, ...]],
    promoted: Mapping[Place, tuple[int, int | None]],
) -> tuple[DotLowering, ...]:
    """Each dot of the source once, by its place, and instructions that belong to none of them."""
    moved = _find_moved(asked, optimised)
    places = dict.fromkeys([x.place for x in (*asked, *optimised)] + list(cores))
    found = []
    for place in places:
        if place in moved.values():
            continue
        first = next((x for x in (*asked, *optimised) if x.place == place), None)
        compiled = moved.get(place, place)
        laid = next((x for x in optimised if x.place == compiled), None)
        instructions = cores.get(compiled) or fused.get(compiled, ())
        if not instructions:
            instructions = (DotInstruction("", UNKNOWN, 0),)
        found.append(
            DotLowering(
                show(place),
                first.formats if first else ("", "", ""),
                first.tile if first else (),
                _describe_precision(first),
                laid.layouts if laid else ("", "", ""),
                instructions,
                *promoted.get(compiled, (0, None)),
            )
        )
    return tuple(found)


def _find_moved(asked: list[ir.IrDot], optimised: list[ir.IrDot]) -> dict[Place, Place]:
    """Where the compiler has a dot of the source, if that is at another place.

    The dots that bf16x3 and bf16x6 make of one stand where its operand a was made. They are its own
    where no other dot of that tile lost its place.
    """
    kept, known = {x.place for x in optimised}, {x.place for x in asked}
    lost = {x.place: x.tile for x in asked if x.place not in kept}
    found = {}
    for place, tile in lost.items():
        others = {x.place for x in optimised if x.place not in known and x.tile == tile}
        if len(others) == 1 and list(lost.values()).count(tile) == 1:
            found[place] = others.pop()
    return found


def _describe_precision(dot: ir.IrDot | None) -> str:
    """How fp32 operands are asked to be multiplied, "" for others."""
    if dot is None or dot.formats[0] != "f32":
        return ""
    return _PRECISIONS.get(dot.precision, dot.precision or "ieee")


def _group_ptx(
    program: PtxProgram,
) -> tuple[dict[Place, tuple[DotInstruction, ...]], dict[Place, tuple[int, int | None]]]:
    """The instructions of tensor cores by their places, and what is added of their sums."""
    dots: dict[Place, list[CoreInstruction]] = defaultdict(list)
    cores = list(list_core_instructions(program))
    for one in cores:
        dots[one.statement.place].append(one)
    counted = {}
    for place, instructions in dots.items():
        kinds: dict[tuple[Any, ...], list[CoreInstruction]] = defaultdict(list)
        for x in instructions:
            kinds[x.name, x.unit, x.shape, x.a, x.b, x.accumulator, x.operands].append(x)
        counted[place] = tuple(
            DotInstruction(
                name, unit, len(same), shape, a, b, accumulator, operands,
                sum(x.begins == "zero" for x in same), sum(x.begins == "open" for x in same),
            )
            for (name, unit, shape, a, b, accumulator, operands), same in kinds.items()
        )  # fmt: skip
    return counted, {place: find_promotion(program, x, cores) for place, x in dots.items()}


def _group_fused(statements: Iterable[PtxStatement]) -> dict[Place, tuple[DotInstruction, ...]]:
    """Fused multiply-adds by their places; one of a pair of values counts twice."""
    found: dict[Place, Counter[str]] = defaultdict(Counter)
    for one in statements:
        if one.words[0] in _FUSED and one.words[1:2] != ("wide",):
            found[one.place][one.opcode] += 2 if one.opcode.endswith("x2") else 1
    return {
        place: tuple(
            DotInstruction(name, FMA, count, accumulator=name.split(".")[-1].removesuffix("x2"))
            for name, count in names.items()
        )
        for place, names in found.items()
    }


def _find_lost(
    asked: list[ir.IrDot],
    fused: Mapping[Place, tuple[DotInstruction, ...]],
    cores: Mapping[Place, Any],
    threads: int,
) -> dict[Place, tuple[DotInstruction, ...]]:
    """The fused multiply-adds of a kernel's only dot, where the compiler put them at another line.

    They are its own if they are as many as a thread needs for the tile.
    """
    if len(asked) != 1 or asked[0].place in fused or cores:
        return {}
    needed = math.prod(asked[0].tile)
    floats = {fmt.ptx for fmt in FORMATS.values() if fmt.kind == "float"}
    for found in fused.values():
        same = tuple(x for x in found if x.accumulator in floats)
        if sum(x.count for x in same) * threads == needed:
            return {asked[0].place: same}
    return {}


def _group_amd(
    assembly: amdgcn.AmdAssembly,
) -> tuple[dict[Place, tuple[DotInstruction, ...]], dict[Place, tuple[DotInstruction, ...]]]:
    """Matrix instructions, and fused multiply-adds, by their places."""
    found: dict[bool, dict[Place, Counter[Any]]] = {True: {}, False: {}}
    begun: Counter[Any] = Counter()
    for x in assembly.products:
        key = (x.name, x.unit, x.shape, x.a, x.b, x.accumulator)
        found[x.unit == FMA].setdefault(x.place, Counter())[key] += 1
        begun[x.place, key] += x.from_zero
    return _count_amd(found[False], begun), _count_amd(found[True], begun)


def _count_amd(
    named: Mapping[Place, Counter[Any]], begun: Mapping[Any, int]
) -> dict[Place, tuple[DotInstruction, ...]]:
    made = {}
    for place, names in named.items():
        made[place] = tuple(
            DotInstruction(
                name, unit, count, shape, a, b, accumulator, ("registers", "registers"),
                begun[place, (name, unit, shape, a, b, accumulator)],
            )
            for (name, unit, shape, a, b, accumulator), count in names.items()
        )  # fmt: skip
    return made


def _read_nvidia(made: CompiledLaunch, program: PtxProgram) -> Resources:
    known = read_cubin(made.asm["cubin"], made.metadata.name)
    return Resources(
        registers=known.registers,
        stack=known.stack,
        declared=program.declared,
        shared=int(made.metadata.shared),
        shared_limit=GPUS[made.launch.gpu].shared_memory,
        threads=known.threads,
        static_shared=known.shared,
        tensor_memory=int(getattr(made.metadata, "tmem_size", None) or 0),
    )


def _read_amd(made: CompiledLaunch, assembly: amdgcn.AmdAssembly) -> Resources:
    counts = assembly.counts
    return Resources(
        registers=counts.get("vgpr_count"),
        stack=counts.get("private_segment_fixed_size"),
        declared=0,
        shared=int(made.metadata.shared),
        shared_limit=GPUS[made.launch.gpu].shared_memory,
        # the binary's own figure is cut to what a block may have
        threads=int(made.metadata.num_warps) * GPUS[made.launch.gpu].warp_size,
        static_shared=counts.get("group_segment_fixed_size", 0),
        accumulation_registers=counts.get("agpr_count"),
        scalar_registers=counts.get("sgpr_count"),
        spilled_registers=counts.get("vgpr_spill_count"),
    )


def _count_accesses(accesses: Iterable[tuple[Place, str, int]]) -> tuple[GlobalAccess, ...]:
    counted = Counter((show(place), kind, width) for place, kind, width in accesses)
    return tuple(GlobalAccess(*key, count) for key, count in counted.items())


def _list_unrecognised(dots: tuple[DotLowering, ...]) -> tuple[str, ...]:
    """What was not recognised, in a line each."""
    lines = []
    for dot in dots:
        for one in dot.instructions:
            if one.unit == UNKNOWN:
                what = one.name or "no instruction that multiplies, of this dot"
                lines.append(f"{dot.where or 'line unknown'}: {what}")
            elif one.unit != FMA and (one.shape is None or not one.a or not one.accumulator):
                lines.append(f"{dot.where or 'line unknown'}: shape or formats of {one.name}")
    return tuple(lines)


def show(place: Place) -> str:
    """A line as it is told, "" where the compiler keeps none."""
    return "" if place == UNKNOWN_PLACE or not place[0] else f"{display_path(place[0])}:{place[1]}"
