"""One case on a backend: the wrapper is called, and the related calls of the case are made."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch

from gemmproof.engine.wrapper_state import State
from gemmproof.properties import table
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import as_array, as_tensor, format_of_tensor, overwrite
from gemmproof.properties.cases.operands import (
    PlacedOperand,
    Touched,
    find_unread,
    operands,
    stored_elements,
    tensors_of,
)
from gemmproof.properties.judges import exact_values
from gemmproof.properties.kernel import READ, KernelUnderTest
from gemmproof.properties.observation import (
    UNKNOWN,
    Call,
    Observation,
    Raised,
    Related,
    list_given,
)
from gemmproof.reference.arithmetic import Array
from gemmproof.reference.provenance import is_ours, raising_line, words_of
from gemmproof.reference.simulation import (
    CompileError,
    Exhausted,
    KernelError,
    LimitExceeded,
    Run,
    SimulatorError,
    Unseen,
    Unsupported,
)


class Backend(Protocol):
    """Where wrappers are called: the simulator, or a device.

    `fills` are the words for what uninitialised memory holds, call after call.
    """

    name: str
    target: str | None
    fills: tuple[str, ...]

    def place(self, operand: PlacedOperand, case: Case) -> torch.Tensor:
        """The tensor that the wrapper is given for an operand."""

    def call(
        self, observation: Observation, case: Case, tensors: Mapping[str, torch.Tensor], number: int
    ) -> Run:
        """Call the wrapper for the number-th time (from 0), as `case` says."""

    def find_changes(self, operand: PlacedOperand) -> list[Touched]:
        """What calls changed of an operand."""


def observe(
    kernel: KernelUnderTest,
    case: Case,
    backend: Backend,
    *,
    traced: bool = False,
    made: Mapping[str, PlacedOperand] | None = None,
) -> Observation:
    """Call a kernel `case.calls` times over different uninitialised memory.

    The later calls see the same tensors as the first, as in a program that calls again. `traced`:
    the simulator keeps every access of the first. `made` are operands in place of the case's own.
    Never raises for the kernel.
    """
    unread = find_unread(kernel, case)
    made = operands(case, kernel, unread) if made is None else made
    observation = Observation(kernel, case, backend.target, made, unread, backend.name)
    observation.trace = [] if traced else None
    exact_values.list_shapes(observation)  # a formula that fails is no fault of the kernel
    tensors = {name: backend.place(operand, case) for name, operand in made.items()}
    for number in range(case.calls):
        if number:
            _renew(observation, tensors)
        call, raised = _call(backend, observation, case, tensors, number)
        if call is None:
            observation.raised = raised
            break
        observation.calls += (call,)
    changes = (backend.find_changes(operand) for operand in made.values())
    observation.touched = tuple(change for found in changes for change in found)
    return observation


def make_related_calls(observation: Observation, backend: Backend, state: State) -> None:
    """Make the calls that a case is to be compared with, where its own call gave a result."""
    compare = observation.case.compare
    if compare is None or not observation.has_result:
        return
    state.restore()
    for asked in table.RELATED[compare](observation):
        if compare != "order":  # whose calls are to find what the ones before them left
            state.restore()
        lacking = observation.kernel.tensors.keys() - asked.tensors.keys()
        if lacking:
            made = tensors_of(asked.case, observation.kernel)
            asked = replace(asked, tensors={**made, **asked.tensors})
        related = Related(asked, *_call(backend, observation, asked.case, asked.tensors, 0))
        observation.related += (related,)
        if related.raised is not None and related.raised.kind in UNKNOWN:  # nothing to compare with
            observation.raised, observation.related = related.raised, ()
            break


def _call(
    backend: Backend,
    observation: Observation,
    case: Case,
    tensors: Mapping[str, torch.Tensor],
    number: int,
) -> tuple[Call | None, Raised | None]:
    """One call: what it gave, or what it raised."""
    try:
        run = backend.call(observation, case, tensors, number)
    except (KeyboardInterrupt, PassedOver):
        raise
    except BaseException as error:  # sys.exit in a wrapper is the wrapper's fault too
        return None, describe_error(error)
    if case.is_sampled:  # such a result has no elements
        return Call(run, (None,), backend.fills[number]), None
    shapes: tuple[tuple[int, ...] | None, ...] = exact_values.list_shapes(observation)
    if case is not observation.case:
        # a formula says no shape before it is evaluated, and another call is only compared
        one = observation.kernel.spec is None
        shapes = (case.result_shape,) if one else (None,) * len(shapes)
    given = zip(list_given(run.result, len(shapes)), shapes, strict=True)
    results = tuple(read_result(x, shape) for x, shape in given)
    return Call(run, results, backend.fills[number]), None


def _renew(observation: Observation, tensors: Mapping[str, torch.Tensor]) -> None:
    """Give the operands that calls leave results in the elements that they had before."""
    for name, operand in observation.operands.items():
        if operand.use != READ:
            before = as_tensor(stored_elements(operand).copy(), operand.dtype)
            overwrite(tensors[name], before.to(tensors[name].device))


class PassedOver(BaseException):
    """A case that a device cannot run, through no fault of the kernel; the message says why.

    No Exception, because a wrapper that catches those would never see this one from a tuner.
    """


def read_result(result: object, shape: tuple[int, ...] | None) -> Array | None:
    """A result of this shape, None for any, as a storage array; None for anything else."""
    if not isinstance(result, torch.Tensor) or result.layout != torch.strided:
        return None
    if shape not in (None, tuple(result.shape)) or result.device.type != "cpu":
        return None
    return as_array(result) if format_of_tensor(result) is not None else None


_KINDS: dict[str, type[Exception] | tuple[type[Exception], ...]] = {
    "unseen": Unseen,
    "unsupported": Unsupported,
    "compile_error": CompileError,
    "kernel_error": KernelError,
    "limit": LimitExceeded,
    "exhausted": (Exhausted, MemoryError),
}


def describe_error(error: BaseException) -> Raised:
    """What a call raised, in one line, with the user's line."""
    text = words_of(error)
    text = text if len(text) <= 300 else f"{text[:297]}..."
    line = (error.where if isinstance(error, SimulatorError) else None) or raising_line(error)
    where, file = (None, None) if line is None else (str(line), line.file)
    for kind, raised in _KINDS.items():
        if isinstance(error, raised):
            return Raised(kind, text, where, file)
    frames = traceback.extract_tb(error.__traceback__)
    # torch raises through the simulator's own hooks: that is the wrapper's call, not our mistake
    hooked = bool(frames) and frames[-1].name in ("__torch_function__", "__torch_dispatch__")
    if frames and is_ours(frames[-1].filename) and not hooked:
        at = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        return Raised("internal", f"{type(error).__name__} at {at}: {text}", where)
    name = type(error).__name__
    return Raised("raised", f"{name}: {text}" if text else name, where, file)
