"""Outcomes, the score and its baseline: an unknown outcome never counts as killed."""

from dataclasses import replace

import pytest
from tests.report.reports_by_hand import notes

from gemmproof.mutate.changed_source import Mutant
from gemmproof.mutate.record import (
    REPORT,
    Baseline,
    MutantJudgement,
    MutantResult,
    MutationReport,
    Score,
    exit_code,
    find_drops,
)
from gemmproof.mutate.run import conclude
from gemmproof.mutate.task import find_scope
from gemmproof.mutate.text import format_score, summarise
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import dump, encode
from gemmproof.properties.finding import Finding
from gemmproof.properties.proof import Proof
from gemmproof.report.files import read_record
from gemmproof.report.record import SCHEMA, ProofResult, PropertyResult, Report
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.protocol import CaseStarted, Done, Failed, PartialResult

CASE = Case(M=1, N=1, K=1, dtype="fp16")
DIFF = "--- x.py\n+++ x.py\n@@ -3 +3 @@\n-    a\n+    b\x1b[2J"
MUTANT = MutantResult("k", "x.py", 3, "mask dropped", "kernel", DIFF)
RUNS = CaseStarted(CASE.to_json(), "draw")


def report(verdict="pass", findings=(), proof=None, note=None):
    held = PropertyResult("stays_in_bounds", "claim", "pass", 1, proof=proof)
    return encode(Report(SCHEMA, "k", (held,), findings, 0.0, {}, notes(verdict, note)))


def outcome(*events, end="done", how=""):
    worker = WorkerExit(end=end, how=how)
    for event in events:
        worker.take(event)
    return conclude(MUTANT, worker, "k")


def mutated(fate, proved=""):
    return Done(encode(MutantJudgement(fate, "M=1", proved)))


def judged(**of):
    return PartialResult(REPORT, report(**of))


FOUND = Finding(property="stays_in_bounds", fault="x", message="rows", case=CASE)
PROVED = ProofResult("proved", "every M")


@pytest.mark.parametrize(
    ("events", "end", "expected"),
    [
        ([RUNS, judged(verdict="fail", findings=(FOUND,))], "done", ("killed", "stays_in_bounds")),
        ([RUNS], "crash", ("killed", "runs_to_completion")),
        ([RUNS], "hang", ("killed", "runs_to_completion")),
        ([RUNS], "time", ("not judged", "")),
        ([RUNS], "full", ("not judged", "")),
        ([RUNS], "killed", ("not judged", "")),
        ([RUNS], "slow", ("not judged", "")),
        ([RUNS, judged(verdict="incomplete", note="no time")], "done", ("not judged", "")),
        ([RUNS, judged(verdict="error", note="unknown op")], "done", ("not judged", "")),
        ([Failed("error", "x.py:1: NameError")], "done", ("invalid", "")),
        ([RUNS, Failed("error", "no")], "done", ("not judged", "")),
        ([RUNS, mutated("invalid")], "done", ("invalid", "")),
        ([mutated("equivalent")], "done", ("equivalent", "")),
        ([RUNS, judged(), mutated("other bits")], "done", ("survived", "")),
        ([RUNS, judged(), mutated("other accesses")], "done", ("survived", "")),
        ([RUNS, judged(), mutated("same")], "done", ("no difference seen", "")),
        ([RUNS, judged(), mutated("same", "every M")], "done", ("equivalent", "")),
        ([RUNS, judged(), mutated("other accesses", "every M")], "done", ("equivalent", "")),
        ([RUNS, judged(), mutated("other bits", "every M")], "done", ("survived", "")),
        # proved for addresses alone, as for a kernel with its own formula
        ([RUNS, judged(proof=PROVED), mutated("same")], "done", ("no difference seen", "")),
        ([RUNS, judged()], "time", ("survived", "")),
    ],
)  # fmt: skip
def test_outcome(events, end, expected):
    judged = outcome(*events, end=end, how="it timed out after 30 s")
    assert (judged.outcome, judged.by) == expected


@pytest.mark.parametrize(
    ("proof", "unvisited", "reason"),
    [
        (None, (), "same accesses and bits in every case"),
        (PROVED, (), "same accesses and bits on every branch"),
        (PROVED, ("x.py:3 needs M",), "in every case; 1 branch never ran: x.py:3 needs M"),
    ],
)
def test_which_branches_were_the_same(proof, unvisited, reason):
    event = judged(proof=proof)
    other = PropertyResult("exact_on_integers", "", "pass", 1, proof=ProofResult("not decided"))
    event.value["properties"].append(encode(other))
    event.value["unvisited"] = list(unvisited)
    assert outcome(RUNS, event, mutated("same")).why.endswith(reason)


