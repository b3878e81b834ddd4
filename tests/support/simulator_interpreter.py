"""Triton's interpreter in a process of its own, and what it touches and returns for a case.

As a program it answers pickled requests on stdin: the interpreter must be chosen before the
kernels are decorated.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
from simulator_cases import Case, operands_of
from simulator_kernels import WRAPPERS


def recorded(case: Case) -> dict[str, Any]:
    """What the interpreter touched, as (pid, kind, address, mask, other), and what it returned.

    `homes` are the first addresses of the storages of a, b and of each result.
    """
    from unittest.mock import patch

    from triton.runtime.interpreter import interpreter_builder as builder

    touches: list[Any] = []

    def note(kind: str, ptrs: Any, mask: Any, other: Any) -> None:
        address = np.asarray(ptrs.data).astype(np.int64).reshape(-1)
        lanes = np.ones(address.shape, bool)
        if mask is not None:
            lanes = np.broadcast_to(np.asarray(mask.data).astype(bool), ptrs.data.shape).reshape(-1)
        value = None if other is None else float(np.asarray(other.data).flat[0])
        pid = tuple(int(i) for i in builder.grid_idx)
        touches.append((pid, kind, address, lanes, value))

    load, store = builder.create_masked_load, builder.create_masked_store
    update, swap = builder.create_atomic_rmw, builder.create_atomic_cas

    def noted_load(ptrs, mask, other, *rest):
        note("load", ptrs, mask, other)
        return load(ptrs, mask, other, *rest)

    def noted_store(ptrs, value, mask, *rest):
        note("store", ptrs, mask, None)
        return store(ptrs, value, mask, *rest)

    def noted_update(op, ptr, value, mask, *rest):
        note("atomic", ptr, mask, None)
        return update(op, ptr, value, mask, *rest)

    def noted_swap(ptr, *rest):
        note("atomic", ptr, None, None)
        return swap(ptr, *rest)

    a, b = operands_of(case)
    with (
        patch.object(builder, "create_masked_load", noted_load),
        patch.object(builder, "create_masked_store", noted_store),
        patch.object(builder, "create_atomic_rmw", noted_update),
        patch.object(builder, "create_atomic_cas", noted_swap),
    ):
        results = WRAPPERS[case.kernel](a, b, case)
    homes = [x.untyped_storage().data_ptr() for x in (a, b, *results)]
    return {"touches": touches, "homes": homes, "results": [x.numpy() for x in results]}


def timed(case: Case) -> tuple[float, float]:
    """Seconds of wall and of CPU time that one call of the wrapper takes, unobserved."""
    a, b = operands_of(case)
    started = time.perf_counter(), time.process_time()
    WRAPPERS[case.kernel](a, b, case)
    return time.perf_counter() - started[0], time.process_time() - started[1]


def serve() -> None:
    """Answer (what, case) until stdin ends; what a kernel prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            what, case = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = {"recorded": recorded, "timed": timed}[what](case)
        except Exception as error:  # told to the test, which fails with it
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


class Interpreter:
    """A process in which these kernels are decorated for Triton's interpreter."""

    def __init__(self) -> None:
        root = Path(__file__).parents[2]
        path = os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"},
        )

    def ask(self, what: str, case: Case) -> Any:
        """Its answer to "recorded" or "timed"; raises AssertionError with what failed there."""
        pipe, answers = self.process.stdin, self.process.stdout
        assert pipe is not None
        assert answers is not None
        pickle.dump((what, case), pipe)
        pipe.flush()
        answer = pickle.load(answers)
        assert not isinstance(answer, str), f"{case}: {answer}"
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


if __name__ == "__main__":
    serve()
