"""The calls that a benchmark times."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gemmproof.bench.device_operands import Buffers
from gemmproof.bench.problems import Problem
from gemmproof.bench.record import EAGER, GRAPH
from gemmproof.bench.statistics import Run
from gemmproof.properties.cases.data import TORCH_DTYPES, format_of_tensor
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.reference.provenance import format_error
from gemmproof.target import TargetError, call_theirs


# -- calls ---------------------------------------------------------------------------------------
@dataclass(slots=True)
class Callee:
    """A function of a, b and operands by name, under its name in reports.

    `takes`: the operands that it is passed, None for all. `takes_out`: True if it takes a result to
    write to, None if its signature does not show that; `out_name` is the name of that parameter,
    `out_format` its format if it is required. `prepare` makes the operands that it is passed from a
    set, once and untimed; None if they are the set's own.
    """

    name: str
    function: Callable[..., Any]
    takes_out: bool | None = None
    takes: frozenset[str] | None = None
    out_name: str = "out"
    out_format: Format | None = None
    prepare: Callable[[Buffers], Buffers] | None = None

    def __call__(self, buffers: Buffers, out: torch.Tensor | None) -> Any:
        """Return its result for one set; it writes to `out` if it can."""
        takes, named = self.takes, buffers.named
        arguments = named if takes is None else {n: x for n, x in named.items() if n in takes}
        if out is None or self.takes_out is False:
            return self.function(buffers.a, buffers.b, **arguments)
        result = self.function(buffers.a, buffers.b, **arguments, **{self.out_name: out})
        return out if result is None or self.out_format is not None else result


def make_callee(
    name: str, function: Callable[..., Any], kernel: KernelUnderTest | None = None
) -> Callee:
    """Return the callee of a kernel's wrapper; it takes `out=` by its signature or declaration."""
    try:
        takes_out = "out" in inspect.signature(function).parameters
    except (ValueError, TypeError):  # a built-in without a signature: a call will show
        takes_out = None
    if kernel is None or not kernel.written:
        return Callee(name, function, takes_out)
    (written,) = kernel.written
    fmt = FORMATS[kernel.tensors[written].format]
    return Callee(name, function, True, out_name=written, out_format=fmt)


def make_target_peer(name: str, function: Callable[..., Any], kernel: KernelUnderTest) -> Callee:
    """Return the callee of a user's peer, passed the operands that it has parameters for."""
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):
        return Callee(name, function, takes=frozenset())
    if set(kernel.written) & set(parameters):
        callee = make_callee(name, function, kernel)
    else:
        callee = make_callee(name, function)
    if all(p.kind is not p.VAR_KEYWORD for p in parameters.values()):
        callee.takes = frozenset(parameters)
    return callee


