"""Help pages: one for each property and each fault, that fits a screen and is correct."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.corpora.mutants.table import MUTANTS, SURVIVORS
from tests.support.lanes import first_of_each

from gemmproof.cli import parser
from gemmproof.commands.check import contract_of
from gemmproof.drift.run import drift_of
from gemmproof.engine.check import check
from gemmproof.properties.contract import Contract
from gemmproof.properties.help import Example
from gemmproof.properties.help.pages import CLAIMS, FAULT_PAGES, PAGES, find_pages
from gemmproof.properties.judges.accumulator_drift import CLAIM, NAME
from gemmproof.properties.judges.memory_use import PROPERTY_OF
from gemmproof.properties.judges.metamorphic import RELATIONS
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.table import BY_NAME
from gemmproof.reference.simulation import KINDS
from gemmproof.report.record import Report
from gemmproof.report.text import WIDTH, page_lines
from gemmproof.target import load, parse

ROOT = Path(__file__).parents[2]
EVERY = {**PAGES, **FAULT_PAGES}
SCREEN = 40
# calls whose argument at this index is the name of a fault
NAMING = {"Explanation": 0, "Elements": 0, "Use": 0, "Deviation": 0, "wrong": 0, "note": 0}
FINDING = {"make_finding": 2, "_not_related": None}


def words_of(path: Path) -> set[str]:
    """Return the fault names in a file: arguments of findings, and `fault = ...`."""
    nodes: list[ast.expr] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            index = NAMING.get(name, FINDING.get(name))
            nodes += [] if index is None else node.args[index : index + 1]
            nodes += [k.value for k in node.keywords if k.arg == "fault"]
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "fault":
            nodes.append(node.value)
        elif isinstance(node, ast.Tuple) and path.stem == "accumulator_drift":
            nodes += node.elts[:1]
        elif isinstance(node, ast.Yield) and path.stem == "wrong_formula":
            nodes += getattr(node.value, "elts", [])[:1]
    chosen = [part for n in nodes for part in ([n.body, n.orelse] if hasattr(n, "orelse") else [n])]
    literal = [inner for node in chosen for inner in ast.walk(node)]
    values = {node.value for node in literal if isinstance(node, ast.Constant)}
    return {w for w in values if isinstance(w, str) and re.fullmatch("[a-z]+(_[a-z]+)*", w)}


def test_every_property_has_a_page_and_its_claim_stands_there():
    assert set(PAGES) == {*BY_NAME, NAME}
    assert {name: p.claim for name, p in BY_NAME.items()} | {NAME: CLAIM} == dict(CLAIMS)


def test_every_kind_that_an_observer_sees_has_a_page_on_the_property_that_it_breaks():
    assert {name: FAULT_PAGES[name].says for name in KINDS} == KINDS
    assert {name: FAULT_PAGES[name].properties for name in KINDS} == {
        name: (holder,) for name, holder in PROPERTY_OF.items()
    }


def test_every_fault_that_findings_name_has_a_page():
    folders = [
        ROOT / name for name in ("properties", "src/gemmproof/engine", "src/gemmproof/worker")
    ]
    known = {word for folder in folders for path in folder.rglob("*.py") for word in words_of(path)}
    known |= {f"not_{name}" for name in RELATIONS}
    known |= {mutant.fault for mutant in (*MUTANTS, *SURVIVORS)}
    assert {"operand_cut", "rounding", "narrow_split", "no_launch", "k_block", "exit"} <= known
    assert known - set(FAULT_PAGES) == set()


def test_no_page_is_about_what_nothing_reports():
    folders = [ROOT / name for name in ("properties", "reference", "src")]
    paths = [p for d in folders for p in d.rglob("*.py") if p.parent.name != "help"]
    text = "\n".join(path.read_text() for path in paths)
    composed = {f"not_{name}" for name in RELATIONS} | {
        "gap_changed",
        "guard_changed",
        "view_changed",
    }
    composed |= {"element_changed", "kernel_error"}
    assert [name for name in FAULT_PAGES if name not in composed and f'"{name}"' not in text] == []


@pytest.mark.parametrize("name", EVERY)
def test_a_page_fits_a_screen(name):
    shown = [text for text, _ in page_lines(EVERY[name])]
    assert len(shown) <= SCREEN
    assert max(map(len, shown)) <= WIDTH
    assert shown[0].startswith(name)


def test_what_pages_point_to_is_there():
    check = parser()._subparsers._group_actions[0].choices["check"]
    options = {*check._option_string_actions, "--memory-limit"}
    for page in PAGES.values():
        assert [doc for doc in page.docs if not (ROOT / doc).is_file()] == []
        text = " ".join([page.judged, *page.options, *(fix for _, fix in page.causes)])
        assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", text)) <= options
    for page in FAULT_PAGES.values():
        assert set(page.properties) <= set(PAGES)
        assert page.causes


def test_a_word_means_its_own_page_or_those_that_have_it_as_a_part():
    def names(word: str) -> list[str]:
        return [page.name for page in find_pages(word)]

    assert names("stays_in_bounds") == names("bounds") == names("in-bounds") == ["stays_in_bounds"]
    assert names("race") == ["race"]
    assert names("rounding") == ["rounding"]
    assert len(names("operand")) > 3
    assert names("ound") == names("nonsense") == names("") == []


def test_pages_cost_nothing_to_import():
    code = "import sys; import gemmproof.properties.help.pages; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"torch", "triton", "numpy", "rich", "jinja2"} & set(loaded)


# -- the wrong lines of the pages are found, and their fixes pass ----------------------------------
DRIFT = "accumulator_as_declared"
OF_FAULTS = {name: page for name, page in FAULT_PAGES.items() if page.example is not None}
WITH_EXAMPLES = {**PAGES, **OF_FAULTS}
JUDGED = [
    name for name, page in WITH_EXAMPLES.items() if not page.example.unjudged and name != DRIFT
]
RIGHT = Path(__file__).parents[2] / "docs" / "examples" / "right.py"


def write_example(folder: Path, name: str, example: Example, wrong: bool) -> str:
    """Write a kernel with the right line, or the wrong one; return its target for `check`."""
    text = RIGHT.read_text()
    for old, new in example.given:
        assert text.count(old) == 1, f"{name}: {old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    assert text.count(example.right) == 1, f"{name}: {example.right!r} is not there once"
    path = folder / f"{name}_{'wrong' if wrong else 'right'}.py"
    path.write_text(text.replace(example.right, example.wrong) if wrong else text)
    return f"{path}:matmul"


def judge_example(target: str, example: Example, max_examples: int = 60) -> Report:
    """Return the report of `check` under the example's options, without a proof."""
    options = parser().parse_args(["check", target, "--no-proof", *example.options])
    kernel = KernelUnderTest("matmul", load(parse(target)), contract_of(options, parse(target)))
    return check(kernel, max_examples=max_examples, target=options.gpu)


