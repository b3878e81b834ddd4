"""The solver's decisions on the corpora's kernels, compared with the simulator's findings."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import groupby
from pathlib import Path
from statistics import median
from types import ModuleType

from scripts.docs.markdown import fill, make_table, update
from tests.corpora.families.table import RIGHT
from tests.corpora.mutant import CLASSES
from tests.corpora.mutants import unflawed
from tests.corpora.mutants.table import MUTANTS, SURVIVORS
from tests.corpora.no_false_alarm.table import KERNELS
from tests.support.wide import wide

from gemmproof.engine.kernel_check import check
from gemmproof.engine.proofs import PROVABLE
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import NOT_DECIDED, PROVED, REFUTED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "proofs.md"
PROCESSES = 2
SHORT = {PROVED: "proved", REFUTED: "refuted", NOT_DECIDED: "-", "": ""}
DENSE = wide(layouts="contiguous")
EXAMPLES = {"right": wide(), "dense_only": DENSE}
TUTORIALS = {
    "masked_everywhere:matmul": wide(formats=("bf16",), layouts="contiguous"),
    "cast_on_store:matmul": wide(formats=("bf16",), layouts="contiguous"),
    "step_by_step:persistent": DENSE,
}


@dataclass(frozen=True, slots=True)
class Row:
    """The proof of a kernel: by property the status and its reason, and the seconds.

    `mistake`: how a case contradicts it, or "" if none does.
    """

    letter: str
    name: str
    status: dict[str, str]
    why: dict[str, str]
    mistake: str
    seconds: float

    @property
    def key(self) -> str:
        return f"{self.letter} {self.name}".strip()


def judge(kernel: KernelUnderTest, letter: str, target: str | None, examples: int) -> Row:
    """The proofs of a kernel after up to `examples` cases, those of its refutations among them."""
    spent = 0.0

    def note(*arguments: object) -> object:
        from gemmproof.properties.proof.prove import prove

        nonlocal spent
        proofs = prove(*arguments)  # type: ignore[arg-type]
        spent = proofs.seconds
        return proofs

    report = check(kernel, target=target, max_examples=examples, proof=True, _prove=note)  # type: ignore[arg-type]
    by_property = {p.name: p.proof for p in report.properties if p.proof is not None}
    status = {name: proof.status for name, proof in by_property.items()}
    reasons = {name: proof.why for name, proof in by_property.items() if proof.why}
    mistake = report.note or ""
    return Row(letter, kernel.name, status, reasons, mistake, round(spent, 2))


# -- kernels -------------------------------------------------------------------------------------
def list_kernels() -> list[tuple[KernelUnderTest, str, str | None]]:
    """Return every kernel of the corpora and of this repository; right ones have no letter."""
    right = [*_list_own(), *KERNELS, *RIGHT, *unflawed.KERNELS]
    for name, contract in EXAMPLES.items():
        path = ROOT / "docs" / "examples" / f"{name}.py"
        launch = _load(f"example_{name}", path).matmul
        right.append(KernelUnderTest(f"docs/examples/{name}.py", launch, contract))
    for target, contract in TUTORIALS.items():
        module, _, function = target.partition(":")
        launch = getattr(import_module(f"tests.corpora.tutorials.{module}"), function)
        right.append(KernelUnderTest(target.replace(":", "."), launch, contract))
    wrong = [(m.kernel, m.letter, m.target) for m in (*MUTANTS, *SURVIVORS)]
    return [*wrong, *((kernel, "", None) for kernel in right)]


def _list_own() -> list[KernelUnderTest]:
    kernels: list[KernelUnderTest] = _load(
        "own_kernels", ROOT / "conftest.py"
    ).pytest_gemm_kernels()
    return [kernel for kernel in kernels if not kernel.device_only]


def _load(name: str, path: Path) -> ModuleType:
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# -- rows ----------------------------------------------------------------------------------------
def _judge(given: tuple[int, int]) -> Row:
    number, examples = given
    kernel, letter, target = list_kernels()[number]
    try:
        return judge(kernel, letter, target, examples)
    except Exception as error:  # for one kernel: the others are still judged
        return Row(letter, kernel.name, {}, {}, f"raised {type(error).__name__}: {error}", 0.0)


def run(examples: int, only: str, kept: Path | None, processes: int = PROCESSES) -> Iterator[Row]:
    """A row for each kernel whose class and name contain `only`; those in `kept` are as they are.

    New rows are added there, one a line, so that an interrupted run can continue.
    """
    saved = {}
    if kept is not None and kept.exists():
        rows = (Row(**json.loads(line)) for line in kept.read_text(encoding="utf-8").splitlines())
        saved = {row.key: row for row in rows}
    keys = [f"{letter} {kernel.name}".strip() for kernel, letter, _ in list_kernels()]
    yield from (saved[key] for key in keys if key in saved and only in key)
    numbers = [i for i, key in enumerate(keys) if only in key and key not in saved]
    context = multiprocessing.get_context("fork")
    with context.Pool(processes, maxtasksperchild=8) as pool:
        judged = pool.imap_unordered(_judge, [(i, examples) for i in numbers])
        for count, row in enumerate(judged, 1):
            if kept is not None:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
            counts = Counter(row.status.values())
            summary = ", ".join(
                f"{counts[x]} {x}" for x in (PROVED, REFUTED, NOT_DECIDED) if counts[x]
            )
            line = f"{count} of {len(numbers)}: {row.key}: {summary}, {row.seconds:.1f} s"
            print(line, row.mistake, file=sys.stderr, flush=True)
            yield row


# -- tables --------------------------------------------------------------------------------------
def tabulate(rows: Iterable[Row]) -> str:
    """A table with a row for each right kernel."""
    cells = []
    for row in rows:
        statuses = (SHORT[row.status.get(name, "")] for name in PROVABLE)
        cells.append([f"`{row.name}`", *statuses, f"{row.seconds:.2f}"])
    return make_table(("kernel", *PROVABLE, "s"), cells)


def tabulate_classes(rows: Iterable[Row]) -> str:
    """A table with a row for each class of mutants: proved, refuted and not decided."""
    cells = []
    for letter, group in groupby(sorted(rows, key=lambda row: row.letter), lambda r: r.letter):
        own = list(group)
        counts = [Counter(row.status.get(x, "") for row in own) for x in PROVABLE]
        decisions = [f"{n[PROVED]}, {n[REFUTED]}, {n[NOT_DECIDED]}" for n in counts]
        refuted = str(sum(REFUTED in row.status.values() for row in own))
        cells.append([f"{letter}. {CLASSES[letter]}", str(len(own)), refuted, *decisions])
    return make_table(("class", "mutants", "refuted", *PROVABLE), cells)


def tabulate_reasons(rows: Iterable[Row]) -> str:
    """A table of the undecided properties of right kernels, with reasons."""
    cells = []
    for row in rows:
        for name, reason in row.why.items():
            if row.status[name] == NOT_DECIDED and not reason.startswith("it rests on"):
                cells.append([f"`{row.name}`", name, reason.replace("|", "\\|")])
    return make_table(("kernel", "property", "why it is not decided"), cells)


def sum_up(right: list[Row], wrong: list[Row]) -> str:
    """The counts of both tables, as text."""
    address = [row.status[x] for row in right for x in PROVABLE[:-1] if x in row.status]
    product = [row.status[PROVABLE[-1]] for row in right if PROVABLE[-1] in row.status]
    times = [row.seconds for row in right] or [0.0]
    refuted = sum(REFUTED in row.status.values() for row in wrong)
    return (
        f"Of {len(right)} right kernels, {address.count(PROVED)} of {len(address)} properties of"
        f" addresses are proved, and of {len(product)} products {product.count(PROVED)}; median"
        f" {median(times):.2f} s, slowest {max(times):.2f} s. Of {len(wrong)} wrong kernels,"
        f" {refuted} are refuted by at least one property."
    )


def make_page(
    examples: int = 12, only: str = "", kept: Path | None = None,
    check: bool = False, out: Path | None = None,
) -> int:  # fmt: skip
    """Prove every kernel of the corpora, and make the tables of docs/proofs.md.

    Some twenty minutes on two cores; with --kept FILE rows are kept there, and a run that was
    interrupted goes on. --only takes kernels whose class and name contain a text, and prints the
    tables. Exits with 1 where a case shows otherwise than a proof or a refutation says.
    """
    rows = sorted(run(examples, only, kept), key=lambda row: (row.letter, row.name))
    right, wrong = [x for x in rows if not x.letter], [x for x in rows if x.letter]
    mistaken = [row for row in rows if "wrong about itself" in row.mistake or not row.status]
    tables = {
        "counts": sum_up(right, wrong),
        "right": tabulate(right),
        "classes": tabulate_classes(wrong),
        "reasons": tabulate_reasons(right),
    }
    for row in mistaken:
        print(row.key, row.mistake)
    if only:
        print(*tables.values(), sep="\n\n")
        return int(bool(mistaken))
    return update(PAGE, fill(PAGE, tables), check, out) or int(bool(mistaken))
