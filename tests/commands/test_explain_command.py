"""`gemmproof explain`: its output, the picture, and one clear line for bad usage."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.support.cli_project import NO_ROOM, refuse
from tests.support.lanes import first_of_each
from tests.texts import line_with

from gemmproof.cli import main
from gemmproof.engine.kernel_check import check
from gemmproof.properties.address_map import AddressMap
from gemmproof.properties.address_map.explain_access import explain
from gemmproof.properties.codec import decode, encode
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest

ROOT = Path(__file__).parents[2]
EXAMPLE = "docs/examples/no_k_mask.py:matmul"
COMMANDS = re.findall(
    r"^\$ (gemmproof explain .*?--svg (\S+))$",
    (ROOT / "docs/how-to/explain.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
UNFOLLOWED = """
import torch
import triton
import triton.language as tl


@triton.jit
def gathering(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    at = tl.load(a_ptr + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < K, other=0.0)
    tl.store(c_ptr + at.to(tl.int32), at)


def follows_data(a, b):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    gathering[(1,)](a, b, c, a.shape[1], BLOCK=16)
    return c


def reads_a_number(a, b):
    if a[0, 0].item() > 0:
        return a @ b
    return follows_data(a, b)


def launches_nothing(a, b):
    return a @ b


def raises(a, b):
    raise ValueError("not today")
"""


@pytest.mark.lane("full")
def test_reports_without_room_are_incomplete_and_the_map_is_printed(monkeypatch, capsys, texts):
    monkeypatch.chdir(ROOT)
    for option in ("--json", "--svg"):
        assert main(["explain", EXAMPLE, option, "/dev/full"]) == 3
        out, err = capsys.readouterr()
        texts("a block that is loaded", line_with(out, "load a"))
        assert err == f"gemmproof explain: {option}: {NO_ROOM}\n"


def test_it_prints_each_access_and_what_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    report = tmp_path / "map.json"
    assert main(["explain", EXAMPLE, "--json", str(report)]) == 0
    out = capsys.readouterr().out
    for line in (
        "kernel kernel, grid (cdiv(M, 32), cdiv(N, 64)), every M, N, K",
        "no_k_mask.py:21:13  load a, a block of 32 x 32",
        "row    = program_id(0) * 32 + i    needs row < M: from the mask",
        "column = k + j                     needs column < K: MISSING, fails at M=1 N=1 K=1",
        "add to the mask: & (offs_k[None, :] < K)",
        "tl.load(b_ptrs, mask=(offs_n < N) & (offs_k[:, None] < K), other=0.0)",
        "proved: then every lane is within b, for every M, N, K",
    ):
        assert line in out
    data = json.loads(report.read_text())
    again = decode(AddressMap, data, "map")
    assert json.loads(json.dumps(encode(again))) == data
    assert [x.status for x in again.kernels[0].accesses] == ["missing", "missing", "proved"]


@pytest.mark.lane("full")
def test_one_line_alone(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["explain", EXAMPLE, "--line", "25"]) == 0
    text = capsys.readouterr().out
    assert "store c" in text
    assert "load" not in text
    refused = refuse(["explain", EXAMPLE, "--line", "3"], capsys)
    text = "--line: got 3, expected a line that loads or stores: 21 22 25"
    assert refused == f"gemmproof explain: {text}\n"


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["no_such.py:f"], "no such file"),
        ([EXAMPLE, "--case", "{"], "case"),
        ([EXAMPLE, "--svg", "/no/such/folder/x.svg"], "--svg: got '/no/such/folder/x.svg'"),
        ([EXAMPLE, "--svg", "x.svg", "--case", '{"M": 4000, "N": 1, "K": 1}'], "at most 512"),
        # a word that means nothing
        (["stay_in_bounds"], "expected one of: compiles runs_to_completion "),
        (["stay_in_bounds"], ", a fault or a TARGET; did you mean 'stays_in_bounds'?"),
        (["narrow"], "got 'narrow', expected one of: narrow_accumulator narrow_split narrow_op"),
        (["race", "--svg", "x.svg"], "--svg: got the property or fault 'race', expected a TARGET"),
        (["race", "--line", "3"], "--line: got the property or fault 'race', expected a TARGET"),
        (["race.py"], "target: got 'race.py', expected path/to/file.py:function or package.mod"),
        (["race/"], "target: got 'race/', expected path/to/file.py:function or package.module"),
    ],
)
def test_bad_usage_gets_one_line(args, message, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert message in refuse(["explain", *args], capsys)
    assert not Path("x.svg").exists()


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("function", "status", "message"),
    [
        ("follows_data", 0, "not decided: "),
        ("reads_a_number", 3, "no launch could be analysed: "),
        ("launches_nothing", 3, "the wrapper launches no Triton kernel"),
        ("raises", 3, "no launch could be analysed"),
    ],
)
def test_what_cannot_be_followed_is_said_in_a_line(function, status, message, tmp_path, capsys):
    (tmp_path / "unfollowed.py").write_text(UNFOLLOWED)
    assert main(["explain", f"{tmp_path / 'unfollowed.py'}:{function}"]) == status
    shown = capsys.readouterr()
    assert message in shown.out + shown.err
    assert status == 0 or shown.err.count("\n") == 1


MARKS = {"explain-grouped.svg": pytest.mark.triton("line_of_a_call")}


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("command", "name"),
    [pytest.param(*x, marks=MARKS.get(x[1], ()), id=x[1]) for x in COMMANDS],
)
def test_the_pictures_of_the_docs_are_what_the_commands_draw(command, name, monkeypatch, tmp_path):
    import shlex

    monkeypatch.chdir(ROOT)
    args = shlex.split(command)[1:]
    args[args.index(name)] = str(tmp_path / "drawn.svg")
    assert main(args) == 0
    drawn, kept = (
        list(ElementTree.parse(path).getroot().itertext())
        for path in (
            tmp_path / "drawn.svg",
            ROOT / "docs/pictures" / name.replace(".svg", "-light.svg"),
        )
    )
    assert drawn == kept
    assert len(COMMANDS) == 2


def test_a_word_of_a_report_is_explained(capsys, tmp_path, texts):
    assert main(["explain", "stays_in_bounds"]) == 0
    out, err = capsys.readouterr()
    texts("the claim of a property", out.splitlines()[0])
    texts("the faulty line of an example", line_with(out, "- a = tl.load"))
    assert err == ""
    path = tmp_path / "page.json"
    assert main(["explain", "race", "--json", str(path)]) == 0
    texts("the claim of a fault", capsys.readouterr().out.splitlines()[0])
    assert json.loads(path.read_text())["breaks"] == ["no_races"]


# -- a line that explain suggests, pasted into a copy of the kernel, makes `check` pass ------------
EXAMPLES = ROOT / "docs" / "examples"
MUTANTS = ROOT / "tests" / "corpora" / "mutants"
BROKEN = [
    (EXAMPLES / "no_k_mask.py", "matmul"),
    (EXAMPLES / "unmasked_row.py", "matmul"),
    (MUTANTS / "k_tail.py", "no_k_mask_on_b"),
    (MUTANTS / "coverage.py", "no_column_mask_on_store"),
]
CONTRACT = Contract(M="1..200", N="1..200", K="1..200")


def load(path: Path, function: str) -> KernelUnderTest:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return KernelUnderTest(function, getattr(module, function), CONTRACT)


@pytest.mark.parametrize(
    ("path", "function"), first_of_each(BROKEN), ids=[name for _, name in BROKEN]
)
def test_a_pasted_line_mends_the_kernel(path, function, tmp_path):
    explanation = explain(load(path, function))
    lines = path.read_text().splitlines(keepends=True)
    fixes = {x.line: x.fix for kernel in explanation.kernels for x in kernel.accesses if x.fix}
    assert fixes
    for number, fix in fixes.items():
        assert fix.proved
        old = lines[number - 1]
        begin = min(old.index(word) for word in ("tl.load", "tl.store") if word in old)
        lines[number - 1] = f"{old[:begin]}{fix.call}\n"
    fixed = tmp_path / f"{path.stem}_{function}.py"
    fixed.write_text("".join(lines))
    kernel = load(fixed, function)
    assert all(
        x.status == "proved" for explained in explain(kernel).kernels for x in explained.accesses
    )
    assert check(kernel, max_examples=15, proof=False).verdict == "pass"


def test_a_finding_says_what_is_missing(texts):
    kernel = load(EXAMPLES / "no_k_mask.py", "matmul")
    report = check(kernel, max_examples=2, proof=True)
    messages = {f.where: f.message for f in report.findings if f.property == "stays_in_bounds"}
    texts("what the mask of a lacks", messages["no_k_mask.py:21"])
    texts("what the mask of b lacks", messages["no_k_mask.py:22"])
    report = check(kernel, max_examples=2, proof=False)
    assert not any("; missing: " in f.message for f in report.findings)


def test_a_missing_condition_names_the_size_and_not_a_stride_that_equals_it(tmp_path):
    text = (EXAMPLES / "right.py").read_text().replace("stride_cm", "row_step")
    assert text.count("(offs_n < N))") == 1
    (tmp_path / "steps.py").write_text(text.replace("(offs_n < N))", "(offs_n <= N))"))
    explained = explain(load(tmp_path / "steps.py", "matmul")).kernels[0]
    (store,) = (access for access in explained.accesses if access.kind == "store")
    assert store.fix.condition == "(offs_n < N)"


@pytest.mark.lane("full")
def test_nothing_is_said_where_the_index_may_be_wrong():
    """Its mask tests rows against N: another condition would exclude rows."""
    kernel = load(MUTANTS / "coverage.py", "store_mask_of_the_other_axis")
    report = check(kernel, max_examples=2, proof=True)
    violations = [f for f in report.findings if f.property == "stays_in_bounds"]
    assert violations
    assert not any("; missing: " in f.message for f in violations)
    (store,) = (
        x for explained in explain(kernel).kernels for x in explained.accesses if x.kind == "store"
    )
    assert store.fix.besides == "row < N and column < M"
