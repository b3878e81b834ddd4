"""A kernel that passes has gaps: each makes its sign-off incomplete, unless it is accepted."""

from dataclasses import replace

import pytest
from tests.signoff.made_signoffs import INPUTS, PROVED, change, report, signed
from tests.support.cli_project import project_folder, refuse  # noqa: F401

from gemmproof.cli import EXIT, main
from gemmproof.report.record import NOT_EXERCISED, READS
from gemmproof.signoff.page import format_html, format_markdown, lines, list_gaps, list_unused
from gemmproof.signoff.record import INCOMPLETE, SIGNED

WHY = "no case had an exact result that the output or the accumulator must round"
GAP = {"properties": change("within_bound", status=NOT_EXERCISED, examples=0, why=WHY)}
BRANCH = "bigsize.py:30 needs M * N >= 1048577"


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (GAP, "exercise", f"within_bound was not exercised: {WHY}"),
        ({"unvisited": (BRANCH,)}, "branch", f"branch never ran: {BRANCH}"),
    ],
)
def test_a_gap_makes_it_incomplete_unless_it_is_accepted_by_name(changes, kind, text):
    open_one = signed(report(**changes))
    assert (open_one.verdict, open_one.code) == (INCOMPLETE, "incomplete")
    (reason,) = open_one.reasons
    assert (reason.kernel, reason.kind, reason.weight, reason.text) == (
        "matmul", kind, INCOMPLETE, text,
    )  # fmt: skip
    assert open_one.judge(open_one.kernels[0]) == INCOMPLETE
    (shown,) = list_gaps(open_one)
    assert shown[0] == f"matmul: {text}  [--accept {kind}:matmul]"
    for word in (kind, f"{kind}:matmul"):
        accepted = signed(report(**changes), accepted=(word,))
        assert (accepted.verdict, accepted.code) == (SIGNED, "pass")
        assert accepted.reasons[0].accepted
        assert list_gaps(accepted).__next__()[0].endswith("[accepted]")
        assert list_unused(accepted, (word,)) == []
    for word in (f"{kind}:other", "property", {"exercise": "branch", "branch": "exercise"}[kind]):
        other = signed(report(**changes), accepted=(word,))
        assert other.verdict == INCOMPLETE
        assert list_unused(other, (word,))


LOOKS = "decoy.py:12 looks for gemmproof in sys.modules"


def test_a_line_that_looks_for_the_checker_is_accepted_by_name_and_stays_a_note():
    looks = report().with_note(LOOKS, "incomplete", READS)
    open_one = signed(looks)
    (reason,) = open_one.reasons
    assert (reason.kind, reason.weight, reason.text) == ("reads", INCOMPLETE, LOOKS)
    assert list_gaps(open_one).__next__()[0] == f"matmul: {LOOKS}  [--accept reads:matmul]"
    for word in ("reads", "reads:matmul"):
        accepted = signed(looks, accepted=(word,))
        assert (accepted.verdict, accepted.code, accepted.reasons[0].accepted) == (
            SIGNED, "pass", True,
        )  # fmt: skip
        kernel = accepted.kernels[0]
        assert (accepted.judge(kernel), kernel.report.note) == (SIGNED, LOOKS)
        assert list_gaps(accepted).__next__()[0] == f"matmul: {LOOKS}  [accepted]"
        assert list_unused(accepted, (word,)) == []
    for word in ("reads:other", "exercise", "branch"):
        assert signed(looks, accepted=(word,)).verdict == INCOMPLETE


def test_accepted_lines_excuse_nothing_else():
    looks = report(**GAP).with_note(LOOKS, "incomplete", READS)
    kinds = [reason.kind for reason in signed(looks).reasons]
    assert sorted(kinds) == ["exercise", "reads"]
    assert signed(looks, accepted=("reads",)).verdict == INCOMPLETE
    stopped = looks.with_note("no GPU", "incomplete")
    now = signed(stopped, accepted=("reads", "exercise"))
    assert (now.verdict, now.code) == (INCOMPLETE, "incomplete")
    assert [(x.kind, x.text) for x in now.reasons if not x.accepted] == [("incomplete", "no GPU")]


def test_a_gap_is_on_every_page():
    now = signed(report(**GAP, unvisited=(BRANCH,)))
    reproduce = {"matmul": lambda case: "gemmproof"}
    for page in (format_html(now, reproduce), format_markdown(now)):
        assert "within_bound was not exercised" in page.replace("&#95;", "_")
        assert "branch never ran" in page


def test_a_proved_property_is_no_gap_and_nothing_to_accept_is_noted():
    judged = report(properties=change("stays_in_bounds", status=NOT_EXERCISED, examples=0))
    assert judged.properties[0].proof == PROVED
    now = signed(judged)
    assert (now.verdict, now.reasons) == (SIGNED, ())
    (note,) = list_unused(now, ("exercise:matmul",))
    assert note[0] == "note: --accept exercise:matmul: no such gap to accept"
    some = replace(now, inputs=replace(now.inputs, kernels=("matmul",)))
    assert list_unused(some, ("exercise:matmul", "branch:left_out")) == [note]


def test_a_property_that_is_no_longer_exercised_is_lost_only_once():
    before, now = report(), report(**GAP)
    compared = signed(now, baseline=signed(before))
    assert [reason.kind for reason in compared.reasons] == ["exercise"]
    assert lines(compared)[-2][0] == "  nothing changed"
    absent = {"properties": change("no_races", status="does not apply", examples=0)}
    assert signed(report(**absent), baseline=signed(before)).verdict == SIGNED


def test_a_kernel_with_findings_has_graver_reasons_than_gaps():
    failed = report(verdict="fail", **GAP)
    assert "exercise" not in {reason.kind for reason in signed(failed).reasons}


def test_one_case_leaves_no_gap_but_is_no_sign_off():
    now = signed(inputs=replace(INPUTS, case='{"M":1,"N":1,"K":1}'))
    assert [reason.kind for reason in now.reasons] == ["incomplete"]


def test_the_command_refuses_a_kind_that_nothing_has(project, capsys):
    with pytest.raises(SystemExit) as end:
        main(["signoff", "--accept", "exercises:matmul"])
    assert end.value.code == EXIT["error"]
    assert "did you mean 'exercise'?" in capsys.readouterr().err
