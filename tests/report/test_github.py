"""In a GitHub job: annotations of lines, and the job's summary page."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.report.reports_by_hand import finding, report, reproduce
from tests.support.cli_project import (
    project_folder,  # noqa: F401
    register,
)
from tests.texts import line_with

from gemmproof.cli import EXIT, main
from gemmproof.report.ci import make_document
from gemmproof.report.files import write_junit
from gemmproof.report.github import append_summary, fit, list_annotations, write_command
from gemmproof.report.located_findings import list_placed
from gemmproof.report.record import Regression

ANNOTATION = re.compile(r"::(error|warning) ([^:]*)::(.*)")


def annotate(*reports):
    return list(list_annotations("signoff", reports, list_placed(reports, reproduce(reports))))


def read(line):
    """Return the name, properties and message of a workflow command, as GitHub's runner does."""
    name, fields, message = ANNOTATION.fullmatch(line).groups()
    for code, c in (("%0A", "\n"), ("%0D", "\r"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        message = message if c in ":," else message.replace(code, c)
    pairs = dict(pair.split("=", 1) for pair in fields.split(","))
    for key, text in pairs.items():
        text = text.replace("%3A", ":").replace("%2C", ",")
        pairs[key] = text.replace("%0A", "\n").replace("%25", "%")
    return name, pairs, message


def test_an_annotation_names_file_line_and_property(texts):
    (line,) = annotate(report(finding(31)))
    name, fields, message = read(line)
    assert (name, fields["line"], fields["title"]) == ("error", "31", "matmul: stays_in_bounds")
    assert fields["file"].endswith("my_kernels.py")
    texts("the message of an annotation", message)


@pytest.mark.parametrize("odd", ["a:b,c%d", "two\nlines\r", "red\x1b[2J", "bytes\udcff", "100%25"])
def test_whatever_is_written_it_is_one_command(odd):
    line = write_command("error", f"{odd}\nsecond", file=odd, title=odd)
    assert line.isprintable()
    _, fields, message = read(line)
    escaped = odd.replace("\n", r"\n").replace("\r", r"\r").replace("\x1b", r"\x1b")
    escaped = escaped.replace("\udcff", r"\udcff")
    assert fields == {"file": escaped, "title": escaped}
    # the lines of a message are kept
    assert message.splitlines()[-1] == "second"


def test_the_gravest_come_first_and_the_rest_are_counted(texts):
    """One cause of each kernel, then the other causes, then the verdicts that are open."""
    first = report(*(finding(n) for n in range(1, 8)), finding(9, cause="stays_in_bounds"))
    second = report(finding(21), finding(22), target="other.py:bmm")
    broken = report(verdict="error", note="gone", target="third.py:f")
    slow = report(verdict="incomplete", note="too long", target="fourth.py:g")
    annotations = annotate(slow, broken, first, second)
    shown = [read(line) for line in annotations[:-1]]
    numbers = [fields.get("line") for _, fields, _ in shown]
    assert numbers == ["1", "21", "2", "22", "3", "4", "5", "6", "7", None]
    assert (shown[-1][0], list(shown[-1][1])) == ("error", ["title"])
    texts("the title of a kernel that could not be judged", shown[-1][1]["title"])
    texts("findings without annotations", annotations[-1])
    assert read(annotate(slow)[0])[0] == "warning"
    assert annotate(report()) == []


CHECK = ["check", "my_kernels.py:leaves", "--max-examples", "5"]


@pytest.mark.lane("full")
@pytest.mark.parametrize("command", [CHECK, ["signoff", "--max-examples", "5"]])
def test_check_and_signoff_write_them_in_a_job(project, capsys, monkeypatch, command, texts):
    register("leaves", "matmul")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "page.md")
    assert main(command) == EXIT["fail"]
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("::")]
    assert read(line)[1]["title"] == "leaves: runs_to_completion"
    page = Path("page.md").read_text()
    assert page.startswith(f"## gemmproof {command[0]}: fail\n")
    assert page.count("| leaves | fail | ") == 1
    section = page.partition("\n### ")[2].splitlines()
    texts("a finding in the summary of a job", "\n".join(section[:4]))
    assert "reproduce:  gemmproof" in page


@pytest.mark.parametrize(
    ("job", "typed", "written"), [("true", "none", 0), ("false", "auto", 0), ("", "github", 1)]
)
def test_an_option_forces_or_forbids_them(project, capsys, monkeypatch, job, typed, written):
    monkeypatch.setenv("GITHUB_ACTIONS", job)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "page.md")
    assert main([*CHECK, "--annotations", typed]) == EXIT["fail"]
    assert capsys.readouterr().out.count("\n::error ") == written
    assert Path("page.md").exists() == bool(written)


def test_what_is_refused_is_annotated_too(project, capsys):
    for command in (["check", "my_kernels.py:nothing"], ["signoff", "--conftest", "nothing.py"]):
        assert main([*command, "--annotations", "github"]) == EXIT["error"]
        captured = capsys.readouterr()
        (line,) = [x for x in captured.err.splitlines() if x.startswith("::")]
        name, fields, _ = read(line)
        assert (name, fields["title"].split(":")[0]) == ("error", f"gemmproof {command[0]}")
        assert captured.out == ""


def test_a_summary_that_cannot_be_written_is_one_line(project, capsys, monkeypatch, texts):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "no/such\nfolder")
    command = ["check", "my_kernels.py:matmul", "--max-examples", "2", "--annotations", "github"]
    assert main(command) == EXIT["incomplete"]
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1].startswith("matmul: pass")
    texts("a summary that cannot be written", captured.err)


