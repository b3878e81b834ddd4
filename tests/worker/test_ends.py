"""Ends that prove nothing about a kernel are no findings: kills, exhausted limits, other causes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.supervised import LIMITS, each_way, judging  # noqa: F401

from gemmproof.worker import processes
from gemmproof.worker.ends import WorkerExit
from gemmproof.worker.processes import Clock, _room_in_containers
from gemmproof.worker.protocol import CaseStarted, Exits, ProofEnded, ProofStarted
from gemmproof.worker.supervisor import Limits

KILL = """
def kill_from_outside(number):
    if os.fork() == 0:
        os.kill(os.getppid(), number)
        os._exit(0)
    time.sleep(9)
"""
MORE = f"""
import os, signal, sys, time, weakref
from pathlib import Path
{KILL}
def killed(a, b, number=signal.SIGKILL):
    if a.M == 3:
        kill_from_outside(number)

def terminated(a, b):
    killed(a, b, signal.SIGTERM)

def interrupted(a, b):
    killed(a, b, signal.SIGINT)

def interrupted_in_a_callback(a, b):
    class Tensor: pass
    tensor = Tensor()
    reference = weakref.ref(tensor, lambda _: killed(a, b, signal.SIGINT))
    del tensor
    while a.M == 3:
        pass

def interrupts(a, b):
    if a.M == 3:
        raise KeyboardInterrupt

def kills(a, b, number=signal.SIGKILL):
    if a.M == 3:
        os.kill(os.getpid(), number)

def kills_gently(a, b):
    kills(a, b, signal.SIGINT)

def raises(a, b):
    if a.M == 3:
        signal.raise_signal(signal.SIGTERM)


def killed_once(a, b):
    if a.M == 3 and not Path("killed").exists():
        Path("killed").touch()
        killed(a, b)

def aborts(a, b):
    if a.M == 3:
        os.abort()

def aborts_for_memory(a, b):
    if a.M == 3:
        os.write(2, b"terminate called after throwing an instance of 'std::bad_alloc'")
        os.abort()

def stays_in_gemmproof(a, b):
    if a.M == 3:
        os.mkfifo("call.json")
        sys.modules["gemmproof.worker.protocol"].WorkerCall.read(Path())

def stays_in_torch(a, b):
    import time
    while a.M == 3:
        time.sleep(9)

held = []

def holds(a, b):
    import time
    if a.M == 3:
        held.append(bytearray(96 << 20))
        time.sleep(5)
