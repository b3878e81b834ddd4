"""Streams, events and graphs of the fake device: all work is done at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gemmproof.reference.fake_cuda.tensors import CUDA, count_changes
from gemmproof.reference.fake_cuda.unknown import make_unknown

# Long, so that a benchmark repeats its call as few times as it may.
MILLISECONDS = 1000.0

_numbers = itertools.count()
_entered: list[Any] = []
_capturing: list[Graph] = []


class Event:
    """torch.cuda.Event: whatever it waits for has happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device, self.cuda_event = CUDA, 0

    def record(self, stream: Any = None) -> None:
        """Nothing is in flight that could be recorded."""

    synchronize = wait = record

    def query(self) -> bool:
        """The event has happened."""
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """The same between any two events."""
        return MILLISECONDS


class Stream:
    """torch.cuda.Stream, and as a context the current one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device, self.device_index, self.device_type = CUDA, 0, 1
        self.cuda_stream = self.stream_id = self.native_handle = next(_numbers)
        self.priority = kwargs.get("priority", 0)

    def synchronize(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is in flight."""

    wait_event = wait_stream = synchronize

    def query(self) -> bool:
        """All its work is done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """The event, or a new one; it has happened."""
        return Event() if event is None else event

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least and the greatest priority."""
        return 0, -5

    def __enter__(self) -> Stream:
        _entered.append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _entered.pop()


_entered.append(Stream())


def current_stream(device: Any = None) -> Any:
    """The stream of the innermost context."""
    return _entered[-1]


def default_stream(device: Any = None) -> Any:
    """The stream outside every context."""
    return _entered[0]


def set_stream(stream: Any) -> None:
    """Make it the current one within the innermost context."""
    if stream is not None and len(_entered) > 1:
        _entered[-1] = stream


@contextmanager
def in_stream(stream: Any) -> Iterator[None]:
    """torch.cuda.stream(s)."""
    _entered.append(current_stream() if stream is None else stream)
    try:
        yield
    finally:
        _entered.pop()


class Graph:
    """torch.cuda.CUDAGraph: what it captures runs at once, and counts as its first replay."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.captured: int | None = None

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """What is launched from here on belongs to the graph."""
        _capturing.append(self)

    def capture_end(self) -> None:
        """The graph is whole, and has run."""
        _capturing.clear()
        self.captured = count_changes()

    def replay(self) -> None:
        """Does nothing; refused once memory was written since the capture, which it would miss."""
        if self.captured != count_changes():
            raise make_unknown(
                "torch.cuda.CUDAGraph.replay, once memory was written since its capture,"
            )

    def reset(self) -> None:
        """Forget what was captured."""
        self.captured = None

    def pool(self) -> tuple[int, int]:
        """The handle of a memory pool."""
        return 0, 0


@contextmanager
def capture(cuda_graph: Graph, *args: Any, **kwargs: Any) -> Iterator[None]:
    """torch.cuda.graph(g)."""
    cuda_graph.capture_begin()
    try:
        yield
    finally:
        cuda_graph.capture_end()


def is_capturing() -> bool:
    """Whether a graph is being captured."""
    return bool(_capturing)


def make_graphed_callables(callables: Any, *args: Any, **kwargs: Any) -> Any:
    """The callables themselves: each call runs them anew, which is what a graph's replay does."""
    return callables


def do_bench(
    fn: Callable[[], Any],
    *args: Any,
    quantiles: Any = None,
    return_mode: str = "mean",
    **kwargs: Any,
) -> Any:
    """triton.testing.do_bench after one call of `fn`: every time is the same."""
    fn()
    if quantiles is not None:
        return [MILLISECONDS] * len(quantiles) if len(quantiles) != 1 else MILLISECONDS
    return [MILLISECONDS] if return_mode == "all" else MILLISECONDS


class Generator(torch.Generator):
    """torch.Generator(device="cuda"): a CPU generator, as all tensors are on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        """For any device."""
        made = super().__new__(cls)
        made.requested = device  # type: ignore[attr-defined]
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that was requested."""
        requested = self.requested  # type: ignore[attr-defined]
        return CUDA if torch.device(requested).type == "cuda" else torch.device("cpu")