def test_a_summary_is_appended_and_stays_below_a_mebibyte(tmp_path, monkeypatch, texts):
    path = tmp_path / "summary.md"
    before = "of another step\n" * 1000
    path.write_text(before)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    many = [report(finding(n, message="x" * 3000), target=f"k.py:f{n}") for n in range(500)]
    assert append_summary("signoff", "fail", many, reproduce(many)) == (str(path), "")
    text = path.read_text()
    assert text.startswith(before)
    assert (1 << 20) - 8000 < len(text.encode()) <= 1 << 20
    cut = re.sub(r"\d+ of", "<count> of", text[text.rindex("\n", 0, -1) + 1 :])
    texts("the last line of a summary that was cut", cut)
    assert text.count("```") % 2 == 0
    path.write_text("x" * (1 << 20))
    why = "it has no room left in 1 MiB"
    assert append_summary("signoff", "fail", many, reproduce(many)) == (str(path), why)
    assert path.stat().st_size == 1 << 20


def test_pieces_fit_whole():
    assert fit(["a" * 300, "b"], 301) == b"a" * 300 + b"b"
    cut = b"\nTruncated: 1 of 2 parts do not fit in 1 MiB.\n"
    assert fit(["a" * 100, "b" * 300], 399) == b"a" * 100 + cut


def test_nothing_that_a_kernel_is_called_is_markdown(tmp_path, monkeypatch):
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    judged = report(finding(3, message="```\n<script>"), target="k.py:`f|g`<b>*[x](y)")
    append_summary("check", "fail", [judged], reproduce([judged]))
    page = path.read_text()
    row = next(line for line in page.splitlines() if line.startswith("| &#96;"))
    assert row.count("|") == 5
    outside = re.sub(r"````text\n.*?\n````\n", "", page, flags=re.DOTALL)
    assert not set("`<*[") & set(outside)


# -- a baseline's objections to a run are in every form that CI reads ------------------------------
CONFTEST = """
from gemmproof import Contract, KernelUnderTest
from my_kernels import matmul, star

def pytest_gemm_kernels():
    contract = Contract(formats={formats})
    return [KernelUnderTest("matmul", matmul, contract), KernelUnderTest({name!r}, star, contract)]
"""
SEARCH = ["signoff", "--no-proof", "--max-examples", "2", "--quiet"]
LOST = [
    Regression("matmul", "proof", "stays_in_bounds was proved before, is\nnot", True),
    Regression("matmul", "proof", "offsets_fit was proved before; no proof was tried now", False),
    Regression("", "bits", "::error::<b>", False),
]


@pytest.mark.lane("full")
def test_a_refused_kernel_reaches_junit_sarif_annotations_and_the_summary(
    project, capsys, monkeypatch, texts
):
    Path("conftest.py").write_text(CONFTEST.format(formats=("fp16", "bf16"), name="star"))
    assert main([*SEARCH, "--json", "base.json"]) == EXIT["pass"]
    Path("conftest.py").write_text(CONFTEST.format(formats=("fp16",), name="renamed"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    capsys.readouterr()
    forms = ["--junit", "r.xml", "--sarif", "r.sarif", "--codequality", "r.cq"]
    asked = [*SEARCH, "--baseline", "base.json", "--annotations", "github", *forms]
    assert main(asked) == EXIT["fail"]
    out = capsys.readouterr().out
    texts("the verdict against a baseline", line_with(out, "signoff: fail"))
    texts("what has no line for scanners", line_with(out, "--sarif and --codequality"))
    gone, less = "star: gone: in the baseline", "matmul: bf16 is no longer guaranteed"
    errors = [line for line in out.splitlines() if line.startswith("::error ")]
    assert [gone in errors[0], less in errors[1]] == [True, True]
    suite = next(s for s in ElementTree.parse("r.xml").iter("testsuite") if s.get("failures") > "0")
    assert suite.get("name") == "baseline"
    assert [case.get("classname") for case in suite.iter("testcase")] == ["star", "matmul"]
    (run,) = json.loads(Path("r.sarif").read_text())["runs"]
    notifications = run["invocations"][0]["toolExecutionNotifications"]
    assert [notification["level"] for notification in notifications] == ["error", "error"]
    assert gone in notifications[0]["message"]["text"]
    summary = Path("summary.md").read_text()
    refused = [line for line in summary.splitlines() if "**refused**" in line]
    texts("refusals in the summary of a job", "\n".join(refused))
    assert main([*asked, "--accept", "kernel", "--accept", "guarantee"]) == EXIT["pass"]
    assert "::error" not in capsys.readouterr().out  # an accepted change is no error
    assert "baseline" not in Path("r.xml").read_text()


def test_what_is_refused_fails_and_what_is_not_known_is_an_error(tmp_path):
    held = report()
    write_junit(tmp_path / "r.xml", [held], reproduce([held]), LOST)
    cases = list(ElementTree.parse(tmp_path / "r.xml").iter("testcase"))[-3:]
    assert [case[0].tag for case in cases] == ["failure", "error", "error"]
    assert len({(case.get("name"), case.get("classname")) for case in cases}) == 3
    notes = make_document([held], [], LOST)["runs"][0]["invocations"][0]
    levels = [notification["level"] for notification in notes["toolExecutionNotifications"]]
    assert levels == ["error", "warning", "warning"]


@pytest.mark.parametrize(("at", "begins"), [(0, "::error "), (1, "::warning "), (2, "::warning ")])
def test_annotations_are_a_line_each_of_their_weight(at, begins):
    line = list(list_annotations("signoff", [report()], [], LOST))[at]
    assert line.startswith(begins)
    assert "\n" not in line
