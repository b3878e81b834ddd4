"""A hint is proved where it holds in all lanes that reach memory or a result, and only there."""

import misleading_hints
import pytest
from lanes import first_of_each
from wide import wide

from gemmproof.engine.check import check
from gemmproof.properties import memory
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import prove as prove_module
from gemmproof.properties.proof.prove import prove
from gemmproof.properties.proof.verdict import NOT_DECIDED, PROVED, REFUTED

HELD = ["carried", "clamped", "wrapped"]
# with sizes at which the simulator shows it. It does not where a mask is computed from such a lane
NOT_HELD = {
    "rotated": (2, 1, 1),
    "carried_but_not_held": (1, 1, 17),
    "begun_before": (17, 1, 1),
    "wider": (17, 1, 1),
    "wider_in_a_branch": (17, 1, 17),
    "step_of_pointers": (1, 1, 17),
    "as_numbers": None,
    "in_the_mask": None,
}


def make(name):
    return KernelUnderTest(name, getattr(misleading_hints, name), wide())


@pytest.mark.parametrize("name", HELD)
def test_a_hint_that_holds_where_it_matters_is_proved(name):
    found = prove(make(name), seconds=20.0).find(memory.HINTS)
    assert found.status == PROVED, found


@pytest.mark.parametrize("name", first_of_each(NOT_HELD, lambda name: NOT_HELD[name] is None))
def test_a_false_hint_is_not_proved(name, monkeypatch):
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})
    kernel = make(name)
    assert prove(kernel, seconds=4.0).find(memory.HINTS).status == NOT_DECIDED
    if NOT_HELD[name] is not None:
        report = check(kernel, case=Case(*NOT_HELD[name]), proof=False)
        assert memory.HINTS in {x.property for x in report.findings}, report


def test_a_lane_of_a_false_hint_that_another_launch_reads_is_not_proved(monkeypatch):
    """To the simulator it is one that is undefined."""
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})
    kernel = make("wider_before_a_copy")
    proofs = prove(kernel, seconds=4.0)
    assert proofs.find(memory.HINTS).status == proofs.find(memory.LANES).status == NOT_DECIDED
    report = check(kernel, case=Case(17, 1, 1), proof=False)
    assert memory.LANES in {x.property for x in report.findings}, report


@pytest.mark.lane("full")
def test_beside_hints_that_harm_no_one_other_faults_are_found():
    proofs = prove(make("last_row_left_out"), seconds=8.0)
    assert proofs.find(memory.HINTS).status == PROVED
    assert proofs.find(memory.ONCE).status == REFUTED
