"""Paths are compared with the simulator before anything is proved of them."""

from functools import partial

import pytest
import torch
from tests.corpora.no_false_alarm.addressing import rows_and_columns_wrapped
from tests.corpora.tiled import plain
from tests.properties.proof.branching_wrappers import beyond_the_largest_case

import gemmproof.properties.proof.prove as prove_module
from gemmproof.engine.kernel_check import check
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import cross_check
from gemmproof.properties.proof.cross_check import COMPARED, compare_path
from gemmproof.properties.proof.domain import (
    TraceCache,
    TracedPath,
    iter_traced_paths,
    list_domains,
)
from gemmproof.properties.proof.prove import prove
from gemmproof.reference.symbolic import concrete
from gemmproof.reference.symbolic.concrete import MOST_TRIPS
from gemmproof.reference.symbolic.interpreter import symbolic_values
from gemmproof.reference.symbolic.solver import Solver, fresh_state
from gemmproof.reference.symbolic.terms import every

LONG = 257 * 16  # elements of K


def compare(wrapper, **terms):
    """Return the comparison of each path of a wrapper."""
    kernel = KernelUnderTest("mine", wrapper, Contract(**terms))
    comparisons = []
    for domain in list_domains(kernel):
        for parts in iter_traced_paths(kernel, domain, None, TraceCache(), lambda: float("inf")):
            for traced in (part for part in parts if isinstance(part, TracedPath)):
                conds = (domain.condition, traced.path.condition)
                solver = Solver(every(conds), plainest=domain.plainest)
                comparisons.append(compare_path(kernel, traced, None, solver))
    return comparisons


@fresh_state()
def test_the_formulas_of_a_kernel_are_those_of_its_simulation():
    for layouts in ("contiguous", "any"):
        (first, *_) = comparisons = compare(plain, layouts=layouts)
        assert (first.agreed, first.difference) == (COMPARED, "")
        assert not any(x.difference for x in comparisons)


@fresh_state()
def test_a_path_that_no_small_call_takes_is_not_compared():
    agreed = [x.agreed for x in compare(beyond_the_largest_case)]
    assert sorted(agreed)[0] == 0 < sorted(agreed)[-1]
    proofs = prove(KernelUnderTest("mine", beyond_the_largest_case))
    assert all(proof.status == "not decided" for proof in proofs.verdicts)
    assert any("no small case takes this path" in proof.why for proof in proofs.verdicts)


@fresh_state()
def test_a_loop_of_more_trips_than_a_tried_number_of_them_is_compared():
    """The only sizes on the path have 257 trips, of MOST_TRIPS allowed."""
    assert 256 < LONG // 16 < MOST_TRIPS
    kinds = [(x.agreed, x.difference) for x in compare(long_rows)]
    assert kinds
    assert all(agreed and not difference for agreed, difference in kinds)


@fresh_state()
def test_what_formulas_do_not_determine_is_not_simulated(monkeypatch):
    """A loop may have millions of trips."""
    monkeypatch.setattr(concrete, "MOST_TRIPS", 4)
    monkeypatch.setattr(cross_check, "run", lambda *args, **how: pytest.fail("it was simulated"))
    assert [x.agreed for x in compare(long_rows)] == [0]


def long_rows(a, b):
    if a.shape[1] < LONG:
        raise ValueError("K is too small")
    return plain(a, b)


@pytest.mark.parametrize(
    ("table", "name"),
    [("_RING", "arith.muli"), ("_RING", "arith.addi"), ("_OTHERS", "arith.remsi")],
)
def test_a_wrong_formula_is_a_defect_and_no_proof(table, name, monkeypatch):
    """The report says that nothing is proved because of it, and judges the cases all the same."""
    wrong = {"_RING": lambda x, y: x + y + y, "_OTHERS": "div"}[table]
    monkeypatch.setitem(getattr(symbolic_values, table), name, wrong)
    kernel = KernelUnderTest("mine", rows_and_columns_wrapped if name == "arith.remsi" else plain)
    proofs = prove(kernel)
    assert proofs.defects
    assert all(proof.status != "proved" for proof in proofs.verdicts)
    report = check(kernel, max_examples=2, proof=True)
    assert (report.verdict, report.findings) == ("pass", ())
    assert "nothing is proved, because the prover's formulas and a call differ: " in report.note


def test_a_path_that_there_was_no_time_to_compare_is_not_proved(monkeypatch):
    ledger = prove_module.ProofLedger
    monkeypatch.setattr(prove_module, "ProofLedger", partial(ledger, comparing=0.0))
    proofs = prove(KernelUnderTest("mine", plain))
    assert {(proof.status, proof.cut) for proof in proofs.verdicts} == {("not decided", "time")}


def rows_put_back(a, b):
    """The upper half is stored by a kernel, the others are put into their places by torch."""
    half = a.shape[0] // 2
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    plain(a[:half], b, c=c[:half])
    c[torch.arange(half, a.shape[0], device=a.device)] = plain(a[half:], b)
    return c


@fresh_state()
def test_what_an_unknown_operation_may_write_is_not_missing():
    """As tokens that are routed: the proof refuted what the simulation confirmed."""
    kernel = KernelUnderTest("mine", rows_put_back, Contract())
    status = {proof.property: proof.status for proof in prove(kernel).verdicts}
    assert status["stores_each_element_once"] == "not decided"
    assert "refuted" not in status.values()
