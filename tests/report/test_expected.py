"""A failure that a contract expects does not fail the verdict; a property that then holds does."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from tests.report.reports_by_hand import CASE, finding, report, reproduce
from tests.support.cli_project import project_folder, refuse  # noqa: F401
from tests.support.fake_simulator import check_with, fake_run, right, stray_load
from tests.support.pytest_project import EXAMPLES, HEAD

from gemmproof import Contract, KernelUnderTest
from gemmproof.backends.cuda import launch_cases
from gemmproof.cli import EXIT, main
from gemmproof.commands.init import write_contract
from gemmproof.engine import assemble
from gemmproof.engine.request import CheckRequest
from gemmproof.engine.sections import describe_passes
from gemmproof.properties.cases.case import Case
from gemmproof.properties.codec import dump, encode, parse
from gemmproof.properties.finding import UNEXPECTED, find_reasons
from gemmproof.properties.kernel import ContractError
from gemmproof.report.ci import make_document
from gemmproof.report.located_findings import list_placed
from gemmproof.report.record import SCHEMA, PropertyResult, Report
from gemmproof.report.text import add_commands, lines
from gemmproof.target import KernelRef
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.entry_points import CHECK
from gemmproof.worker.protocol import CaseStarted, PartialReport
from gemmproof.worker.supervisor import Limits

BOUNDS, WHY = "stays_in_bounds", "reads past K by one, issue 12"
EXPECTS = Contract(expected={BOUNDS: WHY})


def strays(contract=EXPECTS, launch=right, **options):
    """Return the report on a kernel that always reads past K."""
    run = fake_run(lambda a, b, config: [stray_load()])
    return check_with(run, launch, contract, **options)[0]


def test_a_contract_states_them_with_reasons():
    assert EXPECTS.reasons == {BOUNDS: WHY}
    assert hash(EXPECTS) == hash(Contract(expected={BOUNDS: f"  {WHY.replace(' ', chr(10))}\t"}))
    document = json.loads(json.dumps(encode(EXPECTS)))
    assert document["expected"] == {BOUNDS: WHY}
    assert Contract.from_dict(document) == EXPECTS
    scope = {"Contract": Contract}
    odd = Contract(expected={BOUNDS: 'it\'s "known"'})
    assert eval(f"Contract({write_contract(odd)})", scope) == odd


@pytest.mark.parametrize("wrong", [{BOUNDS: ""}, {BOUNDS: " "}, {BOUNDS: 3}, {"": WHY}, "x", 7])
def test_a_contract_without_a_reason_is_refused(wrong):
    with pytest.raises(ValueError, match=r"^contract expected: got .*, each with a reason$"):
        Contract(expected=wrong)


def test_what_is_no_property_is_refused_with_what_was_meant():
    with pytest.raises(
        ContractError, match=r"got 'stay_in_bounds'.*; did you mean 'stays_in_bounds'"
    ):
        strays(Contract(expected={"stay_in_bounds": WHY}), max_examples=1)


def test_what_follows_goes_with_its_cause():
    cause = finding(3)
    follows = finding(4, property="within_bound", cause=BOUNDS)
    alone = finding(5, property="within_bound")
    assert find_reasons([cause, follows], {BOUNDS: WHY}) == {
        cause: WHY,
        follows: f"follows from {BOUNDS}: {WHY}",
    }
    assert find_reasons([cause, alone], {BOUNDS: WHY}) == {cause: WHY}
    assert find_reasons([cause, follows], {"within_bound": WHY}) == {follows: WHY}
    assert find_reasons([cause, follows], {}) == {}


def test_a_failure_that_is_expected_changes_no_verdict(texts):
    report = strays(max_examples=20)
    assert (report.verdict, report.findings) == ("pass", ())
    assert {f.property for f in report.expected} == {BOUNDS}
    result = next(p for p in report.properties if p.name == BOUNDS)
    assert (result.status, result.reason) == ("expected", WHY)
    # it takes no cases from the search for other failures
    assert result.examples == 20
    assert parse(Report, dump(report), "report") == report
    shown = [text for text, _ in lines(report, str)]
    assert f"{BOUNDS} fails as expected: {WHY}" in shown
    texts("the verdict with an expected failure", shown[-1])


def test_another_failure_is_a_finding_all_the_same():
    report = strays(launch=lambda a, b: right(a, b) + (a.shape[0] > 2), max_examples=20)
    assert (report.verdict, report.findings[0].property) == ("fail", "exact_on_integers")
    assert {f.property for f in report.expected} == {BOUNDS}


def test_what_holds_after_all_is_a_finding(texts):
    report = check_with(fake_run(), contract=EXPECTS)[0]
    (finding,) = report.findings
    assert (report.verdict, finding.property, finding.fault) == ("fail", BOUNDS, UNEXPECTED)
    shown = [text for text, _ in lines(report, str)]
    texts("what was expected to fail holds", "\n".join(shown[:2]), reason=WHY)
    assert finding.message in shown[1]
    assert not any("smallest case" in text for text in shown)
    assert add_commands(report, str).findings[0].reproduce is None


@pytest.mark.parametrize(
    ("options", "judged"),
    [
        *((options, "1 case") for options in ({"case": CASE}, {"case": CASE, "max_examples": 1})),
        ({"max_examples": 99}, "99 cases"),
    ],
)
def test_few_cases_show_no_pass(options, judged):
    """A rare failure may not occur among few cases; the report gives the number of cases judged."""
    report = check_with(fake_run(), contract=EXPECTS, **options)[0]
    assert (report.verdict, report.findings) == ("pass", ())
    texts = [text for text, _ in lines(report, str)]
    held = f"held in the {judged} that it was judged in"
    assert f"{BOUNDS}, expected to fail, {held}: {WHY}" in texts


def judged(verdict, status, name=BOUNDS, hides=False, others=()):
    """Return the verdict on a report in which the property expected to fail has this status."""
    before = report(verdict=verdict)
    first, *rest = before.properties
    hidden = (finding(3, property="no_races"),) if hides else ()
    results = (replace(first, name=name, status=status), *others, *rest)
    before = replace(before, properties=results, expected=hidden)
    contract = Contract(expected={name: WHY})
    return describe_passes(before, KernelUnderTest("matmul", len, contract), [CASE], 100).verdict


def test_only_what_ran_to_its_end_passes_unexpectedly():
    assert judged("pass", "pass") == "fail"
    assert judged("pass", "not run") == "pass"
    assert judged("pass", "expected") == "pass"
    for verdict in ("incomplete", "error", "fail"):
        assert judged(verdict, "pass") == verdict
    # a property that other failures hide was not compared in every case
    assert judged("pass", "pass", "symmetries") == "fail"
    assert judged("pass", "pass", "symmetries", hides=True) == "pass"
    assert judged("pass", "pass", hides=True) == "fail"
    launched = replace(report().properties[0], status="not run", backend="cuda")
    assert judged("pass", "pass", others=(launched,)) == "pass"


def test_what_fails_as_expected_is_not_launched(texts):
    """It could damage the device's memory, so the requested launch does not take place."""
    before = replace(report(), expected=(finding(3),))
    after = launch_cases(None, before, [], SimpleNamespace(name="H200"), None)
    assert after.verdict == "incomplete"
    texts("nothing is launched after an expected failure", after.note)


