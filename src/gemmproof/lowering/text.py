"""The text of `lowering`: tables of launches, and sweeps compared with their base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmproof.lowering.record import (
    FMA,
    SCHEMA,
    UNKNOWN,
    DotInstruction,
    DotLowering,
    GlobalAccess,
    LoweredLaunch,
    LoweredTarget,
    Resources,
    format_known,
    list_excess,
)
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import format_count
from gemmproof.report.text import STYLES, Line, clean, format_table

# -- launches ------------------------------------------------------------------------------------
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
        cells = ([*map(clean, row)] for row in rows)
        for row, line in zip(rows, format_table(cells, "l" * len(_HEADS)), strict=True):
            fails = row[7] == "no" or FMA in row[2] or UNKNOWN in row[2]
            yield (line, STYLES["incomplete"] if fails else "")
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


# -- sweeps --------------------------------------------------------------------------------------
# -- compare -------------------------------------------------------------------------------------
_DIRECTIONS = {"load": "loads", "lds load": "loads", "async copy": "loads", "tma load": "loads",
         "store": "stores", "tma store": "stores"}  # fmt: skip
# how far a copy frees the threads for other work
_FREE = {"lds load": 1, "async copy": 1, "tma load": 2, "tma store": 2}
_COPY_KINDS = {1: "asynchronous copies", 2: "the copy engine"}


@dataclass(frozen=True, slots=True)
class LaunchDifference:
    """The differences of two launches: `changes` by line of the source, and resource `needs`.

    `needs` are those of a thread and a block, `losses` the differences for the worse.
    """

    changes: tuple[str, ...]
    needs: tuple[str, ...]
    losses: tuple[str, ...]


def compare(before: LoweredLaunch, after: LoweredLaunch) -> LaunchDifference:
    """Compare the facts of two compiled launches.

    Losses are narrower loads or stores, copies that the threads make themselves in place of
    cp.async or the copy engine, dots without a tensor core, and spilled bytes. The time they take
    is not reported: a binary does not contain it.
    """
    losses = [
        x for direction in ("loads", "stores") for x in _lose_accesses(before, after, direction)
    ]
    losses += [*_lose_dots(before, after), *_lose_resources(before, after)]
    if before.kernel == after.kernel:
        changes = [*_change_accesses(before, after), *_change_dots(before, after)]
    else:
        changes = [*_change_kernel(before, after)]
    return LaunchDifference(tuple(changes), tuple(_change_needs(before, after)), tuple(losses))


def _lose_accesses(before: LoweredLaunch, after: LoweredLaunch, direction: str) -> Iterator[str]:
    """Yield the losses over all loads, or stores: removed kinds and widths against added ones.

    Not by line: the compiler gives a load that it moves ahead of a loop the line of another.
    """
    old, new = (_count_lines(launch, direction) for launch in (before, after))
    removed, added = old - new, new - old
    if not added:
        return
    had = removed or old
    best, best_now = (max((_FREE.get(kind, 0) for kind, _ in x), default=0) for x in (had, added))
    if removed and best_now < best:
        yield f"{direction} without {_COPY_KINDS[best]}"
    widest, widest_now = (min((width for _, width in x if width), default=0) for x in (had, added))
    if widest_now and had and (widest_now < widest or not widest):
        size = f"of {widest} bytes" if widest else "of tiles"
        yield f"{direction} {size} are of {widest_now} {'byte' if widest_now == 1 else 'bytes'}"


def _count_lines(launch: LoweredLaunch, direction: str) -> Counter[tuple[str, int]]:
    """Count the lines that have an access of each kind and width."""
    lines = {
        (x.where, x.kind, x.bytes) for x in launch.accesses if _DIRECTIONS.get(x.kind) == direction
    }
    return Counter((kind, width) for _, kind, width in lines)


def _change_kernel(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    """Compare all accesses and dots together, as another kernel has other lines."""
    yield f"{after.kernel} in place of {before.kernel}"
    for direction in ("loads", "stores"):
        old, new = (
            _format_accesses([x for x in launch.accesses if _DIRECTIONS.get(x.kind) == direction])
            for launch in (before, after)
        )
        yield f"{direction}: {old} -> {new}"
    was, now = (", ".join(_label_dots(launch).values()) or "no dot" for launch in (before, after))
    if was != now:
        yield f"dots: {was} -> {now}"


def _lose_dots(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    had, has = (any(dot.has_cores for dot in x.dots) for x in (before, after))
    if had and not has and after.dots:
        yield FMA


def _lose_resources(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    old, new = _count_spills(before), _count_spills(after)
    if new > old:
        yield f"{new} bytes spilled in place of {old}"
    if after.resources is not None:
        for need, has, unit in list_excess(after.resources, GPUS[after.target]):
            yield f"{need} of {has} {unit}: does not fit"


def _count_spills(launch: LoweredLaunch) -> int:
    needs = launch.resources
    return 0 if needs is None else needs.spills or 4 * (needs.spilled_registers or 0)


def _change_accesses(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    """Yield each line whose accesses differ, with those before and after."""
    lines = dict.fromkeys(x.where for launch in (before, after) for x in launch.accesses)
    for where in lines:
        old, new = (
            _format_accesses([x for x in launch.accesses if x.where == where])
            for launch in (before, after)
        )
        if old != new:
            yield f"{_shorten(where)}  {old} -> {new}"


def _format_accesses(accesses: Iterable[GlobalAccess]) -> str:
    counts: Counter[tuple[str, int]] = Counter()
    for x in accesses:
        counts[x.kind, x.bytes] += x.count
    joined = (GlobalAccess("", kind, width, n) for (kind, width), n in sorted(counts.items()))
    return ", ".join(map(format_access, joined)) or "none"


def _shorten(where: str) -> str:
    return where.rpartition("/")[2] or "line unknown"


def _change_dots(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    old, new = (_label_dots(launch) for launch in (before, after))
    for where in dict.fromkeys((*old, *new)):
        was, now = (labels.get(where, "no dot") for labels in (old, new))
        if was != now:
            yield f"{where}  {was} -> {now}"


def _label_dots(launch: LoweredLaunch) -> dict[str, str]:
    def label(dot: DotLowering) -> str:
        sources = dict.fromkeys(x for i in dot.instructions for x in i.operands if x)
        return f"{label_dot(dot)} from {' and '.join(sources)}" if sources else label_dot(dot)

    return {_shorten(dot.where): label(dot) for dot in launch.dots}


def _change_needs(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    if before.resources is None or after.resources is None:
        return
    pairs = {
        "registers": (before.resources.registers, after.resources.registers),
        "bytes spilled": (_count_spills(before), _count_spills(after)),
        "bytes of shared memory": (before.resources.shared, after.resources.shared),
        "buffers": (before.buffers, after.buffers),
    }
    yield from (f"{was} -> {now} {name}" for name, (was, now) in pairs.items() if was != now)


# -- text ----------------------------------------------------------------------------------------
SHOWN_CHANGES = 4  # lines on one change
SWEEP_WIDTH = 22  # of the first column
_SHORT = {"": "neither", "16": "16", "1": "1"}


def collect_sweep(targets: Sequence[LoweredTarget]) -> list[dict[str, Any]]:
    """Collect each base launch, with its variants and their differences from it."""
    collected: list[dict[str, Any]] = []
    for target in targets:
        bases: dict[tuple[str, int], dict[str, Any]] = {}
        for lowering, variant in zip(target.lowerings, target.variants, strict=True):
            key = (lowering.dtype, variant["base"])
            if not variant["change"]:
                bases[key] = {"launch": lowering, "variants": []}
                collected.append(bases[key])
            elif key in bases:
                bases[key]["variants"].append(_compare(bases[key]["launch"], lowering, variant))
    return collected


def _compare(base: LoweredLaunch, other: LoweredLaunch, variant: dict[str, Any]) -> dict[str, Any]:
    result = {**variant, "launch": other, "same_binary": False}
    result |= {"changes": [], "needs": [], "losses": []}
    if base.error or other.error:
        return result
    difference = compare(base, other)
    result |= {name: list(getattr(difference, name)) for name in ("changes", "needs", "losses")}
    return {**result, "same_binary": base.binary == other.binary}


def sweep_document(
    name: str, targets: Sequence[LoweredTarget], failures: list[str]
) -> dict[str, Any]:
    """Return the document that `--json` writes for a sweep."""
    sweep = [
        {
            "launch": base["launch"].to_dict(),
            "variants": [{**x, "launch": x["launch"].to_dict()} for x in base["variants"]],
        }
        for base in collect_sweep(targets)
    ]
    notes = {target.gpu: target.notes for target in targets}
    return {"schema": SCHEMA, "name": name, "sweep": sweep, "notes": notes, "failures": failures}


def sweep_lines(name: str, targets: Sequence[LoweredTarget], seconds: float) -> list[Line]:
    """Return the lines that `lowering --sweep` prints."""
    out: list[Line] = []
    compared = losing = same = refused = 0
    for target in targets:
        for base in collect_sweep([target]):
            out += [*_describe_change(base["launch"], base["variants"]), ("", "")]
            compared += len(base["variants"])
            losing += sum(bool(x["losses"]) for x in base["variants"])
            same += sum(x["same_binary"] for x in base["variants"])
            refused += sum(bool(x["launch"].error) for x in (*base["variants"], base))
        out += [(clean(f"{target.gpu}: {line}"), "dim") for line in _join_notes(target.notes)]
        out += [(clean(line), STYLES["fail"]) for line in target.failures]
        if target.mistake:
            out.append((clean(f"{target.gpu}: {target.mistake}"), STYLES["fail"]))
        refused += len(target.failures) + bool(target.mistake)
    summary = (
        f"{format_count(compared, 'change')} compared for {' '.join(x.gpu for x in targets)}: "
    )
    summary += f"{losing} cost something, {same} give the same binary"
    summary += f", {refused} not compiled" if refused else ""
    style = STYLES["incomplete" if refused else "pass"]
    return [*out, (clean(f"{name}: {summary} ({seconds:.1f} s)"), style)]


def _join_notes(notes: Sequence[str]) -> Iterator[str]:
    """Yield each note once, joining the changes that have the same text."""
    changes: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        change, colon, text = note.partition(": ")
        if not colon:
            change, text = "", note
        changes.setdefault(text, []).append(change)
    for text, named in changes.items():
        prefix = "; ".join(x for x in named if x)
        yield f"{prefix}: {text}" if prefix else text


def _describe_change(base: LoweredLaunch, variants: Sequence[dict[str, Any]]) -> Iterator[Line]:
    constants = " ".join(f"{name}={x}" for name, x in base.configuration.items())
    among = f", one of {base.configurations}" if base.configurations > 1 else ""
    yield (clean(f"{base.kernel} {base.dtype} for {base.target}: {constants}{among}"), "bold")
    if base.error or base.resources is None:
        yield (clean(f"  not compiled: {base.error}"), STYLES["fail"])
        return
    needs = f"{base.resources.registers} registers"
    spills = f", {base.resources.spills} bytes spilled" if base.resources.spills else ""
    yield _sweep_row("as it is", f"{needs}{spills}")
    for value in ("16", "1", ""):
        names = [name for name, x in base.specialised.items() if x == value]
        if names:
            yield _sweep_row(format_known(value), " ".join(names))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for variant in variants:
        if variant["losses"]:
            groups.setdefault(tuple(variant["changes"] or variant["losses"]), []).append(variant)
    for changes, group in groups.items():
        yield from _describe_loss(changes, group)
    others = {
        "another binary": [x for x in variants if not x["losses"] and not x["same_binary"]],
        "the same binary": [x for x in variants if x["same_binary"]],
    }
    for title, group in others.items():
        group = [x for x in group if not x["launch"].error]
        if group:
            yield _sweep_row(title, "; ".join(_say(x) for x in group))
    for variant in variants:
        if variant["launch"].error:
            text, _ = _sweep_row(variant["change"], f"not compiled: {variant['launch'].error}")
            yield text, STYLES["fail"]


def _describe_loss(changes: Sequence[str], group: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """Yield the losses, by line of the source, and each change that causes them."""
    for i, line in enumerate(changes[:SHOWN_CHANGES]):
        text, _ = _sweep_row("" if i else "costs", line)
        yield text, STYLES["incomplete"]
    if (more := len(changes) - SHOWN_CHANGES) > 0:
        yield _sweep_row("", f"and {more} more lines: --json has all")
    for variant in group:
        needs = variant["launch"].resources
        registers = f"{needs.registers} registers" if needs is not None else ""
        spilled = [x for x in variant["losses"] if "spilled" in x or "fit" in x]
        yield _sweep_row(
            f"  {variant['change']}", ", ".join([registers, *spilled]) + _format_reason(variant)
        )


def _say(variant: dict[str, Any]) -> str:
    return f"{variant['change']}{_format_reason(variant)}"


def _format_reason(variant: dict[str, Any]) -> str:
    """Format the specialisations that differ, and the other changes with the same result."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, (before, after) in variant["arguments"].items():
        groups.setdefault((_SHORT[before], _SHORT[after]), []).append(name)
    parts = [f"{' '.join(names)} {a} -> {b}" for (a, b), names in groups.items()]
    constants = variant["constants"].items()
    parts += [f"{name} {a} -> {b}" for name, (a, b) in constants if name != "kernel"]
    if variant["altered"]:
        parts = ["no case changes it alone"]
    if variant["also"]:
        parts.append(f"as {', '.join(variant['also'])}")
    return f" ({'; '.join(parts)})" if parts else ""


def _sweep_row(first: str, rest: str) -> Line:
    return clean(f"  {first:<{SWEEP_WIDTH}} {rest}"), ""
