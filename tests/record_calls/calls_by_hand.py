"""Recorded calls, written by hand."""

from __future__ import annotations

from typing import Any

from gemmproof.record_calls.record import (
    FUNCTION,
    RecordedArgument,
    RecordedCall,
    RecordedTensor,
)


def tensor(*shape: int, fmt: str = "fp16", **more: Any) -> RecordedTensor:
    """Return a dense tensor; `strides` and what else is given replace its own."""
    strides = [1]
    for n in shape[:0:-1]:
        strides.insert(0, strides[0] * n)
    more.setdefault("strides", tuple(strides[: len(shape)]))
    return RecordedTensor(fmt, f"torch.{fmt}", shape, **more)


def call(kind: str = FUNCTION, function: str = "linear", **given: Any) -> RecordedCall:
    """Return a call: tensors, texts of values, or arguments by parameter."""
    arguments = []
    for name, value in given.items():
        if isinstance(value, RecordedTensor):
            arguments.append(RecordedArgument(name, value))
        elif isinstance(value, RecordedArgument):
            arguments.append(value)
        else:
            arguments.append(RecordedArgument(name, None, str(value)))
    return RecordedCall("/layers.py", function, kind, tuple(arguments), {"kernel": 4})
