"""The text of `lowering`: tables of launches, and sweeps compared with their base."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gemmproof.compiled.record import (
    FMA,
    PLAN,
    UNKNOWN,
    CompiledDot,
    DotInstruction,
    Failure,
    GlobalAccess,
    LoweredLaunch,
    Resources,
    list_excess,
)
from gemmproof.compiled.run import WorkerResults
from gemmproof.lowering.record import SweepPlan, Variant, format_known
from gemmproof.properties.codec import (
    Describe,
    Json,
    decode,
    describe_fields,
    describe_object,
    encode,
)
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import format_count
from gemmproof.report.text import STYLES, Line, clean

# -- tables --------------------------------------------------------------------------------------
NEEDS = ("operands from", "registers", "spilled", "shared", "fits", "loads")
LOADS = ("load", "async copy", "tma load", "lds load")
_REFUSES = re.compile(r"^(?:Triton refuses to compile|compiling) dot_kernel(?: for \w+)?: ")


@dataclass(frozen=True, slots=True)
class LoweringReport:
    """The document of a run: the launches of the target `name`, and a line on each failure."""

    schema: Literal[1] = field(default=1, kw_only=True)
    name: str
    launches: tuple[LoweredLaunch, ...]
    failures: tuple[str, ...]


def tabulate(lowerings: Sequence[LoweredLaunch]) -> Iterator[Line]:
    """Yield the tables, one for each kernel and format; a launch that failed has its message."""
    heads = ("target", "configuration", "instructions", *NEEDS, "stores", "CPU s")
    kinds = dict.fromkeys((x.kernel, x.dtype) for x in lowerings)
    for kernel, dtype in kinds:
        same = [x for x in lowerings if (x.kernel, x.dtype) == (kernel, dtype)]
        yield _line(f"{kernel} {dtype}", "bold")
        rows = (
            (
                x.target,
                _configure(x),
                " + ".join(label_dot(dot) for dot in x.dots) or "no dot",
                *describe_needs(x),
                list_widths(x, ("store", "tma store")),
                f"{x.seconds:.1f}",
            )
            for x in same
            if not x.error
        )
        yield from _align([heads, *rows], "")
        for launch in same:
            head = f"{launch.target} {_configure(launch)}"
            yield from _describe_unrecognised(f"{head}: ", launch)
            if launch.error:
                prefix = f"{_short(launch.where)}: " if launch.where else ""
                yield _line(f"{head}: not compiled: {prefix}{launch.error}", "fail")
        yield ("", "")


def tabulate_dots(lowerings: Sequence[LoweredLaunch]) -> Iterator[Line]:
    """Yield the table, and below it the changes tried for dots that miss the tensor cores.

    A dot that is refused has the compiler's message in its row.
    """
    rows: list[tuple[str, ...]] = [("target", "a and b", "warps", "instructions", "sums", *NEEDS)]
    for x in lowerings:
        head = (x.target, x.dtype, str(x.warps))
        sums = dict.fromkeys(i.accumulator for dot in x.dots for i in dot.instructions)
        cells: tuple[str, ...] = (f"not compiled: {_REFUSES.sub('', x.error)}",)
        if not x.error:
            labels = " + ".join(label_dot(dot) for dot in x.dots)
            cells = (labels, ", ".join(filter(None, sums)) or "-", *describe_needs(x))
        rows.append((*head, *cells))
    yield from _align(rows, "bold")
    for x in lowerings:
        title = f"{x.target} {x.dtype} warps={x.warps}"
        yield from (_line(f"{title}: {line}") for line in x.remedies)
        yield from _describe_unrecognised(f"{title}: ", x)
    yield ("", "")


def _align(rows: Sequence[tuple[str, ...]], head_style: str) -> Iterator[Line]:
    """Yield the rows of a table; one that is shorter than the heads ends with a message."""
    heads = rows[0]
    whole = [row for row in rows if len(row) == len(heads)]
    widths = [max(len(row[i]) for row in (rows if i < 3 else whole)) for i in range(len(heads))]
    instructions, fits = heads.index("instructions"), heads.index("fits")
    for i, row in enumerate(rows):
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
        style = head_style if i == 0 else "" if row in whole else "fail"
        is_lacking = FMA in row[instructions] or UNKNOWN in row[instructions]
        if i and row in whole and (is_lacking or row[fits] == "no"):
            style = "incomplete"
        yield _line("  ".join(cells).rstrip(), style)


def _describe_unrecognised(prefix: str, launch: LoweredLaunch) -> Iterator[Line]:
    for line in launch.unrecognised:
        yield _line(f"{prefix}{UNKNOWN}: {line}", "incomplete")


def describe_needs(launch: LoweredLaunch) -> tuple[str, ...]:
    """Return the cells of operand sources, registers, spills, shared memory, fit, and loads."""
    needs = launch.resources
    assert needs is not None
    instructions = [x for dot in launch.dots for x in dot.instructions]
    sources = dict.fromkeys(source for x in instructions for source in x.operands if source)
    return (
        ", ".join(sources) or "-",
        str(needs.registers),
        f"{needs.spills} B" if needs.spills else "-",
        str(needs.shared),
        "no" if any(list_excess(needs, GPUS[launch.target])) else "yes",
        list_widths(launch, LOADS),
    )


def _configure(launch: LoweredLaunch) -> str:
    return f"{launch.constants} warps={launch.warps} stages={launch.stages}".lstrip()


def label_dot(dot: CompiledDot) -> str:
    """Label a dot by its instructions, and the k that they sum before adding to other sums."""
    promoted = f", added every {dot.promoted_k} of k" if dot.promoted_k else ""
    return " + ".join(map(_name, dot.instructions)) + promoted


def _name(instruction: DotInstruction) -> str:
    if instruction.is_core:
        return f"{instruction.count} {instruction.label} {instruction.a}"
    return f"{instruction.count} {instruction.unit}" if instruction.count else instruction.unit


def list_widths(launch: LoweredLaunch, kinds: tuple[str, ...]) -> str:
    """List the widths in bytes of accesses of these kinds, each once; TMA for tiles."""
    widths = {"TMA" if not x.bytes else f"{x.bytes} B" for x in launch.accesses if x.kind in kinds}
    return ", ".join(sorted(widths, key=lambda x: (len(x), x))) or "-"


# -- launches ------------------------------------------------------------------------------------
MOST_BLOCKS = 4  # launches with a block of lines each: more become rows of a table
SHOWN_ACCESSES = 8
WIDTH = 22  # of the first column
Tabulate = Callable[[Sequence[LoweredLaunch]], Iterator[Line]]
_COPIES = {"async copy": "cp.async", "lds load": "loads into shared memory"}


def lines(
    name: str,
    targets: Sequence[WorkerResults],
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
        out += _describe_failures(target)
    compiled = sum(not x.error for x in every)
    others = len(every) - compiled + sum(len(x.failures) + bool(x.mistake) for x in targets)
    summary = f"{format_count(compiled, 'launch')} compiled for {' '.join(x.gpu for x in targets)}"
    summary += f", {others} not" if others else ""
    style = "incomplete" if others else "pass"
    return [*out, _line(f"{name}: {summary} ({seconds:.1f} s)", style)]


def _describe_failures(target: WorkerResults) -> Iterator[Line]:
    yield from (_line(line, "fail") for line in target.failures)
    if target.mistake:
        yield _line(f"{target.gpu}: {target.mistake}", "fail")


def describe(lowering: LoweredLaunch) -> Iterator[Line]:
    """Yield the lines of one launch."""
    yield _head(lowering)
    if lowering.error:
        prefix = f"{_short(lowering.where)}: " if lowering.where else ""
        yield _line(f"  not compiled: {prefix}{lowering.error}", "fail")
        return
    for dot in lowering.dots:
        yield from _describe_dot(dot)
    yield from (_row("", line) for line in lowering.remedies)
    if not lowering.dots:
        yield _row("no dot", "")
    for line in lowering.multiply_adds:
        yield from (_row(_short(line.where), _format_instruction(x)) for x in line.instructions)
    shown = lowering.accesses[:SHOWN_ACCESSES]
    yield from (_row(_short(x.where), format_access(x)) for x in shown)
    if more := len(lowering.accesses) - len(shown):
        yield _row("", f"and {more} more accesses: --json has all")
    odd = [name for name, value in lowering.specialised.items() if not value]
    if odd:
        yield _row("arguments", f"neither 1 nor known to be divisible by 16: {' '.join(odd)}")
    yield from _describe_needs(lowering)
    yield from _describe_unrecognised("  ", lowering)


def _head(launch: LoweredLaunch) -> Line:
    of = f", one of {launch.configurations}" if launch.configurations > 1 else ""
    head = f"{launch.kernel} {launch.dtype} for {launch.target}: "
    return clean(f"{head}{launch.constants or 'no constants'}{of}"), "bold"


def _describe_dot(dot: CompiledDot) -> Iterator[Line]:
    tile = "x".join(map(str, dot.tile))
    asked = f" of {dot.asked[0]} x {dot.asked[1]}" if dot.asked[0] else ""
    for i, instruction in enumerate(dot.instructions):
        head = f"dot {tile}{asked}: " if i == 0 else "  and "
        style = "" if instruction.is_core else "incomplete"
        where = _short(dot.where) if i == 0 else ""
        yield _row(where, f"{head}{_format_instruction(instruction)}", style)
    cores = {(x.a, x.b) for x in dot.instructions if x.is_core}
    if cores == {("tf32", "tf32")} and dot.asked[0] == "f32":
        yield _row("", f"fp32 operands are reduced to tf32 (input_precision={dot.precision})")
        if dot.precision == "ieee":
            yield _row("", "which the source does not ask for", "fail")
    if dot.promoted and dot.promoted_k:
        added = format_count(dot.promoted, "addition")
        yield _row("", f"partial sums of {dot.promoted_k} k are added in fp32: {added} per thread")


def _format_instruction(instruction: DotInstruction) -> str:
    if instruction.unit == UNKNOWN:
        return f"{UNKNOWN}: {instruction.name}" if instruction.name else UNKNOWN
    if instruction.unit == FMA:
        if instruction.name.endswith("x2"):  # each multiplies and adds two pairs of values
            pairs = f"{instruction.count // 2} {instruction.name}"
            return f"{pairs}: {instruction.count} {FMA}, no tensor core"
        return f"{instruction.count} {instruction.name}: {FMA}, no tensor core"
    is_amd = instruction.name.startswith("v_")
    name = instruction.name if is_amd else instruction.label
    formats = f"{instruction.a or '?'} x {instruction.b or '?'} + {instruction.accumulator or '?'}"
    sources = " and ".join(dict.fromkeys(instruction.operands))
    sources = sources.replace("shared", "shared memory")
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
    yield _row("per thread", ", ".join(_list_registers(needs)))
    shared = f"{needs.shared} of {needs.shared_limit} bytes of shared memory"
    threads = f", {format_count(needs.threads, 'thread')}" if needs.threads else ""
    split = ", some of which run other code" if lowering.specialised_warps else ""
    tensor = f", {needs.tensor_memory} columns of tensor memory" if needs.tensor_memory else ""
    text = f"{format_count(lowering.warps, 'warp')}{split}{threads}, {shared}{tensor}"
    excess = [f"{need} of {has} {x}" for need, has, x in list_excess(needs, GPUS[lowering.target])]
    if excess:
        more = ", ".join(x for x in excess if x not in text)
        text = f"{text}: does not fit{more and f': {more}'}"
    yield _row("per block", text, "fail" if excess else "")
    buffers = f" in {lowering.buffers} buffers" if lowering.buffers else ""
    stages = format_count(lowering.stages, "stage")
    yield _row("pipeline", f"{stages}{buffers}; compiled from scratch ({lowering.seconds:.1f} s)")


def _list_registers(needs: Resources) -> Iterator[str]:
    yield "registers not reported" if needs.registers is None else f"{needs.registers} registers"
    if needs.accumulation_registers:
        yield f"{needs.accumulation_registers} of them for accumulation"
    if needs.spilled_registers:
        yield f"{needs.spilled_registers} registers spilled"
    elif needs.spills:
        yield f"{needs.spills} bytes spilled, {needs.spill_loads} loaded again"
    else:
        yield "spills not reported" if needs.spills is None else "no spills"
    if needs.stack:
        own = f", {needs.declared} of them local memory" if needs.declared else ""
        yield f"{needs.stack} bytes of stack{own}"


def _row(first: str, rest: str, style: str = "") -> Line:
    return _line(f"  {first:<{WIDTH}} {rest}", style)


def _line(text: str, style: str = "") -> Line:
    return clean(text), STYLES.get(style, style)


def _short(where: str) -> str:
    return where.rpartition("/")[2] or "line unknown"


# -- differences ---------------------------------------------------------------------------------
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

    changes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()


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
        changes = [
            *_iter_changes(_label_accesses(before), _label_accesses(after), "none"),
            *_iter_changes(_label_dots(before), _label_dots(after), "no dot"),
        ]
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
        yield f"{direction} no longer use {_COPY_KINDS[best]}"
    widest, widest_now = (min((width for _, width in x if width), default=0) for x in (had, added))
    if widest_now and had and (widest_now < widest or not widest):
        size = f"of {widest} bytes" if widest else "of tiles"
        unit = "byte" if widest_now == 1 else "bytes"
        yield f"{direction} {size} become {direction} of {widest_now} {unit}"


def _count_lines(launch: LoweredLaunch, direction: str) -> Counter[tuple[str, int]]:
    """Count the lines that have an access of each kind and width."""
    lines = {
        (x.where, x.kind, x.bytes) for x in launch.accesses if _DIRECTIONS.get(x.kind) == direction
    }
    return Counter((kind, width) for _, kind, width in lines)


def _change_kernel(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    """Compare all accesses and dots together, as another kernel has other lines."""
    yield f"{after.kernel} instead of {before.kernel}"
    for direction in ("loads", "stores"):
        old, new = (
            _format_accesses([x for x in launch.accesses if _DIRECTIONS.get(x.kind) == direction])
            for launch in (before, after)
        )
        yield f"{direction}: {old} -> {new}"
    was, now = (", ".join(_label_dots(launch).values()) or "no dot" for launch in (before, after))
    if was != now:
        yield f"dots: {was} -> {now}"


def _iter_changes(old: Mapping[str, str], new: Mapping[str, str], missing: str) -> Iterator[str]:
    """Yield each line that has something else than before, with both."""
    for where in dict.fromkeys((*old, *new)):
        was, now = (by_line.get(where, missing) for by_line in (old, new))
        if was != now:
            yield f"{_short(where)}  {was} -> {now}"


def _lose_dots(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    had, has = (any(dot.has_cores for dot in x.dots) for x in (before, after))
    if had and not has and after.dots:
        yield FMA


def _lose_resources(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    old, new = _count_spills(before), _count_spills(after)
    if new > old:
        yield f"{new} bytes spilled instead of {old}"
    if after.resources is not None:
        for need, has, unit in list_excess(after.resources, GPUS[after.target]):
            yield f"{need} of {has} {unit}: does not fit"


def _count_spills(launch: LoweredLaunch) -> int:
    needs = launch.resources
    return 0 if needs is None else needs.spills or 0


def _label_accesses(launch: LoweredLaunch) -> dict[str, str]:
    by_line: dict[str, list[GlobalAccess]] = {}
    for access in launch.accesses:
        by_line.setdefault(access.where, []).append(access)
    return {where: _format_accesses(accesses) for where, accesses in by_line.items()}


def _format_accesses(accesses: Iterable[GlobalAccess]) -> str:
    counts: Counter[tuple[str, int]] = Counter()
    for x in accesses:
        counts[x.kind, x.bytes] += x.count
    joined = (GlobalAccess("", kind, width, n) for (kind, width), n in sorted(counts.items()))
    return ", ".join(map(format_access, joined)) or "none"


def _label_dots(launch: LoweredLaunch) -> dict[str, str]:
    def label(dot: CompiledDot) -> str:
        sources = dict.fromkeys(x for i in dot.instructions for x in i.operands if x)
        return f"{label_dot(dot)} from {' and '.join(sources)}" if sources else label_dot(dot)

    return {dot.where: label(dot) for dot in launch.dots}


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


# -- sweeps --------------------------------------------------------------------------------------
SHOWN_CHANGES = 4  # lines on one change
_SHORT = {"": "neither", "16": "16", "1": "1"}


@dataclass(frozen=True, slots=True)
class SweptVariant:
    """A variant of a launch as it was compiled, and its difference from the base."""

    variant: Variant
    launch: LoweredLaunch
    difference: LaunchDifference
    same_binary: bool

    def __str__(self) -> str:
        """Format the change with its reason."""
        return f"{self.variant.change}{_format_reason(self.variant)}"

    def to_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        others = {"launch": encode(self.launch), "same_binary": self.same_binary}
        return {**encode(self.variant), **encode(self.difference), **others}

    @staticmethod
    def json_schema(describe: Describe) -> Json:
        """Return the JSON Schema of what `to_dict` gives."""
        parts = {
            **describe_fields(Variant, describe),
            **describe_fields(LaunchDifference, describe),
            "launch": describe(LoweredLaunch),
            "same_binary": describe(bool),
        }
        return describe_object(parts)


@dataclass(frozen=True, slots=True)
class SweptLaunch:
    """A base launch with its variants."""

    launch: LoweredLaunch
    variants: list[SweptVariant]


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The document of a sweep: the base launches of the target `name`, and their variants.

    `notes` has, by GPU, a line on each change that is not compared.
    """

    schema: Literal[1] = field(default=1, kw_only=True)
    name: str
    sweep: tuple[SweptLaunch, ...]
    notes: Mapping[str, tuple[str, ...]]
    failures: tuple[str, ...]


