"""Streams, events and graphs of the fake device: all that is asked for is done at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gemmproof.reference.fake_cuda.tensors import CUDA, changes
from gemmproof.reference.fake_cuda.unknown import make_unknown

# Long, so that whoever measures a call repeats it as few times as may be.
MILLISECONDS = 1000.0


class Event:
    """torch.cuda.Event: whatever it waits for has happened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device, self.cuda_event = CUDA, 0

    def record(self, stream: Any = None) -> None:
        """Nothing is under way that could be recorded."""

    synchronize = wait = record

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """The same between any two events."""
        return MILLISECONDS


class Stream:
    """torch.cuda.Stream, and as a context the current one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device, self.device_index, self.device_type = CUDA, 0, 1
        self.cuda_stream = self.stream_id = self.native_handle = _Streams.made
        self.priority = kwargs.get("priority", 0)
        _Streams.made += 1

    def synchronize(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is under way."""

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
        _Streams.entered.append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _Streams.entered.pop()


class _Streams:
    made = 0
    entered: list[Any] = []  # noqa: RUF012 - one list for the process, as there is one device


_Streams.entered.append(Stream())


def current_stream(device: Any = None) -> Any:
    """The stream of the innermost context."""
    return _Streams.entered[-1]


def default_stream(device: Any = None) -> Any:
    """The stream outside every context."""
    return _Streams.entered[0]


def set_stream(stream: Any) -> None:
    """Make it the current one, as far as the innermost context goes."""
    if stream is not None and len(_Streams.entered) > 1:
        _Streams.entered[-1] = stream


@contextmanager
def in_stream(stream: Any) -> Iterator[None]:
    """torch.cuda.stream(s)."""
    _Streams.entered.append(current_stream() if stream is None else stream)
    try:
        yield
    finally:
        _Streams.entered.pop()


class Graph:
    """torch.cuda.CUDAGraph: what it captures runs at once, and counts as its first replay."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.captured: int | None = None

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """From here on what is launched is the graph's."""
        _Capture.under_way = True

    def capture_end(self) -> None:
        """The graph is whole, and has run."""
        _Capture.under_way = False
        self.captured = changes()

    def replay(self) -> None:
        """Nothing, where nothing was written since the capture; else it would be a lie."""
        if self.captured != changes():
            raise make_unknown(
                "torch.cuda.CUDAGraph.replay, once memory was written since its capture,"
            )

    def reset(self) -> None:
        """Forget what was captured."""
        self.captured = None

    def pool(self) -> tuple[int, int]:
        """The name of a pool of memory."""
        return 0, 0


class _Capture:
    under_way = False


class Capturing:
    """torch.cuda.graph(g), a context."""

    def __init__(self, cuda_graph: Graph, *args: Any, **kwargs: Any) -> None:
        self.graph = cuda_graph

    def __enter__(self) -> None:
        self.graph.capture_begin()

    def __exit__(self, *exc_info: object) -> None:
        self.graph.capture_end()


def is_capturing() -> bool:
    """Whether a graph is being captured."""
    return _Capture.under_way


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
    """torch.Generator(device="cuda"): one for the CPU, where all tensors are."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        """Of whatever device."""
        made = super().__new__(cls)
        made.asked = device  # type: ignore[attr-defined]
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that was asked for."""
        asked = self.asked  # type: ignore[attr-defined]
        return CUDA if torch.device(asked).type == "cuda" else torch.device("cpu")
