"""Workers forked from one process start, and are reported, like spawned ones."""

import ast
import contextlib
import os
from pathlib import Path

import pytest
from tests.support.supervised import each_way, judging  # noqa: F401

from gemmproof.worker import fork_server, supervisor
from gemmproof.worker.protocol import CaseStarted

TELLS = """
import os, sys

def tells(a, b):
    facts = [os.getppid(), os.getsid(0) == os.getpid(), os.environ.get("TRITON_INTERPRET"),
             sys.flags.hash_randomization, hash("gemm"), os.environ["OMP_NUM_THREADS"],
             len(os.listdir("/proc/self/task")), os.getcwd(),
             "gemmproof.worker.serve" in sys.modules]
    print(facts)
"""


@pytest.mark.parametrize("way", ["forked"], indirect=True)
def test_forked_workers_share_one_parent_and_start_as_spawned_ones_do(run, monkeypatch):
    Path("targets.py").write_text(TELLS)
    first, second = (run("tells", max_examples=1)[1].output for _ in range(2))
    assert first == second
    parent = fork_server.find_server().process.pid
    assert first.startswith(f"[{parent}, True, None, 0, ")
    assert f"'1', 1, {os.getcwd()!r}, True]" in first
    monkeypatch.setattr(fork_server, "_server", None)
    alone = run("tells", max_examples=1)[1].output
    assert alone.partition(", ")[2] == first.partition(", ")[2]
    assert alone.startswith(f"[{os.getpid()}, ")


CHANGED = """
import os, sys, tempfile

def tells(a, b):
    names = ("PYTHONPATH", "TMPDIR", "TRITON_INTERPRET", "OMP_NUM_THREADS", "GONE", "CAME")
    print([os.environ.get(name) for name in names], tempfile.gettempdir(), os.getcwd())
    print([entry for entry in sys.path if os.path.isdir(entry)])
"""


def test_a_forked_worker_has_the_environment_of_the_moment_as_a_spawned_one_has(
    run, tmp_path, monkeypatch, way
):
    """The server has an earlier environment, of which nothing may remain."""
    support = os.environ["PYTHONPATH"]
    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("PYTHONPATH", f"{support}:before")
    for folder in ("before", "after", "temporary", "place", "place/after"):
        (tmp_path / folder).mkdir()
    Path("place/targets.py").write_text(CHANGED)
    with supervisor.preload() if way == "forked" else contextlib.nullcontext():
        monkeypatch.delenv("GONE")
        monkeypatch.setenv("CAME", "é\n")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        monkeypatch.setenv("PYTHONPATH", f"after:{support}")
        monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
        monkeypatch.chdir("place")
        output = run("tells", max_examples=1)[1].output
    path = repr(f"after:{support}")
    temporary = tmp_path / "temporary"
    first, second = output.splitlines()
    variables = f"[{path}, '{temporary}', None, '1', None, 'é\\n']"
    assert first == f"{variables} {temporary} {tmp_path / 'place'}"
    entries = ast.literal_eval(second)
    assert str(tmp_path / "place" / "after") in entries
    assert not {str(tmp_path / "before"), str(tmp_path / "after")} & set(entries)


def test_where_no_server_starts_workers_are_spawned(monkeypatch):
    monkeypatch.setattr(fork_server.sys, "executable", "/no/such/python")
    with supervisor.preload():
        assert fork_server.find_server() is None


def test_a_server_that_takes_too_much_memory_is_not_kept():
    with supervisor.preload(limits=supervisor.Limits(memory=1)):
        assert fork_server.find_server() is None


@pytest.mark.lane("full")
@pytest.mark.parametrize("way", ["spawned"], indirect=True)
def test_a_server_that_dies_takes_no_verdict_with_it(run):
    with supervisor.preload():
        killed = fork_server.find_server().process

        def kill(event):
            if isinstance(event, CaseStarted) and killed.poll() is None:
                killed.kill()
                killed.wait()

        report, _ = run("naps", listener=kill)
        assert (report.verdict, killed.poll()) == ("pass", -9)
        report, _ = run("returns")  # the next worker has no server
        assert report.verdict == "pass"


@pytest.mark.lane("full")
def test_signoff_forks_every_worker_of_one_server(tmp_path, monkeypatch, capsys):
    from gemmproof.cli import main

    forked, spawned = [], []
    fork, spawn = fork_server.ForkServer.fork, supervisor._spawn
    monkeypatch.setattr(
        fork_server.ForkServer, "fork", lambda self, *a: forked.append(self) or fork(self, *a)
    )
    monkeypatch.setattr(supervisor, "_spawn", lambda *a: spawned.append(a) or spawn(*a))
    conftest = Path(__file__).parents[2] / "conftest.py"
    args = ["signoff", "--conftest", str(conftest), "--max-examples", "1"]
    args += ["--accept", "exercise"]
    args += ["--kernel", "matmul", "--kernel", "matmul_grouped"]
    assert main(args) == 0
    assert "signoff: pass (2 pass)" in capsys.readouterr().out
    assert (len(forked), len(set(forked)), spawned) == (3, 1, [])
