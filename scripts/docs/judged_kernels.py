"""Pages on the kernels of tests/corpora: their findings and proofs, tabulated."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

from scripts.docs.markdown import ROOT, make_table, update_tables
from scripts.verdicts.subjects import EXAMPLES, load_file
from tests.corpora.families.table import RIGHT
from tests.corpora.mutant import CLASSES, Mutant
from tests.corpora.mutants import unflawed
from tests.corpora.mutants.table import MUTANTS, SURVIVORS
from tests.corpora.no_false_alarm.table import KERNELS
from tests.support.wide import wide

from gemmproof.engine.kernel_check import check
from gemmproof.engine.proofs import PROVABLE
from gemmproof.properties.contract import Contract
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import NOT_DECIDED, PROVED, REFUTED
from gemmproof.report.record import Report

STRENGTH_PAGE = ROOT / "docs" / "results" / "strength.md"
PROOFS_PAGE = ROOT / "docs" / "explanation" / "proofs.md"
STYLES_PAGE = ROOT / "docs" / "results" / "public-kernels.md"


class JudgedMutant(NamedTuple):
    """A mutant, the first finding of its check (None if it passed), and the check's seconds."""

    mutant: Mutant
    finding: Finding | None
    seconds: float

    @property
    def caught(self) -> bool:
        """True if the first finding is the declared one."""
        return self.finding is not None and self.mutant.is_stated(self.finding)


def judge_mutant(mutant: Mutant, examples: int) -> JudgedMutant:
    """Check a mutant and return its first finding."""
    report = check(mutant.kernel, max_examples=examples, target=mutant.target)
    return JudgedMutant(mutant, next(iter(report.findings), None), report.seconds)


def tabulate_caught_classes(rows: list[JudgedMutant]) -> str:
    """Tabulate the classes of mutants, from rows in the order of the classes."""
    cells = []
    for letter, group in groupby(rows, lambda row: row.mutant.letter):
        own = list(group)
        properties = Counter(row.finding.property for row in own if row.finding is not None)
        found_by = ", ".join(f"{p} ({n})" if n > 1 else p for p, n in properties.most_common())
        times = [row.seconds for row in own]
        seconds = f"{median(times):.2f}, {max(times):.2f}"
        caught = sum(row.caught for row in own)
        name = f"{letter}. {CLASSES[letter]}"
        cells.append([name, str(len(own)), str(caught), found_by, seconds])
    return make_table(("class", "mutants", "caught", "found by", "median, slowest (s)"), cells)


def tabulate_mutants(rows: list[JudgedMutant]) -> str:
    """Tabulate the mutants."""
    cells = []
    for row in rows:
        f, finding_cells = row.finding, ["missed", "", "", ""]
        if f is not None:
            operands = ", ".join(word for word in (f.operand, f.axis) if word)
            other = "" if row.caught else " (not as declared)"
            finding_cells = [f.property + other, f.fault, operands, str(f.case)]
        cells.append(
            [row.mutant.letter, f"`{row.mutant.name}`", *finding_cells, f"{row.seconds:.2f}"]
        )
    head = ("class", "mutant", "property", "fault", "operand, axis", "smallest case", "s")
    return make_table(head, cells)


def make_strength_page(examples: int = 100, check: bool = False, out: Path | None = None) -> int:
    """Check every mutant and make the tables of docs/results/strength.md.

    Each is checked with --examples cases of each format. Takes many minutes. Exits with 1 if a
    mutant that tests/corpora/mutants/table.py lists as caught is missed, or is caught for a reason
    other than the declared one.
    """
    rows = [judge_mutant(m, examples) for m in (*MUTANTS, *SURVIVORS)]
    rows.sort(key=lambda row: (row.mutant.letter, not row.caught))
    times = [row.seconds for row in rows]
    missed = [row.mutant for row in rows if not row.caught]
    tables = {
        "caught": f"{len(rows) - len(missed)} of {len(rows)} mutants are caught, with up to"
        f" {examples} cases of each format. A check takes {median(times):.2f} s in the median,"
        f" {max(times):.2f} s at most.",
        "classes": tabulate_caught_classes(rows),
        "mutants": tabulate_mutants(rows),
    }
    print(tables["caught"], *(mutant.name for mutant in missed))
    return update_tables(STRENGTH_PAGE, tables, check, out) or int(
        not set(missed) <= set(SURVIVORS)
    )


