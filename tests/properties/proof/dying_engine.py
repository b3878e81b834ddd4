"""Engines that only call the kernel, after a proof that harms its process."""

import os
import signal
import time

from tests.support.fake_engine import check

from gemmproof.worker.protocol import Advanced, ProofStarted


def _end(harm):
    """Return an engine that only calls the kernel, after a proof that harms its process."""

    def judge(kernel, *, listener, proof=False, proof_seconds=0.2, **options):
        if proof:
            listener(ProofStarted(("stays_in_bounds",), 0.2))
            harm(lambda: listener(Advanced()))
        return check(kernel, listener=listener, **options)

    return judge


def _fill(advance):
    held = []
    while True:
        held.append(bytearray(1 << 26))


def _hang(advance):
    while True:
        time.sleep(0.05)
        advance()  # advancing gives it no more time


hangs = _end(_hang)
crashes = _end(lambda advance: os.kill(os.getpid(), signal.SIGSEGV))
leaves = _end(lambda advance: os._exit(0))
killed = _end(lambda advance: os.kill(os.getpid(), signal.SIGKILL))
fills = _end(_fill)