"""


KILLED = "the process was killed from outside"


@pytest.fixture(autouse=True)
def more_targets(run):
    Path("targets.py").write_text(Path("targets.py").read_text() + MORE)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("killed", f"{KILLED} by SIGKILL (Linux does this when memory runs out), twice"),
        ("terminated", f"{KILLED} by SIGTERM, twice"),
        ("interrupted", f"{KILLED} by SIGINT, twice"),
        ("interrupted_in_a_callback", f"{KILLED} by SIGINT, twice"),
        ("aborts_for_memory", "this machine refused an allocation: the process died of SIGABRT"),
        ("stays_in_gemmproof", "no progress for 1 s in gemmproof's own code, at protocol"),
    ],
)
def test_an_end_that_is_not_the_kernel_s_is_incomplete(run, name, how):
    report, _ = run(name)
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert report.note.startswith(f"stopped after 4 cases: {how}")
    assert {p.name: (p.status, p.examples) for p in report.properties} == {
        "runs_to_completion": ("not run", 0),
        "stays_in_bounds": ("pass", 3),
    }


@pytest.mark.parametrize(
    ("name", "fault", "how"),
    [
        ("interrupts", "exit", "KeyboardInterrupt()"),
        ("kills", "crash", "the process sent itself SIGKILL"),
        ("kills_gently", "crash", "the process sent itself SIGINT"),
        ("raises", "crash", "the process sent itself SIGTERM"),
        ("ends", "crash", "os._exit(0) was called"),
    ],
)
def test_an_end_that_the_wrapper_asks_for_is_a_finding_with_its_line(run, name, fault, how):
    report, _ = run(name)
    (finding,) = report.findings
    assert (finding.fault, finding.case.M, finding.got) == (fault, 3, how)
    lines = Path("targets.py").read_text().splitlines()
    file, _, line = finding.where.partition(":")
    assert file == finding.file == "targets.py"
    assert any(x in lines[int(line) - 1] for x in ("raise", "os.kill", "os._exit"))


@pytest.mark.lane("full")
@pytest.mark.parametrize(("name", "fault"), [("aborts", "crash"), ("stays_in_torch", "hang")])
def test_an_end_of_the_kernel_s_own_is_a_finding(run, name, fault):
    report, _ = run(name)
    assert [(f.fault, f.case.M) for f in report.findings] == [(fault, 3)]


def test_a_worker_that_is_killed_once_is_run_again(run):
    report, outcome = run("killed_once")
    assert (report.verdict, outcome.cases, Path("killed").exists()) == ("pass", 6, True)


def test_a_worker_that_is_killed_while_it_loads_is_incomplete(run):
    Path("targets.py").write_text("import os, signal, time\n" + KILL + "kill_from_outside(9)\n")
    report, _ = run("returns")
    assert report.verdict == "incomplete"
    assert report.note.startswith(f"stopped after 0 cases: {KILLED} by SIGKILL")


def test_memory_that_the_machine_lacks_is_no_finding(run):
    report, _ = run("eats", Limits(load=20, case=1, free=1 << 28))
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert "(0.25 allowed by the free memory of this machine; 0." in report.note


def test_memory_that_is_refused_to_the_engine_is_incomplete(run):
    report, _ = run("returns", engine="fake_engine:starving")
    refused = "this machine refused an allocation of gemmproof itself (MemoryError)"
    assert (report.verdict, report.note) == ("incomplete", f"stopped after 0 cases: {refused}")


def test_a_limit_below_what_gemmproof_needs_is_an_error_that_says_how_much(run):
    report, outcome = run("naps", Limits(memory=1 << 20))
    needs = outcome.held_when_ready / 2**30
    expected = f"more than the {needs:.1f} GiB that gemmproof needs before it loads a kernel"
    note = f"memory: got 0.000977 GiB allowed by --memory-limit, expected {expected}"
    assert (report.verdict, report.note) == ("error", note)


def test_a_limit_just_above_what_gemmproof_needs_accuses_nobody(run):
    """The case adds less memory than was held before it: the limit is too low."""
    _, outcome = run("returns", engine="fake_engine:holding")
    limits = Limits(load=20, memory=outcome.held_at_case + (64 << 20))
    report, _ = run("holds", limits, engine="fake_engine:holding")
    assert (report.verdict, report.findings) == ("incomplete", ())
    assert "allowed by --memory-limit; 0." in report.note


@pytest.mark.parametrize("ended", [False, True])
def test_a_worker_died_of_a_proof_only_while_the_proof_was_in_progress(ended):
    worker = WorkerExit()
    for event in (ProofStarted(("stays_in_bounds",), 10.0), *[ProofEnded()] * ended):
        worker.take(event)
    worker.classify(-signal.SIGSEGV)
    undecided = [] if ended else ["stays_in_bounds"]
    assert (worker.end, list(worker.list_undecided())) == ("crash", undecided)


ANNOUNCED = Exits("the process sent itself SIGTERM", -15, "targets.py:3", "targets.py")


@pytest.mark.parametrize(
    ("events", "status", "end", "where"),
    [
        ((ANNOUNCED,), -15, "crash", "targets.py:3"),
        ((ANNOUNCED,), -9, "killed", None),  # before the signal came
        ((ANNOUNCED, CaseStarted("{}")), -15, "killed", None),  # it was handled
    ],
)
def test_an_announced_end_is_the_wrapper_s_only_if_it_comes_next(events, status, end, where):
    worker = WorkerExit()
    for event in events:
        worker.take(event)
    worker.classify(status)
    assert (worker.end, worker.where) == (end, where)


SPIN = "while True: pass"


@pytest.fixture(name="start")
def starting():
    started = []

    def start(code):
        # one CPU for all of them
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def watch_for(process, seconds):
    clock = Clock(lambda: [process.pid])
    clock.advance()
    began, counted = time.monotonic(), 0.0
    while time.monotonic() - began < seconds:
        time.sleep(0.05)
        counted += clock.advance()
    return counted / (time.monotonic() - began)


@pytest.mark.lane("full")
def test_the_time_that_other_processes_take_does_not_count(start):
    spinning, *_ = [start(SPIN) for _ in range(5)]
    time.sleep(0.5)
    assert 0.02 < watch_for(spinning, 2) < 0.5


@pytest.mark.lane("full")
def test_sleep_counts_and_being_stopped_does_not(start):
    sleeping = start("import time; time.sleep(60)")
    time.sleep(0.5)
    assert watch_for(sleeping, 1) > 0.5
    sleeping.send_signal(signal.SIGSTOP)
    assert watch_for(sleeping, 1) < 0.1


def test_a_container_s_limit_bounds_what_is_free(tmp_path, monkeypatch):
    own, root = tmp_path / "cgroup", tmp_path / "fs"
    own.write_text("4:memory:/outer/inner\n0::/two/deep\n")
    groups = {
        "memory/outer": ("memory.limit_in_bytes", "memory.usage_in_bytes", 5000, 1000, 400),
        "memory/outer/inner": ("memory.limit_in_bytes", "memory.usage_in_bytes", 9000, 500, 0),
        "two": ("memory.max", "memory.current", "max", 1000, 0),
        "two/deep": ("memory.max", "memory.current", 3000, 900, 100),
    }
    for group, (limit, use, most, used, idle) in groups.items():
        (root / group).mkdir(parents=True, exist_ok=True)
        (root / group / limit).write_text(f"{most}\n")
        (root / group / use).write_text(f"{used}\n")
        name = "inactive_file" if limit == "memory.max" else "total_inactive_file"
        (root / group / "memory.stat").write_text(f"anon 5\n{name} {idle}\n")
    assert sorted(_room_in_containers(own, root)) == [2200, 4400, 8500]
    monkeypatch.setattr(processes, "_room_in_containers", lambda: [2200, 4400])
    assert processes.available_memory() == 2200


def test_the_limits_that_are_not_stated_are_the_machine_s(monkeypatch):
    monkeypatch.setattr(processes, "available_memory", lambda: 1000)
    assert (Limits().free, LIMITS.memory) == (800, 1 << 28)