# -- proofs ----------------------------------------------------------------------------------------
PROCESSES = 2
SHORT = {PROVED: "proved", REFUTED: "refuted", NOT_DECIDED: "-", "": ""}
DENSE = wide(layouts="contiguous")
CONTRACTS = {"right": wide(), "dense_only": DENSE}
TUTORIALS = {
    "masked_everywhere:matmul": wide(formats=("bf16",), layouts="contiguous"),
    "cast_on_store:matmul": wide(formats=("bf16",), layouts="contiguous"),
    "step_by_step:persistent": DENSE,
}


@dataclass(frozen=True, slots=True)
class ProvedKernel:
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


def judge_proofs(
    kernel: KernelUnderTest, letter: str, target: str | None, examples: int
) -> ProvedKernel:
    """Check a kernel with up to `examples` cases, refuting ones included, and return its proofs."""
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
    return ProvedKernel(letter, kernel.name, status, reasons, mistake, round(spent, 2))


# -- kernels ---------------------------------------------------------------------------------------
def list_kernels() -> list[tuple[KernelUnderTest, str, str | None]]:
    """Return every kernel of the corpora and of this repository; right ones have no letter."""
    own = load_file("own_kernels", ROOT / "conftest.py").pytest_gemm_kernels()
    right = [kernel for kernel in own if not kernel.device_only]
    right += [*KERNELS, *RIGHT, *unflawed.KERNELS]
    for name, contract in CONTRACTS.items():
        launch = load_file(f"example_{name}", EXAMPLES / f"{name}.py").matmul
        right.append(KernelUnderTest(f"docs/examples/{name}.py", launch, contract))
    for target, contract in TUTORIALS.items():
        module, _, function = target.partition(":")
        launch = getattr(import_module(f"tests.corpora.tutorials.{module}"), function)
        right.append(KernelUnderTest(target.replace(":", "."), launch, contract))
    wrong = [(m.kernel, m.letter, m.target) for m in (*MUTANTS, *SURVIVORS)]
    return [*wrong, *((kernel, "", None) for kernel in right)]


# -- rows ------------------------------------------------------------------------------------------
def _judge(given: tuple[int, int]) -> ProvedKernel:
    number, examples = given
    kernel, letter, target = list_kernels()[number]
    try:
        return judge_proofs(kernel, letter, target, examples)
    except Exception as error:  # for one kernel: the others are still judged
        return ProvedKernel(
            letter, kernel.name, {}, {}, f"raised {type(error).__name__}: {error}", 0.0
        )


def run(
    examples: int, only: str, kept: Path | None, processes: int = PROCESSES
) -> Iterator[ProvedKernel]:
    """A row for each kernel whose class and name contain `only`; those in `kept` are as they are.

    New rows are added there, one a line, so that an interrupted run can continue.
    """
    saved = {}
    if kept is not None and kept.exists():
        rows = (
            ProvedKernel(**json.loads(line))
            for line in kept.read_text(encoding="utf-8").splitlines()
        )
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


# -- tables ----------------------------------------------------------------------------------------
def tabulate_proofs(rows: Iterable[ProvedKernel]) -> str:
    """Tabulate the proofs of correct kernels."""
    cells = []
    for row in rows:
        statuses = (SHORT[row.status.get(name, "")] for name in PROVABLE)
        cells.append([f"`{row.name}`", *statuses, f"{row.seconds:.2f}"])
    return make_table(("kernel", *PROVABLE, "s"), cells)


