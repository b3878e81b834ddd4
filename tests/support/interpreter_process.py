"""A process in which kernels are decorated for Triton's interpreter, and their accesses there.

The interpreter must be chosen before a kernel is decorated, so it runs in a separate process. Run
as a program, this file answers pickled calls on stdin.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

import numpy as np


@contextmanager
def start_interpreter() -> Iterator[Callable[..., Any]]:
    """A function that calls "module:function" in a new process, where kernels are interpreted.

    Modules are found as in this process. Raises AssertionError with the traceback of what failed.
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRITON_INTERPRET": "1"}
    command = [sys.executable, __file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=env, **pipes) as process:

        def call(name: str, *args: Any) -> Any:
            pickle.dump((name, args), process.stdin)
            process.stdin.flush()
            answer, failure = pickle.load(process.stdout)
            assert failure is None, f"{name}{args}: {failure}"
            return answer

        yield call


def serve() -> None:
    """Answer calls until stdin ends; what a kernel prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            name, args = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = find_function(name)(*args), None
        except Exception:
            answer = None, traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


def find_function(name: str) -> Callable[..., Any]:
    """The function "module:function"."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def time_call(name: str, *args: Any) -> tuple[float, float]:
    """Seconds of wall and of CPU time that one call takes; the module is imported beforehand."""
    function = find_function(name)
    started = time.perf_counter(), time.process_time()
    function(*args)
    return time.perf_counter() - started[0], time.process_time() - started[1]


@contextmanager
def observe_accesses(note: Callable[..., bool]) -> Iterator[None]:
    """Call note(pid, kind, addresses, mask, other) before each access that the interpreter makes.

    An access that `note` returns False for touches nothing.
    """
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, interpreter_builder

    def admit(kind, ptrs, mask, other=None):
        addresses = np.asarray(ptrs.data).astype(np.int64)
        lanes = True if mask is None else np.asarray(mask.data).astype(bool)
        lanes = np.broadcast_to(lanes, addresses.shape)
        value = None if other is None else float(np.asarray(other.data).flat[0])
        pid = tuple(int(i) for i in interpreter_builder.grid_idx)
        if note(pid, kind, addresses, lanes, value):
            return mask
        return TensorHandle(np.zeros(addresses.shape, bool), tl.int1)

    load, store = interpreter_builder.create_masked_load, interpreter_builder.create_masked_store
    update, swap = interpreter_builder.create_atomic_rmw, interpreter_builder.create_atomic_cas

    def observed_load(ptrs, mask, other, *rest):
        return load(ptrs, admit("load", ptrs, mask, other), other, *rest)

    def observed_store(ptrs, value, mask, *rest):
        return store(ptrs, value, admit("store", ptrs, mask), *rest)

    def observed_update(op, ptrs, value, mask, *rest):
        return update(op, ptrs, value, admit("atomic", ptrs, mask), *rest)

    def observed_swap(ptrs, *rest):
        admit("atomic", ptrs, None)
        return swap(ptrs, *rest)

    with patch.multiple(
        interpreter_builder,
        create_masked_load=observed_load,
        create_masked_store=observed_store,
        create_atomic_rmw=observed_update,
        create_atomic_cas=observed_swap,
    ):
        yield


if __name__ == "__main__":
    serve()
