"""A task in a forked child, which may crash, hang or fill memory without harm to its parent."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any

from gemmproof.reference.provenance import Heartbeat
from gemmproof.worker.processes import Clock, die_with_parent, group_of, memory_of_group

TICK = 0.01  # seconds between two polls of a child
DONE = 86  # exit status of a child whose task returned or raised
INTERRUPTED = 130  # exit status of a child that SIGINT ended


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a child: "done" if its task returned or raised, or "crash", "hang" or "memory".

    `code` is the exit status of a crash, negative for a signal; `used` are the bytes of memory that
    the child held when it broke a limit.
    """

    kind: str
    code: int = 0
    used: int = 0


def run_forked(
    task: Callable[[Callable[[Any], None]], object],
    receive: Callable[[Any], None],
    seconds: float,
    memory: int,
) -> Ending:
    """Run a task in a forked child, kill what is left of it, and return how it ended.

    The task is called with a function that sends a result; `receive` gets each in this process. The
    child and its own children may hold `memory` bytes, and may take `seconds` (those of Clock)
    until the next result or the end.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # a missing, broken or closed one
            stream.flush()  # else the child may write the same text again
    receiver, sender = Pipe(duplex=False)
    child = os.fork()  # a Process of multiprocessing may not be started by a daemonic one
    if child == 0:
        try:
            with suppress(OSError):
                os.setpgid(0, 0)
            die_with_parent()
            Heartbeat.send = staticmethod(lambda activity="": None)  # the parent sends heartbeats
            task(sender.send)
        except KeyboardInterrupt:  # of a signal
            os._exit(INTERRUPTED)
        finally:
            os._exit(DONE)
    sender.close()
    with suppress(OSError):  # whichever process is first
        os.setpgid(child, child)
    clock, spent, code = Clock(lambda: group_of(child)), 0.0, None
    try:
        while True:
            if code is None:  # asked first: what it sent before its end is received
                pid, status = os.waitpid(child, os.WNOHANG)
                code = os.waitstatus_to_exitcode(status) if pid else None
            received = _receive(receiver)
            spent += clock.advance()
            if received:
                receive(*received)
                spent = 0.0
                continue  # limits are for what it does after all that it has sent
            if code is not None:
                return Ending("done" if code == DONE else "crash", code)
            used = memory_of_group(child)
            if spent > seconds or used > memory:
                return Ending("hang" if spent > seconds else "memory", used=used)
            Heartbeat.give()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)  # with its children, such as an assembler
        if code is None:
            os.waitpid(child, 0)
        receiver.close()


def _receive(receiver: Connection) -> list[Any]:
    """Return the result that a child sent, waiting a moment for it; [] if none, or at the end."""
    try:
        return [receiver.recv()] if receiver.poll(TICK) else []
    except (EOFError, OSError):  # the end, also in the middle of a result
        time.sleep(TICK)
        return []
