"""A mutation score stands in a sign-off only where what was mutated is what was judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_signoffs import PROPERTIES, identity, report, signed

from gemmproof.mutation.record import Judgement, Score
from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.signoff.mutated import read_mutation
from gemmproof.signoff.record import MutationScore, Signoff
from gemmproof.signoff.seal import is_sealed
from gemmproof.signoff.show import say_mutation

NAME = "mutants.json"
MANY = 9
OUTCOMES = ["killed"] * 5 + ["survived", "equivalent", "no difference seen", "invalid"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(source=None, asked=MANY, reached=20, **changes):
    """The record that mutate leaves, of a kernel named matmul."""
    judged = tuple(
        Judgement({"operator": "a mask", "key": str(i)}, x) for i, x in enumerate(OUTCOMES)
    )
    facts = {"reached": reached, "source": identity().digest if source is None else source}
    score = Score("matmul", judged, asked, 1.0, facts).to_dict()
    Path(NAME).write_text(json.dumps({"schema": 1, "kernels": [{**score, **changes}]}))


def test_the_score_of_the_same_source_stands_in_the_sign_off():
    write()
    made = signed(mutated=read_mutation(NAME))
    assert made.kernels[0].mutation == MutationScore(5, 1, 1, unseen=1, tried=9, of=20)
    assert say_mutation(made.kernels[0]) == (
        "5 of 6 mutants killed, 1 equivalent, 1 without a difference seen; a sample of 9 of 20"
    )
    document = made.to_dict({"matmul": lambda case: "line"})
    assert is_sealed(document)
    assert Signoff.from_dict(document).kernels[0].mutation == made.kernels[0].mutation


@pytest.mark.parametrize(
    ("why", "given"),
    [
        (f"{NAME} is of another source", {"source": "of another"}),
        (f"{NAME} does not say of which source", {"source": ""}),
        (f"{NAME} was cut short", {"asked": MANY + 1}),
        (f"{NAME} has no mutants of it", {"target": "bmm"}),
    ],
)
def test_another_score_does_not_and_it_is_said_why(why, given):
    write(**given)
    (kernel,) = signed(mutated=read_mutation(NAME)).kernels
    assert (kernel.mutation, kernel.why_not_mutated) == (None, why)
    assert say_mutation(kernel) == f"not measured ({why})"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "broken JSON"),
        ('{"schema": 9, "kernels": []}', "no record of mutants"),
        ('{"schema": 1, "kernels": [{"target": "x"}]}', "not as it is written"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(text, why):
    Path(NAME).write_text(text)
    with pytest.raises(ValueError, match=why) as refused:
        read_mutation(NAME)
    assert "\n" not in str(refused.value)


def test_a_count_that_is_none_is_refused():
    write(counts={"killed": "5", "survived": 0, "equivalent": 0, "no difference seen": 0})
    with pytest.raises(ValueError, match="not as it is written"):
        read_mutation(NAME)


@pytest.mark.parametrize(
    ("given", "why"),
    [(None, "--mutation was left out"), ({"source": "of another"}, f"{NAME} is of another source")],
)
def test_a_score_that_the_baseline_had_is_not_lost_in_silence(given, why):
    write()
    before = signed(mutated=read_mutation(NAME))
    now = None
    if given is not None:
        write(**given)
        now = read_mutation(NAME)
    made = signed(baseline=before, mutated=now)
    lost = f"its mutants had a score; now none: {why}"
    assert (made.verdict, made.code) == ("incomplete", "incomplete")
    assert [(one.kind, one.text) for one in made.changes] == [("mutation", lost)]
    assert [one.text for one in made.reasons] == [lost]
    accepted = signed(baseline=before, mutated=now, accepted=("mutation:matmul",))
    assert (accepted.verdict, accepted.code) == ("signed off", "pass")
    # where the baseline had none there is none to lose
    assert signed(baseline=signed(), mutated=now).changes == ()
    wrong = signed(report(verdict="error", note="tl.what"), baseline=before, mutated=now)
    assert [one.text for one in wrong.reasons] == ["tl.what"]


def test_a_known_failure_is_told_with_its_reason_and_signed():
    known = Finding("no_races", "race", "store of c: got two, expected one", Case(1, 1, 1))
    held, bound, races = PROPERTIES
    excused = replace(races, status="expected", reason="issue 12")
    made = signed(report(properties=(held, bound, excused), expected=(known,)))
    assert made.verdict == "signed off"
    assert [reason.text for reason in made.reasons] == ["no_races fails as expected: issue 12"]
    document = made.to_dict({"matmul": lambda case: "line"})
    assert Signoff.from_dict(document).kernels[0].report.expected == (known,)
