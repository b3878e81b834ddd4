"""With memory_only every fault of memory is still caught, and no wrong value is a finding."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from xml.etree import ElementTree

import pytest
import torch
from tests.corpora.families.table import RIGHT
from tests.corpora.mutants.table import MUTANTS
from tests.corpora.mutants.unflawed import KERNELS
from tests.support.pytest_project import EXAMPLES, HEAD, read_outcomes, run_pytest, write_project
from tests.texts import line_with

from gemmproof import Case, Contract, KernelUnderTest, Operand, check
from gemmproof.cli import EXIT, main
from gemmproof.engine.observe import read_result
from gemmproof.properties.kernel import list_tensors
from gemmproof.properties.property_table import BY_NAME
from gemmproof.report.record import MEMORY_ONLY, NOT_JUDGED

# a fault of values, or a result of another shape or format than the product's
UNJUDGED = [
    m
    for m in MUTANTS
    if BY_NAME[m.property].of_values
    or m.property == "symmetries"
    or m.fault in ("wrong_shape", "wrong_dtype")
]
JUDGED = [m for m in MUTANTS if m not in UNJUDGED]
# wrong values that also differ from call to call
DIFFER = {
    "trial_runs_add_to_the_result": "same_bits_on_dirty_outputs",
    "result_kept_for_its_shape": "call_order",
}
VALUES = ("computed_by_kernels", "exact_on_integers", "within_bound", "special_values")
LAYER = """
import torch
import right

def scaled(a, b, scale):
    return right.matmul(a, b)

def several(a, b, scale):
    c = right.matmul(a, b)
    return {"c": c, "sizes": c.shape}, (c > 0, None), [c.sum()]

def returns_nothing(a, b, scale):
    right.matmul(a, b)

def beyond(a, b, scale):
    c = right.matmul(a, b)
    return torch.empty((c.shape[0], c.shape[1] + 1), dtype=c.dtype, device=c.device)
"""


@pytest.fixture
def layer(tmp_path, monkeypatch):
    """Return a file of wrappers that take a scale, in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "right.py", tmp_path)
    (tmp_path / "layer.py").write_text(LAYER)
    return tmp_path / "layer.py"


def list_params(mutants):
    """Return a parameter for each mutant; those of a few classes are in the default lane."""
    lanes = {m: m.lane if m.letter in "BCFI" else "full" for m in mutants}
    return [
        pytest.param(m, id=f"{m.letter}-{m.name}", marks=pytest.mark.lane(lane))
        for m, lane in lanes.items()
    ]


def run(name: str, *options: str) -> int:
    few = ("--max-examples", "8", "--no-saved-cases", "--quiet", "--memory-only")
    return main(["check", f"layer.py:{name}", "--operand", "scale=fp32[M]", *few, *options])


# -- corpora -------------------------------------------------------------------------------------
@pytest.mark.parametrize("mutant", list_params(JUDGED))
def test_a_mutant_of_memory_is_caught_for_its_reason(mutant):
    report = check(replace(mutant.kernel, memory_only=True), target=mutant.target)
    assert report.verdict == "fail"
    assert mutant.is_stated(report.findings[0]), report.findings[0]


@pytest.mark.parametrize("mutant", list_params(UNJUDGED))
def test_a_mutant_of_values_passes_unless_they_differ_from_call_to_call(mutant):
    kernel = replace(mutant.kernel, memory_only=True)
    report = check(kernel, max_examples=40, target=mutant.target)
    expected = [DIFFER[mutant.name]] if mutant.name in DIFFER else []
    assert [f.property for f in report.findings] == expected
    assert report.verdict == ("fail" if expected else "pass")


@pytest.mark.lane("full")
@pytest.mark.parametrize("kernel", [*KERNELS, *RIGHT], ids=lambda k: k.name)
def test_a_right_kernel_passes(kernel):
    report = check(replace(kernel, memory_only=True), max_examples=30)
    assert [f.message for f in report.findings] == []
    assert report.verdict == "pass", report.note
    assert {p.name for p in report.properties if p.status == NOT_JUDGED} <= set(VALUES)


# -- results -------------------------------------------------------------------------------------
@dataclass
class _Packed:
    data: torch.Tensor
    bits: int


def test_each_tensor_in_what_is_returned_is_a_result():
    x, y, z = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    assert list_tensors(({"x": x, "n": 3}, [_Packed(y, 4)], z, None)) == [x, y, z]
    assert list_tensors(x) == [x]
    assert list_tensors((3, "text")) == []


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint16, torch.complex64])
def test_a_format_that_no_product_has_is_compared_by_its_bits(dtype):
    x = torch.zeros(2, 3).to(dtype)
    assert read_result(x, None) is None
    read = read_result(x, None, any_format=True)
    assert (read.shape, read.dtype.itemsize) == ((2, 3), dtype.itemsize)


