"""The reports of a pytest run: each kernel and format is judged once among all processes."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gemmproof.engine.request import CheckRequest
    from gemmproof.plugin import GemmItem
    from gemmproof.properties.kernel import KernelUnderTest
    from gemmproof.pytest_plugin.options import PluginOptions
    from gemmproof.report.record import Report
    from gemmproof.target import KernelRef

# the key of one judgement: the kernel of a conftest, at a format, by its drift or all else
Subject = tuple[str | None, str, str, bool]
Judge = Callable[["GemmItem"], "Report"]


@dataclass(slots=True)
class Reports:
    """The reports that this process knows; `judge` makes one.

    The processes of a run share them in `folder`, if there are several; `ahead` are items of
    every kernel and format of the run.
    """

    judge: Judge
    folder: Path | None = None
    ahead: Sequence[GemmItem] = ()
    known: dict[Subject, Report] = field(default_factory=dict)

    def find(self, item: GemmItem) -> Report:
        """Return the report on the item's kernel and format.

        While another process makes it, this one makes those that no process has begun.
        """
        while item.subject not in self.known:
            others = (other for other in self.ahead if other.subject not in self.known)
            if not self._take(item) and not any(map(self._take, others)):
                self._take(item, waits=True)
        return self.known[item.subject]

    def _take(self, item: GemmItem, waits: bool = False) -> bool:
        """Read a report or make it; False while another process makes it, unless this one waits."""
        if self.folder is None:
            self.known[item.subject] = self.judge(item)
            return True
        from gemmproof.properties.codec import dump, parse
        from gemmproof.report.files import lock_file, write_whole
        from gemmproof.report.record import Report

        path = self.locate(item)
        with lock_file(path.with_suffix(".lock"), math.inf if waits else 0) as held:
            if held and not path.exists():
                write_whole(path, dump(self.judge(item), 2))
            if held:
                self.known[item.subject] = parse(Report, path.read_text(encoding="utf-8"), "report")
        return held

    def locate(self, item: GemmItem) -> Path:
        """Return the file of the report that an item needs."""
        assert self.folder is not None
        # with `--dist each` processes may have different interpreters
        name = hashlib.sha256(repr((sys.executable, *item.subject)).encode()).hexdigest()[:16]
        return self.folder / f"{name}.json"


def choose_judge(options: PluginOptions, start_workers: Callable[[], None]) -> Judge:
    """Return the function that makes a report: in a worker process, or in this one if requested.

    A kernel that an object registers, and no file, is judged here too: no worker could load it.
    """
    broken: list[str] = []

    def judge(item: GemmItem) -> Report:
        if is_local(item, options):
            here = _measure_here if item.is_drift else partial(_judge_here, broken=broken)
            return here(item, options)
        start_workers()
        return (_measure_in_worker if item.is_drift else _judge_in_worker)(item, options)

    return judge


def is_local(item: GemmItem, options: PluginOptions) -> bool:
    """Return whether a kernel is judged in this process."""
    return options.in_process or item.conftest is None


def make_request(item: GemmItem, options: PluginOptions) -> CheckRequest:
    """Return the request to check a kernel, as the commands make it."""
    from gemmproof.engine.request import CheckRequest

    return CheckRequest(
        _refer(item),
        gpu=options.search.gpu,
        max_examples=options.search.max_examples,
        seed=options.search.seed,
        launch=options.gpu is not None,
        case=options.judge.case,
        proof=options.judge.proof,
        check_model=options.judge.check_model,
    )


def narrow(item: GemmItem) -> KernelUnderTest:
    """Return the item's kernel with the item's format alone."""
    return replace(item.kernel, contract=replace(item.kernel.contract, formats=(item.format,)))


def _judge_in_worker(item: GemmItem, options: PluginOptions) -> Report:
    """Return the report on a kernel, as check and signoff make it."""
    from gemmproof.engine.saved_cases import find_store, format_saved, judge_kept

    request = make_request(item, options)
    store = find_store(options.judge.saved_cases, request)
    report, worker = judge_kept(request, options.worker.limits, store)
    if note := format_saved(worker):
        print(note)
    if report.verdict != "pass":
        print(worker.output, end="")  # which pytest shows with the failure
    return report


def _measure_in_worker(item: GemmItem, options: PluginOptions) -> Report:
    from gemmproof.drift.record import DriftRequest, read_drift
    from gemmproof.engine.assemble import make_error
    from gemmproof.reference.gpus import DEFAULT
    from gemmproof.report.record import Report
    from gemmproof.worker.entry_points import MEASURE_DRIFT
    from gemmproof.worker.supervisor import watch

    name, request = item.kernel.name, DriftRequest(_refer(item), options.search.gpu or DEFAULT)
    worker = watch(MEASURE_DRIFT, request, options.worker.limits)
    measured = read_drift(worker)
    if isinstance(measured, Report):
        return measured
    reason = worker.explain_failure(name) or f"{name}: {measured or worker.how}"
    return make_error(name, reason)


def _refer(item: GemmItem) -> KernelRef:
    """Return the reference to an item's kernel; the worker imports as this process does."""
    from gemmproof.target import Calling, KernelRef

    calling, path = Calling(memory_only=item.kernel.memory_only), tuple(sys.path)
    return KernelRef(item.kernel.name, item.conftest, None, None, calling, item.format, path)


def _judge_here(item: GemmItem, options: PluginOptions, broken: list[str]) -> Report:
    """Return the report on a kernel, made in this process.

    A kernel whose CUDA error leaves the device unusable is added to `broken`; none is launched
    after it.
    """
    import gemmproof
    from gemmproof.engine.assemble import make_error
    from gemmproof.properties.cases.case import Case

    kernel = narrow(item)
    case = None if options.judge.case is None else Case.from_json(options.judge.case)
    device = None if broken else options.gpu
    try:
        report = gemmproof.check(
            kernel,
            max_examples=options.search.max_examples,
            seed=options.search.seed,
            target=options.search.gpu,
            case=case,
            proof=options.judge.proof,
            check_model=options.judge.check_model,
            launch=device is not None,
            device=device,
            seconds=options.worker.time_limit,
        )
    except ValueError as error:  # this kernel does not take the case: the error has the reason
        return make_error(kernel.name, str(error))
    if broken and options.gpu is not None:
        reason = f"not run: a CUDA error of {broken[0]} left the device unusable in this process"
        return report.with_note(f"{reason}; run the item alone")
    if any(f.fault == "cuda_error" for f in report.findings):
        broken.append(f"{kernel.name} at {item.format}")
    return report


def _measure_here(item: GemmItem, options: PluginOptions) -> Report:
    from gemmproof.drift.run import drift_of
    from gemmproof.engine.assemble import make_error
    from gemmproof.reference.accumulator import NotMeasurable
    from gemmproof.reference.gpus import DEFAULT
    from gemmproof.reference.simulator import SimulatorError

    try:
        return drift_of(item.kernel, item.format, target=options.search.gpu or DEFAULT)
    except (SimulatorError, NotMeasurable) as error:
        return make_error(item.kernel.name, f"{item.kernel.name} at {item.format}: {error}")
