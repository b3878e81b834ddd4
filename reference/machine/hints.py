"""What a kernel tells the compiler or asserts: each is checked on the concrete values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.diagnose import Event
from gemmproof.reference.machine.value import Value, is_number, lift


def _note(kind: str, failed: np.ndarray, got: str, expected: str) -> None:
    """Note a claim that does not hold; `failed` is (programs or 1, *block)."""
    part = execution.current()
    rows = failed.reshape(len(failed), -1)
    part.events.append(
        Event(
            kind=kind,
            where=execution.where(),
            operand=None,
            access="hint",
            axis=None,
            programs=part.programs if len(rows) == 1 else part.programs[rows.any(axis=1)],
            lanes=int(rows.sum()),
            got=got,
            expected=expected,
        )
    )


def assume(cond: Any) -> None:
    """tl.assume: the compiler takes it for granted, so it must hold for every program."""
    if is_number(cond):
        cond = lift(bool(cond))
    failed = lift(cond).data == 0
    if failed.any():
        _note("false_hint", failed, "tl.assume of a condition that is false", "a true condition")


def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """tl.device_assert: checked in every lane that `mask` keeps."""
    value = lift(bool(cond) if is_number(cond) else cond)
    failed = value.data == 0
    if mask is not None:
        failed = failed & lift(mask).data
    if failed.any():
        _note("failed_assert", failed, f"device_assert failed: {msg}"[:200], "a true condition")


def static_assert(cond: Any, msg: str = "") -> None:
    """tl.static_assert: a false one is an error of compilation."""
    if isinstance(cond, Value):
        raise execution.kernel_error("static_assert: got a runtime value, expected a constant")
    if not cond:
        raise execution.kernel_error(f"static_assert failed: {msg}")


def keep(input: Any, values: Any = None) -> Any:
    """A hint on contiguity or divisibility: the value itself."""
    return input


def device_print(*args: Any, **_: Any) -> None:
    """tl.device_print, print: kept for who asks, at most a thousand lines."""
    prints = execution.current().session.run.prints
    if len(prints) < 1000:
        words = (str(x.data.tolist())[:200] if isinstance(x, Value) else str(x)[:200] for x in args)
        prints.append(" ".join(words))


def nothing(*_: Any, **__: Any) -> None:
    """A barrier or scheduling hint: it changes no value."""
