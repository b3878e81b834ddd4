"""Hypothesis finds the faults of mutants, and shrinks their cases to a boundary in a few calls."""

from __future__ import annotations

import pytest
from scripts import compare_draws
from scripts.docs import draws_compared
from tests.corpora.mutants.table import MUTANTS

OFTEN = ("no_k_mask_on_b", "grid_rounded_down", "strides_of_a_swapped")
FEW = [mutant for mutant in MUTANTS if mutant.lane == "default"]  # one of each class


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(m, id=m.name, marks=() if m.name in OFTEN else pytest.mark.lane("full"))
        for m in FEW
    ],
)
def test_a_case_ends_at_the_boundary_of_its_fault(mutant):
    trial = compare_draws.draw_by_hypothesis(mutant, compare_draws.MORE)
    row = compare_draws.describe_smallest(trial)
    assert row["smallest"] is not None, f"{mutant.name}: no case shows its fault"
    assert row["boundary"], row


def test_the_tables_of_the_decision_are_those_of_the_evidence():
    assert draws_compared.make_page(check=True) == 0


def test_nearly_all_mutants_were_shrunk_to_a_boundary():
    rows = draws_compared.read_facts()["mutants"]
    boundaries = sum(row["smallest"] is not None and row["boundary"] for row in rows)
    assert boundaries >= 0.95 * len(MUTANTS)
