"""The calls by which a target ends its own process, reported with their lines before they do."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any

from gemmproof.reference.provenance import NOWHERE, calling_line
from gemmproof.worker.processes import format_signal
from gemmproof.worker.protocol import Exits, Listener


def report_own_exits(emit: Listener) -> None:
    """Have os._exit, and every signal that this process sends itself, reported to `emit`.

    Python announces os.kill and os.killpg to audit hooks; the other two calls are replaced. Calls
    without a line of the target on their stack are gemmproof's own, and those of a forked child do
    not end this process.
    """
    worker = os.getpid()

    def tell(how: str, status: int) -> None:
        where = calling_line() if os.getpid() == worker else NOWHERE
        if where is not NOWHERE:
            with suppress(OSError):
                emit(Exits(how, status, str(where), where.file))

    def listen(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.kill", "os.killpg"):
            number, own = int(arguments[1]), (worker, 0, -worker)  # a worker leads its group
            if arguments[0] in own and number:
                tell(f"the process sent itself {format_signal(number)}", -number)

    leave, raise_signal = os._exit, signal.raise_signal

    def leave_with_line(status: int) -> None:
        tell(f"os._exit({status}) was called", status & 0xFF)
        leave(status)

    def raise_with_line(signalnum: int) -> None:
        tell(f"the process sent itself {format_signal(signalnum)}", -int(signalnum))
        raise_signal(signalnum)

    os._exit = leave_with_line  # type: ignore[assignment]
    signal.raise_signal = raise_with_line
    sys.addaudithook(listen)
