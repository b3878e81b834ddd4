"""A wrapper sees the process of a program of the user's: its arguments, variables and names."""

import json
from pathlib import Path

import pytest
from tests.support.supervised import each_way, judging  # noqa: F401

from gemmproof.worker.supervisor import Limits

SEES = """
import json, multiprocessing, os, sys, threading
from pathlib import Path

def sees(a, b):
    names = [thread.name for thread in threading.enumerate()]
    Path("seen.json").write_text(json.dumps({
        "argv": sys.argv,
        "orig_argv": sys.orig_argv[1:],
        "variables": dict(os.environ),
        "threads": names,
        "process": multiprocessing.current_process().name,
        "command line": Path("/proc/self/cmdline").read_text(),
        "module": __name__,
    }))

"""


@pytest.fixture(autouse=True)
def more_targets(run):
    Path("targets.py").write_text(SEES)


def test_nothing_of_the_checker_shows(run, monkeypatch):
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "this one")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    report, _ = run("sees", Limits(load=20, case=9))
    assert report.verdict == "pass"
    seen = json.loads(Path("seen.json").read_text())
    variables = seen.pop("variables")
    own = ("GEMMPROOF_WORKER", "PYTEST_CURRENT_TEST", "PYTHONHASHSEED")
    assert [name for name in own if name in variables] == []
    assert variables["OMP_NUM_THREADS"] == "7"
    assert (seen.pop("argv"), seen.pop("orig_argv")) == (["targets.py"], ["targets.py"])
    assert "gemmproof" not in json.dumps(seen)
    assert (seen["threads"], seen["process"]) == (["MainThread"], "MainProcess")
