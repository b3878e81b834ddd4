"""Signs that a simulation advances, sent now and then to whoever watches it."""

from __future__ import annotations

import time
from collections.abc import Callable

BEAT = 0.5  # seconds between two signs


class SignOfLife:
    """`send` is the watcher's; what advances calls `give`, as often as it likes."""

    send: Callable[[], None] = staticmethod(lambda: None)
    _given = 0.0

    @classmethod
    def give(cls) -> None:
        """Send a sign, unless the last one was sent a moment ago."""
        now = time.monotonic()  # of all clocks the one that costs no system call
        if now - cls._given > BEAT:
            cls._given = now
            cls.send()
