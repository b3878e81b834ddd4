"""The mutants of a kernel on one screen: a table by operator, the survivors, the score."""

from __future__ import annotations

from collections.abc import Iterator

from gemmproof.mutate.record import (
    EQUIVALENT,
    INVALID,
    KILLED,
    OUTCOMES,
    SURVIVED,
    UNJUDGED,
    UNSEEN,
    Judgement,
    Score,
)
from gemmproof.reference.provenance import format_count
from gemmproof.report.text import Line, clean

SHOWN = 12  # mutants of an outcome whose lines are printed; --json has all
_HEADS = {UNSEEN: "no difference", UNJUDGED: "not judged"}


def summarise(score: Score) -> Iterator[Line]:
    """What `mutate` prints of a kernel."""
    yield from ((row, "") for row in _tabulate(score))
    yield ("", "")
    yield from _list(score, SURVIVED, "survived: no property notices", "bold red")
    yield from _list(score, UNSEEN, "no difference seen, and none excluded", "bold yellow")
    yield from _list(score, UNJUDGED, "not judged", "bold yellow")
    counts = score.counts
    style = "bold green" if score.is_whole and not counts[SURVIVED] else "bold yellow"
    yield (clean(f"{score.target}: {format_score(score)}"), style)


def format_score(score: Score) -> str:
    """The score in a line."""
    counts, value, least = score.counts, score.value, score.least
    if value is None:
        words = "no mutant to score"
    else:
        known = counts[KILLED] + counts[SURVIVED]
        words = f"score {value:.3f}: {counts[KILLED]} of {known} killed"
    aside = [f"{counts[EQUIVALENT]} equivalent", f"{counts[INVALID]} do not compile"]
    if counts[UNSEEN] and least is not None:
        aside.insert(0, f"{counts[UNSEEN]} show no difference (score {least:.3f} with those)")
    words += f"; aside: {', '.join(aside)}"
    left = score.asked - len(score.judged) + counts[UNJUDGED]
    if left:
        words += f"; incomplete: {format_count(left, 'mutant')} not judged"
        words += f", {score.note}" if score.note else ""
    return f"{words} ({format_count(len(score.judged), 'mutant')}, {score.seconds:.1f} s)"


def _tabulate(score: Score) -> Iterator[str]:
    """Operator x outcome."""
    rows = score.by_operator()
    shown = [name for name in OUTCOMES if score.counts[name] or name in (KILLED, SURVIVED)]
    heads = [_HEADS.get(name, name) for name in shown]
    first = max(map(len, [*rows, "operator"]))
    yield f"{'operator':<{first}}" + "".join(f"  {head:>{len(head)}}" for head in heads)
    for name, counts in rows.items():
        cells = zip(heads, (counts[outcome] for outcome in shown), strict=True)
        yield f"{name:<{first}}" + "".join(f"  {n or '-':>{len(head)}}" for head, n in cells)


def _list(score: Score, outcome: str, title: str, style: str) -> Iterator[Line]:
    """The mutants of one outcome, with their changed lines."""
    found = [one for one in score.judged if one.outcome == outcome]
    if not found:
        return
    yield (f"{title}:", style)
    for one in found[:SHOWN]:
        yield from _describe(one)
    if len(found) > SHOWN:
        yield (f"  and {len(found) - SHOWN} more: --json has all", "")
    yield ("", "")


def _describe(one: Judgement) -> Iterator[Line]:
    mutant = one.mutant
    yield (clean(f"  {mutant['file']}:{mutant['line']}: {mutant['operator']}; {one.why}"), "")
    for line in mutant["diff"].splitlines()[2:]:
        if not line.startswith("@@"):
            yield (clean(f"    {line[0]} {line[1:].strip()}"), "dim")
