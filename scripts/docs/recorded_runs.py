"""JSON Schemas of the documents that commands write, and the pages made from recorded documents."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from scripts.docs.markdown import ROOT, make_table, update, update_tables

from gemmproof.bench.record import CONTROL, BenchReport, TimedRow
from gemmproof.commands.list import Listing
from gemmproof.lowering.text import LoweringReport, SweepReport
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
from gemmproof.properties.address_map import AddressMap
from gemmproof.properties.codec import Json, decode, dump, make_schema, parse
from gemmproof.properties.help import Page
from gemmproof.report.record import Report
from gemmproof.signoff.record import Signoff
from gemmproof.wrappers import Wrapper

SCHEMAS = ROOT / "docs" / "schemas"
SPEED_PAGE, MUTATION_PAGE, SIGN_OFF_PAGE = (
    ROOT / "docs" / "results" / f"{name}.md" for name in ("speed", "mutation", "sign-off")
)
VERSIONS_PAGE = ROOT / "docs" / "reference" / "versions.md"
JSON_PAGE = ROOT / "docs" / "reference" / "json.md"
EVIDENCE = ROOT / "docs" / "evidence"
MUTATION, VERSIONS = EVIDENCE / "mutation.json", EVIDENCE / "versions.json"


# -- JSON Schemas ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Document:
    """A document that `--json` writes, its record, and the commands that write it.

    `page` is the link to its documentation, "" if the schema is all of it.
    """

    record: Any
    commands: tuple[str, ...]
    title: str
    description: str
    page: str = ""

    def make_schema(self) -> Json:
        """Return the JSON Schema with its title and description."""
        schema = make_schema(self.record)
        draft = {"$schema": schema.pop("$schema")}
        return (
            draft | {"title": f"gemmproof: {self.title}", "description": self.description} | schema
        )


#: By the name of the schema's file.
DOCUMENTS = {
    "report": Document(
        Report,
        ("check", "drift"),
        "report of a check",
        "The properties, findings and coverage of one kernel.",
        "#report-of-a-check",
    ),
    "signoff": Document(
        Signoff,
        ("signoff",),
        "report of a sign-off",
        "The verdict on every kernel of a project, with a report of each.",
        "#report-of-a-sign-off",
    ),
    "bench": Document(
        BenchReport,
        ("bench", "tune"),
        "measurements",
        "The device, its ceilings, and the time of each kernel and product.",
        "../how-to/benchmark.md",
    ),
    "mutation": Document(
        MutationReport,
        ("mutate",),
        "mutants and their results",
        "The mutants of each kernel and their outcomes.",
        "../how-to/mutate-a-kernel.md",
    ),
    "address_map": Document(
        AddressMap,
        ("explain TARGET",),
        "address map",
        "The index and mask of each access of a wrapper's kernels, as formulas.",
        "../how-to/explain.md",
    ),
    "page": Document(
        Page, ("explain PROPERTY",), "help page", "The help on a property or a fault."
    ),
    "lowering": Document(
        LoweringReport,
        ("lowering",),
        "compiled launches",
        "The instructions, registers, copies and accesses of each compiled launch.",
        "../how-to/see-what-was-compiled.md",
    ),
    "sweep": Document(
        SweepReport,
        ("lowering --sweep",),
        "compiled launches and their variants",
        "The compiled code of launches, and how it differs after one change of an argument.",
        "../how-to/see-what-was-compiled.md",
    ),
    "list": Document(
        Listing,
        ("list",),
        "properties, kernels, targets, formats and suites",
        "The properties, registered kernels, targets, formats and suites of shapes.",
    ),
    "wrappers": Document(
        list[Wrapper],
        ("list FILE",),
        "wrappers in a file",
        "The functions of a file that `gemmproof check` can judge.",
    ),
}


def make_schemas(check: bool = False) -> int:
    """Write the JSON Schemas in docs/schemas and the table of docs/reference/json.md.

    With --check, exit with 1 if one is out of date.
    """
    codes = []
    for name, document in DOCUMENTS.items():
        text = json.dumps(document.make_schema(), indent=1) + "\n"
        codes.append(update(SCHEMAS / f"{name}.json", text, check))
    codes.append(update_tables(JSON_PAGE, {"schemas": tabulate_schemas()}, check, None))
    return max(codes)


def tabulate_schemas() -> str:
    """A row for each document: its commands, its page and its schema."""
    rows = []
    for name, document in DOCUMENTS.items():
        commands = ", ".join(f"`gemmproof {command}`" for command in document.commands)
        title = f"[{document.title}]({document.page})" if document.page else document.title
        title += "".join(f", `schema` {n}" for n in find_number(document.make_schema()))
        rows.append((commands, title, f"[{name}.json](../schemas/{name}.json)"))
    return make_table(("command", "document", "JSON Schema"), rows)


def find_number(schema: Json) -> list[int]:
    """Return the value that the field `schema` of a document has, or nothing."""
    record = schema["$defs"].get(schema.get("$ref", "").rpartition("/")[2], {})
    numbers: list[int] = record.get("properties", {}).get("schema", {}).get("enum", [])
    return numbers


# -- docs/results/speed.md -------------------------------------------------------------------------
#: Recorded runs, by the name of their table and file.
RUNS = (
    *("gemm", "gemm-few", "kernels", "layers"),
    *("epilogue", "relu", "compiled", "int4", "scaled", "batched"),
)


def make_speed_page(check: bool = False, out: Path | None = None) -> int:
    """Make the tables of docs/results/speed.md from docs/evidence/speed-*.json."""
    tables = {}
    for name in RUNS:
        text = (EVIDENCE / f"speed-{name}.json").read_text(encoding="utf-8")
        report = decode(BenchReport, json.loads(text), "bench")
        tables[name] = tabulate(report)
    return update_tables(SPEED_PAGE, tables, check, out)


def tabulate(report: BenchReport) -> str:
    """Tabulate by shape the noise, the peer's rate and each kernel's ratio, with means below."""
    kernels = list(dict.fromkeys(row.kernel for row in report.rows if row.verdict != CONTROL))
    shapes: dict[str, dict[str, TimedRow]] = {}
    for row in report.rows:
        shapes.setdefault(row.problem, {})[
            CONTROL if row.verdict == CONTROL else row.kernel
        ] = row  # fmt: skip
    cells = []
    for shape, rows in shapes.items():
        control = rows[CONTROL]
        low, high = control.floor or (1.0, 1.0)
        cells.append([shape, f"{low:.3f} to {high:.3f}", f"{control.tflops:.0f}"])
        cells[-1] += [_show(rows[kernel]) for kernel in kernels]
    means = [_mean(rows[kernel] for rows in shapes.values()) for kernel in kernels]
    cells.append(["geometric mean", "", "", *(f"**{mean:.3f}**" for mean in means)])
    heads = ["shape (M x N x K)", "noise", "torch, TFLOP/s", *(f"`{name}`" for name in kernels)]
    return make_table(heads, cells)


def _show(row: TimedRow) -> str:
    assert row.ratio is not None
    return f"{row.ratio.median:.3f} ({row.ratio.low:.3f} to {row.ratio.high:.3f})"


def _mean(rows: Iterable[TimedRow]) -> float:
    logs = [math.log(row.ratio.median) for row in rows if row.ratio is not None]
    return math.exp(sum(logs) / len(logs))


# -- docs/results/mutation.md ----------------------------------------------------------------------
BRIEF = ("key", "file", "line", "operator", "where", "outcome", "by")


def shorten(kernel: Json) -> Json:
    """Return a kernel's record without the diff and the text of killed mutants."""
    mutants = [
        {name: x for name, x in mutant.items() if mutant["outcome"] != KILLED or name in BRIEF}
        for mutant in kernel["mutants"]
    ]
    return {**kernel, "mutants": mutants}


