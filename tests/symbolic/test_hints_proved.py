"""A hint is proved where it holds in every lane that reaches memory or a result, and nowhere else."""

from __future__ import annotations

import misleading_hints
import pytest
from wide import wide

from gemmproof.engine.check import check
from gemmproof.properties import memory
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import prove as prove_module
from gemmproof.properties.proof.prove import prove
from gemmproof.properties.proof.verdict import NOT_DECIDED, PROVED

HELD = ["carried"]
# with sizes at which the simulator shows it
NOT_HELD = {"carried_but_not_held": (1, 1, 17)}


def make(name):
    return KernelUnderTest(name, getattr(misleading_hints, name), wide())


@pytest.mark.parametrize("name", HELD)
def test_a_hint_that_holds_where_it_matters_is_proved(name):
    found = prove(make(name), seconds=20.0).find(memory.HINTS)
    assert found.status == PROVED, found


@pytest.mark.parametrize("name", NOT_HELD)
def test_a_false_hint_is_not_proved(name, monkeypatch):
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})
    kernel = make(name)
    assert prove(kernel, seconds=4.0).find(memory.HINTS).status == NOT_DECIDED
    report = check(kernel, case=Case(*NOT_HELD[name]), proof=False)
    assert memory.HINTS in {finding.property for finding in report.findings}, report
