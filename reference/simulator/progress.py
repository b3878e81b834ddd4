"""The time of one call, and whether a call that used it up is slow or never ends.

A call has so many counted seconds (work.py), which no load changes. Memory
is finite, and so is what a product has to read and to write. A loop that has no bound of its own, a
`while` of a kernel or of its wrapper, is therefore at work as long as it touches elements that it
had not touched before. From half-time on the elements are noted. A call never ends if in the last
quarter of its time it took turns of such a loop and touched no element for the first time since
half-time: that is LimitExceeded, a finding. Whatever else ran out of time was slow: Exhausted.
"""

from __future__ import annotations

import ast
import linecache
import sys
from functools import lru_cache
from traceback import walk_stack
from typing import Any

import numpy as np

from gemmproof.reference.observation import Exhausted, LimitExceeded, SimulatorError, Where
from gemmproof.reference.provenance import calling_line, owner
from gemmproof.reference.sign_of_life import SignOfLife
from gemmproof.reference.work import METER, counted_seconds

SAMPLED_SECONDS = 0.3  # counted, for the launches of a call that is sampled
_CALLS_WRAPPERS = "simulator.call.run"  # the function of ours below the wrapper


class Enough(BaseException):
    """A sampled call has shown what it can show.

    No Exception, because a wrapper that catches those would go on without what it asked for.
    """


class Progress:
    """How far one call of a wrapper got in its `seconds`, which are counted.

    `turned` is when a `while` of a kernel last took a turn, and where; `launched` when one of the
    wrapper last launched. `moved` is when an element was touched for the first time since
    half-time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began = counted_seconds()
        self.turned: tuple[float, Where | None] = 0.0, None
        self.launched: tuple[float, Where | None] = 0.0, None
        self.moved = 0.0
        self._seen: dict[Any, np.ndarray] | None = None

    @property
    def notes(self) -> bool:
        """Whether accesses are noted: a long call's are, from half-time on."""
        return self._seen is not None

    def check(self, kernel: str, where: Where | None) -> None:
        """Called at every turn of every loop, and between programs. Raises what `end` gives."""
        now = counted_seconds()
        SignOfLife.give()
        if self._seen is None and now - self.began > self.seconds / 2:
            self._seen = {}
        if now - self.began > self.seconds:
            raise self.end(kernel, where)

    def turn(self, where: Where | None) -> None:
        """A `while` of a kernel takes a turn."""
        self.turned = counted_seconds(), where

    def launch(self) -> None:
        """The wrapper launches a kernel."""
        METER.launches += 1
        if self.notes and _launches_in_while():
            self.launched = counted_seconds(), calling_line()

    def touch(self, kind: str, storage: Any, first: np.ndarray) -> None:
        """Note accesses of elements of a storage, by the place of their first byte."""
        assert self._seen is not None
        inside = first[(first >= 0) & (first < storage.data.size)]
        key = (kind == "load", storage)
        if key not in self._seen:
            self._seen[key] = np.zeros(storage.data.size, np.bool_)
        seen = self._seen[key]
        if not seen[inside].all():
            seen[inside] = True
            self.moved = counted_seconds()

    def end(self, kernel: str, where: Where | None) -> SimulatorError:
        """The error for a call whose time is over."""
        last_quarter = self.began + self.seconds * 0.75
        allowed = f"after {self.seconds:.3g} s of counted work"
        loops = (at for turned, at in (self.launched, self.turned) if turned >= last_quarter)
        if self.moved < last_quarter and (loop := next(loops, None)):
            words = f"{kernel}: a loop without end: {allowed} it touched no element that it had not"
            return LimitExceeded(f"{words} touched before", loop)
        words = f"{kernel} was still advancing {allowed} on the tile simulator"
        return Exhausted(f"{words}, which is slower than a GPU", where)


class Brief(Progress):
    """The time of a sampled call: what its launches did not show when it is over stays unknown."""

    def check(self, kernel: str, where: Where | None) -> None:
        """Called at every turn of every loop, and between programs. Raises Enough."""
        now = counted_seconds()
        self.seconds -= now - self.began
        self.began = now
        if self.seconds < 0:
            raise Enough

    def turn(self, where: Where | None) -> None:
        """Whether a loop ends is not asked."""

    def launch(self) -> None:
        """Between launches no time counts: Triton's frontend may have run."""
        self.began = counted_seconds()


def _launches_in_while() -> bool:
    """Whether a line of the wrapper that is being executed stands in a `while` statement."""
    for frame, line in walk_stack(sys._getframe(1)):
        name = frame.f_code.co_filename
        function = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
        if function.endswith(_CALLS_WRAPPERS):
            return False
        if owner(name) != "library" and _stands_in_while(name, line):
            return True
    return False


@lru_cache
def _stands_in_while(filename: str, line: int) -> bool:
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return False
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.While))
    return any(loop.lineno <= line <= (loop.end_lineno or line) for loop in loops)
