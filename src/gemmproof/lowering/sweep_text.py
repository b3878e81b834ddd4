"""Two binaries of one kernel: what the second one has that the first had not, and what it lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gemmproof.lowering.record import (
    FMA,
    SCHEMA,
    DotLowering,
    GlobalAccess,
    LoweredLaunch,
    format_known,
    list_excess,
)
from gemmproof.lowering.run import LoweredTarget
from gemmproof.lowering.text import format_access, label_dot
from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import format_count
from gemmproof.report.text import STYLES, Line, clean

# -- compare -------------------------------------------------------------------------------------
_WAYS = {"load": "loads", "lds load": "loads", "async copy": "loads", "tma load": "loads",
         "store": "stores", "tma store": "stores"}  # fmt: skip
# how far a copy leaves the threads free for other work
_FREE = {"lds load": 1, "async copy": 1, "tma load": 2, "tma store": 2}
_COPIES = {1: "asynchronous copies", 2: "the copy engine"}


@dataclass(frozen=True, slots=True)
class LaunchDifference:
    """What is otherwise: `changes` by line of the source, `needs` of a thread and a block.

    `losses` says which of it is a loss.
    """

    changes: tuple[str, ...]
    needs: tuple[str, ...]
    losses: tuple[str, ...]


def compare(before: LoweredLaunch, after: LoweredLaunch) -> LaunchDifference:
    """The facts of two compiled launches side by side.

    Losses are narrower loads or stores, copies that the threads make themselves in place of
    cp.async or the copy engine, dots without a tensor core, and spilled bytes. How much time they
    take is not said: a binary does not tell.
    """
    losses = [x for way in ("loads", "stores") for x in _lose_accesses(before, after, way)]
    losses += [*_lose_dots(before, after), *_lose_room(before, after)]
    if before.kernel == after.kernel:
        changes = [*_change_accesses(before, after), *_change_dots(before, after)]
    else:
        changes = [*_change_kernel(before, after)]
    return LaunchDifference(tuple(changes), tuple(_change_needs(before, after)), tuple(losses))


def _lose_accesses(before: LoweredLaunch, after: LoweredLaunch, way: str) -> Iterator[str]:
    """What is lost of all loads, or stores: of kinds and widths that are gone, by those in place.

    Not by line: the compiler puts a load that it moves ahead of a loop at another one's line.
    """
    ours, theirs = (_count_ways(one, way) for one in (before, after))
    gone, new = ours - theirs, theirs - ours
    if not new:
        return
    had = gone or ours
    free, still = (max((_FREE.get(kind, 0) for kind, _ in x), default=0) for x in (had, new))
    if gone and still < free:
        yield f"{way} without {_COPIES[free]}"
    wide, narrow = (min((width for _, width in x if width), default=0) for x in (had, new))
    if narrow and had and (narrow < wide or not wide):
        size = f"of {wide} bytes" if wide else "of tiles"
        yield f"{way} {size} are of {narrow} {'byte' if narrow == 1 else 'bytes'}"


def _count_ways(one: LoweredLaunch, way: str) -> Counter[tuple[str, int]]:
    """At how many lines there are some of a kind and width."""
    lines = {(x.where, x.kind, x.bytes) for x in one.accesses if _WAYS.get(x.kind) == way}
    return Counter((kind, width) for _, kind, width in lines)


def _change_kernel(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    """Of another kernel, whose lines are others, all accesses and dots together."""
    yield f"{after.kernel} in place of {before.kernel}"
    for way in ("loads", "stores"):
        ours, theirs = (
            _format_accesses([x for x in one.accesses if _WAYS.get(x.kind) == way])
            for one in (before, after)
        )
        yield f"{way}: {ours} -> {theirs}"
    was, now = (", ".join(_label_dots(one).values()) or "no dot" for one in (before, after))
    if was != now:
        yield f"dots: {was} -> {now}"


def _lose_dots(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    had, has = (any(dot.has_cores for dot in x.dots) for x in (before, after))
    if had and not has and after.dots:
        yield FMA


def _lose_room(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    ours, theirs = _count_spills(before), _count_spills(after)
    if theirs > ours:
        yield f"{theirs} bytes spilled in place of {ours}"
    if after.resources is not None:
        for need, has, what in list_excess(after.resources, GPUS[after.target]):
            yield f"{need} of {has} {what}: does not fit"


def _count_spills(one: LoweredLaunch) -> int:
    needs = one.resources
    return 0 if needs is None else needs.spills or 4 * (needs.spilled_registers or 0)


def _change_accesses(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    """By line: what stands there before and now, where that differs."""
    lines = dict.fromkeys(x.where for one in (before, after) for x in one.accesses)
    for where in lines:
        ours, theirs = (
            _format_accesses([x for x in one.accesses if x.where == where])
            for one in (before, after)
        )
        if ours != theirs:
            yield f"{_shorten(where)}  {ours} -> {theirs}"


def _format_accesses(found: Iterable[GlobalAccess]) -> str:
    counts: Counter[tuple[str, int]] = Counter()
    for x in found:
        counts[x.kind, x.bytes] += x.count
    said = (GlobalAccess("", kind, width, n) for (kind, width), n in sorted(counts.items()))
    return ", ".join(map(format_access, said)) or "none"


def _shorten(where: str) -> str:
    return where.rpartition("/")[2] or "line unknown"


def _change_dots(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    ours, theirs = (_label_dots(one) for one in (before, after))
    for where in dict.fromkeys((*ours, *theirs)):
        was, now = (found.get(where, "no dot") for found in (ours, theirs))
        if was != now:
            yield f"{where}  {was} -> {now}"


def _label_dots(one: LoweredLaunch) -> dict[str, str]:
    def say(dot: DotLowering) -> str:
        sources = dict.fromkeys(x for i in dot.instructions for x in i.operands if x)
        return f"{label_dot(dot)} from {' and '.join(sources)}" if sources else label_dot(dot)

    return {_shorten(dot.where): say(dot) for dot in one.dots}


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
WIDTH = 22  # of the first column
_SHORT = {"": "neither", "16": "16", "1": "1"}


def collect(made: Sequence[LoweredTarget]) -> list[dict[str, Any]]:
    """Each launch as it is, with its variants and how they differ from it."""
    found: list[dict[str, Any]] = []
    for one in made:
        bases: dict[tuple[str, int], dict[str, Any]] = {}
        for lowering, variant in zip(one.lowerings, one.variants, strict=True):
            key = (lowering.dtype, variant["base"])
            if not variant["change"]:
                bases[key] = {"launch": lowering, "variants": []}
                found.append(bases[key])
            elif key in bases:
                bases[key]["variants"].append(_compare(bases[key]["launch"], lowering, variant))
    return found


def _compare(base: LoweredLaunch, other: LoweredLaunch, variant: dict[str, Any]) -> dict[str, Any]:
    told = {**variant, "launch": other, "same_binary": False}
    told |= {"changes": [], "needs": [], "losses": []}
    if base.error or other.error:
        return told
    found = compare(base, other)
    told |= {name: list(getattr(found, name)) for name in ("changes", "needs", "losses")}
    return {**told, "same_binary": base.binary == other.binary}


def document(name: str, made: Sequence[LoweredTarget], failures: list[str]) -> dict[str, Any]:
    """What `--json` writes of a sweep."""
    sweep = [
        {
            "launch": one["launch"].to_dict(),
            "variants": [{**x, "launch": x["launch"].to_dict()} for x in one["variants"]],
        }
        for one in collect(made)
    ]
    notes = {one.gpu: one.notes for one in made}
    return {"schema": SCHEMA, "name": name, "sweep": sweep, "notes": notes, "failures": failures}


def lines(name: str, made: Sequence[LoweredTarget], seconds: float) -> list[Line]:
    """What `lowering --sweep` prints."""
    out: list[Line] = []
    compared = losing = same = refused = 0
    for target in made:
        for one in collect([target]):
            out += [*_describe(one["launch"], one["variants"]), ("", "")]
            compared += len(one["variants"])
            losing += sum(bool(x["losses"]) for x in one["variants"])
            same += sum(x["same_binary"] for x in one["variants"])
            refused += sum(bool(x["launch"].error) for x in (*one["variants"], one))
        out += [(clean(f"{target.gpu}: {line}"), "dim") for line in _join_notes(target.notes)]
        out += [(clean(line), STYLES["fail"]) for line in target.failures]
        if target.mistake:
            out.append((clean(f"{target.gpu}: {target.mistake}"), STYLES["fail"]))
        refused += len(target.failures) + bool(target.mistake)
    told = f"{format_count(compared, 'change')} compared for {' '.join(x.gpu for x in made)}: "
    told += f"{losing} cost something, {same} give the same binary"
    told += f", {refused} not compiled" if refused else ""
    style = STYLES["incomplete" if refused else "pass"]
    return [*out, (clean(f"{name}: {told} ({seconds:.1f} s)"), style)]


def _join_notes(notes: Sequence[str]) -> Iterator[str]:
    """Each note once, of the same words all changes together."""
    changes: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        change, colon, words = note.partition(": ")
        if not colon:
            change, words = "", note
        changes.setdefault(words, []).append(change)
    for words, found in changes.items():
        named = "; ".join(x for x in found if x)
        yield f"{named}: {words}" if named else words


def _describe(base: LoweredLaunch, variants: Sequence[dict[str, Any]]) -> Iterator[Line]:
    told = " ".join(f"{name}={x}" for name, x in base.configuration.items())
    of = f", one of {base.configurations}" if base.configurations > 1 else ""
    yield (clean(f"{base.kernel} {base.dtype} for {base.target}: {told}{of}"), "bold")
    if base.error or base.resources is None:
        yield (clean(f"  not compiled: {base.error}"), STYLES["fail"])
        return
    needs = f"{base.resources.registers} registers"
    spills = f", {base.resources.spills} bytes spilled" if base.resources.spills else ""
    yield _row("as it is", f"{needs}{spills}")
    for known in ("16", "1", ""):
        names = [name for name, x in base.specialised.items() if x == known]
        if names:
            yield _row(format_known(known), " ".join(names))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one in variants:
        if one["losses"]:
            groups.setdefault(tuple(one["changes"] or one["losses"]), []).append(one)
    for changes, group in groups.items():
        yield from _describe_loss(changes, group)
    others = {
        "another binary": [x for x in variants if not x["losses"] and not x["same_binary"]],
        "the same binary": [x for x in variants if x["same_binary"]],
    }
    for words, group in others.items():
        group = [x for x in group if not x["launch"].error]
        if group:
            yield _row(words, "; ".join(_say(x) for x in group))
    for one in variants:
        if one["launch"].error:
            text, _ = _row(one["change"], f"not compiled: {one['launch'].error}")
            yield text, STYLES["fail"]


def _describe_loss(changes: Sequence[str], group: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """What is lost, by line of the source, and each change that loses it."""
    for i, line in enumerate(changes[:SHOWN_CHANGES]):
        text, _ = _row("" if i else "costs", line)
        yield text, STYLES["incomplete"]
    if (more := len(changes) - SHOWN_CHANGES) > 0:
        yield _row("", f"and {more} more lines: --json has all")
    for one in group:
        needs = one["launch"].resources
        told = f"{needs.registers} registers" if needs is not None else ""
        spilled = [x for x in one["losses"] if "spilled" in x or "fit" in x]
        yield _row(f"  {one['change']}", ", ".join([told, *spilled]) + _format_reason(one))


def _say(one: dict[str, Any]) -> str:
    return f"{one['change']}{_format_reason(one)}"


def _format_reason(one: dict[str, Any]) -> str:
    """Of which arguments something else is known, and what else gives the same."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, (before, after) in one["arguments"].items():
        groups.setdefault((_SHORT[before], _SHORT[after]), []).append(name)
    said = [f"{' '.join(names)} {a} -> {b}" for (a, b), names in groups.items()]
    constants = one["constants"].items()
    said += [f"{name} {a} -> {b}" for name, (a, b) in constants if name != "kernel"]
    if one["altered"]:
        said = ["no case changes it alone"]
    if one["also"]:
        said.append(f"as {', '.join(one['also'])}")
    return f" ({'; '.join(said)})" if said else ""


def _row(first: str, rest: str) -> Line:
    return clean(f"  {first:<{WIDTH}} {rest}"), ""
