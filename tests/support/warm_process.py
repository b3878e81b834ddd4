"""`python -m ...` in a fork of one process that has torch and Triton imported.

The fork has the arguments, folder, environment, streams and end of a process that was executed. Its
workers are forked from a server that is shared too. Importing takes longer than the subject of most
tests; tests of imports execute a process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

# Not hypothesis: pytest warns of plugins that were imported before it could rewrite them.
MODULES = ("torch", "triton", "gemmproof.reference.simulator", "pytest")
MESSAGE = 1 << 18


def run_module(module: str, *arguments: str, cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Run `python -m module arguments`; return its exit status and all that it printed."""
    server = _start()
    request = json.dumps([module, arguments, str(cwd), dict(env)]).encode()
    with tempfile.TemporaryFile() as output:
        try:
            socket.send_fds(server, [request], [output.fileno()])
            status = json.loads(server.recv(MESSAGE))
        except BaseException:  # interrupted by a time limit: it may hang
            _start.cache_clear()
            server.close()
            raise
        output.seek(0)
        return status, output.read().decode(errors="replace")


def execute_module(
    module: str, *arguments: str, cwd: Path, env: Mapping[str, str]
) -> tuple[int, str]:
    """Do the same in a process that has nothing imported."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout


@cache
def _start() -> socket.socket:
    """Start the process; return the line to it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    root = Path(__file__).parents[2]
    path = map(str, (root, root / "src"))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    python_path = os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.support.warm_process", str(theirs.fileno())],
            env={**os.environ, **threads, "PYTHONPATH": python_path},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(_end, process)
    return ours


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _serve(line: socket.socket) -> None:
    """Fork for each request until none comes; return in the fork, once it is like a new process."""
    from tests.engine_at_hand import lend, start_server

    from gemmproof.worker import fork_server
    from gemmproof.worker.processes import die_with_parent

    die_with_parent()
    engine, start = start_server(), fork_server.ForkServer
    for name in MODULES:
        import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lack the other threads"
    gc.collect()
    gc.freeze()
    while message := (request := socket.recv_fds(line, MESSAGE, 1))[0]:
        (output,) = request[1]
        pid = os.fork()
        if pid == 0:
            line.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            fork_server.ForkServer = lambda root, conftest, memory: (
                lend(engine, memory) or start(root, conftest, memory)
            )
            return _become(*json.loads(message))
        os.close(output)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        line.send(json.dumps(status).encode())
    engine.close()
    os._exit(0)


def _become(module: str, arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """Take on the folder, the environment, the arguments and the import path of a new process."""
    before = os.environ["PYTHONPATH"].split(os.pathsep)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    path = env.get("PYTHONPATH", "")
    entries = [os.path.abspath(entry) for entry in path.split(os.pathsep)] if path else []
    others = [entry for entry in sys.path if entry not in before]
    sys.path[:] = dict.fromkeys([cwd, *entries, *others])
    sys.argv[:] = [module, *arguments]
    tempfile.tempdir = None  # looked up again: TMPDIR may differ
    atexit.register(gc.unfreeze)  # Triton 3.9 reports objects frozen at exit as leaks


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
