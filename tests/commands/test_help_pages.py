"""Help pages: one for each property and each fault, that fits a screen and is correct."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.corpora.mutants.table import MUTANTS, SURVIVORS
from tests.support.lanes import first_of_each

from gemmproof.cli import main, parse_options, parser
from gemmproof.commands.groups import contract_of
from gemmproof.drift.run import drift_of
from gemmproof.engine.kernel_check import check
from gemmproof.explain.text import WIDTH, is_example, page_lines
from gemmproof.properties.contract import Contract
from gemmproof.properties.help import (
    CAUSES,
    Page,
    find_pages,
    read_faults,
    read_proofs,
    read_properties,
)
from gemmproof.properties.judges.accumulator_drift import NAME
from gemmproof.properties.judges.memory_use import PROPERTY_OF
from gemmproof.properties.judges.metamorphic import RELATIONS
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.property_table import BY_NAME
from gemmproof.reference.simulation import KINDS
from gemmproof.report.record import Report
from gemmproof.target import load, parse

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "reference" / "properties"
PAGES, FAULT_PAGES = read_properties(), read_faults()
EVERY = {**PAGES, **FAULT_PAGES}
SCREEN = 40
# calls whose argument at this index is the name of a fault
NAMING = {"Hypothesis": 0, "Elements": 0, "Deviation": 0, "wrong": 0, "note": 0}
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
        elif isinstance(node, ast.Yield) and path.parent.name == "diagnosis":
            nodes += getattr(node.value, "elts", [])[:1]
    chosen = [part for n in nodes for part in ([n.body, n.orelse] if hasattr(n, "orelse") else [n])]
    literal = [inner for node in chosen for inner in ast.walk(node)]
    values = {node.value for node in literal if isinstance(node, ast.Constant)}
    return {w for w in values if isinstance(w, str) and re.fullmatch("[a-z]+(_[a-z]+)*", w)}


def test_every_property_has_a_page_with_each_section(texts):
    assert set(PAGES) == {*BY_NAME, NAME}
    texts("the claim of a page", BY_NAME["no_races"].claim)
    for page in PAGES.values():
        titles = ["Example" if is_example(title) else title for title in page.sections]
        texts("the sections of a page", "\n".join(titles))
        assert all([page.claim, *page.sections.values()]), page.name


def test_a_heading_or_a_row_is_a_page_once():
    """Two of one name would be one page, and a name with a capital or a space none."""
    texts = [path.read_text() for path in DOCS.glob("*.md")]
    rows = [name for text in texts for name in re.findall(r"^\| `(\w+)`", text, re.M)]
    assert rows == list(FAULT_PAGES)
    headings = [name for text in texts for name in re.findall(r"^##+ (.*_.*|[a-z]+)$", text, re.M)]
    own = [name for name, page in FAULT_PAGES.items() if any(map(is_example, page.sections))]
    assert sorted(headings) == sorted([*PAGES, *own, *read_proofs()])


def test_the_meaning_of_a_proof_fits_a_screen(capsys):
    """It names each assumption that a report may name."""
    assert main(["explain", "proved"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("proved: the property holds for every size")
    assert out.count("\n") <= 30
    for word in ("65536", "2**31", "2**38", "workspace", "multiprocessors", "exit code 2"):
        assert word in " ".join(out.split())


def test_every_kind_that_an_observer_sees_has_a_page_on_the_property_that_it_breaks():
    assert {name: FAULT_PAGES[name].claim for name in KINDS} == KINDS
    assert {name: FAULT_PAGES[name].breaks for name in KINDS} == {
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
    paths = [p for d in folders for p in d.rglob("*.py")]
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
        links = [
            link for item in page.sections["See also"] for link in re.findall(r"\((.+?)\)", item)
        ]
        assert [link for link in links if not (DOCS / link).is_file()] == [] != links
        text = " ".join(item for items in page.sections.values() for item in items)
        assert set(re.findall(r"--[a-z]+(?:-[a-z]+)*", text)) <= options
    for page in FAULT_PAGES.values():
        assert set(page.breaks) <= set(PAGES)
        assert page.sections[CAUSES]


def test_the_index_has_each_property():
    text = (DOCS / "README.md").read_text()
    linked = re.findall(r"\[(\w+)\]\(([a-z-]+\.md)#(\w+)\)", text)
    assert [name for name, _, _ in linked] == list(PAGES)
    for name, file, anchor in linked:
        assert name == anchor
        assert f"\n## {name}\n" in (DOCS / file).read_text()


def test_a_word_means_its_own_page_or_those_that_have_it_as_a_part():
    def names(word: str) -> list[str]:
        return [page.name for page in find_pages(word)]

    assert names("stays_in_bounds") == names("bounds") == names("in-bounds") == ["stays_in_bounds"]
    assert names("race") == ["race"]
    assert names("rounding") == ["rounding"]
    assert len(names("operand")) > 3
    assert names("ound") == names("nonsense") == names("") == []


def test_pages_are_read_without_heavy_imports():
    code = "import sys; from gemmproof.properties.help import *; find_pages('race');"
    code += " print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"torch", "triton", "numpy", "rich", "jinja2"} & set(loaded)


# -- the wrong lines of the pages are found, and their fixes pass ----------------------------------
DRIFT = "accumulator_as_declared"
UNJUDGED = ("equals_prediction", "mirror_equals_source")  # they take a GPU, and a mirror
WITH_EXAMPLES = {name: p for name, p in EVERY.items() if any(map(is_example, p.sections))}
JUDGED = [name for name in WITH_EXAMPLES if name not in (DRIFT, *UNJUDGED)]
RIGHT = Path(__file__).parents[2] / "docs" / "examples" / "right.py"
# c in fp32, of two shares of K that are added up in memory
SHARES = (
    (
        "c = torch.empty((M, N), device=a.device, dtype=a.dtype)",
        "c = torch.zeros((M, N), device=a.device, dtype=torch.float32)",
    ),
    ("triton.cdiv(N, 64))", "triton.cdiv(N, 64), 2)"),
    ("range(0, K, BLOCK_K)", "range(tl.program_id(2) * BLOCK_K, K, tl.num_programs(2) * BLOCK_K)"),
    (
        "tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(offs_m < M) & (offs_n < N))",
        "tl.atomic_add(c_ptrs, acc, mask=(offs_m < M) & (offs_n < N))",
    ),
)
# the conditions in titles of examples, such as "where c is fp32": edits of docs/examples/right.py
GIVEN = {
    "symmetries": (("device=a.device, dtype=a.dtype", "device=a.device, dtype=torch.float32"),),
    "no_races": SHARES,
    "row_bits_at_any_m": (*SHARES, ("kernel[grid](", "kernel[(*grid[:2], 2)](")),
    "same_bits_on_dirty_outputs": (
        ("import torch\n", "import torch\n\ncalls = [0]\n"),
        ("device=a.device, dtype=a.dtype", "device=a.device, dtype=torch.float32"),
    ),
    "call_order": (("import torch\n", "import torch\n\nkept = {}\n"),),
    "undefined_used": (
        (
            "acc = tl.dot(a, b, acc)",
            "if tl.sum(tl.sum((a == a).to(tl.int32), axis=1), axis=0) >= 0:\n"
            "            acc = tl.dot(a, b, acc)",
        ),
    ),
    "bad_descriptor": (
        (
            "M, K = a.shape",
            "triton.set_allocator(lambda size, *_: torch.empty(size, device=a.device))\n"
            "    M, K = a.shape",
        ),
    ),
}


def read_example(page: Page) -> tuple[str, str, list[str]]:
    """Return the wrong lines, the right ones, and the options of the check that shows it."""
    ((title, items),) = ((t, items) for t, items in page.sections.items() if is_example(t))
    wrong, right = ("\n".join(x[2:] for x in items if x[0] == sign) for sign in "-+")
    match = re.search("found with `(.+)`", title)
    return wrong, right, shlex.split(match[1]) if match else []


def write_example(folder: Path, page: Page, is_wrong: bool) -> str:
    """Write a kernel with the right lines, or the wrong ones; return its target for `check`."""
    text = RIGHT.read_text()
    for old, new in GIVEN.get(page.name, ()):
        assert text.count(old) == 1, f"{page.name}: {old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    wrong, right, _ = read_example(page)
    first = right.splitlines()[0]
    (line,) = (line for line in text.splitlines() if first in line)
    indent = " " * (len(line) - len(line.lstrip()))
    wrong, right = (text.replace("\n", f"\n{indent}") for text in (wrong, right))
    assert text.count(right) == 1, f"{page.name}: {right!r} is not there once"
    path = folder / f"{page.name}_{'wrong' if is_wrong else 'right'}.py"
    path.write_text(text.replace(right, wrong) if is_wrong else text)
    return f"{path}:matmul"


def judge_example(target: str, page: Page, max_examples: int = 60) -> Report:
    """Return the report of `check` under the example's options, without a proof."""
    *_, argv = read_example(page)
    options = parse_options(["check", target, "--no-proof", *argv])
    contract = contract_of(options.contract, parse(target))
    kernel = KernelUnderTest("matmul", load(parse(target)), contract)
    return check(kernel, max_examples=max_examples, target=options.search.gpu)


@pytest.mark.parametrize("name", first_of_each(JUDGED))
def test_a_wrong_line_is_found_and_its_repair_passes(name, tmp_path):
    page = WITH_EXAMPLES[name]
    wrong = judge_example(write_example(tmp_path, page, is_wrong=True), page)
    (first, *_) = (finding for finding in wrong.findings if finding.cause is None)
    assert name in (first.property, first.fault), first.message
    right = judge_example(write_example(tmp_path, page, is_wrong=False), page, 12)
    assert (right.verdict, right.findings) == ("pass", ())


@pytest.mark.lane("full")
def test_a_narrow_accumulator_is_found_by_drift(tmp_path):
    verdicts = {}
    for is_wrong in (True, False):
        launch = load(parse(write_example(tmp_path, PAGES[DRIFT], is_wrong)))
        kernel = KernelUnderTest("matmul", launch, Contract())
        report = drift_of(kernel, "fp16", target=None, sizes=(512,))
        verdicts[is_wrong] = report.verdict, {finding.property for finding in report.findings}
    assert verdicts == {True: ("fail", {DRIFT}), False: ("pass", set())}
