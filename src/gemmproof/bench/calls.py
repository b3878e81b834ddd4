"""How a wrapper is called: with a result to write to where it takes one, and what it may return."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gemmproof.bench.operands import Buffers
from gemmproof.bench.problems import Problem
from gemmproof.properties.cases.tensors import TORCH_DTYPES, format_of_tensor
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.target import TargetError, call_theirs


@dataclass(slots=True)
class Callee:
    """A function f(a, b) -> c under its name in reports.

    `takes_out`: whether it takes `out=`, None where its signature does not tell. `columns`: whether
    it is given b in column-major memory.
    """

    name: str
    function: Callable[..., Any]
    takes_out: bool | None = None
    columns: bool = False

    def __call__(self, buffers: Buffers, out: torch.Tensor | None) -> Any:
        """Its result for one set; it writes to `out` where it can."""
        a, b = buffers.a, buffers.columns if self.columns else buffers.b
        if out is None or self.takes_out is False:
            return self.function(a, b)
        result = self.function(a, b, out=out)
        return out if result is None else result


def make_callee(name: str, function: Callable[..., Any]) -> Callee:
    """The function, and whether it takes `out=`, of its signature."""
    try:
        takes_out = "out" in inspect.signature(function).parameters
    except (ValueError, TypeError):  # a built-in one without a signature: a call will tell
        return Callee(name, function)
    return Callee(name, function, takes_out)


def make_peer(fmt: Format, out: Format, device: str) -> Callee:
    """What torch itself has for a format: matmul, _scaled_mm with unit scales, or _int_mm.

    The latter two get b in column-major memory, for which they are made. Sums of fp8 are kept in
    fp32 (`use_fast_accum=False`), as the default contract wants.
    """
    if fmt.is_fp8:
        one = torch.ones((), device=device)
        words: Any = {"out_dtype": TORCH_DTYPES[out.name], "use_fast_accum": False}

        def scaled_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch._scaled_mm(a, b, scale_a=one, scale_b=one, **words)

        return Callee("torch._scaled_mm", scaled_mm, takes_out=False, columns=True)
    if fmt.kind == "int":
        return Callee("torch._int_mm", torch._int_mm, takes_out=False, columns=True)
    return Callee("torch.matmul", torch.matmul, takes_out=True)


def probe(
    callee: Callee, buffers: Buffers, problem: Problem, fmt: Format, device: Any
) -> tuple[Format, bool]:
    """The format of the result of one call without `out`, and whether the callee takes `out`.

    Compiles and tunes what the callee launches. Raises TargetError, in one line, where it raises,
    or returns anything but a c of the right shape in a format that a result may have.
    """
    where = f"{callee.name} at {problem} {fmt.name}"

    def call(out: torch.Tensor | None) -> Any:
        def run() -> Any:
            result = callee(buffers, out)
            device.synchronize()
            return result

        return call_theirs(callee.name, f"calling {callee.name} at {problem} {fmt.name}", run)

    result = call(None)
    found = _require_result(where, result, problem)
    if callee.takes_out is None:
        out = torch.empty_like(result)
        try:
            callee.function(buffers.a, buffers.b, out=out)
            takes_out = True
        except (TypeError, RuntimeError):
            takes_out = False
        device.synchronize()
    else:
        takes_out = callee.takes_out
        if takes_out:
            written = call(torch.empty(problem.shapes[2], dtype=result.dtype, device=result.device))
            _require_result(where, written, problem)
    return found, takes_out


def _require_result(where: str, result: Any, problem: Problem) -> Format:
    if not isinstance(result, torch.Tensor):
        got = type(result).__name__
        raise TargetError(f"{where}: got {got}, expected a tensor {problem.shapes[2]}")
    if tuple(result.shape) != problem.shapes[2]:
        raise TargetError(
            f"{where}: got a result of shape {tuple(result.shape)}, expected {problem.shapes[2]}"
        )
    found = format_of_tensor(result)
    if found is None:
        known = " ".join(f.name for f in FORMATS.values() if f.result)
        raise TargetError(f"{where}: got a result of {result.dtype}, expected one of {known}")
    return found
