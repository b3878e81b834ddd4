"""Signals that ask a command to end: it ends what it started, and tells what it knows."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# Ctrl-C, a batch system or a person, a terminal that was closed.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal, `number`, asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def heed_signals() -> Iterator[None]:
    """Within it the first signal to end raises Interrupted; later ones do not disturb the end.

    Those that were ignored before remain so: that is how nohup lets a command outlive a terminal.
    """
    heeded = [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        for each in heeded:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is interrupt:  # else the process is about to end
                signal.signal(number, handler)
