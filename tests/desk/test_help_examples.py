"""The wrong lines of the pages of help are found, and their repairs pass."""

from __future__ import annotations

import pytest
from help_examples import judge_example, write_example
from lanes import first_of_each

from gemmproof.engine.drift import drift_of
from gemmproof.properties.contract import Contract
from gemmproof.properties.help.pages import FAULT_PAGES, PAGES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.target import load, parse

DRIFT = "accumulator_as_declared"
OF_FAULTS = {name: page for name, page in FAULT_PAGES.items() if page.example is not None}
EVERY = {**PAGES, **OF_FAULTS}
JUDGED = [name for name, page in EVERY.items() if not page.example.unjudged and name != DRIFT]


def test_only_what_needs_a_gpu_or_a_mirror_is_not_judged():
    unjudged = {name for name, page in EVERY.items() if page.example.unjudged}
    assert unjudged == {"equals_prediction", "mirror_equals_source"}


@pytest.mark.parametrize("name", first_of_each(JUDGED))
def test_a_wrong_line_is_found_and_its_repair_passes(name, tmp_path):
    example = EVERY[name].example
    wrong = judge_example(write_example(tmp_path, name, example, wrong=True), example)
    (first, *_) = (finding for finding in wrong.findings if finding.cause is None)
    assert name in (first.property, first.fault), first.message
    right = judge_example(write_example(tmp_path, name, example, wrong=False), example, 12)
    assert (right.verdict, right.findings) == ("pass", ())


def test_a_narrow_accumulator_is_found_by_drift(tmp_path):
    example = PAGES[DRIFT].example
    verdicts = {}
    for wrong in (True, False):
        launch = load(parse(write_example(tmp_path, DRIFT, example, wrong)))
        kernel = KernelUnderTest("matmul", launch, Contract())
        report = drift_of(kernel, "fp16", target=None, sizes=(512,))
        verdicts[wrong] = report.verdict, {finding.property for finding in report.findings}
    assert verdicts == {True: ("fail", {DRIFT}), False: ("pass", set())}
