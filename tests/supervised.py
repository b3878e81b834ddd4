"""Functions that do harm to their process, and a fixture that has them judged in a worker."""

from dataclasses import asdict
from pathlib import Path

import pytest

from gemmproof import forkserver, supervise
from gemmproof.judge import judge
from gemmproof.supervise import Limits
from gemmproof.target import parse

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


@pytest.fixture(name="way", params=["spawned", "forked"])
def each_way(request):
    """How workers come into being: each by itself, or from a process that has imported torch."""
    return request.param


@pytest.fixture(name="run")
def judging(tmp_path, monkeypatch, way):
    """Judges one of the TARGETS, by the engine that only calls it."""
    monkeypatch.setattr(forkserver, "MODULES", ("gemmproof.worker",))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(supervise, "ENGINE", "fake_engine:check")
    monkeypatch.setattr(supervise, "TABLE", "fake_engine")
    monkeypatch.chdir(tmp_path)
    Path("targets.py").write_text(TARGETS)

    def run(name, limits=LIMITS, listener=lambda event: None, **changes):
        request = {
            "ask": "check",
            "name": name,
            "target": asdict(parse(f"targets.py:{name}")),
            "contract": {"formats": ["fp16"]},
            "max_examples": 6,
            "seed": 0,
            "gpu": None,
            "case": None,
        }
        return judge({**request, **changes}, limits, listener)

    if way == "spawned":
        yield run
        return
    with supervise.preloaded():
        server = forkserver.running()
        assert server is not None
        yield run
        assert server.process.poll() is None  # no target ended it
    assert forkserver.running() is None