def _read_plan(target: WorkerResults) -> SweepPlan:
    return decode(SweepPlan, target.plan, PLAN) if target.plan else SweepPlan()


def collect_sweep(targets: Sequence[WorkerResults]) -> list[SweptLaunch]:
    """Collect each base launch, with its variants and their differences from it."""
    collected: list[SweptLaunch] = []
    for target in targets:
        bases: dict[tuple[str, int], SweptLaunch] = {}
        variants = _read_plan(target).variants
        for number, launch in target.results.items():
            if isinstance(launch, Failure):
                continue
            variant = variants[number]
            key = (launch.dtype, variant.base)
            if not variant.change:
                bases[key] = SweptLaunch(launch, [])
                collected.append(bases[key])
            elif key in bases:
                base = bases[key].launch
                failed = bool(base.error or launch.error)
                difference = LaunchDifference() if failed else compare(base, launch)
                same = not failed and base.binary == launch.binary
                bases[key].variants.append(SweptVariant(variant, launch, difference, same))
    return collected


def report_sweep(
    name: str, targets: Sequence[WorkerResults], failures: Sequence[str]
) -> SweepReport:
    """Return the document of a sweep."""
    notes = {target.gpu: _read_plan(target).notes for target in targets}
    return SweepReport(name, tuple(collect_sweep(targets)), notes, tuple(failures))


