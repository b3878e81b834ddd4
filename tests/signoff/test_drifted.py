"""`signoff --drift`: the precision of sums for each format, or the reason that it is unknown."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.signoff.made_signoffs import (
    FINDING,
    NARROW_CLASS,
    PROPERTIES,
    WIDE_CLASS,
    identity,
    report,
    signed,
)
from tests.support.cli_project import project_folder, refuse  # noqa: F401

from gemmproof.cli import EXIT, main
from gemmproof.engine.request import CheckRequest
from gemmproof.properties.judges.accumulator_drift import find_kept
from gemmproof.reference.accumulator import Accumulator
from gemmproof.report.record import PropertyResult
from gemmproof.signoff.page import format_drift
from gemmproof.signoff.record import ACCUMULATOR, INCOMPLETE, REFUSED, SIGNED, DriftClass, Signoff
from gemmproof.signoff.verdict import add_drift
from gemmproof.target import KernelRef
from gemmproof.worker.supervisor import Limits

CONFTEST = """
import os
from gemmproof import Contract, KernelUnderTest
from gemmproof.properties.cases.data import as_array, as_tensor
from gemmproof.reference.dot import dot_model

def multiply(acc_format):
    model = dot_model("sm_90", "fp16", acc_format)
    def launch(a, b):  # b is None where the check calls it
        if b is not None:
            return as_tensor(model.dot(as_array(a), as_array(b)), acc_format)
    return launch

def dies(a, b):
    if b is not None:
        os.abort()

def pytest_gemm_kernels():
    two, one = Contract(("fp16", "int8")), Contract(("fp16",))
    return [
        KernelUnderTest("right", multiply("fp32"), two),
        KernelUnderTest("narrow", multiply("fp16"), one),
        KernelUnderTest("formula", multiply("fp32"), one, spec=lambda a, b: a @ b),
        KernelUnderTest("tiny", multiply("fp32"), Contract(("fp16",), K="..64")),
        KernelUnderTest("wrong", lambda a, b: True, one),
        KernelUnderTest("dies", dies, one),
    ]
