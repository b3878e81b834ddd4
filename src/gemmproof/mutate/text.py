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
    """Yield the lines that `mutate` prints for a kernel."""
    yield from ((row, "") for row in _tabulate(score))
    yield ("", "")
    yield from _list(score, SURVIVED, "survived: no property notices", "bold red")
    yield from _list(score, UNSEEN, "no difference seen, and none excluded", "bold yellow")
    yield from _list(score, UNJUDGED, "not judged", "bold yellow")
    counts = score.counts
    style = "bold green" if score.is_whole and not counts[SURVIVED] else "bold yellow"
    yield (clean(f"{score.target}: {format_score(score)}"), style)


def format_score(score: Score) -> str:
    """Format the score in a line."""
    counts, value, least = score.counts, score.value, score.least
    if value is None:
        text = "no mutant to score"
    else:
        decided = counts[KILLED] + counts[SURVIVED]
        text = f"score {value:.3f}: {counts[KILLED]} of {decided} killed"
    aside = [f"{counts[EQUIVALENT]} equivalent", f"{counts[INVALID]} do not compile"]
    if counts[UNSEEN] and least is not None:
        aside.insert(0, f"{counts[UNSEEN]} show no difference (score {least:.3f} with those)")
    text += f"; aside: {', '.join(aside)}"
    missing = score.asked - len(score.judged) + counts[UNJUDGED]
    if missing:
        text += f"; incomplete: {format_count(missing, 'mutant')} not judged"
        text += f", {score.note}" if score.note else ""
    return f"{text} ({format_count(len(score.judged), 'mutant')}, {score.seconds:.1f} s)"


def _tabulate(score: Score) -> Iterator[str]:
    """Yield the table of operators and outcomes."""
    rows = score.by_operator()
    shown = [name for name in OUTCOMES if score.counts[name] or name in (KILLED, SURVIVED)]
    heads = [_HEADS.get(name, name) for name in shown]
    first = max(map(len, [*rows, "operator"]))
    yield f"{'operator':<{first}}" + "".join(f"  {head:>{len(head)}}" for head in heads)
    for name, counts in rows.items():
        cells = zip(heads, (counts[outcome] for outcome in shown), strict=True)
        yield f"{name:<{first}}" + "".join(f"  {n or '-':>{len(head)}}" for head, n in cells)


def _list(score: Score, outcome: str, title: str, style: str) -> Iterator[Line]:
    """Yield the mutants of one outcome, with their changed lines."""
    judgements = [judgement for judgement in score.judged if judgement.outcome == outcome]
    if not judgements:
        return
    yield (f"{title}:", style)
    for judgement in judgements[:SHOWN]:
        yield from _describe(judgement)
    if len(judgements) > SHOWN:
        yield (f"  and {len(judgements) - SHOWN} more: --json has all", "")
    yield ("", "")


def _describe(judgement: Judgement) -> Iterator[Line]:
    mutant = judgement.mutant
    yield (clean(f"  {mutant['file']}:{mutant['line']}: {mutant['operator']}; {judgement.why}"), "")
    for line in mutant["diff"].splitlines()[2:]:
        if not line.startswith("@@"):
            yield (clean(f"    {line[0]} {line[1:].strip()}"), "dim")
