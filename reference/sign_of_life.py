"""Signs that a simulation advances, sent now and then to whoever watches it."""

from __future__ import annotations

import time
from collections.abc import Callable

BEAT = 0.5  # seconds of CPU time between two signs


class SignOfLife:
    """`send` is the watcher's; what advances calls `give`, as often as it likes."""

    send: Callable[[], None] = staticmethod(lambda: None)
    _given = 0.0

    @classmethod
    def give(cls) -> None:
        """Send a sign, unless the thread's last one was sent a moment ago."""
        now = time.thread_time()
        if now - cls._given > BEAT:
            cls._given = now
            cls.send()
