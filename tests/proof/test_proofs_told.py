"""A proof as people see it: in the text of a report, and in the table of a sign-off."""

from __future__ import annotations

from dataclasses import replace

from gemmproof.properties import memory
from gemmproof.properties.cases.case import Case
from gemmproof.properties.proof.verdict import Proof
from gemmproof.report.report import SCHEMA, ProofResult, PropertyResult, Report
from gemmproof.report.text import lines, proof_text
from gemmproof.report.text import table as make_table

BOUNDS = memory.BOUNDS
AT = Case(3, 2, 1)
EVERYWHERE = Proof(BOUNDS, "proved", scope="every M, N, K, any strides")


def report_of(*results, **changes):
    return Report(SCHEMA, "f.py:matmul", "pass", results, (), 1.0, {}, **changes)


def held(name, *proof, **changes):
    result = PropertyResult(name, "", "pass", 100, proof=ProofResult(*proof) if proof else None)
    return replace(result, **changes)


def say(report):
    return [text for text, _ in lines(report, lambda case: "again")]


def test_the_text_says_what_is_proved_and_each_reason_once():
    open_ = [held(f"p{i}", "not decided", "", f"reason {i % 5}") for i in range(9)]
    said = say(
        report_of(
            held("stays_in_bounds", "proved", "every M"),
            held("within_bound", "proved", "every M", ratio=0.5),
            held("exact", "proved"),
            held("unused", "proved", "every M", status="not run", examples=0),
            held("usual", "not decided"),
            *open_,
            unvisited=("M > 9", "N > 9"),
        )
    )
    assert said[:5] == [
        "  stays_in_bounds                proved for every M; held in 100 cases",
        "  within_bound                   proved for every M; held in 100 cases, worst error 0.5 of"
        " its bound",
        "  exact                          proved; held in 100 cases",
        "  unused                         proved for every M; not run",
        "  usual                          100 cases",
    ]
    assert said[14:19] == [
        "not decided for every size: reason 0 (p0 and 1 more)",
        "not decided for every size: reason 1 (p1 and 1 more)",
        "not decided for every size: reason 2 (p2 and 1 more)",
        "and for 2 more reasons: --json has all",
        "not visited: M > 9 and 1 more: --json has all",
    ]


def test_a_reason_takes_one_line_and_cannot_move_the_cursor():
    (line,) = say(report_of(held("p", "not decided", "", "x\x1b\n" * 200)))[1:2]
    assert len(line) < 500
    assert "\x1b" not in line
    assert "\n" not in line


def test_the_table_of_sign_off_marks_what_is_proved():
    rows = make_table([report_of(held("p", "proved"), held("q", "proved", ratio=0.25))], 90)
    first, second = (row.split() for row in rows[1:3])
    assert (first, second) == (["p", "proved", "100"], ["q", "0.250", "proved", "100"])
    (row,) = make_table([report_of(held("p", "not decided", "", "y"))], 90)[1:2]
    assert row.split() == ["p", "100"]


def test_a_proof_in_words():
    assert proof_text(held("p")) == ""
    assert proof_text(held("p", "proved", "every M")) == "proved for every M"
    assert proof_text(held("p", "not decided")) == "not decided"
    assert proof_text(held("p", "refuted", "", "why", status="fail")) == "refuted: why"
