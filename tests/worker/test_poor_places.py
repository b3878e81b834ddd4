"""A command that lacks file descriptors, folders or an environment judges all the same."""

import json

import pytest
from tests.support.cli_project import project_folder  # noqa: F401
from tests.support.lanes import first_of_each
from tests.worker.cli_process import find_left, run

#: Commands of the shell before it runs the command.
PLACES = {
    "no_home": "unset HOME",
    "no_such_home": "export HOME=/nonexistent/home",
    "no_path": "export PATH=",
    "no_such_temporary_folder": "export TMPDIR=/nonexistent/temporary",
    "temporary_folder_is_a_file": "export TMPDIR=/dev/null",
    "few_descriptors": "ulimit -n 32",
    "no_core": "ulimit -c 0",
    "cores": "ulimit -c unlimited",
    "closed_input": "exec <&-",
    "no_bytecode": "export PYTHONDONTWRITEBYTECODE=1",
    "no_asserts": "export PYTHONOPTIMIZE=2",
    "warnings_are_errors": "export PYTHONWARNINGS=error",
    "ascii": "export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0",
    "no_such_locale": 'set -- env LC_ALL=xx_YY.UTF-9 "$@"',
    "narrow": "export COLUMNS=1",
    "no_width": "export COLUMNS=no",
    "dumb": "export TERM=dumb NO_COLOR=1",
    "forced_colour": "export FORCE_COLOR=1",
    "unwritable_files": "umask 0777",
    "ignored_signals": "trap '' INT HUP TERM PIPE CHLD",
}


@pytest.mark.parametrize("shortage", first_of_each(PLACES))
def test_a_poor_place_changes_no_verdict(project, shortage):
    args = ("check", "my_kernels.py:leaves", "--max-examples", "5", "--json", "report.json")
    ended, out, err = run(project, *args, shell=f'{PLACES[shortage]}; exec "$@"')
    assert (ended, err) == (1, "")
    assert "Traceback" not in out
    report = json.loads((project / "report.json").read_text())
    assert report["verdict"] == "fail"
    assert [finding["case"]["M"] for finding in report["findings"]] == [3]
    assert find_left(project) == ([], [])
