"""Many compiled launches at a glance: a table for each kernel and format, a row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gemmproof.lowering.record import FMA, UNKNOWN, DotInstruction, DotLowering, LoweredLaunch
from gemmproof.lowering.room import list_excess
from gemmproof.reference.gpus import GPUS
from gemmproof.report.text import STYLES, Line, clean

_HEADS = (
    *("target", "configuration", "instructions", "operands from", "registers", "spilled"),
    *("shared", "fits", "loads", "stores", "CPU s"),
)
LOADS = ("load", "async copy", "tma load", "lds load")


def tabulate(lowerings: Sequence[LoweredLaunch]) -> Iterator[Line]:
    """The tables, those of each kernel and format together; what is refused has its message."""
    kinds = dict.fromkeys((x.kernel, x.dtype) for x in lowerings)
    for kernel, dtype in kinds:
        same = [x for x in lowerings if (x.kernel, x.dtype) == (kernel, dtype)]
        yield (clean(f"{kernel} {dtype}"), "bold")
        rows = [_HEADS, *(_describe(x) for x in same if not x.error)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADS))]
        for i, row in enumerate(rows):
            cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
            fails = i > 0 and (row[7] == "no" or FMA in row[2] or UNKNOWN in row[2])
            yield (clean("  ".join(cells).rstrip()), STYLES["incomplete"] if fails else "")
        for one in same:
            head = f"{one.target} {_configure(one)}"
            for line in one.unrecognised:
                yield (clean(f"{head}: {UNKNOWN}: {line}"), STYLES["incomplete"])
            if one.error:
                place = f"{one.where.rpartition('/')[2]}: " if one.where else ""
                yield (clean(f"{head}: not compiled: {place}{one.error}"), STYLES["fail"])
        yield ("", "")


def describe_needs(one: LoweredLaunch) -> tuple[str, ...]:
    """Where operands come from, registers, spills, shared memory, whether it fits, and loads."""
    needs = one.resources
    assert needs is not None
    instructions = [x for dot in one.dots for x in dot.instructions]
    sources = dict.fromkeys(source for x in instructions for source in x.operands if source)
    spilled = needs.spills if needs.spills is not None else needs.spilled_registers
    return (
        ", ".join(sources) or "-",
        str(needs.registers),
        f"{spilled} B" if spilled else "-",
        str(needs.shared),
        "no" if any(list_excess(needs, GPUS[one.target])) else "yes",
        list_widths(one, LOADS),
    )


def _describe(one: LoweredLaunch) -> tuple[str, ...]:
    return (
        one.target,
        _configure(one),
        " + ".join(name_dot(dot) for dot in one.dots) or "no dot",
        *describe_needs(one),
        list_widths(one, ("store", "tma store")),
        f"{one.seconds:.1f}",
    )


def _configure(one: LoweredLaunch) -> str:
    told = [f"{name}={x}" for name, x in one.configuration.items()]
    return " ".join([*told, f"warps={one.warps}", f"stages={one.stages}"])


def name_dot(dot: DotLowering) -> str:
    """Its instructions, and how far they sum before that is added to other sums."""
    promoted = f", added every {dot.promoted_k} of k" if dot.promoted_k else ""
    return " + ".join(map(_name, dot.instructions)) + promoted


def _name(one: DotInstruction) -> str:
    if one.unit in (FMA, UNKNOWN):
        return f"{one.count} {one.unit}" if one.count else one.unit
    m, n, k = one.shape or ("?", "?", "?")
    return f"{one.count} {one.unit} m{m}n{n}k{k} {one.a}"


def list_widths(one: LoweredLaunch, kinds: tuple[str, ...]) -> str:
    """The widths in bytes of accesses of these kinds, each once; of tiles the engine's name."""
    found = {"TMA" if not x.bytes else f"{x.bytes} B" for x in one.accesses if x.kind in kinds}
    return ", ".join(sorted(found, key=lambda x: (len(x), x))) or "-"