def tabulate_refuted_classes(rows: Iterable[ProvedKernel]) -> str:
    """Tabulate the classes of mutants: how many are proved, refuted and not decided."""
    cells = []
    for letter, group in groupby(sorted(rows, key=lambda row: row.letter), lambda r: r.letter):
        own = list(group)
        counts = [Counter(row.status.get(x, "") for row in own) for x in PROVABLE]
        decisions = [f"{n[PROVED]}, {n[REFUTED]}, {n[NOT_DECIDED]}" for n in counts]
        refuted = str(sum(REFUTED in row.status.values() for row in own))
        cells.append([f"{letter}. {CLASSES[letter]}", str(len(own)), refuted, *decisions])
    return make_table(("class", "mutants", "refuted", *PROVABLE), cells)


def tabulate_reasons(rows: Iterable[ProvedKernel]) -> str:
    """Tabulate the undecided properties of correct kernels, with reasons."""
    cells = []
    for row in rows:
        for name, reason in row.why.items():
            if row.status[name] == NOT_DECIDED and not reason.startswith("it rests on"):
                cells.append([f"`{row.name}`", name, reason.replace("|", "\\|")])
    return make_table(("kernel", "property", "reason"), cells)


def sum_up(right: list[ProvedKernel], wrong: list[ProvedKernel]) -> str:
    """Return the counts of both tables as a list in Markdown."""
    address = [row.status[x] for row in right for x in PROVABLE[:-1] if x in row.status]
    product = [row.status[PROVABLE[-1]] for row in right if PROVABLE[-1] in row.status]
    times = [row.seconds for row in right] or [0.0]
    refuted = sum(REFUTED in row.status.values() for row in wrong)
    return (
        f"- {len(right)} correct kernels: {address.count(PROVED)} of {len(address)} properties of"
        f" addresses and memory are proved, and {product.count(PROVED)} of {len(product)}"
        f" products.\n"
        f"- {len(wrong)} wrong kernels: {refuted} have at least one property that is refuted.\n"
        f"- The proof of a correct kernel takes {median(times):.2f} s in the median,"
        f" {max(times):.2f} s at most."
    )


def make_proofs_page(
    examples: int = 12, only: str = "", kept: Path | None = None,
    check: bool = False, out: Path | None = None,
) -> int:  # fmt: skip
    """Prove every kernel of the corpora and make the tables of docs/explanation/proofs.md.

    Takes 15 to 20 minutes on two cores. --kept FILE saves each row, so that an interrupted run can
    continue. --only TEXT selects the kernels whose class and name contain the text, and prints the
    tables instead. Exits with 1 if a case contradicts a proof or a refutation.
    """
    rows = sorted(run(examples, only, kept), key=lambda row: (row.letter, row.name))
    right, wrong = [x for x in rows if not x.letter], [x for x in rows if x.letter]
    mistaken = [row for row in rows if "contradicts itself" in row.mistake or not row.status]
    tables = {
        "counts": sum_up(right, wrong),
        "right": tabulate_proofs(right),
        "classes": tabulate_refuted_classes(wrong),
        "reasons": tabulate_reasons(right),
    }
    for row in mistaken:
        print(row.key, row.mistake)
    if only:
        print(*tables.values(), sep="\n\n")
        return int(bool(mistaken))
    return update_tables(PROOFS_PAGE, tables, check, out) or int(bool(mistaken))


# -- styles of public projects ---------------------------------------------------------------------
class Style(NamedTuple):
    """A style of public kernels: its name, projects that use it, and a kernel of that style."""

    name: str
    found_in: str
    kernel: Callable[[], KernelUnderTest]


def _own(name: str) -> Callable[[], KernelUnderTest]:
    wrapper = getattr(import_module("gemmproof.kernels"), name)
    return lambda: KernelUnderTest(name, wrapper)


def _corpus(name: str, contract: Contract | None = None) -> Callable[[], KernelUnderTest]:
    kernel = next(kernel for kernel in KERNELS if kernel.name == name)
    return lambda: KernelUnderTest(name, kernel.launch, contract or Contract())


