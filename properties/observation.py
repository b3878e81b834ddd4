"""What one case gave on a backend: its operands, every call's result, what was raised."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

import torch

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import PlacedOperand, Touched
from gemmproof.properties.contract import KernelUnderTest
from gemmproof.reference.arithmetic.conversions import Array, format_of
from gemmproof.reference.formats import Format
from gemmproof.reference.observation import Fault, Launch, Run

T = TypeVar("T")

SIMULATOR = "simulator"
# Kinds of errors that say nothing about the kernel.
UNKNOWN = ("unsupported", "internal", "exhausted")


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised: `kind` is "raised", "compile_error", "kernel_error", "limit",
    "unsupported", "exhausted" or "internal".

    "limit" is a call that never ends; "exhausted" one that ran out of time or memory but might end;
    "internal" an error of gemmproof itself.
    """

    kind: str
    text: str
    where: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the wrapper that returned, over uninitialised memory full of `over`.

    `result` is a storage array, None where the wrapper returned a wrong type, shape or dtype.
    """

    run: Run
    result: Array | None
    over: str


@dataclass(frozen=True, slots=True)
class RelatedCall:
    """A call to be made besides a case's own: its operands, and the words for it.

    `case` says how it is launched.
    """

    case: Case
    tensors: Mapping[str, torch.Tensor]
    words: str


@dataclass(frozen=True, slots=True)
class Related:
    """What a related call gave: `call`, or None and what it `raised` instead."""

    asked: RelatedCall
    call: Call | None
    raised: Raised | None

    @property
    def result(self) -> Array:
        """Its result, a storage array. Only where `describe_lack` finds nothing lacking."""
        assert self.call is not None
        assert self.call.result is not None
        return self.call.result

    def describe_lack(self, out: Format) -> tuple[str, str] | None:
        """What it gave in place of a result of format `out`, and what was expected; else None."""
        if self.call is None:
            assert self.raised is not None
            return self.raised.text, "a result"
        if self.call.result is None or format_of(self.call.result.dtype) is not out:
            result = self.call.run.result
            kind = getattr(result, "dtype", type(result).__name__)
            return f"a result of {kind}", f"one of {out.name}"
        return None


@dataclass(slots=True)
class Observation:
    """What one case gave: the operands by name, a Call for every call, or what was raised.

    `backend` is "simulator" or "cuda"; `device` is the name of the device that launched, `how` the
    configuration that a tuned kernel ran in there. `trace` is the simulator's, of the first call,
    where the kernel has a mirror. `asked_sms`: whether the wrapper asked for the device's
    properties. `predicted` is what the simulator predicts for the device, None where it cannot
    predict the bits. `memo` keeps what `remember` derived.
    """

    kernel: KernelUnderTest
    case: Case
    target: str | None
    operands: Mapping[str, PlacedOperand]
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
        return self.raised is None or self.raised.kind not in UNKNOWN

    @property
    def faults(self) -> Iterable[Fault]:
        """The faults of every call, each once."""
        return dict.fromkeys(fault for call in self.calls for fault in call.run.faults)

    @property
    def has_result(self) -> bool:
        """Whether no call failed and the first one's c has the right type, shape and dtype."""
        return self.raised is None and len(self.calls) > 0 and self.calls[0].result is not None

    @property
    def result(self) -> Array:
        """The first call's result, a storage array. Only where `has_result`."""
        result = self.calls[0].result
        assert result is not None
        return result

    @property
    def out(self) -> Format:
        """The format of the result. Only where `has_result`."""
        return format_of(self.result.dtype)

    @property
    def launches(self) -> list[Launch]:
        """The kernel launches of every call."""
        return [launch for call in self.calls for launch in call.run.launches]

    @property
    def nbytes(self) -> int:
        """About how many bytes it holds: operands and what they were, results, derived arrays."""
        held = sum(part.nbytes for o in self.operands.values() for part in o.before)
        return 3 * held + sum(0 if c.result is None else 8 * c.result.nbytes for c in self.calls)

    @property
    def tiles(self) -> tuple[tuple[int, int, int], ...]:
        """The (M, N, K) of every dot, each once."""
        return tuple(dict.fromkeys(tile for launch in self.launches for tile in launch.tiles))


def remember(derive: Callable[[Observation], T]) -> Callable[[Observation], T]:
    """`derive`, computed once for each observation."""
    name = derive.__name__

    @wraps(derive)
    def recall(observation: Observation) -> T:
        if name not in observation.memo:
            observation.memo[name] = derive(observation)
        return cast(T, observation.memo[name])

    return recall
