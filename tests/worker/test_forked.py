"""A forked task: whatever it does to its process, its results and its end are known."""

import faulthandler
import os
import signal
import subprocess
import sys
import time

import pytest

from gemmproof.reference.provenance import BEAT, Heartbeat
from gemmproof.worker.forked import Ending, run_forked
from gemmproof.worker.processes import resident

LONG, FREE = 60.0, sys.maxsize  # no limits
ALLOWED = 1 << 26  # bytes that a child may hold besides those of this process


def run(task, seconds=LONG, memory=FREE):
    """Return how the task ended, and its results."""
    results = []
    return run_forked(task, results.append, seconds, memory), results


def wait_for(condition, seconds=10):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def die(number):
    faulthandler.disable()  # pytest's, which would write a stack
    os.kill(os.getpid(), number)


def hang(send):
    """Send the numbers of this process and of a child, both of which sleep."""
    send(os.getpid())
    if child := os.fork():
        send(child)
    time.sleep(1000)


def fill(send):
    held = []
    while True:
        held.append(b"x" * (1 << 24))
        time.sleep(0.001)


def fill_in_a_child(send):
    if os.fork():
        time.sleep(1000)
    fill(send)


def fail(send):
    raise RuntimeError


@pytest.mark.parametrize(
    ("task", "ending"),
    [
        (lambda send: None, Ending("done", 86)),
        (lambda send: sys.exit(3), Ending("done", 86)),
        (fail, Ending("done", 86)),
        (lambda send: send(lambda: None), Ending("done", 86)),  # a result that cannot be sent
        (lambda send: os._exit(0), Ending("crash", 0)),
        (lambda send: os._exit(7), Ending("crash", 7)),
        (lambda send: die(signal.SIGABRT), Ending("crash", -signal.SIGABRT)),
        (lambda send: os.killpg(0, signal.SIGKILL), Ending("crash", -signal.SIGKILL)),
    ],
)
def test_an_end_is_known(task, ending):
    assert run(task) == (ending, [])


def test_results_before_a_crash_are_received():
    def task(send):
        send(1)
        send(None)
        send("x" * (1 << 20))
        die(signal.SIGSEGV)

    assert run(task) == (Ending("crash", -signal.SIGSEGV), [1, None, "x" * (1 << 20)])


def test_a_crash_in_the_middle_of_a_result_ends_it():
    def task(send):
        if (child := os.fork()) == 0:
            send("x" * (1 << 26))  # far more than a pipe holds
        time.sleep(0.2)
        os.kill(child, signal.SIGKILL)
        die(signal.SIGABRT)

    def receive(result):
        raise AssertionError("half a result")

    assert run_forked(task, receive, LONG, FREE) == Ending("crash", -signal.SIGABRT)


def test_a_hang_is_killed_with_its_children():
    ending, pids = run(hang, seconds=0.3)
    assert (ending.kind, len(pids)) == ("hang", 2)
    wait_for(lambda: not any(map(resident, pids)))


def test_the_clock_starts_again_with_each_result():
    def task(send):
        for number in range(4):
            time.sleep(0.3)
            send(number)

    assert run(task, seconds=0.9) == (Ending("done", 86), [0, 1, 2, 3])


@pytest.mark.parametrize("task", [fill, fill_in_a_child])
def test_one_that_eats_memory_is_killed(task):
    allowed = 2 * resident(os.getpid()) + ALLOWED
    ending, _ = run(task, memory=allowed)
    assert ending.kind == "memory"
    assert ending.used > allowed


def test_limits_hold_for_what_follows_all_results():
    """A parent that is late charges no result with what the child does next."""
    allowed, results = resident(os.getpid()) + ALLOWED, []

    def task(send):
        for _ in range(5):
            send(os.getpid())
        fill(send)

    def receive(pid):
        results.append(pid)
        wait_for(lambda: resident(pid) > allowed)

    assert run_forked(task, receive, LONG, allowed).kind == "memory"
    assert len(results) == 5


def test_an_interrupt_kills_it_with_its_children(monkeypatch):
    monkeypatch.setattr(os, "waitpid", wait := Waits())
    pids = []

    def receive(pid):
        pids.append(pid)
        if len(pids) == 2:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_forked(hang, receive, LONG, FREE)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(lambda: not any(map(resident, pids)))
    assert wait.ended == [pids[0]]


class Waits:
    """os.waitpid, and the processes that it found ended."""

    def __init__(self):
        self.wait, self.ended = os.waitpid, []

    def __call__(self, pid, options):
        pid, status = self.wait(pid, options)
        self.ended += [pid] * (pid > 0)
        return pid, status


def test_heartbeats_are_the_parents(monkeypatch, tmp_path):
    log = tmp_path / "log"

    def beat(activity=""):
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")

    monkeypatch.setattr(Heartbeat, "send", staticmethod(beat))
    monkeypatch.setattr(Heartbeat, "_given", 0.0)

    def task(send):
        for _ in range(2):
            time.sleep(BEAT)
            Heartbeat.send()

    run(task)
    pids = log.read_text().split()
    assert len(pids) > 1
    assert set(pids) == {str(os.getpid())}


PRINTS = """
import sys
from gemmproof.worker.forked import run_forked
print("printed")
run_forked(lambda send: sys.stdout.flush(), print, 60, sys.maxsize)
"""


def test_text_that_was_not_written_yet_is_written_once():
    buffered = {name: x for name, x in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, env=buffered)
    assert ran.stdout == b"printed\n"
