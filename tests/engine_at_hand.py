"""One process that has the engine imported, of which the commands of all tests fork their workers.

Importing torch and Triton takes longer than what most tests are about. A worker has the folder and
the environment of the command, and imports a conftest.py itself.
"""

from __future__ import annotations

import threading
from functools import cache

from gemmproof.worker import fork_server
from gemmproof.worker.supervisor import Limits, _root

_find_server, _start_server = fork_server.find_server, fork_server.ForkServer

Server = fork_server.ForkServer
USUAL = Limits().memory  # bytes


class Lent:
    """A server that goes on when a command is done with it."""

    def __init__(self, server: Server) -> None:
        self.process, self.fork = server.process, server.fork

    def close(self) -> None:
        """Do nothing: the server stays for later commands."""


def lend(server: Server, memory: int) -> Lent | None:
    """Return the server for a command, or None if workers may take another memory than usual."""
    return Lent(server) if memory == USUAL else None


def start_server() -> Server:
    """Start a server that has the engine imported, and no conftest.py."""
    return _start_server(_root(), None, USUAL)


def share_engine(monkeypatch) -> None:
    """Until the patch is undone, commands use the common process."""
    monkeypatch.setattr(fork_server, "find_server", lambda: _find_server() or _share())
    monkeypatch.setattr(fork_server, "ForkServer", _share_or_start)


def _share_or_start(root: str, conftest: str | None, memory: int) -> Server | Lent:
    return _share(memory) or _start_server(root, conftest, memory)


def _share(memory: int = USUAL) -> Lent | None:
    # it dies with the thread that starts it
    is_main = threading.current_thread() is threading.main_thread()
    return lend(_start(), memory) if is_main else None


_start = cache(start_server)
