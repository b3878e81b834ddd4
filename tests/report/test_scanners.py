"""SARIF and GitLab code quality: findings with a line are listed, all others are counted."""

import json
import os
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from tests.report.reports_by_hand import CLAIMS, finding, report, reproduce

from gemmproof.cli import EXIT, main
from gemmproof.report.ci import make_document, make_issues
from gemmproof.report.located_findings import find_root, list_placed

SOURCE = "x = 1\n\n    a = load(a_ptr)\n    b = load(b_ptr)\n    a = load(a_ptr)\n"


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    """Create a repository, with the current folder below its root."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    Path("my_kernels.py").write_text(SOURCE)
    return tmp_path


def locate_findings(*reports):
    return list_placed(reports, reproduce(reports))


def write_sarif(*reports):
    document = make_document(reports, locate_findings(*reports))
    assert json.loads(json.dumps(document)) == document
    return document["runs"][0]


def test_a_finding_is_a_result_of_its_rule(repository, texts):
    judged = report(finding(3), finding(4, property="within_bound", cause="stays_in_bounds"))
    document = make_document([judged], locate_findings(judged))
    assert (document["version"], len(document["runs"])) == ("2.1.0", 1)
    run = document["runs"][0]
    driver = run["tool"]["driver"]
    assert driver["name"] == "gemmproof"
    rules = {rule["id"]: rule for rule in driver["rules"]}
    assert list(rules) == list(CLAIMS)
    for name, claim in CLAIMS.items():
        assert rules[name]["fullDescription"]["text"] == claim
        assert claim in rules[name]["help"]["text"]
        assert rules[name]["defaultConfiguration"] == {"level": "error"}
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] == "error"
        assert set(result["partialFingerprints"]) == {"gemmproof/v1"}
    first = run["results"][0]
    location = first["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "deep/my_kernels.py", "uriBaseId": "%SRCROOT%"}
    assert location["region"] == {"startLine": 3}
    texts("the message of a result for scanners", first["message"]["text"])
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_what_has_no_line_is_a_notification():
    outside = finding(3, file="/somewhere/else.py")
    run = write_sarif(report(finding(), outside, finding(3)))
    assert len(run["results"]) == 1
    (invocation,) = run["invocations"]
    notifications = invocation["toolExecutionNotifications"]
    levels = [
        (notification["level"], notification["associatedRule"]["id"])
        for notification in notifications
    ]
    assert levels == [("error", "stays_in_bounds")] * 2
    unknown = report(verdict="incomplete", note="killed"), report(verdict="error", note="gone")
    (invocation,) = write_sarif(*unknown)["invocations"]
    assert not invocation["executionSuccessful"]
    levels = [notification["level"] for notification in invocation["toolExecutionNotifications"]]
    assert levels == ["warning", "error"]


def test_code_quality_has_what_gitlab_requires():
    issues = make_issues(
        locate_findings(report(finding(3), finding(4, cause="stays_in_bounds"), finding()))
    )
    fields = {"description", "check_name", "fingerprint", "severity", "location"}
    assert [set(issue) for issue in issues] == [fields] * 2
    assert [issue["severity"] for issue in issues] == ["critical", "major"]
    assert issues[0]["location"] == {"path": "deep/my_kernels.py", "lines": {"begin": 3}}
    assert issues[0]["check_name"] == "stays_in_bounds"


def fingerprints(*findings):
    return [located.fingerprint for located in locate_findings(report(*findings))]


def test_a_fingerprint_stays_where_lines_move_and_differs_elsewhere():
    before = fingerprints(finding(3), finding(5), finding(4))
    assert len(set(before)) == 3  # two lines are alike
    Path("my_kernels.py").write_text("import os\n\n\n" + SOURCE.replace("    a", "\ta"))
    assert fingerprints(finding(6), finding(8), finding(7)) == before
    Path("my_kernels.py").write_text(SOURCE.replace("load(a_ptr)", "load(a_ptr, mask)"))
    after = fingerprints(finding(3), finding(5), finding(4))
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, False, True]
    assert fingerprints(finding(3, axis="K")) != fingerprints(finding(3))
    other = locate_findings(report(finding(3), target="my_kernels.py:other"))
    assert other[0].fingerprint not in after


def test_a_file_s_name_may_be_anything(repository):
    name = os.fsdecode(b"k\xff\n %:.py")
    Path(name).write_text(SOURCE)
    judged = report(finding(3, file=name), target=f"{name}:matmul")
    (result,) = write_sarif(judged)["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.isascii()
    assert uri.isprintable()
    assert unquote_to_bytes(uri) == b"deep/k\xff\n %:.py"
    text = json.dumps([result, make_issues(locate_findings(judged))])
    text.encode()
    assert json.loads(text)[1][0]["location"]["path"] == r"deep/k\udcff\n %:.py"
    assert "\\udcff" not in text.replace("\\\\udcff", "")  # most refuse lone surrogates


@pytest.mark.parametrize("name", ["GITHUB_WORKSPACE", "CI_PROJECT_DIR"])
def test_the_root_is_what_ci_says_if_it_lies_above(repository, monkeypatch, name):
    assert find_root() == repository
    monkeypatch.setenv(name, str(repository / "deep"))
    assert find_root() == repository / "deep"
    monkeypatch.setenv(name, "/somewhere")
    assert find_root() == repository


WRONG = Path(__file__).parents[2] / "docs" / "examples" / "no_k_mask.py"


@pytest.mark.lane("full")
def test_check_writes_them_and_counts_the_rest(capsys, texts):
    Path("no_k_mask.py").write_bytes(WRONG.read_bytes())
    command = ["check", "no_k_mask.py:matmul", "--max-examples", "3"]
    reports = ["--sarif", "found.sarif", "--codequality", "found.json", "--json", "all.json"]
    assert main([*command, *reports]) == EXIT["fail"]
    lines = capsys.readouterr().out.splitlines()
    findings = json.loads(Path("all.json").read_text())["findings"]
    unlocated = sum(item["file"] is None for item in findings)
    assert 0 < unlocated < len(findings)
    excluded = f"{unlocated} of {len(findings)}"
    texts("findings without a line for scanners", lines[-1], excluded=excluded)
    run = json.loads(Path("found.sarif").read_text())["runs"][0]
    issues = json.loads(Path("found.json").read_text())
    assert len(run["results"]) == len(issues) == len(findings) - unlocated
    assert {item["location"]["path"] for item in issues} == {"deep/no_k_mask.py"}
    notified = run["invocations"][0]["toolExecutionNotifications"]
    assert len(notified) == unlocated


@pytest.mark.parametrize("option", ["--sarif", "--codequality"])
def test_a_report_that_cannot_be_written_is_one_line(capsys, option, texts):
    command = ["check", "my_kernels.py:matmul", option]
    assert main([*command, "no/folder"]) == EXIT["error"]
    assert capsys.readouterr().err.count("\n") == 1
    assert main([*command, "same", "--junit", "same"]) == EXIT["error"]
    texts("two reports with one file", capsys.readouterr().err, option=option)
