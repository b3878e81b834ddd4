"""The observation of one case on a backend, and the wrapper's names of operands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar, cast

import torch

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import AllocatedOperand, Touched
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.arithmetic import Array, format_of
from gemmproof.reference.formats import Format
from gemmproof.reference.simulation import Fault, Launch, Run

# -- observation ---------------------------------------------------------------------------------
T = TypeVar("T")

SIMULATOR = "simulator"
# Functions whose results, kept by `remember`, are the same for every result of a call.
OF_ALL_RESULTS = ("evaluate_all", "words_of")
# Kinds of errors that are no evidence about the kernel.
UNKNOWN = ("unsupported", "unseen", "internal", "exhausted")


@dataclass(frozen=True, slots=True)
class Raised:
    """The error that a call raised, of a `kind`.

    `kind` is "raised", "compile_error", "kernel_error", "limit", "unsupported", "unseen",
    "exhausted" or "internal". "unseen" is a launch in a language that the simulator cannot observe;
    "limit" is a call that never ends; "exhausted" one that ran out of time or memory but might end;
    "internal" an error of gemmproof itself. `file` is the path of the file that `where` names.
    """

    kind: str
    text: str
    where: str | None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the wrapper that returned, over uninitialised memory full of `over`.

    `results` are storage arrays, each None if the wrapper returned a wrong type, shape or dtype.
    `result` and `given`, the object returned, are those of number `part`.
    """

    run: Run
    results: tuple[Array | None, ...]
    over: str
    part: int = 0

    @property
    def result(self) -> Array | None:
        """The result as a storage array, or None."""
        return self.results[self.part]

    @property
    def given(self) -> Any:
        """The object that the wrapper returned as the result."""
        return list_given(self.run.result, len(self.results))[self.part]


@dataclass(frozen=True, slots=True)
class RelatedCall:
    """A further call to be made for a case: its operands, and its description as text.

    `case` determines how it is launched.
    """

    case: Case
    tensors: Mapping[str, torch.Tensor]
    description: str


@dataclass(frozen=True, slots=True)
class Related:
    """The outcome of a related call: `call`, or None and the error that it `raised` instead."""

    asked: RelatedCall
    call: Call | None
    raised: Raised | None

    @property
    def result(self) -> Array:
        """Its result, a storage array. Only if `describe_lack` returns None."""
        assert self.call is not None
        assert self.call.result is not None
        return self.call.result

    def describe_lack(self, out: Format) -> tuple[str, str] | None:
        """Return the actual outcome and the result expected in format `out`, or None if met."""
        if self.call is None:
            assert self.raised is not None
            return self.raised.text, "a result"
        if self.call.result is None or format_of(self.call.result.dtype) is not out:
            result = self.call.given
            kind = getattr(result, "dtype", type(result).__name__)
            return f"a result of {kind}", f"one of {out.name}"
        return None


