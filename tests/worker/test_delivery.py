"""Answers are printed and reports written completely, whatever the state of streams and disks."""

import errno
import json
import os
import stat

import pytest
from tests.support.cli_project import project_folder, register  # noqa: F401
from tests.support.lanes import first_of_each
from tests.worker.cli_process import run

from gemmproof.cli import main
from gemmproof.report.files import find_obstacle, replace_file

FULL = "No space left on device"
UNPRINTED = f"gemmproof check: stdout: got {FULL!r}, expected to write the answer\n"


def check(project, kernel, *args, **options):
    return run(project, "check", f"my_kernels.py:{kernel}", "--max-examples", "5", *args, **options)


@pytest.mark.parametrize(("kernel", "code"), [("matmul", 0), ("leaves", 1), ("absent", 2)])
@pytest.mark.parametrize("stream", first_of_each(["stdout", "stderr"]))
def test_a_reader_that_left_changes_no_verdict(project, kernel, code, stream):
    """The reader leaves as `| head -1` does; the pipe is closed before any output: no race."""
    read, write = os.pipe()
    os.close(read)
    ended, out, err = check(project, kernel, **{stream: write})
    os.close(write)
    assert ended == code
    assert "Traceback" not in f"{out}{err}"
    assert (out is None) == (stream == "stdout")


@pytest.mark.lane("full")
def test_the_first_line_of_an_answer_can_be_taken(project):
    shell = 'set -o pipefail; "$@" | head -1'
    code, out, err = check(project, "leaves", shell=shell)
    assert (code, err) == (1, "")
    assert out == "leaves does not run to completion: every case ends in a result\n"


@pytest.mark.parametrize("closed", first_of_each(["<&- >&- 2>&-", "<&-", ">&-", "2>&-"]))
@pytest.mark.parametrize(("kernel", "code"), [("matmul", 0), ("leaves", 1), ("absent", 2)])
def test_a_stream_that_is_closed_changes_no_verdict_and_no_report(project, closed, kernel, code):
    shell = f'exec "$@" {closed}'
    ended, out, err = check(project, kernel, "--json", "report.json", shell=shell)
    assert ended == code
    assert "Traceback" not in out + err
    assert json.loads((project / "report.json").read_text())["properties"] or code == 2


@pytest.mark.parametrize("kernel", ["matmul", "leaves"])
def test_an_answer_without_room_is_incomplete_and_its_report_is_written(project, kernel):
    shell = 'exec "$@" > /dev/full'
    code, _, err = check(project, kernel, "--json", "report.json", shell=shell)
    assert (code, err) == (3, UNPRINTED)
    assert json.loads((project / "report.json").read_text())["findings"] or kernel == "matmul"


@pytest.mark.parametrize("columns", [30, 300])
def test_help_without_room_leaves_no_traceback(project, columns):
    """This covers help that fits the buffer, and help that fails while it is written."""
    shell = f'COLUMNS={columns} exec "$@" > /dev/full'
    _, _, err = run(project, "check", "--help", shell=shell)
    assert err == ""


@pytest.mark.parametrize("option", first_of_each(["--json", "--junit"]))
@pytest.mark.parametrize("args", [("check", "my_kernels.py:matmul"), ("signoff",)])
def test_a_report_without_room_is_incomplete_and_the_answer_is_printed(
    project, capsys, args, option
):
    register("matmul")
    assert main([*args, "--max-examples", "1", option, "/dev/full"]) == 3
    out, err = capsys.readouterr()
    message = f"{option}: got '/dev/full' ({FULL}), expected a file that can be written"
    assert err.splitlines()[-1] == f"gemmproof {args[0]}: {message}"
    assert "pass" in out.splitlines()[-1]


def test_an_answer_is_printed_before_its_report_is_written(project, capsys, monkeypatch):
    printed = []
    monkeypatch.setattr(
        "gemmproof.commands.output.replace_file",
        lambda name, write: printed.append(capsys.readouterr().out) or "",
    )
    assert main(["check", "my_kernels.py:matmul", "--json", "report.json"]) == 0
    assert "matmul: pass: " in printed[0]


def fill_disk(path):
    """Write a part, then raise that the disk is full."""
    path.write_text("new, but")
    raise OSError(errno.ENOSPC, FULL)


@pytest.fixture(name="report")
def old_report(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("old")
    return path


def test_an_old_report_stays_where_a_new_one_has_no_room(report, tmp_path):
    assert replace_file(str(report), fill_disk) == FULL
    assert report.read_text() == "old"
    assert replace_file(str(tmp_path / "new.json"), fill_disk) == FULL
    assert os.listdir(tmp_path) == ["report.json"]


def test_an_old_report_stays_until_the_new_one_is_written(report, tmp_path):
    seen = []

    def write(path):
        path.write_text("new")
        seen.append((path.parent, report.read_text()))

    assert replace_file(str(report), write) == ""
    assert (seen, report.read_text()) == ([(tmp_path, "old")], "new")
    assert os.listdir(tmp_path) == ["report.json"]


def test_an_interruption_leaves_the_old_report_alone(report, tmp_path):
    def interrupt(path):
        path.write_text("new, but")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(str(report), interrupt)
    assert (os.listdir(tmp_path), report.read_text()) == (["report.json"], "old")


def test_a_new_report_is_as_open_as_the_old_one_and_a_link_stays_one(tmp_path):
    report, link, plain = (tmp_path / name for name in ("kept/report", "link", "plain"))
    report.parent.mkdir()
    report.write_text("old")
    report.chmod(0o640)
    link.symlink_to(report)
    assert find_obstacle(str(link)) == ""
    assert replace_file(str(link), lambda path: path.write_text("new")) == ""
    assert (link.is_symlink(), report.read_text()) == (True, "new")
    assert stat.S_IMODE(report.stat().st_mode) == 0o640
    plain.touch()
    mode = stat.S_IMODE(plain.stat().st_mode)  # the mode that the umask gives
    assert replace_file(str(tmp_path / "new"), lambda path: path.write_text("new")) == ""
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode


def test_a_pipe_takes_a_report_as_it_comes():
    read, write = os.pipe()
    name = f"/dev/fd/{write}"
    assert find_obstacle(name) == ""
    assert replace_file(name, lambda path: path.write_text("report")) == ""
    assert os.read(read, 99) == b"report"
    os.close(read)
    os.close(write)


def test_a_report_does_not_take_the_place_of_the_answer(project):
    shell = 'exec "$@" > answer.txt'
    code, _, err = check(project, "matmul", "--json", "/dev/stdout", shell=shell)
    assert code == 2
    assert "--json: got '/dev/stdout' (the answer is printed there), expected" in err
