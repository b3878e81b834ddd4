"""Two binaries of one kernel: what the second one has that the first had not, and what it lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gemmproof.lowering.record import FMA, DotLowering, GlobalAccess, LoweredLaunch
from gemmproof.lowering.room import list_excess
from gemmproof.reference.gpus import GPUS
from gemmproof.report.lowering_table import name_dot
from gemmproof.report.lowering_text import say_access

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
            _say_accesses([x for x in one.accesses if _WAYS.get(x.kind) == way])
            for one in (before, after)
        )
        yield f"{way}: {ours} -> {theirs}"
    was, now = (", ".join(_name_dots(one).values()) or "no dot" for one in (before, after))
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
            _say_accesses([x for x in one.accesses if x.where == where]) for one in (before, after)
        )
        if ours != theirs:
            yield f"{_shorten(where)}  {ours} -> {theirs}"


def _say_accesses(found: Iterable[GlobalAccess]) -> str:
    counts: Counter[tuple[str, int]] = Counter()
    for x in found:
        counts[x.kind, x.bytes] += x.count
    said = (GlobalAccess("", kind, width, n) for (kind, width), n in sorted(counts.items()))
    return ", ".join(map(say_access, said)) or "none"


def _shorten(where: str) -> str:
    return where.rpartition("/")[2] or "line unknown"


def _change_dots(before: LoweredLaunch, after: LoweredLaunch) -> Iterator[str]:
    ours, theirs = (_name_dots(one) for one in (before, after))
    for where in dict.fromkeys((*ours, *theirs)):
        was, now = (found.get(where, "no dot") for found in (ours, theirs))
        if was != now:
            yield f"{where}  {was} -> {now}"


def _name_dots(one: LoweredLaunch) -> dict[str, str]:
    def say(dot: DotLowering) -> str:
        sources = dict.fromkeys(x for i in dot.instructions for x in i.operands if x)
        return f"{name_dot(dot)} from {' and '.join(sources)}" if sources else name_dot(dot)

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
