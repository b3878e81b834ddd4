"""One process that has the engine imported, of which the commands of all tests fork their workers.

Importing torch and Triton takes longer than what most tests are about. A worker has the folder and
the environment of the command, and imports a conftest.py itself.
"""

from __future__ import annotations

import threading
from functools import cache

from gemmproof.worker import fork_client
from gemmproof.worker.limits import Limits
from gemmproof.worker.supervisor import _root

_find_server, _start_server = fork_client.find_server, fork_client.ForkServer

Server = fork_client.ForkServer


class _Lent:
    """The common process, which goes on when a command is done with it."""

    def __init__(self, server: Server) -> None:
        self.process, self.fork = server.process, server.fork

    def close(self) -> None:
        """Leave it to those that come after."""


def share_engine(monkeypatch) -> None:
    """Until the patch is undone, commands use the common process."""
    monkeypatch.setattr(fork_client, "find_server", lambda: _find_server() or _share())
    monkeypatch.setattr(fork_client, "ForkServer", _share_or_start)


def _share_or_start(root: str, conftest: str | None, memory: int) -> Server | _Lent:
    common = _share() if memory == Limits().memory else None
    return common or _start_server(root, conftest, memory)


def _share() -> _Lent | None:
    # it dies with the thread that starts it
    return _Lent(_start()) if threading.current_thread() is threading.main_thread() else None


@cache
def _start() -> Server:
    return _start_server(_root(), None, Limits().memory)