def merge(files: Iterable[Path]) -> Json:
    """Return the evidence with its kernels replaced by those of these records."""
    before = json.loads(MUTATION.read_text()) if MUTATION.is_file() else {"kernels": []}
    kernels = {kernel["target"]: kernel for kernel in before["kernels"]}
    for file in files:
        for kernel in json.loads(file.read_text())["kernels"]:
            kernels[kernel["target"]] = shorten(kernel)
    ordered = [kernels[name] for name in sorted(kernels)]
    return {"schema": 1, "kernels": ordered, "drops": []}


def tabulate_kernels(kernels: Iterable[Score]) -> str:
    """Tabulate the kernels."""
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
    """Tabulate the operators over all kernels, with the properties that killed their mutants."""
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
    """List every mutant that was neither killed nor proved equivalent, with its line."""
    lines = [
        f"- `{kernel.target}`, {mutant.outcome}: {mutant.file}, {mutant.operator}: "
        f"`{mutant.diff.splitlines()[-1][1:].strip()}`"
        for kernel in kernels
        for mutant in kernel.mutants
        if mutant.outcome in (SURVIVED, UNSEEN, UNJUDGED)
    ]
    return "\n".join(lines) or "None."


def make_mutation_page(check: bool = False, out: Path | None = None, add: str = "") -> int:
    """Make the tables of docs/results/mutation.md from docs/evidence/mutation.json.

    --add FILE[,FILE...] first adds the kernels of reports of `gemmproof mutate --json` to it.
    """
    if add:
        merged = merge(map(Path, add.split(",")))
        MUTATION.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
    kernels = parse(MutationReport, MUTATION.read_text(), str(MUTATION)).kernels
    known = sum(k.counts[name] for k in kernels for name in (KILLED, SURVIVED))
    killed = sum(k.counts[KILLED] for k in kernels)
    same = sum(k.counts[EQUIVALENT] for k in kernels)
    unseen = sum(k.counts[UNSEEN] for k in kernels)
    tables = {
        "score": f"In {len(kernels)} kernels, {killed} of {known} mutants with a visible effect are"
        f" killed;\n{same} are proved equivalent, and {unseen} show no difference.",
        "kernels": tabulate_kernels(kernels),
        "operators": tabulate_operators(kernels),
        "survivors": list_survivors(kernels),
    }
    print(tables["score"])
    return update_tables(MUTATION_PAGE, tables, check, out)