def sweep_lines(name: str, targets: Sequence[WorkerResults], seconds: float) -> list[Line]:
    """Return the lines that `lowering --sweep` prints."""
    out: list[Line] = []
    bases: list[SweptLaunch] = []
    for target in targets:
        own = collect_sweep([target])
        bases += own
        for base in own:
            out += [*_describe_sweep(base), ("", "")]
        out += [
            _line(f"{target.gpu}: {line}", "dim") for line in _join_notes(_read_plan(target).notes)
        ]
        out += _describe_failures(target)
    variants = [x for base in bases for x in base.variants]
    losing = sum(bool(x.difference.losses) for x in variants)
    same = sum(x.same_binary for x in variants)
    launches = [x.launch for x in variants] + [x.launch for x in bases]
    refused = sum(bool(x.error) for x in launches)
    refused += sum(len(x.failures) + bool(x.mistake) for x in targets)
    count = f"{format_count(len(variants), 'change')} compared for"
    summary = f"{count} {' '.join(x.gpu for x in targets)}: "
    summary += f"{losing} have a cost, {same} give the same binary"
    summary += f", {refused} not compiled" if refused else ""
    style = "incomplete" if refused else "pass"
    return [*out, _line(f"{name}: {summary} ({seconds:.1f} s)", style)]


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


