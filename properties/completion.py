"""The properties that a kernel compiles, and that a call of it ends well."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from gemmproof.properties.addresses import COMPILES, ENDS, judge_faults
from gemmproof.properties.finding import Finding
from gemmproof.properties.outcome import Outcome, same_storage
from gemmproof.properties.tensors import format_of_tensor
from gemmproof.reference.formats import FORMATS

NAME = ENDS
# the frontend's words: a kernel, Triton's message, and the configuration if there are several
_REFUSED = re.compile(r"Triton refuses to compile (\S+): (.*?)(?: with \[([^]]*)\])?", re.DOTALL)
_device_would_stop = judge_faults(NAME)


def judge_compiles(outcome: Outcome) -> Iterator[Finding]:
    """Triton's refusal of the kernel, in Triton's words, on the line that it blames."""
    raised = outcome.raised
    if raised is not None and raised.kind == "compile_error":
        place = "the kernel" if raised.where is None else raised.where
        stated = raised.text.removeprefix(f"{raised.where}: ")
        expected = "a kernel that compiles"
        if refused := _REFUSED.fullmatch(stated):
            name, words, config = refused.groups()
            stated = f'"{words}" from Triton\'s compiler'
            expected = f"{name} to compile" + (f" with {config}" if config else "")
        yield _finding(
            outcome, raised.kind, place, stated, expected, raised.where, property=COMPILES
        )


def judge(outcome: Outcome) -> Iterator[Finding]:
    """Findings of one outcome: what was raised, or would be, or what is wrong with the result."""
    yield from _device_would_stop(outcome)
    raised = outcome.raised
    if raised is not None:
        # what the simulator does not know, and its own errors, say nothing about the kernel
        if raised.kind in ("raised", "kernel_error", "limit"):
            call = f"call {len(outcome.runs) + 1}" if outcome.runs else "the call"
            place = call if raised.where is None else f"{call}, at {raised.where}"
            stated = raised.text.removeprefix(f"{raised.where}: ")
            yield _finding(outcome, raised.kind, place, stated, "a result", raised.where)
        return
    for run in outcome.runs:
        found = list(_result(outcome, run.result))
        yield from found
        if found:
            return


def _result(outcome: Outcome, result: object) -> Iterator[Finding]:
    if not isinstance(result, torch.Tensor):
        name = "None" if result is None else f"a {type(result).__name__}"
        yield _finding(outcome, "wrong_type", "the result", name, "a tensor")
        return
    if tuple(result.shape) != outcome.shape:
        yield _finding(
            outcome, "wrong_shape", "the result", f"shape {tuple(result.shape)}", f"{outcome.shape}"
        )
    fmt = format_of_tensor(result)
    integers = FORMATS[outcome.case.dtype].kind == "int"
    if fmt is None or (fmt.kind == "int" and not integers) or result.layout != torch.strided:
        expected = "an integer or float dtype" if integers else "a float dtype"
        yield _finding(outcome, "wrong_dtype", "the result", str(result.dtype), expected)
    if result.device.type != "cpu":
        yield _finding(
            outcome, "wrong_device", "the result", str(result.device), "the inputs' device"
        )
    for operand in outcome.operands:
        if result.numel() > 0 and same_storage(result, operand.tensor):
            yield _finding(
                outcome,
                "returned_input",
                "the result",
                f"a view of {operand.name}",
                "memory of its own",
                operand=operand.name,
            )


def _finding(
    outcome: Outcome,
    fault: str,
    place: str,
    got: str,
    expected: str,
    where: str | None = None,
    operand: str | None = None,
    property: str = NAME,
) -> Finding:
    return Finding(
        property=property,
        fault=fault,
        message=f"{place}: got {got}, expected {expected}",
        case=outcome.case,
        operand=operand,
        where=where,
        got=got,
        expected=expected,
    )
