"""The text of `lowering`: tables of launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gemmproof.lowering.record import (
    FMA,
    UNKNOWN,
    DotInstruction,
    DotLowering,
    GlobalAccess,
    LoweredLaunch,
    LoweredTarget,
    Resources,
    list_excess,
)
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import format_count
from gemmproof.report.text import STYLES, Line, clean

# -- lowering table ------------------------------------------------------------------------------
_HEADS = (
    *("target", "configuration", "instructions", "operands from", "registers", "spilled"),
    *("shared", "fits", "loads", "stores", "CPU s"),
)
LOADS = ("load", "async copy", "tma load", "lds load")


def tabulate(lowerings: Sequence[LoweredLaunch]) -> Iterator[Line]:
    """Yield the tables, one for each kernel and format; a launch that failed has its message."""
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
        for launch in same:
            head = f"{launch.target} {_configure(launch)}"
            for line in launch.unrecognised:
                yield (clean(f"{head}: {UNKNOWN}: {line}"), STYLES["incomplete"])
            if launch.error:
                prefix = f"{launch.where.rpartition('/')[2]}: " if launch.where else ""
                yield (clean(f"{head}: not compiled: {prefix}{launch.error}"), STYLES["fail"])
        yield ("", "")


def describe_needs(launch: LoweredLaunch) -> tuple[str, ...]:
    """Return the cells of operand sources, registers, spills, shared memory, fit, and loads."""
    needs = launch.resources
    assert needs is not None
    instructions = [x for dot in launch.dots for x in dot.instructions]
    sources = dict.fromkeys(source for x in instructions for source in x.operands if source)
    spilled = needs.spills if needs.spills is not None else needs.spilled_registers
    return (
        ", ".join(sources) or "-",
        str(needs.registers),
        f"{spilled} B" if spilled else "-",
        str(needs.shared),
        "no" if any(list_excess(needs, GPUS[launch.target])) else "yes",
        list_widths(launch, LOADS),
    )


def _describe(launch: LoweredLaunch) -> tuple[str, ...]:
    return (
        launch.target,
        _configure(launch),
        " + ".join(label_dot(dot) for dot in launch.dots) or "no dot",
        *describe_needs(launch),
        list_widths(launch, ("store", "tma store")),
        f"{launch.seconds:.1f}",
    )


def _configure(launch: LoweredLaunch) -> str:
    parts = [f"{name}={x}" for name, x in launch.configuration.items()]
    return " ".join([*parts, f"warps={launch.warps}", f"stages={launch.stages}"])


def label_dot(dot: DotLowering) -> str:
    """Label a dot by its instructions, and the k that they sum before adding to other sums."""
    promoted = f", added every {dot.promoted_k} of k" if dot.promoted_k else ""
    return " + ".join(map(_name, dot.instructions)) + promoted


def _name(instruction: DotInstruction) -> str:
    if instruction.unit in (FMA, UNKNOWN):
        return f"{instruction.count} {instruction.unit}" if instruction.count else instruction.unit
    m, n, k = instruction.shape or ("?", "?", "?")
    return f"{instruction.count} {instruction.unit} m{m}n{n}k{k} {instruction.a}"


def list_widths(launch: LoweredLaunch, kinds: tuple[str, ...]) -> str:
    """List the widths in bytes of accesses of these kinds, each once; TMA for tiles."""
    widths = {"TMA" if not x.bytes else f"{x.bytes} B" for x in launch.accesses if x.kind in kinds}
    return ", ".join(sorted(widths, key=lambda x: (len(x), x))) or "-"


# -- lowering text -------------------------------------------------------------------------------
MOST_BLOCKS = 4  # launches with a block of lines each: more become rows of a table
SHOWN_ACCESSES = 8
WIDTH = 22  # of the first column
Tabulate = Callable[[Sequence[LoweredLaunch]], Iterator[Line]]
_COPIES = {"async copy": "cp.async", "lds load": "loads into shared memory"}


def lines(
    name: str,
    targets: Sequence[LoweredTarget],
    seconds: float,
    tabulate: Tabulate = tabulate,
    most: int = MOST_BLOCKS,
) -> list[Line]:
    """Return the lines that `lowering` prints: a block for each launch, failures, and a summary.

    Beyond `most` launches each is a row of a table.
    """
    every = [x for target in targets for x in target.lowerings]
    blocks = ([*describe(x), ("", "")] for x in every)
    out = [line for block in blocks for line in block]
    if len(every) > most:
        out = list(tabulate(every))
    for target in targets:
        out += [(clean(line), STYLES["fail"]) for line in target.failures]
        if target.mistake:
            out.append((clean(f"{target.gpu}: {target.mistake}"), STYLES["fail"]))
    compiled = sum(not x.error for x in every)
    others = len(every) - compiled + sum(len(x.failures) + bool(x.mistake) for x in targets)
    summary = f"{format_count(compiled, 'launch')} compiled for {' '.join(x.gpu for x in targets)}"
    summary += f", {others} not" if others else ""
    style = STYLES["incomplete" if others else "pass"]
    return [*out, (clean(f"{name}: {summary} ({seconds:.1f} s)"), style)]


def describe(lowering: LoweredLaunch) -> Iterator[Line]:
    """Yield the lines of one launch."""
    text = " ".join(f"{name}={x}" for name, x in lowering.configuration.items())
    of = f", one of {lowering.configurations}" if lowering.configurations > 1 else ""
    head = f"{lowering.kernel} {lowering.dtype} for {lowering.target}: {text or 'no constants'}{of}"
    yield (clean(head), "bold")
    if lowering.error:
        prefix = f"{_short(lowering.where)}: " if lowering.where else ""
        yield (clean(f"  not compiled: {prefix}{lowering.error}"), STYLES["fail"])
        return
    for dot in lowering.dots:
        yield from _describe_dot(dot)
    yield from (_row("", line) for line in lowering.remedies)
    if not lowering.dots:
        yield _row("no dot", "")
    shown = lowering.accesses[:SHOWN_ACCESSES]
    yield from (_row(_short(x.where), format_access(x)) for x in shown)
    if more := len(lowering.accesses) - len(shown):
        yield _row("", f"and {more} more accesses: --json has all")
    odd = [name for name, value in lowering.specialised.items() if not value]
    if odd:
        yield _row("arguments", f"neither 1 nor known to be divisible by 16: {' '.join(odd)}")
    yield from _describe_needs(lowering)
    yield from (
        (clean(f"  {UNKNOWN}: {line}"), STYLES["incomplete"]) for line in lowering.unrecognised
    )


def _describe_dot(dot: DotLowering) -> Iterator[Line]:
    tile = "x".join(map(str, dot.tile))
    asked = f" of {dot.asked[0]} x {dot.asked[1]}" if dot.asked[0] else ""
    for i, instruction in enumerate(dot.instructions):
        head = f"dot {tile}{asked}: " if i == 0 else "  and "
        style = "" if instruction.unit not in (FMA, UNKNOWN) else STYLES["incomplete"]
        text, _ = _row(
            _short(dot.where) if i == 0 else "", f"{head}{_format_instruction(instruction)}"
        )
        yield text, style
    cores = {(x.a, x.b) for x in dot.instructions if x.unit not in (FMA, UNKNOWN)}
    if cores == {("tf32", "tf32")} and dot.asked[0] == "f32":
        yield _row("", f"fp32 operands are cut to tf32 (input_precision={dot.precision})")
        if dot.precision == "ieee":
            yield (_row("", "which the source does not ask for")[0], STYLES["fail"])
    if dot.promoted and dot.promoted_k:
        added = format_count(dot.promoted, "addition")
        yield _row("", f"sums of {dot.promoted_k} of k are added in fp32: {added} a thread")


def _format_instruction(instruction: DotInstruction) -> str:
    if instruction.unit == UNKNOWN:
        return f"{UNKNOWN}: {instruction.name}" if instruction.name else UNKNOWN
    if instruction.unit == FMA:
        return f"{instruction.count} {instruction.name}: {FMA}, no tensor core"
    m, n, k = instruction.shape or ("?", "?", "?")
    name = (
        instruction.name
        if instruction.name.startswith("v_")
        else f"{instruction.unit} m{m}n{n}k{k}"
    )
    formats = f"{instruction.a or '?'} x {instruction.b or '?'} + {instruction.accumulator or '?'}"
    a, b = instruction.operands
    source = a if a == b else f"{a} and {b}"
    sources = source.replace("shared", "shared memory")
    return f"{instruction.count} {name}, {formats}, from {sources}"


def format_access(access: GlobalAccess) -> str:
    """Format the number of accesses, their kind and their width."""
    kind = _COPIES.get(access.kind, access.kind.replace("tma", "TMA"))
    count = f"{access.count} {kind}" if access.kind == "async copy" else _plural(access, kind)
    size = "1 byte" if access.bytes == 1 else f"{access.bytes} bytes"
    return f"{count} of {size}" if access.bytes else count


def _plural(access: GlobalAccess, kind: str) -> str:
    return f"{access.count} {kind}" if kind.endswith("memory") else format_count(access.count, kind)


def _describe_needs(lowering: LoweredLaunch) -> Iterator[Line]:
    needs = lowering.resources
    assert needs is not None
    yield _row("a thread", ", ".join(_list_registers(needs)))
    shared = f"{needs.shared} of {needs.shared_limit} bytes of shared memory"
    threads = f", {format_count(needs.threads, 'thread')}" if needs.threads else ""
    split = ", some of other code" if lowering.specialised_warps else ""
    tensor = f", {needs.tensor_memory} columns of tensor memory" if needs.tensor_memory else ""
    text, style = _row(
        "a block", f"{format_count(lowering.warps, 'warp')}{split}{threads}, {shared}{tensor}"
    )
    excess = [f"{need} of {has} {x}" for need, has, x in list_excess(needs, GPUS[lowering.target])]
    if excess:
        more = ", ".join(x for x in excess if x not in text)
        text, style = f"{text}: does not fit{more and f': {more}'}", STYLES["fail"]
    yield text, style
    buffers = f" in {lowering.buffers} buffers" if lowering.buffers else ""
    stages = format_count(lowering.stages, "stage")
    yield _row("pipeline", f"{stages}{buffers}; compiled afresh ({lowering.seconds:.1f} s)")


def _list_registers(needs: Resources) -> Iterator[str]:
    yield "registers not told" if needs.registers is None else f"{needs.registers} registers"
    if needs.accumulation_registers:
        yield f"{needs.accumulation_registers} of them for accumulation"
    if needs.spilled_registers:
        yield f"{needs.spilled_registers} registers spilled"
    if needs.spills:
        yield f"{needs.spills} bytes spilled"
    elif needs.spills == 0 and not needs.spilled_registers:
        yield "no spills"
    if needs.declared:
        yield f"{needs.declared} bytes of its own in memory"


def _row(first: str, rest: str) -> Line:
    return clean(f"  {first:<{WIDTH}} {rest}"), ""


def _short(where: str) -> str:
    return where.rpartition("/")[2] or "line unknown"