def _describe_sweep(base: SweptLaunch) -> Iterator[Line]:
    launch, variants = base.launch, base.variants
    yield _head(launch)
    if launch.error or launch.resources is None:
        yield _line(f"  not compiled: {launch.error}", "fail")
        return
    spills = f", {launch.resources.spills} bytes spilled" if launch.resources.spills else ""
    yield _row("unchanged", f"{launch.resources.registers} registers{spills}")
    for value in ("16", "1", ""):
        names = [name for name, x in launch.specialised.items() if x == value]
        if names:
            yield _row(format_known(value), " ".join(names))
    groups: dict[tuple[str, ...], list[SweptVariant]] = {}
    for x in variants:
        if x.difference.losses:
            groups.setdefault(x.difference.changes or x.difference.losses, []).append(x)
    for changes, group in groups.items():
        yield from _describe_loss(changes, group)
    compiled = [x for x in variants if not x.launch.error]
    others = {
        "another binary": [x for x in compiled if not x.difference.losses and not x.same_binary],
        "the same binary": [x for x in compiled if x.same_binary],
    }
    for title, group in others.items():
        if group:
            yield _row(title, "; ".join(map(str, group)))
    for x in variants:
        if x.launch.error:
            yield _row(x.variant.change, f"not compiled: {x.launch.error}", "fail")


