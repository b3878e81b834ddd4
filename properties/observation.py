"""What one case gave on a backend: its operands, every call's result, what was raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import Operand, Touched
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.formats import Format
from gemmproof.reference.observation import Fault, Run

SIMULATOR = "simulator"


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised: `kind` is "raised", "compile_error", "kernel_error", "limit",
    "unsupported" or "internal".

    "internal" is an error of gemmproof itself, which says nothing about the kernel.
    """

    kind: str
    text: str
    where: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the wrapper that returned, over uninitialised memory full of `over`.

    `result` is a storage array of format `out`, None while it has the wrong type, shape or dtype.
    """

    run: Run
    result: Array | None
    out: Format | None
    over: str


@dataclass(frozen=True, slots=True)
class RelatedCall:
    """A call to be made besides a case's own: its operands, the words for it, the shape of its c.

    `case` says how it is launched. `compared`: whether its result is compared; a call that is not
    only comes before one that is.
    """

    case: Case
    tensors: Mapping[str, torch.Tensor]
    words: str
    compared: bool = True


@dataclass(frozen=True, slots=True)
class Related:
    """What a related call gave: `call`, or None and what it `raised` instead."""

    asked: RelatedCall
    call: Call | None
    raised: Raised | None

    @property
    def result(self) -> Array | None:
        """Its result, None where it has none of the right type, shape and dtype."""
        return None if self.call is None else self.call.result

    @property
    def out(self) -> Format | None:
        """The format of its result."""
        return None if self.call is None else self.call.out


@dataclass(slots=True)
class Observation:
    """What one case gave: the operands by name, a Call for every call, or what was raised.

    `backend` is "simulator" or "cuda"; `device` is the name of the device that launched, `how` the
    configuration that a tuned kernel ran in there. `trace` is the simulator's, of the first call,
    where the kernel has a mirror. `asked_sms`: whether the wrapper asked for the device's
    properties. `predicted` is what the simulator gives for the device, None where it gives nothing
    that binds. `memo` keeps what several properties derive.
    """

    kernel: KernelUnderTest
    case: Case
    target: str | None
    operands: Mapping[str, Operand]
    backend: str = SIMULATOR
    device: str = ""
    how: str = ""
    calls: tuple[Call, ...] = ()
    raised: Raised | None = None
    trace: list[Any] | None = None
    asked_sms: bool = False
    touched: tuple[Touched, ...] = ()
    related: tuple[Related, ...] = ()
    predicted: Array | None = None
    memo: dict[str, Any] = field(default_factory=dict)

    @property
    def is_simulated(self) -> bool:
        """Whether the simulator ran it, which sees accesses and lanes."""
        return self.backend == SIMULATOR

    @property
    def is_known(self) -> bool:
        """Whether the case says anything: the simulator knew every operation and did not fail."""
        return self.raised is None or self.raised.kind not in ("unsupported", "internal")

    @property
    def faults(self) -> Iterable[Fault]:
        """The faults of every call, each once."""
        return dict.fromkeys(fault for call in self.calls for fault in call.run.faults)

    @property
    def result(self) -> Array | None:
        """The first call's result; None where a call failed or c is of a wrong type or shape."""
        return self.calls[0].result if self.calls and self.raised is None else None

    @property
    def out(self) -> Format | None:
        """The format of the result."""
        return self.calls[0].out if self.calls and self.raised is None else None

    @property
    def nbytes(self) -> int:
        """About how much memory it holds: operands and what they were, results, what is derived."""
        held = sum(part.nbytes for o in self.operands.values() for part in o.before)
        return 3 * held + sum(0 if c.result is None else 8 * c.result.nbytes for c in self.calls)

    @property
    def tiles(self) -> tuple[tuple[int, int, int], ...]:
        """The (M, N, K) of every dot, each once."""
        launches = (launch for call in self.calls for launch in call.run.launches)
        return tuple(dict.fromkeys(tile for launch in launches for tile in launch.tiles))
