"""A proof that time ran out for says so by a word of its own, and so does what rests on it."""

from __future__ import annotations

import branching_wrappers as wrappers
import pytest
from tiled import plain

from gemmproof.properties import memory
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.book import ABOUT, Book
from gemmproof.properties.proof.prove import _conclude, prove
from gemmproof.properties.proof.verdict import TIME
from gemmproof.properties.proof.visits import Visits
from gemmproof.reference.symbolic.solver import OutOfTime
from gemmproof.reference.symbolic.wrapper import decisions, paths

GUARDED = wrappers.rows_beyond_the_largest_case


@pytest.mark.parametrize(
    ("wrapper", "seconds", "clock", "why"),
    [
        (plain, 0.0, None, "0 s were not enough"),
        (GUARDED, 10.0, decisions, "out of time"),
        (GUARDED, 10.0, paths, "a path that was not run: out of time"),
    ],
)
def test_a_prover_without_time_says_so(wrapper, seconds, clock, why, monkeypatch):
    if clock is not None:
        monkeypatch.setattr(clock, "counted_seconds", lambda: float("inf"))
    proofs = prove(KernelUnderTest("mine", wrapper), None, seconds)
    assert {proof.cut for proof in proofs.verdicts} == {TIME}
    assert any(why in proof.why for proof in proofs.verdicts)


def test_a_property_that_takes_too_long_by_itself_says_so(monkeypatch):
    def give_up(*asked):
        raise OutOfTime

    monkeypatch.setattr("gemmproof.properties.proof.prove._keep", give_up)
    proofs = prove(KernelUnderTest("mine", plain), None, 10.0)
    assert {(x.why, x.cut) for x in proofs.verdicts} == {("it takes too much of the time", TIME)}


def test_what_rests_on_what_is_cut_short_is_so_too():
    book = Book(KernelUnderTest("mine", plain), Visits(0.0))
    book.leave_open(memory.FIT, "it takes too much of the time", late=True)
    made = {name: _conclude(book, name, "every M") for name in ABOUT}
    assert {proof.cut for proof in made.values()} == {TIME}
    assert made[memory.BOUNDS].why == f"it rests on {memory.FIT}"
    book = Book(KernelUnderTest("mine", plain), Visits(0.0))
    book.leave_open(memory.FIT, "a sum")
    book.leave_open(memory.FIT, "no time either", late=True)  # the first reason is the one told
    book.leave_open(memory.ONCE, "no time", late=True)
    made = {name: _conclude(book, name, "every M") for name in ABOUT}
    assert [name for name, proof in made.items() if proof.cut] == [memory.ONCE]
