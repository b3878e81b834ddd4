"""No false property of a wrong kernel is proved; its twin without the fault keeps its proofs."""

from __future__ import annotations

import pytest
from tests.corpora.false_proofs.table import ROWS

from gemmproof.engine.kernel_check import check
from gemmproof.properties.proof import PROVED
from gemmproof.properties.proof import prove as prove_module

# these take more than 3 s: several configurations, numbers of multiprocessors, hard questions
SLOW = (
    "row_above_48_bits",
    "wrapped_rows_said_to_be_a_run",
    "parts_of_two_tuners",
    "workspace_step_in_32_bits",
    "steps_of_four_multiprocessors",
)
BY_LANE = [
    pytest.param(row, id=row.name, marks=[pytest.mark.lane("full")] if row.name in SLOW else [])
    for row in ROWS
]
BY_NAME = [pytest.param(row, id=row.name, marks=pytest.mark.lane("full")) for row in ROWS]


def find_proofs(kernel):
    """Return the proofs of a kernel by the property."""
    return {proof.property: proof for proof in prove_module.prove(kernel).verdicts}


def list_false(row, proofs):
    """List the false properties that are proved, but for the sizes that the row excludes."""
    return [
        name
        for name, proof in proofs.items()
        if name in row.false
        and proof.status == PROVED
        and not (row.assumption and row.assumption in proof.assumptions)
    ]


@pytest.fixture
def nothing_is_tried(monkeypatch):
    """Disable trials, whose cases would refute a wrong proof: the solver alone is tested."""
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})


@pytest.mark.parametrize("row", BY_LANE)
def test_a_false_property_is_not_proved(row, nothing_is_tried):
    assert list_false(row, find_proofs(row.load(row.wrong))) == []


@pytest.mark.parametrize("row", BY_LANE)
def test_the_proofs_of_a_right_twin_are_kept(row, nothing_is_tried):
    proofs = find_proofs(row.load(row.right))
    left = {name: proofs[name].why for name in row.kept if proofs[name].status != PROVED}
    assert left == {}


@pytest.mark.parametrize("row", BY_NAME)
def test_a_wrong_kernel_is_judged_as_expected(row):
    report = check(row.load(row.wrong), proof=True)
    assert report.verdict == ("pass" if row.hidden else "fail"), report
    proofs = {result.name: result.proof for result in report.properties if result.proof}
    assert list_false(row, proofs) == []


@pytest.mark.parametrize("row", BY_NAME)
def test_a_right_twin_passes(row):
    report = check(row.load(row.right), proof=True)
    assert [finding.message for finding in report.findings] == []
    assert report.verdict == "pass"


@pytest.mark.lane("full")
def test_a_wrong_kernel_that_is_proved_names_the_assumption(nothing_is_tried):
    (row,) = (row for row in ROWS if row.assumption)
    proofs = find_proofs(row.load(row.wrong))
    proved = [name for name in row.false if proofs[name].status == PROVED]
    assert proved
    assert all(row.assumption in proofs[name].assumptions for name in proved)


def test_there_are_enough_of_them_and_all_are_different():
    assert len(ROWS) >= 17
    assert len({target for row in ROWS for target in (row.wrong, row.right)}) == 2 * len(ROWS)