# -- docs/results/sign-off.md ----------------------------------------------------------------------
def make_sign_off_page(
    kernels: str = "",
    examples: int = 100,
    markdown: Path | None = None,
    check: bool = False,
    out: Path | None = None,
) -> int:
    """Sign off the kernels of conftest.py and make the table of docs/results/sign-off.md.

    --examples N is the number of cases of each format, and --kernels "NAME NAME" selects kernels.
    --markdown FILE takes the table from a file that a sign-off on another machine wrote. Exits with
    the code of the sign-off if it is not 0.
    """
    text, code = (markdown.read_text(encoding="utf-8"), 0) if markdown else _sign(kernels, examples)
    if not text:
        return code
    return update_tables(SIGN_OFF_PAGE, {"sign-off": trim(text)}, check, out) or code


def _sign(kernels: str, examples: int) -> tuple[str, int]:
    """Run the command; return what it writes ("" if nothing) and its exit code."""
    options = [word for name in kernels.split() for word in ("--kernel", name)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sign-off.md")
        command = [sys.executable, "-m", "gemmproof", "signoff", *options]
        command += ["--drift", "--max-examples", str(examples), "--markdown", str(file)]
        command += ["--mutation", str(MUTATION.relative_to(ROOT))]  # named on the page
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        return file.read_text(encoding="utf-8") if file.is_file() else "", code


def trim(text: str) -> str:
    """Return the comment without its hash, which is that of a JSON report that is not kept."""
    head, _, last = text.strip().rpartition("\n")
    return head.strip() if last.startswith("`sha256:") else text.strip()


# -- docs/reference/versions.md --------------------------------------------------------------------
LABELS = {"python": "Python", "triton": "Triton", "cpus": "CPUs"}  # others are named as the field


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """A run of the whole suite: the versions, the counts of tests, and the time."""

    python: str
    torch: str
    triton: str
    numpy: str
    passed: int
    skipped: int
    failed: int
    minutes: float
    cpus: int | None
    date: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The versions that distinguish runs."""
        return self.triton, self.torch, self.python


def make_versions_page(
    check: bool = False, out: Path | None = None, junit: Path | None = None
) -> int:
    """Make the table of docs/reference/versions.md from docs/evidence/versions.json.

    --junit FILE first adds a run of the suite in this environment, from pytest's report. A new row
    replaces an earlier one of the same Python, torch and Triton.
    """
    text = VERSIONS.read_text(encoding="utf-8") if VERSIONS.exists() else "[]"
    runs = parse(list[SuiteRun], text, str(VERSIONS))
    if junit is not None:
        runs = add_run(runs, describe_run(junit))
        text = ",\n".join(map(dump, runs))
        VERSIONS.write_text(f"[\n{text}\n]\n", encoding="utf-8")
    return update_tables(VERSIONS_PAGE, {"versions": format_table(runs)}, check, out)


def describe_run(junit: Path) -> SuiteRun:
    """Return the versions of this environment with the counts and the time of a JUnit report."""
    from junitparser import JUnitXml, TestSuite

    report = JUnitXml.fromfile(str(junit))
    suites = [report] if isinstance(report, TestSuite) else list(report)
    tests, skipped = (sum(getattr(s, name) for s in suites) for name in ("tests", "skipped"))
    failed = sum(s.failures + s.errors for s in suites)
    return SuiteRun(
        python=platform.python_version(),
        torch=version("torch"),
        triton=version("triton"),
        numpy=version("numpy"),
        passed=tests - skipped - failed,
        skipped=skipped,
        failed=failed,
        minutes=round(sum(s.time for s in suites) / 60, 1),
        cpus=os.cpu_count(),
        date=datetime.now(UTC).date().isoformat(),
    )


def add_run(runs: list[SuiteRun], run: SuiteRun) -> list[SuiteRun]:
    """Return the runs with this one, which replaces one of the same versions, in order."""

    def order(run: SuiteRun) -> list[list[int]]:
        plain = (text.partition("+")[0] for text in run.key)
        return [[int(n) for n in text.split(".")] for text in plain]

    return sorted([*(x for x in runs if x.key != run.key), run], key=order)


def format_table(runs: list[SuiteRun]) -> str:
    """Return the table in Markdown."""
    head = [LABELS.get(f.name, f.name) for f in fields(SuiteRun)]
    return make_table(head, ([*map(str, astuple(run))] for run in runs))
