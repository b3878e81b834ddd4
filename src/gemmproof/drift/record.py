"""The request of a drift, and what a worker answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from gemmproof.report.record import Report
from gemmproof.target import KernelRef
from gemmproof.worker.ends import WorkerExit

DEVICE = "device"  # a part of the result: the name of the GPU that launches, None for none


@dataclass(frozen=True, slots=True)
class DriftRequest:
    """The drift of a kernel in the format that `kernel` names, simulated for `gpu` or launched.

    A registered kernel is measured as its contract declares; a target against the accumulator
    `declared`, at the lengths `sizes` of K.
    """

    kernel: KernelRef
    gpu: str | None
    declared: str = ""
    sizes: tuple[int, ...] = ()
    launch: bool = False

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name


def read_drift(worker: WorkerExit) -> Report | str | None:
    """Return the drift that a worker measured, why it is not measurable, or None if it died."""
    answer: Report | str | None = worker.read_result(cast(type, Report | str))
    return answer
