"""A kernel that passes has gaps: each makes its sign-off incomplete, unless it is accepted."""

from dataclasses import replace

import pytest
from tests.signoff.made_signoffs import INPUTS, PROVED, change, report, signed
from tests.support.cli_project import project_folder, refuse  # noqa: F401

from gemmproof.cli import EXIT, main
from gemmproof.report.record import NOT_EXERCISED
from gemmproof.signoff.page import format_html, format_markdown, lines, list_gaps, list_unused
from gemmproof.signoff.record import INCOMPLETE, SIGNED

WHY = "no case had an exact result that the output or the accumulator must round"
GAP = {"properties": change("within_bound", status=NOT_EXERCISED, examples=0, why=WHY)}
PATH = "bigsize.py:30 needs M * N >= 1048577"


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (GAP, "exercise", f"within_bound was not exercised: {WHY}"),
        ({"unfollowed": (PATH,)}, "path", f"path never ran: {PATH}"),
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
    for word in (f"{kind}:other", "property", {"exercise": "path", "path": "exercise"}[kind]):
        other = signed(report(**changes), accepted=(word,))
        assert other.verdict == INCOMPLETE
        assert list_unused(other, (word,))


def test_a_gap_is_on_every_page():
    now = signed(report(**GAP, unfollowed=(PATH,)))
    reproduce = {"matmul": lambda case: "gemmproof"}
    for page in (format_html(now, reproduce), format_markdown(now)):
        assert "within_bound was not exercised" in page.replace("&#95;", "_")
        assert "path never ran" in page


def test_a_proved_property_is_no_gap_and_nothing_to_accept_is_noted():
    judged = report(properties=change("stays_in_bounds", status=NOT_EXERCISED, examples=0))
    assert judged.properties[0].proof == PROVED
    now = signed(judged)
    assert (now.verdict, now.reasons) == (SIGNED, ())
    (note,) = list_unused(now, ("exercise:matmul",))
    assert note[0] == "note: --accept exercise:matmul: no such gap to accept"
    some = replace(now, inputs=replace(now.inputs, kernels=("matmul",)))
    assert list_unused(some, ("exercise:matmul", "path:left_out")) == [note]


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