def _family(name: str) -> Callable[[], KernelUnderTest]:
    kernel = next(kernel for kernel in RIGHT if kernel.name == name)
    return lambda: kernel


UNORDERED = Contract(deterministic=False)
STYLES = (
    Style("tiles in groups of rows", "Triton's tutorial 3", _own("matmul_grouped")),
    Style("persistent programs", "Triton's tutorial 9", _own("matmul_persistent")),
    Style("a compiler's template", "PyTorch Inductor", _corpus("compiler_template")),
    Style("tiles remapped to chiplets", "AITER", _corpus("tiles_remapped_to_chiplets")),
    Style("stream-K with fix-up", "tritonBLAS", _corpus("stream_k_with_fix_up")),
    Style(
        "split K, atomics", "applied-ai (GPTQ, split K)", _corpus("atomics_onto_zeros", UNORDERED)
    ),
    Style("split K, workspace, bias", "AITER", _family("split_k_mm")),
    Style("fp8, scales of rows and columns", "vLLM, torchao", _family("scaled_mm")),
    Style("fp8, scales of blocks", "DeepSeek-V3, vLLM, SGLang", _family("block_scaled_mm")),
    Style("fp8, saturated result", "torchao", _family("fp8_mm")),
    Style("int8, scales and zero points", "bitsandbytes, torchao", _family("int8_mm")),
    Style("mxfp8, dot_scaled", "Triton's tutorial 10", _family("mxfp8_mm")),
    Style("int8 weights", "GemLite", _family("w8a16_mm")),
    Style("int4 weights in groups", "AutoGPTQ, vLLM (AWQ)", _family("w4a16_mm")),
    Style("bias and activation", "kernl, xFormers", _family("linear")),
    Style("residual added", "FlagGems (addmm)", _family("addmm")),
    Style("alpha, beta, c in place", "BLAS's gemm", _family("gemm")),
    Style("gate and up projections", "fused feed-forward layers", _family("swiglu")),
    Style("experts", "vLLM and SGLang (fused MoE)", _family("fused_moe")),
    Style("grouped", "Triton's tutorial 8, torchtitan", _family("grouped_mm")),
    Style("LoRA adapters", "vLLM (Punica)", _family("lora_mm")),
    Style("matrix times vector", "FlagGems (mv)", _family("gemv")),
    Style("bmm with a shared matrix", "FlagGems, Inductor", _family("bmm_flat")),
)


def make_styles_page(examples: int = 20, check: bool = False, out: Path | None = None) -> int:
    """Check a kernel of each style and make the table of styles of docs/results/public-kernels.md.

    Each is checked with --examples cases of each format. Takes several minutes.
    """
    reports = {style: judge_style(style, examples) for style in STYLES}
    return update_tables(STYLES_PAGE, {"styles": tabulate_styles(reports)}, check, out)


def judge_style(style: Style, examples: int) -> Report:
    """Check the kernel of a style, limits included, and return the report."""
    return check(style.kernel(), max_examples=examples, limits=True)


def tabulate_styles(reports: dict[Style, Report]) -> str:
    """Tabulate the styles: the declared operands, the verdict and its figures."""
    cells = []
    for style, report in reports.items():
        kernel = style.kernel()
        operands = ", ".join(f"`{name}`" for name in kernel.operands) or "none"
        held = sum(p.status == "pass" for p in report.properties)
        ratio = max((p.ratio or 0.0 for p in report.properties), default=0.0)
        stopped = sum(limit.status == "limit" for limit in report.limits)
        verdict = f"{report.verdict}, {held} of {len(report.properties)}"
        row = [style.name, style.found_in, operands, verdict, f"{ratio:.2f}", str(stopped)]
        cells.append([*row, f"{report.seconds:.1f}"])
    heads = ("style", "found in", "operands", "verdict, properties", "error/bound", "limits", "s")
    return make_table(heads, cells)