def test_results_of_any_shape_pass_and_the_verdict_says_that_values_were_not_judged(layer, capsys):
    for name in ("scaled", "several"):
        assert run(name) == 0
        out = capsys.readouterr().out
        verdict = line_with(out, f"{name}: ")
        assert verdict.startswith(f"{name}: pass, {MEMORY_ONLY}; all 10 properties held (8 cases,")
        row = line_with(out, "within_bound").split(maxsplit=1)
        assert row == ["within_bound", "not judged: --memory-only"]


def test_strict_asks_for_no_values(layer, capsys):
    assert run("scaled", "--strict", "--max-examples", "60") == 0


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("returns_nothing", "the result: got None, expected a tensor", "1 of 11 properties does"),
        ("beyond", "expected every element of c stored", "2 of 11 properties do"),
    ],
)
def test_a_result_that_is_missing_or_not_stored_is_a_finding(name, text, count, layer, capsys):
    assert run(name) == EXIT["fail"]
    out = capsys.readouterr().out
    assert text in out
    assert f"{name}: fail, {MEMORY_ONLY}; {count} not hold" in out
    assert "--memory-only --case" in out


def test_a_formula_is_not_evaluated(layer, capsys):
    assert run("scaled", "--spec", "no_such_name(a)") == 0


# -- reports -------------------------------------------------------------------------------------
def test_json_junit_and_sarif_say_it(layer, capsys):
    files = {form: f"report.{form}" for form in ("json", "junit", "sarif")}
    assert run("scaled", *(x for form, name in files.items() for x in (f"--{form}", name))) == 0
    report = json.loads((layer.parent / files["json"]).read_text())
    statuses = {p["name"]: (p["status"], p["why"]) for p in report["properties"]}
    assert (report["verdict"], report["memory_only"]) == ("pass", True)
    assert [statuses[name] for name in VALUES] == [(NOT_JUDGED, "--memory-only")] * 4
    suite = ElementTree.parse(layer.parent / files["junit"])
    skipped = {case.get("name"): case.find("skipped") for case in suite.iter("testcase")}
    assert skipped["within_bound"].get("message") == "not judged: --memory-only"
    sarif = json.loads((layer.parent / files["sarif"]).read_text())
    (notification,) = sarif["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert notification == {
        "level": "note",
        "message": {"text": f"scaled: pass, {MEMORY_ONLY}"},
    }


def test_a_sign_off_refuses_it(layer, capsys):
    declared = ["--operand", "scale=fp32[M]", "--memory-only"]
    assert main(["init", "layer.py:scaled", *declared]) == 0
    assert "operands=operands, memory_only=True" in (layer.parent / "conftest.py").read_text()
    few = ("--max-examples", "4", "--no-saved-cases", "--quiet", "--no-proof")
    assert main(["signoff", *few]) == EXIT["incomplete"]
    out = capsys.readouterr().out
    assert "a sign-off needs values: remove memory_only" in line_with(out, "scaled: incomplete")


def test_pytest_judges_every_kernel_so_if_asked(tmp_path):
    conftest = f"{HEAD}import right\n    return [K('wrong', lambda a, b: right.matmul(a, b) * 2)]\n"
    write_project(tmp_path, conftest, "right")
    options = ("-v", "--gemm-max-examples", "4", "--gemm-memory-only")
    status, out = run_pytest(tmp_path, *options)
    assert status == 0
    outcomes = read_outcomes(out)["wrong"]
    assert {outcomes[name] for name in VALUES} == {"SKIPPED"}
    assert outcomes["stays_in_bounds"] == "PASSED"


# -- values --------------------------------------------------------------------------------------
def test_rows_are_compared_only_where_a_result_has_them():
    """A transposed result has no rows of a; one per row has no row axis."""
    contract = Contract(formats=("fp16",), batch_invariant=True)
    rows = {"M": 1, "N": 3, "K": 2, "compare": "rows"}

    def judge(launch):
        kernel = KernelUnderTest("k", launch, contract, memory_only=True)
        report = check(kernel, case=Case(**rows))
        return {p.name: p.examples for p in report.properties}["row_bits_at_any_m"]

    import tests.corpora.mutants.unflawed as unflawed

    matmul = unflawed.KERNELS[0].launch
    assert judge(matmul) == 1
    assert judge(lambda a, b: matmul(a, b).t().contiguous()) == 0


def test_operands_need_a_formula_or_memory_only():
    operands = {"scale": Operand("fp32", "M")}
    with pytest.raises(ValueError, match="or memory_only=True to judge no values"):
        KernelUnderTest("k", print, operands=operands)
    KernelUnderTest("k", print, operands=operands, memory_only=True)
