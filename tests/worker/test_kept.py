"""Results of `signoff` survive any end of the command, and --fail-fast ends it early."""

import json
import os
import signal
from xml.etree import ElementTree

import pytest
from tests.worker.cli_process import find_left, finish, run, start, wait_for
from tests.worker.waiting_project import write_project

from gemmproof.signoff.record import SIGNOFF_SCHEMA

SIGNOFF = ("signoff", "--jobs", "1", "--max-examples", "2", "--time-limit", "600")
UNDER_WAY = "not checked yet when this was written"


@pytest.fixture(name="project")
def project_with_a_kernel_that_waits(tmp_path):
    return write_project(tmp_path)


@pytest.mark.lane("full")
def test_a_kill_keeps_what_was_judged(project):
    process = start(project, *SIGNOFF, "--json", "report.json", "--junit", "report.xml")
    assert wait_for((project / "began").exists)  # the third kernel: the first two are done

    def read():
        return json.loads((project / "report.json").read_text())

    # the JUnit one is written last
    assert wait_for(lambda: "<failure" in (project / "report.xml").read_text())
    os.killpg(process.pid, signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    kernels = [(kernel["verdict"], kernel["note"]) for kernel in read()["kernels"]]
    assert [verdict for verdict, _ in kernels] == ["pass", "fail", "incomplete", "incomplete"]
    assert [note for _, note in kernels[2:]] == [UNDER_WAY] * 2
    assert (read()["verdict"], read()["schema"]) == ("fail", SIGNOFF_SCHEMA)
    suites = ElementTree.parse(project / "report.xml").iter("testsuite")
    errors = [[e.get("message") for e in suite.iter("error")] for suite in suites]
    assert errors[2:] == [[UNDER_WAY]] * 2
    find_left(project)  # wait until the workers, which die with their parent, are gone


@pytest.mark.lane("full")
def test_a_report_that_is_no_file_is_written_once(project):
    (project / "go").touch()
    code, out, _ = run(project, *SIGNOFF, "--json", "-")
    assert (code, len(json.loads(out)["kernels"])) == (1, 4)
    err = run(project, *SIGNOFF, "--json", "/dev/stderr")[2]
    assert err.count('"left_out"') == 1


@pytest.mark.lane("full")
def test_fail_fast_ends_at_the_first_kernel_with_findings(project):
    # the third kernel would wait for ever
    code, out, err = run(project, *SIGNOFF, "--fail-fast", "--json", "report.json")
    report = json.loads((project / "report.json").read_text())
    assert (code, report["verdict"]) == (1, "fail")
    assert [k["verdict"] for k in report["kernels"]] == ["pass", "fail"] + ["incomplete"] * 2
    notes = [kernel["note"] for kernel in report["kernels"][2:]]
    assert notes == ["not run: --fail-fast"] * 2
    last = out.splitlines()[-3:]
    assert last[0] == "signoff: fail (1 fail, 2 incomplete, 1 pass)"
    assert last[1:] == ["waits: not run: --fail-fast", "waits_too: not run: --fail-fast"]
    assert "Traceback" not in err
    assert find_left(project) == ([], [])


@pytest.mark.lane("full")
def test_fail_fast_changes_nothing_where_all_is_right(project):
    (project / "go").touch()
    names = ("--kernel", "matmul", "--kernel", "waits")
    code, out, _ = run(project, *SIGNOFF, "--fail-fast", *names)
    assert (code, out.splitlines()[-1]) == (0, "signoff: pass (2 pass)")
