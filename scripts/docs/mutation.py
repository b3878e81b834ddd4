"""The mutants of this repository's kernels: which were killed, from the recorded runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from scripts.docs.markdown import fill, make_table, update

from gemmproof.mutate.record import (
    EQUIVALENT,
    KILLED,
    OUTCOMES,
    SURVIVED,
    UNJUDGED,
    UNSEEN,
    MutationReport,
    Score,
)
from gemmproof.properties.codec import Json, parse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mutation.md"
EVIDENCE = ROOT / "docs" / "evidence" / "mutation.json"
BRIEF = ("key", "file", "line", "operator", "where", "outcome", "by")


def shorten(kernel: Json) -> Json:
    """A kernel's record, without the diff and the text of mutants that were killed."""
    mutants = [
        {name: x for name, x in mutant.items() if mutant["outcome"] != KILLED or name in BRIEF}
        for mutant in kernel["mutants"]
    ]
    return {**kernel, "mutants": mutants}


def merge(files: Iterable[Path]) -> Json:
    """Return the evidence with its kernels replaced by those of these records."""
    before = json.loads(EVIDENCE.read_text()) if EVIDENCE.is_file() else {"kernels": []}
    kernels = {kernel["target"]: kernel for kernel in before["kernels"]}
    for file in files:
        for kernel in json.loads(file.read_text())["kernels"]:
            kernels[kernel["target"]] = shorten(kernel)
    ordered = [kernels[name] for name in sorted(kernels)]
    return {"schema": 1, "kernels": ordered, "drops": []}


def tabulate_kernels(kernels: Iterable[Score]) -> str:
    """A row for each kernel."""
    head = ("kernel", "formats", "mutants", "judged", *OUTCOMES, "score", "s")
    rows = []
    for kernel in kernels:
        score = "" if kernel.score is None else f"{kernel.score:.3f}"
        counts = (str(kernel.counts[name] or "-") for name in OUTCOMES)
        many = (str(kernel.reached), str(len(kernel.mutants)))
        row = (f"`{kernel.target}`", " ".join(kernel.formats), *many, *counts, score)
        rows.append((*row, f"{kernel.seconds:.2f}"))
    return make_table(head, rows)


def tabulate_operators(kernels: Iterable[Score]) -> str:
    """A row for each operator, over all kernels, with the properties that killed its mutants."""
    counts: dict[str, Counter[str]] = {}
    killers: dict[str, Counter[str]] = {}
    for mutant in (mutant for kernel in kernels for mutant in kernel.mutants):
        counts.setdefault(mutant.operator, Counter())[mutant.outcome] += 1
        if mutant.outcome == KILLED:
            killers.setdefault(mutant.operator, Counter())[mutant.by] += 1
    rows = []
    for name in sorted(counts):
        by = killers.get(name, Counter()).most_common()
        cells = (str(counts[name][outcome] or "-") for outcome in OUTCOMES)
        rows.append((name, *cells, ", ".join(f"{p} ({n})" for p, n in by)))
    return make_table(("operator", *OUTCOMES, "killed by"), rows)


def list_survivors(kernels: Iterable[Score]) -> str:
    """Every mutant that was neither killed nor proved to be the same, with its line."""
    lines = [
        f"- `{kernel.target}`, {mutant.outcome}: {mutant.file}, {mutant.operator}: "
        f"`{mutant.diff.splitlines()[-1][1:].strip()}`"
        for kernel in kernels
        for mutant in kernel.mutants
        if mutant.outcome in (SURVIVED, UNSEEN, UNJUDGED)
    ]
    return "\n".join(lines) or "None."


def make_page(check: bool = False, out: Path | None = None, add: str = "") -> int:
    """Make the tables of docs/mutation.md from docs/evidence/mutation.json.

    --add FILE[,FILE...] first puts the kernels of records of `gemmproof mutate --json` there.
    """
    if add:
        merged = merge(map(Path, add.split(",")))
        EVIDENCE.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
    kernels = parse(MutationReport, EVIDENCE.read_text(), str(EVIDENCE)).kernels
    known = sum(k.counts[name] for k in kernels for name in (KILLED, SURVIVED))
    killed = sum(k.counts[KILLED] for k in kernels)
    same = sum(k.counts[EQUIVALENT] for k in kernels)
    unseen = sum(k.counts[UNSEEN] for k in kernels)
    tables = {
        "score": f"Of {len(kernels)} kernels {killed} of {known} mutants are killed; {same} are"
        f" proved to be equivalent, {unseen} show no difference.",
        "kernels": tabulate_kernels(kernels),
        "operators": tabulate_operators(kernels),
        "survivors": list_survivors(kernels),
    }
    print(tables["score"])
    return update(PAGE, fill(PAGE, tables), check, out)