"""
COMMAND = ["signoff", "--max-examples", "1", "--no-saved-cases", "--drift", "--json", "signed.json"]
SAID = {
    "right": "fp16: fp32 tensor core F=25 L=16; int8: not measured (sums of integers); on sm_90",
    "narrow": "fp16 tensor core F=25 L=16, worse than the declared fp32; on sm_90",
    "formula": "not measured (its result is a formula, no plain product)",
    "tiny": "not measured (its contract has no 128 x 512 by 512 x 64)",
    "wrong": "not measured (the verdict of its check is fail)",
}
CASE = '{"M":1,"N":1,"K":1,"dtype":"fp16"}'


@pytest.mark.lane("full")
def test_the_drift_stands_in_every_form(project, capsys, texts):
    Path("conftest.py").write_text(CONFTEST)
    command = [*COMMAND, "--junit", "x.xml", "--html", "x.html", "--markdown", "x.md"]
    assert main(command) == EXIT["fail"]
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("drift:") + 1
    for number, (name, expected) in enumerate(SAID.items()):
        assert lines[start + number] == f"  {name:<7}  {expected}"
    texts("the drift of a kernel that dies", lines[start + 5])
    document = json.loads(Path("signed.json").read_text())
    kernels = {k["target"]: k for k in document["kernels"]}
    verdicts = {name: k["signoff"]["verdict"] for name, k in kernels.items()}
    assert verdicts == dict.fromkeys(("right", "formula", "tiny"), SIGNED) | {
        "narrow": REFUSED, "wrong": REFUSED, "dies": INCOMPLETE,
    }  # fmt: skip
    texts("the note on a kernel whose drift was not measured", kernels["dies"]["note"])
    (right, _), (narrow,) = (kernels[x]["signoff"]["drift"] for x in ("right", "narrow"))
    assert (right["keeps"], right["is_kept"]) == (23, True)
    assert (narrow["keeps"], narrow["is_kept"], narrow["declared"]) == (10, False, "fp32")
    read = Signoff.from_dict(document)
    assert [format_drift(k) for k in read.kernels[:5]] == list(SAID.values())
    for path in ("x.html", "x.md"):
        text = Path(path).read_text()
        assert all(
            expected in text for expected in ("tensor core F", "no plain product", "SIGABRT")
        )
    suites = ElementTree.parse("x.xml").iter("testsuite")
    failed = {s.get("name"): [s.get(x) for x in ("failures", "errors")] for s in suites}
    assert failed["right"] == failed["formula"] == ["0", "0"]
    assert (failed["narrow"], failed["dies"]) == (["2", "0"], ["0", "1"])
    expected = shlex.split(kernels["narrow"]["findings"][0]["reproduce"])
    assert expected == ["gemmproof", "signoff", "--kernel", "narrow", "--drift"]


def test_what_was_not_measured_is_incomplete_and_of_an_unmodelled_gpu_it_is_not(project, capsys):
    Path("conftest.py").write_text(CONFTEST)
    assert main([*COMMAND, "--kernel", "dies"]) == EXIT["incomplete"]
    assert main([*COMMAND, "--kernel", "dies", "--target", "gfx942"]) == EXIT["pass"]
    line = "  dies  not measured (no model of the matrix cores of gfx942)"
    assert line in capsys.readouterr().out.splitlines()


def test_of_a_kernel_that_fails_as_expected_no_drift_is_measured(texts):
    judged = report(expected=(FINDING,))
    request = CheckRequest(KernelRef("k"))
    result = add_drift(judged, request, ("fp16",), Limits(), lambda event: None)
    unchanged, (drift,) = result
    assert (unchanged, drift) == (judged, DriftClass("fp16", why=drift.why))
    texts("the drift of a kernel that fails as expected", drift.why)


def test_one_case_has_no_drift(project, capsys):
    Path("conftest.py").write_text(CONFTEST)
    message = "gemmproof signoff: --drift: got --case too, expected one of the two\n"
    assert refuse([*COMMAND, "--case", CASE], capsys) == message


def drifted(*classes, **others):
    judged = report(**others)
    return signed(judged, drifts={judged.target: classes})


GONE = DriftClass("fp16", why="its contract has no dense rows")
MISSED = replace(GONE, missed=True)
SPLIT = replace(WIDE_CLASS, name=f"{WIDE_CLASS.name}, split-K of 4 in fp32")
TRUNCATED, TF32 = replace(WIDE_CLASS, truncated=True), replace(WIDE_CLASS, reads=8)
CHANGES = {
    "same": ((WIDE_CLASS,), {}, None, ""),
    "narrower": (
        (NARROW_CLASS,), {}, REFUSED,
        "sums in fp16 keep fewer bits: 10 bits kept, 23 before"
        " (fp32 tensor core F=25 L=16 -> fp16 tensor core F=25 L=16)",
    ),
    "reads less": ((TF32,), {}, REFUSED, "8 bits of operands used, 11 before"),
    "truncated": ((TRUNCATED,), {}, REFUSED, "c is truncated now"),
    "another": ((SPLIT,), {}, SIGNED, "the accumulator for fp16 changed: fp32 tensor core F=25 L"),
    "another GPU": (
        (replace(NARROW_CLASS, gpu="sm_80"),), {}, SIGNED, "not compared: sm_90 -> sm_80",
    ),
    "not asked for": ((), {}, INCOMPLETE, "was measured, but not this time (--drift)"),
    "not measurable": ((GONE,), {}, INCOMPLETE, "not this time: its contract has no dense rows"),
    "missed": ((MISSED,), {"verdict": "incomplete", "note": "its drift"}, INCOMPLETE, "its drift"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_an_accumulator_beside_that_of_the_baseline(name):
    classes, others, weight, expected = CHANGES[name]
    now = signed(report(**others), drifts={"matmul": classes}, baseline=drifted(WIDE_CLASS))
    assert now.verdict == (weight or SIGNED)
    weighed = [(change.weight, change.text) for change in (*now.changes, *now.reasons)]
    if weight is None:
        assert weighed == []
    else:
        assert any(weighs == weight and expected in text for weighs, text in weighed), weighed
    compared = {"drifts": {"matmul": classes}, "baseline": drifted(WIDE_CLASS)}
    assert signed(report(), **compared, accepted=("drift",)).verdict == SIGNED


def test_a_format_that_is_promised_no_more_has_no_drift_to_lose():
    bf16 = replace(WIDE_CLASS, format="bf16")
    now = signed(
        report(identity=identity(formats=("bf16",))),
        drifts={"matmul": (bf16,)},
        baseline=drifted(WIDE_CLASS, bf16),
    )
    assert {change.kind for change in now.changes} == {"contract", "guarantee"}


def test_a_lost_drift_is_said_once():
    row = PropertyResult(ACCUMULATOR, "it does", "pass", 1, ratio=0.5)
    before = drifted(WIDE_CLASS, properties=(*PROPERTIES, row))
    assert [change.kind for change in signed(baseline=before).changes] == ["drift"]


def test_what_else_is_lost_is_told_where_only_the_drift_is_missing():
    judged = report(verdict="incomplete", note="its drift", limits=())
    now = signed(judged, drifts={"matmul": (MISSED,)}, baseline=drifted(WIDE_CLASS))
    assert [change.kind for change in now.changes] == ["limit"]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, 23),
        ({"register": 13, "promotion": 128, "carried": 23}, 23),
        ({"register": 13}, 13),
        ({"downcast": 64, "downcast_bits": 7}, 7),
        ({"split": 4, "split_bits": 10}, 10),
        ({"split": 4, "split_bits": None}, 23),
    ],
)
def test_sums_keep_what_their_narrowest_part_keeps(fields, kept):
    accumulator = Accumulator("fp8e4m3", "fp32", 4, "none", 32, "ascending", 13, 23, "chopped")
    assert find_kept(replace(accumulator, **fields), "fp8e4m3") == kept
