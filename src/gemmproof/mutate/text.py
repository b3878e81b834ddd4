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
    MutantResult,
    Score,
)
from gemmproof.reference.provenance import format_count
from gemmproof.report.text import Line, clean, format_table

SHOWN = 12  # mutants of an outcome whose lines are printed; --json has all
_HEADS = {UNSEEN: "no difference", UNJUDGED: "not judged"}


def summarise(score: Score) -> Iterator[Line]:
    """Yield the lines that `mutate` prints for a kernel."""
    yield from ((row, "") for row in _tabulate(score))
    yield ("", "")
    yield from _list(score, SURVIVED, "survived: no property detects them", "bold red")
    yield from _list(score, UNSEEN, "no difference seen, but not proved equivalent", "bold yellow")
    yield from _list(score, UNJUDGED, "not judged", "bold yellow")
    counts = score.counts
    style = "bold green" if score.whole and not counts[SURVIVED] else "bold yellow"
    yield (clean(f"{score.target}: {format_score(score)}"), style)


def format_score(score: Score) -> str:
    """Format the score in a line."""
    counts, value, least = score.counts, score.score, score.score_if_unseen_survive
    if value is None:
        text = "no mutant to score"
    else:
        decided = counts[KILLED] + counts[SURVIVED]
        text = f"score {value:.3f}: {counts[KILLED]} of {decided} killed"
    aside = [f"{counts[EQUIVALENT]} equivalent", f"{counts[INVALID]} do not compile"]
    if counts[UNSEEN] and least is not None:
        aside.insert(0, f"{counts[UNSEEN]} show no difference (score {least:.3f} if they survive)")
    text += f"; not counted: {', '.join(aside)}"
    missing = score.asked - len(score.mutants) + counts[UNJUDGED]
    if missing:
        text += f"; incomplete: {format_count(missing, 'mutant')} not judged"
        text += f", {score.note}" if score.note else ""
    return f"{text} ({format_count(len(score.mutants), 'mutant')}, {score.seconds:.1f} s)"


def _tabulate(score: Score) -> list[str]:
    """Return the table of operators and outcomes."""
    shown = [name for name in OUTCOMES if score.counts[name] or name in (KILLED, SURVIVED)]
    rows = [["operator", *(_HEADS.get(name, name) for name in shown)]]
    for name, counts in score.operators.items():
        rows.append([name, *(str(counts[outcome] or "-") for outcome in shown)])
    return format_table(rows, "l" + "r" * len(shown))


def _list(score: Score, outcome: str, title: str, style: str) -> Iterator[Line]:
    """Yield the mutants of one outcome, with their changed lines."""
    mutants = [mutant for mutant in score.mutants if mutant.outcome == outcome]
    if not mutants:
        return
    yield (f"{title}:", style)
    for mutant in mutants[:SHOWN]:
        yield from _describe(mutant)
    if len(mutants) > SHOWN:
        yield (f"  and {len(mutants) - SHOWN} more: --json has all", "")
    yield ("", "")


def _describe(mutant: MutantResult) -> Iterator[Line]:
    yield (clean(f"  {mutant.file}:{mutant.line}: {mutant.operator}; {mutant.why}"), "")
    for line in mutant.diff.splitlines()[2:]:
        if not line.startswith("@@"):
            yield (clean(f"    {line[0]} {line[1:].strip()}"), "dim")