def _describe_loss(changes: Sequence[str], group: Sequence[SweptVariant]) -> Iterator[Line]:
    """Yield the losses, by line of the source, and each change that causes them."""
    for i, line in enumerate(changes[:SHOWN_CHANGES]):
        yield _row("" if i else "costs", line, "incomplete")
    if (more := len(changes) - SHOWN_CHANGES) > 0:
        yield _row("", f"and {more} more lines: --json has all")
    for x in group:
        needs = x.launch.resources
        registers = f"{needs.registers} registers" if needs is not None else ""
        spilled = [loss for loss in x.difference.losses if "spilled" in loss or "fit" in loss]
        costs = ", ".join([registers, *spilled])
        yield _row(f"  {x.variant.change}", f"{costs}{_format_reason(x.variant)}")


def _format_reason(variant: Variant) -> str:
    """Format the specialisations that differ, and the other changes with the same result."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, (before, after) in variant.arguments.items():
        groups.setdefault((_SHORT[before], _SHORT[after]), []).append(name)
    parts = [f"{' '.join(names)} {a} -> {b}" for (a, b), names in groups.items()]
    constants = variant.constants.items()
    parts += [f"{name} {a} -> {b}" for name, (a, b) in constants if name != "kernel"]
    if variant.altered:
        parts = ["no case changes only this"]
    if variant.also:
        parts.append(f"same as {', '.join(variant.also)}")
    return f" ({'; '.join(parts)})" if parts else ""
