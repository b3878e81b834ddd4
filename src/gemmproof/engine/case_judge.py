"""Single cases of a kernel, judged one after another: in one worker process, or in this one."""

from __future__ import annotations

import contextlib
import math
import os
import queue
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gemmproof.engine.assemble import judge as judge_request
from gemmproof.engine.assemble import make_death
from gemmproof.engine.request import CASE, END, SURVEY, CasesRequest, CheckRequest, JudgedCase
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import Survey
from gemmproof.properties.codec import decode
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import Report
from gemmproof.worker import supervisor
from gemmproof.worker.ends import UNKNOWN_ENDS, WorkerExit
from gemmproof.worker.entry_points import JUDGE_CASES
from gemmproof.worker.protocol import Event, PartialResult, Ready
from gemmproof.worker.supervisor import Limits


class CaseJudge(Protocol):
    """The judge of the cases of one kernel in one format."""

    def survey(self) -> Survey | JudgedCase:
        """Return what cases are drawn around, or the first case that the kernel died of."""

    def judge(self, case: Case) -> JudgedCase:
        """Judge one case by every property."""

    def report(self, case: Case) -> Report:
        """Return the report on one case, with its findings explained by the solver too."""


# -- worker --------------------------------------------------------------------------------------
TICK = 0.002  # seconds between two looks for the answer on a case, which takes tens of milliseconds
ANSWERS: dict[str, type[Survey] | type[JudgedCase]] = {CASE: JudgedCase, SURVEY: Survey}


@dataclass(frozen=True, slots=True)
class _Line:
    """The pipe on which a worker gets its requests: the path, and the end that is written to."""

    path: str
    writes: int

    def send(self, text: str) -> None:
        os.write(self.writes, text.encode() + b"\n")


class WorkerJudge:
    """Judges cases in a worker process, which is started again after a case that ends it."""

    def __init__(self, request: CheckRequest, limits: Limits, line: _Line) -> None:
        self._request, self._line = request, line
        # between two cases a worker waits for as long as Hypothesis takes
        self._limits, self._each = replace(limits, total=math.inf), limits
        self._answers: queue.SimpleQueue[Survey | JudgedCase] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pending = ""

    def survey(self) -> Survey | JudgedCase:
        """Return what cases are drawn around, or the case that ended the worker."""
        return self._ask(SURVEY)

    def judge(self, case: Case) -> JudgedCase:
        """Judge one case by every property."""
        while True:
            answer = self._ask(case.to_json())
            # a worker that was killed from outside may have answered the case before twice
            if isinstance(answer, JudgedCase) and answer.case in (case, None):
                return answer

    def report(self, case: Case) -> Report:
        """Return the report on one case, made in another worker."""
        request = replace(self._request, case=case.to_json(), proof=True)
        return judge_request(request, self._each)[0]

    def close(self) -> None:
        """End the worker, at once if it is judging a case."""
        if self._thread is None:
            return
        if self._pending:
            supervisor.halt()
        else:
            self._line.send(END)
        self._thread.join()
        supervisor.resume()

    def _ask(self, request: str) -> Survey | JudgedCase:
        """Send a request to the worker, which is started if none runs; return its answer."""
        self._pending = request
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        else:
            self._line.send(request)
        answer = self._answers.get()
        self._pending = ""
        return answer

    def _watch(self) -> None:
        """Run the worker to its end, and answer for it if a request ended it."""
        request = CasesRequest(self._request.kernel, self._request.gpu, self._line.path)
        worker = supervisor.watch(JUDGE_CASES, request, self._limits, self._listen, tick=TICK)
        self._thread = None
        if self._pending:
            self._answers.put(_describe_death(worker, self._request.name))

    def _listen(self, event: Event) -> None:
        # also of a worker that runs again after it was killed from outside
        if isinstance(event, Ready) and self._pending:
            self._line.send(self._pending)
        elif isinstance(event, PartialResult) and event.name in ANSWERS:
            self._answers.put(decode(ANSWERS[event.name], event.value, event.name))


def _describe_death(worker: WorkerExit, name: str) -> JudgedCase:
    """Return what is known of the case that a worker ended at."""
    failure = worker.explain_failure(name)
    if worker.end in UNKNOWN_ENDS or failure is not None or worker.case is None:
        return JudgedCase(None, unknown=failure or f"{name}: {worker.how}")
    death = make_death(worker, name)
    return JudgedCase(death.case, (death,))


@contextlib.contextmanager
def open_worker(request: CheckRequest, limits: Limits) -> Iterator[WorkerJudge]:
    """Yield a judge of the kernel that `request` names, whose worker starts with its first case."""
    with tempfile.TemporaryDirectory(prefix="gemmproof-") as folder:
        path = str(Path(folder, "requests"))
        os.mkfifo(path)
        writes = os.open(path, os.O_RDWR)  # both, so that opening waits for no worker
        judge = WorkerJudge(request, limits, _Line(path, writes))
        try:
            yield judge
        finally:
            judge.close()
            os.close(writes)


# -- this process --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LocalJudge:
    """Judges cases in this process, which a crash or a hang of the kernel ends."""

    kernel: KernelUnderTest
    target: str | None
    seconds: float

    def survey(self) -> Survey | JudgedCase:
        """Return what cases are drawn around."""
        from gemmproof.engine.single_case import survey

        return survey(self.kernel, self.kernel.contract.formats[0], self.target, self.seconds)

    def judge(self, case: Case) -> JudgedCase:
        """Judge one case by every property."""
        from gemmproof.engine.single_case import judge_case

        return judge_case(self.kernel, case, self.target, self.seconds)

    def report(self, case: Case) -> Report:
        """Return the report on one case."""
        from gemmproof.engine.kernel_check import check

        return check(self.kernel, case=case, target=self.target, seconds=self.seconds, proof=True)
