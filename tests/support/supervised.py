"""Functions that harm their process, and a fixture that judges them in a worker."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.lanes import first_of_each

from gemmproof.engine.assemble import judge
from gemmproof.engine.request import CheckRequest
from gemmproof.properties.contract import Contract
from gemmproof.target import KernelRef, parse
from gemmproof.worker import entry_points, fork_server, supervisor
from gemmproof.worker.fork_server import ForkServer
from gemmproof.worker.supervisor import Limits

LIMITS = Limits(load=20, case=1, total=60, memory=1 << 28)
TARGETS = """
import ctypes, os, signal, subprocess, sys, threading, time

def returns(a, b):
    pass

def exits(a, b):
    if a.M == 3:
        sys.exit(7)

def ends(a, b):
    if a.M == 3:
        os._exit(0)

def faults(a, b):
    if a.M == 3:
        ctypes.string_at(0)

def hangs(a, b):
    while a.M == 3:
        pass

def hangs_deaf(a, b):
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while a.M == 3:
        time.sleep(9)

def dawdles(a, b):
    while a.M == 3 and a.N == 9:
        pass
    time.sleep(0.3 * (a.M == 3))

def eats(a, b):
    eaten = []
    while a.M == 3:
        eaten.append(bytearray(1 << 24))

def prints(a, b):
    print("x" * (1 << 22))
    print("last words")

def naps(a, b):
    time.sleep(0.2)

def forks(a, b):
    if a.M == 3 and (child := os.fork()):
        os.waitpid(child, 0)

def daemons(a, b):
    if a.M == 0:
        subprocess.Popen(["sleep", "77"], start_new_session=True)
        threading.Thread(target=time.sleep, args=(77,)).start()

def strays(a, b):
    if a.M == 0 and os.fork() == 0:
        os.setsid()
        time.sleep(77)
        os._exit(0)

def wrecks(a, b):
    os.closerange(0, 4096)
    os.chdir("/")
    os.environ.clear()
    sys.stdout = sys.stderr = None
"""


@pytest.fixture(name="way", params=first_of_each(["forked", "spawned"]))
def each_way(request):
    """The ways to start a worker: spawned, or forked from a process that has imported torch."""
    return request.param


@pytest.fixture(name="run")
def judging(tmp_path, monkeypatch, way):
    """Judges one of the TARGETS, by the engine that only calls it."""
    # no common process: a worker is spawned, or forked of the server that is started here
    monkeypatch.setattr(fork_server, "find_server", lambda: fork_server._server)
    monkeypatch.setattr(fork_server, "ForkServer", ForkServer)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    monkeypatch.setattr(entry_points, "ENGINE", "fake_engine:check")
    monkeypatch.chdir(tmp_path)
    Path("targets.py").write_text(TARGETS)

    def run(name, limits=LIMITS, listener=lambda event: None, **changes):
        kernel = KernelRef(name, target=parse(f"targets.py:{name}"), contract=Contract())
        request = CheckRequest(kernel, max_examples=6)
        return judge(replace(request, **changes), limits, listener)

    if way == "spawned":
        yield run
        return
    with supervisor.preload():
        server = fork_server.find_server()
        assert server is not None
        yield run
        assert server.process.poll() is None  # no target ended it
    assert fork_server.find_server() is None