def test_only_what_needs_a_gpu_or_a_mirror_is_not_judged():
    unjudged = {name for name, page in WITH_EXAMPLES.items() if page.example.unjudged}
    assert unjudged == {"equals_prediction", "mirror_equals_source"}


@pytest.mark.parametrize("name", first_of_each(JUDGED))
def test_a_wrong_line_is_found_and_its_repair_passes(name, tmp_path):
    example = WITH_EXAMPLES[name].example
    wrong = judge_example(write_example(tmp_path, name, example, wrong=True), example)
    (first, *_) = (finding for finding in wrong.findings if finding.cause is None)
    assert name in (first.property, first.fault), first.message
    right = judge_example(write_example(tmp_path, name, example, wrong=False), example, 12)
    assert (right.verdict, right.findings) == ("pass", ())


@pytest.mark.lane("full")
def test_a_narrow_accumulator_is_found_by_drift(tmp_path):
    example = PAGES[DRIFT].example
    verdicts = {}
    for wrong in (True, False):
        launch = load(parse(write_example(tmp_path, DRIFT, example, wrong)))
        kernel = KernelUnderTest("matmul", launch, Contract())
        report = drift_of(kernel, "fp16", target=None, sizes=(512,))
        verdicts[wrong] = report.verdict, {finding.property for finding in report.findings}
    assert verdicts == {True: ("fail", {DRIFT}), False: ("pass", set())}