def test_scanners_get_a_note_and_no_alert():
    judged = strays(max_examples=2)
    run = make_document([judged], list_placed([judged], reproduce([judged])))["runs"][0]
    assert run["results"] == []
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert (notification["level"], notification["associatedRule"]["id"]) == ("note", BOUNDS)
    assert WHY in notification["message"]["text"]


CRASHES = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import leaves, matmul

def pytest_gemm_kernels():
    crash = Contract(expected={"runs_to_completion": "leaves at M=3"})
    return [KernelUnderTest("leaves", leaves, crash), KernelUnderTest("matmul", matmul)]
"""


@pytest.mark.lane("full")
def test_a_crash_that_is_expected_leaves_the_rest_unjudged(project, capsys, texts):
    Path("conftest.py").write_text(CRASHES)
    command = ["signoff", "--max-examples", "5", "--json", "r.json", "--junit", "r.xml"]
    assert main(command) == EXIT["incomplete"]
    kernel = json.loads(Path("r.json").read_text())["kernels"][0]
    assert (kernel["verdict"], kernel["findings"]) == ("incomplete", [])
    assert [f["fault"] for f in kernel["expected"]] == ["crash"]
    assert kernel["note"].startswith("stopped after 4 cases: ")
    skipped = [element.get("message") for element in ElementTree.parse("r.xml").iter("skipped")]
    texts("an expected failure in JUnit's form", "\n".join(skipped))


def test_no_smaller_crash_is_sought_where_one_is_expected(monkeypatch):
    """The other finding is no crash, and stays unchanged."""
    worker = WorkerExit(end="crash", how="the process died of SIGSEGV")
    other = finding(3, property="within_bound", case=Case(9, 9, 9, "fp16"))
    ends = PropertyResult("runs_to_completion", "claim", "not run", 0, reason=WHY)
    bound = PropertyResult("within_bound", "claim", "fail", 1)
    so_far = Report(SCHEMA, "matmul", (ends, bound), (other,), 0.0, {})
    for event in (
        PartialReport(encode(so_far)),
        CaseStarted(CASE.to_json(), "draw"),
    ):
        worker.take(event)
    asked = []
    monkeypatch.setattr(assemble, "watch", lambda called, *more: asked.append(called) or worker)
    report, _ = assemble.judge(CheckRequest(KernelRef("matmul")), Limits())
    assert asked == [CHECK]
    assert (report.verdict, report.findings) == ("fail", (other,))
    assert [f.fault for f in report.expected] == ["crash"]
    statuses = {p.name: (p.status, p.reason) for p in report.properties}
    assert statuses == {"runs_to_completion": ("expected", WHY), "within_bound": ("fail", None)}


@pytest.mark.lane("full")
def test_check_and_signoff_take_the_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLES / "no_k_mask.py", tmp_path)
    check = ["check", "no_k_mask.py:matmul", "--max-examples", "2"]
    assert main([*check, "--expect", f"{BOUNDS}={WHY}", "--json", "r.json"]) == EXIT["pass"]
    out = capsys.readouterr().out
    assert f"{BOUNDS} fails as expected: {WHY}" in out
    report = json.loads(Path("r.json").read_text())
    reasons = {p["name"]: p["reason"] for p in report["properties"] if p["reason"]}
    assert reasons.pop(BOUNDS) == WHY
    assert set(reasons.values()) == {f"follows from {BOUNDS}: {WHY}"}
    assert f"  which also causes: {', '.join(reasons)}\n" in out
    assert all("reproduce" in item for item in report["expected"])
    for value, message in (
        ("stay_in_bounds=x", "did you mean 'stays_in_bounds'?\n"),
        (BOUNDS, f"--expect: got '{BOUNDS}', expected such as"),
        (f"{BOUNDS}=", "expected such as"),
    ):
        assert message in refuse([*check, "--expect", value], capsys)
    kernel = f"K('matmul', no_k_mask.matmul, Contract(expected={{{BOUNDS!r}: {WHY!r}}}))"
    Path("conftest.py").write_text(f"{HEAD}import no_k_mask\n    return [{kernel}]\n")
    few = ("--max-examples", "2", "--accept", "exercise")  # which do not exercise every property
    assert main(["signoff", *few]) == EXIT["pass"]
    out = capsys.readouterr().out.splitlines()
    assert ["stays_in_bounds", "expected"] in [line.split() for line in out]
    assert f"matmul: {BOUNDS} fails as expected: {WHY}" in out
