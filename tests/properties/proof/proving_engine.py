"""The engine with provers that return what a test specifies, or that end their process."""

import os
import signal
from functools import partial

from gemmproof.engine.kernel_check import check
from gemmproof.properties.proof import Proof, Proofs, Side


def _say(kernel, target, seconds):
    everywhere = Proof("stays_in_bounds", "proved", f"every M, N, K, in {seconds:g} s")
    unknown = Proof("offsets_fit", "not decided", why="load of a: its address hangs on data")
    side = Side("right.py:9 needs M >= 1025", lambda case: False, is_known=True)
    return Proofs((everywhere, unknown), sides=(side,))


def _doubt(kernel, target, seconds):
    case = '{"M":3,"N":2,"K":1,"dtype":"fp16"}'
    return Proofs((Proof("stays_in_bounds", "refuted", why="row < M is lacking", case=case),))


def _die(kernel, target, seconds):
    os.kill(os.getpid(), signal.SIGSEGV)


def _fill(kernel, target, seconds):
    held = []
    while True:
        held.append(bytearray(1 << 26))


says = partial(check, _prove=_say)
doubts = partial(check, _prove=_doubt)
dies = partial(check, _prove=_die)
fills = partial(check, _prove=_fill)
