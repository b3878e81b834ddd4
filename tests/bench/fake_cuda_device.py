"""A benchmark device on the CPU: each call takes the time that a table gives for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from gemmproof.bench.problems import Problem
from gemmproof.bench.run import PLAIN, Plan, measure_ceiling, run_plan
from gemmproof.bench.timed_calls import make_callee, make_target_peer

SMALL = Problem(24, 20, 32, name="some/thing")
COSTS = {"matmul": 0.02, "scaled_mm": 0.02, "_int_mm": 0.02}


MEASURE_CEILING = "gemmproof.bench.run.measure_ceiling"


def measure_small(device, fmt, beat):
    """Measure a ceiling on small products: the real ones would take too long on the CPU."""
    return measure_ceiling(device, fmt, beat, copied=2**16, sides=(16, 32))


class FakeDevice:
    """A fake with the methods of CudaDevice; `cost` is the time of a call of each function.

    The clock advances only while something runs. A function whose name is in `uncapturable` raises
    when it is captured, like a function that waits for the device.
    """

    where = "cpu"
    name = "fake GPU"
    capability = (9, 0)
    l2_bytes = 60_000

    def __init__(self, uncapturable: tuple[str, ...] = (), **costs: float) -> None:
        self.figures = SimpleNamespace(multi_processor_count=132)
        self.uncapturable = uncapturable
        self.costs = {**COSTS, **costs}
        self.clock = 0.0
        self.order: list[str] = []
        self.replaying = 0
        self.synchronize = self.release = lambda: None

    def warm(self, body: Any) -> None:
        body()

    def capture(self, body: Any) -> Any:
        leg = body.__self__
        name = getattr(leg.callee.function, "__name__", "")
        if name in self.uncapturable:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        body()
        kept = list(leg.eager_results)

        def replay() -> None:
            self.replaying += 1
            before = leg.eager_results
            body()
            for old, new in zip(
                kept, leg.eager_results, strict=True
            ):  # a graph writes to its own memory
                if old is not new:
                    old.copy_(new)
            leg.eager_results = before

        replay.leg = leg
        return replay

    def time(self, run: Any, repeats: int) -> float:
        leg = getattr(run, "leg", getattr(run, "__self__", None))
        run()
        if leg is None:  # a copy
            return 1e-3
        name = getattr(leg.callee.function, "__name__", "")
        self.order.append(leg.callee.name)
        seconds = self.costs.get(name, 0.02) * len(leg.sets)
        self.clock += seconds * repeats
        return seconds

    def read_busy(self, read: Any, run: Any, seconds: float) -> dict[str, Any]:
        run()
        return {"sm_clock_mhz": 1980.0, "temperature_c": 40.0, "power_w": 600.0, "source": "fake"}


def right(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    return torch.matmul(a, b, out=out)


def allocating(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def run(
    *functions, device=None, peer=None, formats=("fp16",), problems=(SMALL,), kernel=PLAIN, **more
):
    """Return the rows, the events and the ceilings of functions on a fake device."""
    device = device or FakeDevice()
    events = []
    plan = Plan(
        [make_callee(f.__name__, f, kernel) for f in functions],
        make_target_peer("their.peer", peer, kernel) if callable(peer) else peer,
        problems,
        formats,
        **{"rounds": 4, "settle": 0.0, "declared": kernel, **more},
    )
    with patch(MEASURE_CEILING, measure_small):
        ceilings, rows = run_plan(device, plan, events.append)
    return rows, events, ceilings
