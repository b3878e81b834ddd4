"""One side of a comparison: a call on every set of buffers, captured in a graph where it can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gemmproof.bench.calls import Callee
from gemmproof.bench.operands import Buffers
from gemmproof.bench.records import EAGER, GRAPH
from gemmproof.bench.rounds import Run
from gemmproof.properties.cases.data import TORCH_DTYPES, format_of_tensor
from gemmproof.reference.formats import Format
from gemmproof.reference.provenance import tell_error
from gemmproof.target import call_theirs


@dataclass(slots=True)
class Leg:
    """A callee on `sets`: `eager` calls it once on each, `graph` replays these calls.

    Where the callee prepares its operands, `sets` are those, made from `sources`.

    `graph` is None where they cannot be captured, for the reason in `why`. `outs` are what it
    writes to, [] where it allocates its results. `made` are the results of the last eager run,
    `captured` those that a replay writes.
    """

    callee: Callee
    sources: Sequence[Buffers]
    sets: Sequence[Buffers]
    outs: list[torch.Tensor]
    made: list[torch.Tensor] = field(default_factory=list)
    captured: list[torch.Tensor] = field(default_factory=list)
    graph: Run | None = None
    why: str = ""

    def eager(self) -> None:
        """Call it once on every set."""
        outs: list[Any] = [*self.outs] or [None] * len(self.sets)
        self.made = []  # their memory is free for the new ones
        for buffers, out in zip(self.sets, outs, strict=True):
            self.made.append(self.callee(buffers, out))

    def refresh(self) -> None:
        """Prepare the operands again, in the same memory: the sources hold other data."""
        if self.callee.prepare is None:
            return
        for source, own in zip(self.sources, self.sets, strict=True):
            for x, y in zip(
                own.tensors.values(), self.callee.prepare(source).tensors.values(), strict=True
            ):
                if x is not y:
                    # as bytes where an element is one: few operations take fp8
                    kind = torch.uint8 if x.element_size() == 1 else x.dtype
                    x.view(kind).copy_(y.view(kind))

    def results(self, how: str) -> list[torch.Tensor]:
        """What a run leaves, a result for each set."""
        return self.captured if how == GRAPH and self.graph is not None else self.made

    def run(self, how: str) -> Run:
        """What is timed."""
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
    place: str,
    device: Any,
) -> Leg:
    """The leg, called once on every set and then captured; results have this shape and format.

    A wrapper that waits for the device or reads from it cannot be captured, which is no fault.
    Raises TargetError where a call fails, torch.OutOfMemoryError where there is no room.
    """
    sets = [prepare(callee, buffers, place) for buffers in sources]
    outs = []
    if callee.takes_out:
        where = sources[0].a.device
        outs = [torch.empty(shape, dtype=TORCH_DTYPES[out.name], device=where) for _ in sets]
    leg = Leg(callee, sources, sets, outs)
    call_theirs(callee.name, f"calling {callee.name} at {place}", lambda: device.warm(leg.eager))
    try:
        leg.graph = device.capture(leg.eager)
        leg.captured, leg.made = leg.made, []
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        leg.why = tell_error(error)
        call_theirs(
            callee.name, f"calling {callee.name} at {place}", lambda: device.warm(leg.eager)
        )
    return leg


def prepare(callee: Callee, buffers: Buffers, place: str) -> Buffers:
    """What a callee is given of a set. Raises TargetError where it cannot be prepared."""
    make = callee.prepare
    if make is None:
        return buffers
    doing = f"preparing the operands of {callee.name} at {place}"
    made: Buffers = call_theirs(callee.name, doing, lambda: make(buffers))
    return made


def poison(results: Sequence[torch.Tensor]) -> None:
    """Fill results with NaN, integers with the lowest one, which no product of ours is."""
    for result in results:
        if result.is_floating_point():
            fmt = format_of_tensor(result)
            if fmt is not None and fmt.is_fp8:
                result.view(torch.uint8).fill_(fmt.nan_bits)
            else:
                result.fill_(math.nan)
        else:
            result.fill_(torch.iinfo(result.dtype).min)
