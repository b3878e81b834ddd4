"""What the solver decides of the corpora's kernels, beside what the simulator says of them."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from families.table import RIGHT
from mutant import CLASSES
from mutants.table import MUTANTS, SURVIVORS
from no_false_alarm.table import KERNELS
from scripts.markdown import fill, make_table, update

from gemmproof.engine.check import check
from gemmproof.engine.proof import PROVABLE
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.verdict import NOT_DECIDED, PROVED, REFUTED, Proofs

PAGE = Path(__file__).parents[1] / "docs" / "proofs.md"
PROCESSES = 2
SHORT = {PROVED: "proved", REFUTED: "refuted", NOT_DECIDED: "-", "": ""}


@dataclass(frozen=True, slots=True)
class Row:
    """What was decided of a kernel: the status and its reason by property, and who disagrees.

    `wrong`: the properties that are proved and that a case shows not to hold; `unshown`: those that
    are refuted by a case which shows nothing of the kind.
    """

    letter: str
    name: str
    status: dict[str, str]
    why: dict[str, str]
    wrong: dict[str, str]
    unshown: dict[str, str]
    seconds: float


def judge(kernel: KernelUnderTest, letter: str, target: str | None, examples: int) -> Row:
    """The proofs of a kernel, each compared with up to `examples` cases or with its own one."""
    from gemmproof.properties.proof.prove import prove

    made = Proofs()

    def note(*given: object) -> Proofs:
        nonlocal made
        made = prove(*given)  # type: ignore[arg-type]
        return made

    wrong, unshown = {}, {}
    report = check(kernel, target=target, max_examples=examples, _prove=note)
    said = {proof.property: proof.status for proof in made.verdicts}
    for finding in report.findings:
        if said.get(finding.property) == PROVED:
            wrong[finding.property] = f"{finding.case}: {finding.message}"
    for proof in made.verdicts:
        if proof.status == REFUTED and proof.case is not None:
            case = Case.from_json(proof.case)
            try:
                shown = check(kernel, case=case, target=target).findings
            except ValueError as error:
                unshown[proof.property] = f"{case}: {error}"
                continue
            if proof.property not in {finding.property for finding in shown}:
                found = ", ".join(finding.property for finding in shown) or "nothing"
                unshown[proof.property] = f"{proof.why} at {case}: found {found}"
    why = {proof.property: proof.why for proof in made.verdicts if proof.why}
    return Row(letter, kernel.name, said, why, wrong, unshown, made.seconds)


def list_kernels() -> list[tuple[KernelUnderTest, str, str | None]]:
    """Every kernel of the corpora: those that are right have no letter."""
    right = [(kernel, "", None) for kernel in (*KERNELS, *RIGHT)]
    return [*((m.kernel, m.letter, m.target) for m in (*MUTANTS, *SURVIVORS)), *right]


def _judge(given: tuple[int, int]) -> Row:
    number, examples = given
    kernel, letter, target = list_kernels()[number]
    try:
        return judge(kernel, letter, target, examples)
    except Exception as error:  # of one kernel: the others are judged still
        said = {"raised": f"{type(error).__name__}: {error}"}
        return Row(letter, kernel.name, {}, said, {}, {}, 0.0)


def run(examples: int, only: str = "", processes: int = PROCESSES) -> Iterator[Row]:
    """A row for each kernel whose class and name contain `only`."""
    kernels = list_kernels()
    numbers = [i for i, (k, letter, _) in enumerate(kernels) if only in f"{letter} {k.name}"]
    context = multiprocessing.get_context("fork")
    with context.Pool(processes, maxtasksperchild=8) as pool:
        yield from pool.imap_unordered(_judge, [(i, examples) for i in numbers])


def tabulate(rows: list[Row]) -> str:
    """A table with a row for each right kernel."""
    cells = [[f"`{r.name}`", *(SHORT[r.status.get(x, "")] for x in PROVABLE)] for r in rows]
    return make_table(("kernel", *PROVABLE), cells)


def tabulate_classes(rows: list[Row]) -> str:
    """A table with a row for each class of mutants: proved, refuted and not decided."""
    cells = []
    for letter, group in groupby(sorted(rows, key=lambda row: row.letter), lambda r: r.letter):
        own = list(group)
        counts = [Counter(row.status.get(x, "") for row in own) for x in PROVABLE]
        said = [f"{n[PROVED]}, {n[REFUTED]}, {n[NOT_DECIDED]}" for n in counts]
        cells.append([f"{letter}. {CLASSES[letter]}", str(len(own)), *said])
    return make_table(("class", "mutants", *PROVABLE), cells)


def make_page(
    examples: int = 40, only: str = "", check: bool = False, out: Path | None = None
) -> int:
    """Prove every kernel of the corpora, and make the tables of docs/proofs.md.

    --only takes those whose class and name contain a text, and prints the tables. Exits with 1
    where a proof is wrong, or a refutation does not show.
    """
    rows = sorted(run(examples, only), key=lambda row: (row.letter, row.name))
    wrong = [row for row in rows if row.wrong or row.unshown or "raised" in row.why]
    tables = {
        "right": tabulate([row for row in rows if not row.letter]),
        "classes": tabulate_classes([row for row in rows if row.letter]),
    }
    for row in wrong:
        print(row.letter, row.name, row.wrong, row.unshown, row.why.get("raised", ""))
    if only or not PAGE.exists():
        print(*tables.values(), sep="\n\n")
        return int(bool(wrong))
    return update(PAGE, fill(PAGE, tables), check, out) or int(bool(wrong))
