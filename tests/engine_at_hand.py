"""One process that has the engine imported, of which the commands of all tests fork their workers.

Importing torch and Triton takes longer than what most tests are about. A test that changes the
environment gets workers, or a process to fork them from, that know of the change.
"""

from __future__ import annotations

import os
import threading
from functools import cache

from gemmproof.worker import fork_client
from gemmproof.worker.limits import Limits
from gemmproof.worker.supervisor import _root

# pytest sets the first for each test, and `import torch._dynamo` the second, wherever it happens
_SET_ALONG_THE_WAY = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR")
_find_server, _start_server = fork_client.find_server, fork_client.ForkServer

Server = fork_client.ForkServer


class _Lent:
    """The common process, which goes on when a command is done with it."""

    def __init__(self, server: Server) -> None:
        self.process, self.fork = server.process, server.fork

    def close(self) -> None:
        """Leave it to those that come after."""


def share_engine(monkeypatch) -> None:
    """Until the patch is undone, commands without a conftest to import use the common process."""
    _usual_environment()
    monkeypatch.setattr(fork_client, "find_server", lambda: _find_server() or _share())
    monkeypatch.setattr(fork_client, "ForkServer", _share_or_start)


def _share_or_start(root: str, conftest: str | None, memory: int) -> Server | _Lent:
    common = _share() if conftest is None and memory == Limits().memory else None
    return common or _start_server(root, conftest, memory)


def _share() -> _Lent | None:
    # it dies with the thread that starts it, and what it forks has its environment
    is_main = threading.current_thread() is threading.main_thread()
    return _Lent(_start()) if is_main and _environment() == _usual_environment() else None


@cache
def _start() -> Server:
    return _start_server(_root(), None, Limits().memory)


@cache
def _usual_environment() -> dict[str, str]:
    return _environment()


def _environment() -> dict[str, str]:
    return {k: value for k, value in os.environ.items() if k not in _SET_ALONG_THE_WAY}
