"""The CUDA device as a benchmark needs it: what it is, captured graphs, and events as its clock."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from gemmproof.bench.rounds import Run

Reader = Callable[[], dict[str, Any]]


class CudaDevice:
    """The current CUDA device of torch.

    `name`, `where`, `l2_bytes`, `capability` and `figures` say which one; the tests have another
    object with the same names and methods, on the CPU.
    """

    where = "cuda"

    def __init__(self) -> None:
        self.figures: Any = torch.cuda.get_device_properties()
        self.name: str = torch.cuda.get_device_name()
        self.capability = (self.figures.major, self.figures.minor)
        self.l2_bytes = int(self.figures.L2_cache_size)

    def synchronize(self) -> None:
        """Wait for all that was launched; an illegal address shows here."""
        torch.cuda.synchronize()

    def capture(self, body: Run) -> Run:
        """A run that replays what `body` launches; the wrapper's own cost stays out of it.

        `body` has run before, so that nothing is compiled or tuned within the capture. Raises
        whatever CUDA or the body says where that cannot be captured.
        """
        torch.cuda.synchronize()
        stream = torch.cuda.current_stream()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                body()
        finally:
            # after a capture that fails torch leaves its own stream as the current one
            torch.cuda.set_stream(stream)
        torch.cuda.synchronize()

        def replay() -> None:
            graph.replay()

        return replay

    def warm(self, body: Run) -> None:
        """Run `body` on a stream of its own, as a capture would: libraries set themselves up."""
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            body()
        torch.cuda.synchronize()

    def time(self, run: Run, repeats: int) -> float:
        """Device seconds of one run, over `repeats` of them."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / repeats

    def read_busy(self, read: Reader, run: Run, seconds: float) -> dict[str, Any]:
        """What `read` tells while runs of `seconds` are under way, after some of them.

        A GPU that is read at rest tells of a rest.
        """
        half = max(1, min(10_000, int(0.25 / max(seconds, 1e-6))))
        self.time(run, half)
        for _ in range(half):
            run()
        told = read()
        torch.cuda.synchronize()
        return told

    def release(self) -> None:
        """Give back the memory of buffers and graphs that nobody holds any more."""
        gc.collect()
        torch.cuda.empty_cache()