def probe(
    callee: Callee, buffers: Buffers, problem: Problem, fmt: Format, device: Any
) -> tuple[Format, bool]:
    """Return the format of the result of a call without `out`, and whether the callee takes `out`.

    Compiles and tunes what the callee launches. Raises TargetError, in one line, if it raises, or
    returns anything but a c of the right shape in a format that a result may have.
    """
    where = f"{callee.name} at {problem} {fmt.name}"

    def call(out: torch.Tensor | None) -> Any:
        def run() -> Any:
            result = callee(buffers, out)
            device.synchronize()
            return result

        return call_theirs(callee.name, f"calling {callee.name} at {problem} {fmt.name}", run)

    def make(dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(problem.shapes[2], dtype=dtype, device=buffers.a.device)

    if callee.out_format is not None:
        written = call(make(TORCH_DTYPES[callee.out_format.name]))
        return _require_result(where, written, problem), True
    result = call(None)
    result_format = _require_result(where, result, problem)
    if callee.takes_out is None:
        try:
            callee(buffers, torch.empty_like(result))
            takes_out = True
        except (TypeError, RuntimeError):
            takes_out = False
        device.synchronize()
    else:
        takes_out = callee.takes_out
        if takes_out:
            _require_result(where, call(make(result.dtype)), problem)
    return result_format, takes_out


def _require_result(where: str, result: Any, problem: Problem) -> Format:
    if not isinstance(result, torch.Tensor):
        got = type(result).__name__
        raise TargetError(f"{where}: got {got}, expected a tensor {problem.shapes[2]}")
    if tuple(result.shape) != problem.shapes[2]:
        raise TargetError(
            f"{where}: got a result of shape {tuple(result.shape)}, expected {problem.shapes[2]}"
        )
    fmt = format_of_tensor(result)
    if fmt is None:
        known = " ".join(f.name for f in FORMATS.values() if f.result)
        raise TargetError(f"{where}: got a result of {result.dtype}, expected one of {known}")
    return fmt


# -- legs ----------------------------------------------------------------------------------------
@dataclass(slots=True)
class Leg:
    """A callee on `sets`: `eager` calls it once on each, `graph` replays these calls.

    If the callee prepares its operands, `sets` are those, made from `sources`.

    `graph` is None if they cannot be captured, for the reason in `why`. `outs` are what it writes
    to, [] if it allocates its results. `eager_results` are the results of the last eager run,
    `captured` those that a replay writes.
    """

    callee: Callee
    sources: Sequence[Buffers]
    sets: Sequence[Buffers]
    outs: list[torch.Tensor]
    eager_results: list[torch.Tensor] = field(default_factory=list)
    captured: list[torch.Tensor] = field(default_factory=list)
    graph: Run | None = None
    why: str = ""

    def eager(self) -> None:
        """Call it once on every set."""
        outs: list[Any] = [*self.outs] or [None] * len(self.sets)
        self.eager_results = []  # their memory is free for the new ones
        for buffers, out in zip(self.sets, outs, strict=True):
            self.eager_results.append(self.callee(buffers, out))

    def refresh(self) -> None:
        """Prepare the operands again, in the same memory: the sources hold other data."""
        if self.callee.prepare is None:
            return
        for source, own in zip(self.sources, self.sets, strict=True):
            for x, y in zip(
                own.tensors.values(), self.callee.prepare(source).tensors.values(), strict=True
            ):
                if x is not y:
                    # 1-byte elements as bytes: few operations support fp8
                    kind = torch.uint8 if x.element_size() == 1 else x.dtype
                    x.view(kind).copy_(y.view(kind))

    def results(self, how: str) -> list[torch.Tensor]:
        """Return the results of a run, one for each set."""
        return self.captured if how == GRAPH and self.graph is not None else self.eager_results

    def run(self, how: str) -> Run:
        """Return the run that is timed."""
        return self.graph if how == GRAPH and self.graph is not None else self.eager

    @property
    def how(self) -> str:
        """The best way in which it can be timed."""
        return EAGER if self.graph is None else GRAPH


def make_leg(
    callee: Callee,
    sources: Sequence[Buffers],
    shape: Sequence[int],
    out: Format,
    label: str,
    device: Any,
) -> Leg:
    """Return a leg, called once on every set and then captured; `shape`, `out`: of the results.

    A wrapper that waits for the device or reads from it cannot be captured, which is no fault.
    Raises TargetError if a call fails, torch.OutOfMemoryError if memory is exhausted.
    """
    sets = [prepare(callee, buffers, label) for buffers in sources]
    outs = []
    if callee.takes_out:
        where = sources[0].a.device
        outs = [torch.empty(shape, dtype=TORCH_DTYPES[out.name], device=where) for _ in sets]
    leg = Leg(callee, sources, sets, outs)
    call_theirs(callee.name, f"calling {callee.name} at {label}", lambda: device.warm(leg.eager))
    try:
        leg.graph = device.capture(leg.eager)
        leg.captured, leg.eager_results = leg.eager_results, []
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        leg.why = format_error(error)
        call_theirs(
            callee.name, f"calling {callee.name} at {label}", lambda: device.warm(leg.eager)
        )
    return leg


def prepare(callee: Callee, buffers: Buffers, label: str) -> Buffers:
    """Return the operands of a set for a callee. Raises TargetError if it cannot be prepared."""
    make = callee.prepare
    if make is None:
        return buffers
    doing = f"preparing the operands of {callee.name} at {label}"
    prepared: Buffers = call_theirs(callee.name, doing, lambda: make(buffers))
    return prepared


def poison(results: Sequence[torch.Tensor]) -> None:
    """Fill results with NaN, integers with the lowest one, which no product here is."""
    for result in results:
        if result.is_floating_point():
            fmt = format_of_tensor(result)
            if fmt is not None and fmt.is_fp8:
                result.view(torch.uint8).fill_(fmt.nan_bits)
            else:
                result.fill_(math.nan)
        else:
            result.fill_(torch.iinfo(result.dtype).min)