@dataclass(slots=True)
class ObservedCase:
    """The outcome of one case: the operands by name, a Call for every call, or the error raised.

    `unused_operands` are the operands that the result does not depend on: they hold NaN. `backend`
    is "simulator" or "cuda"; `device` is the name of the device that launched, `how` the
    configuration that a tuned kernel ran in there. `trace` is the simulator's, of the first call,
    if the kernel has a mirror. `asked_sms`: whether the wrapper asked for the device's properties.
    `predicted` is the simulator's prediction for the device, None if it cannot predict the bits.
    `memo` holds the results of `remember`.

    Of several results it shows number `part`; `split` gives an observation for each.
    """

    kernel: KernelUnderTest
    case: Case
    target: str | None
    operands: Mapping[str, AllocatedOperand]
    unused_operands: frozenset[str] = frozenset()
    backend: str = SIMULATOR
    device: str = ""
    how: str = ""
    calls: tuple[Call, ...] = ()
    raised: Raised | None = None
    trace: list[Any] | None = None
    asked_sms: bool = False
    touched: tuple[Touched, ...] = ()
    related: tuple[Related, ...] = ()
    predicted: tuple[Array | None, ...] | None = None
    memo: dict[str, object] = field(default_factory=dict)
    part: int = 0

    def split(self) -> list[ObservedCase]:
        """Return one observation for each result of a call."""
        count = len(self.calls[0].results) if self.calls else 1
        return [self._show(part) for part in range(count)] if count > 1 else [self]

    def showing(self, name: str | None) -> ObservedCase:
        """Return the observation of the result of that name, or this one if there is none."""
        return next((part for part in self.split() if part.result_name == name), self)

    def _show(self, part: int) -> ObservedCase:
        calls = tuple(replace(call, part=part) for call in self.calls)
        related = tuple(
            other if other.call is None else replace(other, call=replace(other.call, part=part))
            for other in self.related
        )
        shared = {name: value for name, value in self.memo.items() if name in OF_ALL_RESULTS}
        memo = cast(dict[str, object], self.memo.setdefault(f"part {part}", {}))
        memo |= shared
        return replace(self, calls=calls, related=related, memo=memo, part=part)

    @property
    def result_name(self) -> str:
        """The result's name in messages: an operand that is written, else c or result[i]."""
        count = len(self.calls[0].results) if self.calls else max(1, len(self.kernel.written))
        return self.kernel.label_results(count)[self.part]

    @property
    def is_simulated(self) -> bool:
        """True if the simulator ran it, which records accesses and lanes."""
        return self.backend == SIMULATOR

    @property
    def is_known(self) -> bool:
        """True if the case is conclusive: the simulator knew every operation and did not fail."""
        return self.raised is None or self.raised.kind not in UNKNOWN

    @property
    def faults(self) -> Iterable[Fault]:
        """The faults of every call, each once."""
        return dict.fromkeys(fault for call in self.calls for fault in call.run.faults)

    @property
    def has_result(self) -> bool:
        """True if no call failed and the first one's c has the right type, shape and dtype."""
        return self.raised is None and len(self.calls) > 0 and self.calls[0].result is not None

    @property
    def result(self) -> Array:
        """The first call's result, a storage array. Only if `has_result`."""
        result = self.calls[0].result
        assert result is not None
        return result

    @property
    def out(self) -> Format:
        """The format of the result. Only if `has_result`."""
        return format_of(self.result.dtype)

    @property
    def launches(self) -> list[Launch]:
        """The kernel launches of every call."""
        return [launch for call in self.calls for launch in call.run.launches]

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes: operands, their original bits, results, derived arrays."""
        operand_bytes = sum(part.nbytes for o in self.operands.values() for part in o.before)
        results = [x for call in self.calls for x in call.results if x is not None]
        return 3 * operand_bytes + sum(8 * x.nbytes for x in results)

    @property
    def tiles(self) -> tuple[tuple[int, int, int], ...]:
        """The (M, N, K) of every dot, each once."""
        return tuple(dict.fromkeys(tile for launch in self.launches for tile in launch.tiles))


def count_given(result: object) -> int:
    """Return the number of results in what `KernelUnderTest.call` returned, at least 1."""
    return max(1, len(result)) if isinstance(result, tuple) else 1


def list_given(result: object, count: int) -> list[Any]:
    """Return the `count` results that a wrapper returned, None for each that is missing."""
    if count == 1:
        return [result]
    results = list(result) if isinstance(result, tuple | list) else [result]
    return (results + [None] * count)[:count]


def remember(derive: Callable[[ObservedCase], T]) -> Callable[[ObservedCase], T]:
    """Compute `derive` once for each observation."""
    name = derive.__name__

    @wraps(derive)
    def recall(observation: ObservedCase) -> T:
        if name not in observation.memo:
            observation.memo[name] = derive(observation)
        return cast(T, observation.memo[name])

    return recall


# -- names of operands ---------------------------------------------------------------------------
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(launch: Callable[..., Any]) -> dict[str, str]:
    """Return the wrapper's name of each operand, in the order in which it takes them.

    If a name already means something else in a message ("c", the other operand's letter), or cannot
    be known, the operand keeps its own.
    """
    own = {name: name for name in ROLES}
    try:
        parameters = inspect.signature(launch).parameters.values()
    except (TypeError, ValueError):  # a builtin, or a callable that hides its signature
        return own
    named = [p.name for p in parameters if p.kind in _POSITIONAL][: len(own)]
    clash = any(
        label in ("c", *own) and label != name for label, name in zip(named, own, strict=False)
    )
    return own if clash or len(named) < len(own) else dict(zip(own, named, strict=True))


@remember
def words_of(observation: ObservedCase) -> Mapping[str, str]:
    """Return the wrapper's names for the operands of an observation, by their own names."""
    return parameters_of(observation.kernel.launch)


def word(observation: ObservedCase, name: str) -> str:
    """Return the wrapper's name of an operand, or any other tensor's own name."""
    return words_of(observation).get(name, name)


def introduce(observation: ObservedCase, name: str) -> str:
    """Return the wrapper's name of an operand, and its letter in cases if that differs."""
    label = word(observation, name)
    return label if label == name else f"{label} ({name})"


def axes_of(observation: ObservedCase, name: str) -> tuple[str, ...]:
    """Return the labels of an operand's axes, such as "N" or "K // 128"; numbers if unknown."""
    declared = observation.kernel.tensors.get(name)
    if declared is None:
        return ("batch", *ROLES[name].axes)[3 - observation.operands[name].tensor.dim() :]
    axes = enumerate(map(str, declared.axes))
    return tuple(axis if axis_named(axis) else str(i) for i, axis in axes)


def axis_named(label: str | None) -> str | None:
    """Return the axis of the product in an expression, or None unless there is exactly one."""
    names = set(re.findall(r"\b(?:M|N|K|batch)\b", label or ""))
    return names.pop() if len(names) == 1 else None
