"""The properties that a kernel compiles, and that a call of it ends well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from gemmproof.properties.cases.tensors import format_of_tensor, share_memory
from gemmproof.properties.finding import Finding, make_finding
from gemmproof.properties.memory import ENDS, judge_faults
from gemmproof.properties.observation import Observation
from gemmproof.properties.operand import READ
from gemmproof.properties.values import list_shapes
from gemmproof.reference.formats import FORMATS

COMPILES = "compiles"
# the frontend's words: a kernel, Triton's message, and the configuration if there are several
_REFUSED = re.compile(r"Triton refuses to compile (\S+): (.*?)(?: with \[([^]]*)\])?", re.DOTALL)
_judge_device_asserts = judge_faults(ENDS)


def judge_compiles(observation: Observation) -> Iterator[Finding]:
    """Triton's refusal of the kernel, in Triton's words, on the line that it blames."""
    raised = observation.raised
    if raised is not None and raised.kind == "compile_error":
        place = "the kernel" if raised.where is None else raised.where
        got = raised.text.removeprefix(f"{raised.where}: ")
        expected = "a kernel that compiles"
        if refused := _REFUSED.fullmatch(got):
            name, words, config = refused.groups()
            got = f'"{words}" from Triton\'s compiler'
            expected = f"{name} to compile" + (f" with {config}" if config else "")
        more: dict[str, Any] = {"where": raised.where, "file": raised.file}
        yield make_finding(observation, COMPILES, raised.kind, place, got, expected, **more)


def ends_applies(observation: Observation) -> bool:
    """Whether the end of the calls is known; of a sampled call, only that it raised."""
    return observation.is_known and (not observation.case.is_sampled or not observation.calls)


def judge_ends(observation: Observation) -> Iterator[Finding]:
    """What was raised, or would stop the device, or what is wrong with the result."""
    yield from _judge_device_asserts(observation)
    raised = observation.raised
    if raised is None:
        judge_result = _judge_result if observation.is_simulated else _judge_device_result
        numbers, shown = range(len(observation.calls)), observation.split()
        judged = (list(judge_result(one, n)) for n in numbers for one in shown)
        yield from next(filter(None, judged), [])
    # what the simulator does not know, and its own errors, say nothing about the kernel
    elif raised.kind in ("raised", "kernel_error", "limit"):
        call = f"call {len(observation.calls) + 1}" if observation.calls else "the call"
        place = call if raised.where is None else f"{call}, at {raised.where}"
        got = raised.text.removeprefix(f"{raised.where}: ")
        more: dict[str, Any] = {"where": raised.where, "file": raised.file}
        fault = "cuda_error" if is_cuda_error(raised.text) else raised.kind
        yield make_finding(observation, ENDS, fault, place, got, "a result", **more)


def is_cuda_error(text: str) -> bool:
    """Whether an error left the device's context unusable, as an illegal address does."""
    return any(sign in text for sign in ("CUDA error", "Triton Error [CUDA]", "AcceleratorError"))


def _judge_result(observation: Observation, number: int) -> Iterator[Finding]:
    def wrong(fault: str, got: str, expected: str, operand: str | None = None) -> Finding:
        name = observation.result_name
        place = "the result" if name == "c" else name
        return make_finding(observation, ENDS, fault, place, got, expected, operand=operand)

    call = observation.calls[number]
    result = call.given
    if not isinstance(result, torch.Tensor):
        name = "None" if result is None else f"a {type(result).__name__}"
        yield wrong("wrong_type", name, "a tensor")
        return
    shape = list_shapes(observation)[observation.part]
    if tuple(result.shape) != shape:
        yield wrong("wrong_shape", f"shape {tuple(result.shape)}", f"{shape}")
    fmt = format_of_tensor(result)
    integers = observation.case.format.kind == "int" or observation.kernel.spec is not None
    if fmt is None or (fmt.kind == "int" and not integers) or result.layout != torch.strided:
        expected = "an integer or float dtype" if integers else "a float dtype"
        yield wrong("wrong_dtype", str(result.dtype), expected)
    promised = observation.kernel.contract.out
    promised = promised if observation.part == 0 else None
    if fmt is not None and promised is not None and fmt.dtype != FORMATS[promised].dtype:
        expected = f"torch.{FORMATS[promised].dtype}, as promised"
        yield wrong("wrong_dtype", str(result.dtype), expected)
    if result.device.type != "cpu":
        yield wrong("wrong_device", str(result.device), "the inputs' device")
    for name, operand in observation.operands.items():
        if operand.use == READ and result.numel() > 0 and share_memory(result, operand.tensor):
            yield wrong("returned_input", f"a view of {name}", "memory of its own", name)


def _judge_device_result(observation: Observation, number: int) -> Iterator[Finding]:
    if observation.calls[number].result is None:
        place, got = f"call {number + 1}", "another type, shape or format"
        shape = list_shapes(observation)[observation.part]
        expected = f"a tensor of shape {shape} as the simulated call gives"
        yield make_finding(observation, ENDS, "other_result", place, got, expected, operand="c")