@pytest.mark.parametrize(
    ("exact", "others", "scope"),
    [
        ("proved", "proved", "every M"),
        *((exact, "proved", "") for exact in ("not decided", None)),
        ("proved", "not decided", ""),
    ],
)
def test_what_is_proved_right_has_a_proved_product(exact, others, scope):
    verdicts = [Proof("offsets_fit", others, "every M"), Proof("no_races", "proved", "every M")]
    verdicts += [] if exact is None else [Proof("exact_on_integers", exact, "every M")]
    assert find_scope({proof.property: proof for proof in verdicts}) == scope


def test_equal_lines_of_a_file_share_a_key_and_those_of_two_files_do_not():
    """One of two such changes may survive: neither is then reported as a new survivor."""
    diff = "--- x\n+++ x\n@@ -{0} +{0} @@\n-    m = 1\n+    m = 2"
    first, second, third = (
        Mutant("", shown, line, "constant moved", "kernel", "", diff.format(line))
        for line, shown in ((1, "x.py"), (7, "x.py"), (1, "y.py"))
    )
    assert first.key == second.key != third.key


@pytest.fixture(name="remember")
def remembering(tmp_path):
    """Return a function that writes a score to a file and reads it back as a baseline."""

    def remember(then):
        path = tmp_path / "then.json"
        path.write_text(dump(MutationReport((then,))))
        return Baseline.of(read_record(MutationReport, str(path), "a record"))

    return remember


def test_of_equal_lines_all_must_have_been_killed(remember):
    then = score("killed", "no difference seen", "killed", keys=["k", "k", "l"])
    now = score("no difference seen", "no difference seen", "survived", keys=["k", "k", "l"])
    drops = find_drops([now], None, remember(then))
    assert ["got 'survived'" in drop for drop in drops if "as before" in drop][-1:] == [True]
    assert not any("no difference seen" in drop for drop in drops)


def score(*outcomes, target="k", asked=None, note="", keys=None):
    keys = keys or [str(i) for i in range(len(outcomes))]
    judged = tuple(
        replace(MUTANT, key=key, outcome=x) for key, x in zip(keys, outcomes, strict=True)
    )
    return Score(target, judged, len(judged) if asked is None else asked, 1.0, note=note)


def test_the_score_is_of_those_that_live_or_die():
    result = score("killed", "killed", "killed", "survived", "equivalent", "invalid", "not judged")
    assert result.score == 0.75
    assert score("equivalent", "invalid").score is None
    seen = score("killed", "no difference seen")
    assert (seen.score, seen.score_if_unseen_survive) == (1.0, 0.5)
    assert "score 0.500 if they survive" in format_score(seen)


def test_what_was_not_judged_is_told_and_makes_the_answer_incomplete():
    cut_short = score("killed", asked=2), score("killed", note="interrupted")
    for result in (score("killed", "not judged"), *cut_short):
        assert exit_code([result], []) == 3
    assert "incomplete: 1 mutant not judged" in format_score(score("killed", "not judged"))
    assert exit_code([score("killed", "survived")], []) == 0
    assert exit_code([score("killed")], ["too low"]) == 1
    assert exit_code([], []) == 3


def test_a_drop_is_told(remember):
    baseline = remember(score("killed", "killed"))
    now = score("killed", "survived")
    assert find_drops([score("killed", "killed")], 1.0, baseline) == []
    low, before, lost = find_drops([now], 0.8, baseline)
    assert "score: got 0.5000, expected at least 0.8" in low
    assert "expected 1.0000 as before" in before
    assert "x.py:3: got 'survived' of 'mask dropped', expected 'killed' as before" in lost
    # the baseline does not apply to another kernel, or another mutant
    assert find_drops([score("survived", target="other")], None, baseline) == []
    # a mutant that no longer makes a difference is lost too, though the score is the same
    (lost,) = find_drops([score("killed", "no difference seen")], None, baseline)
    assert "no difference seen" in lost


def test_a_score_of_some_is_no_drop():
    assert find_drops([score("survived", asked=2)], 1.0, None) == []
    assert find_drops([score("survived", "not judged")], 1.0, None) == []


def test_a_score_of_nothing_is_below_any(remember):
    assert find_drops([score("survived")], 0.1, None)
    (drop,) = find_drops([score("equivalent")], None, remember(score("killed", "survived")))
    assert "got no mutant to score" in drop


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 9}', '{"schema": 1, "kernels": [1]}'])
def test_what_is_no_record_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^got '.*x.json' \(.*\), expected a record"):
        read_record(MutationReport, str(path), "a record")


def test_survivors_are_told_with_their_lines_and_no_escape_sequence():
    lines = [text for text, _ in summarise(score("survived", "killed"))]
    assert "  x.py:3: mask dropped; " in lines
    assert "    - a" in lines
    assert r"    + b\x1b[2J" in lines
    assert not any("\x1b" in line for line in lines)
