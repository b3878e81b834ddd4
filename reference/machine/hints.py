"""What a kernel tells the compiler or asserts: each claim is checked on the concrete values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.diagnose import Event
from gemmproof.reference.machine.shapes import constant
from gemmproof.reference.machine.types import is_int, is_pointer
from gemmproof.reference.machine.value import Value, is_number, lift


def _note(kind: str, failed: np.ndarray, got: str, expected: str, operand: Any = None) -> None:
    """Note a claim that does not hold; `failed` is (programs or 1, *block)."""
    part = execution.current()
    rows = failed.reshape(len(failed), -1)
    part.events.append(
        Event(
            kind=kind,
            where=execution.where(),
            operand=operand,
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
    value = lift(bool(cond) if is_number(cond) else cond)
    failed = value.data == 0
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


def _per_axis(x: Value, values: Any, hint: str) -> list[int]:
    """One number an axis. Raises KernelError for another count."""
    numbers = [constant(v) for v in (values if isinstance(values, tuple | list) else [values])]
    if len(numbers) != max(1, len(x.shape)):
        raise execution.kernel_error(f"{hint}: got {len(numbers)} values for {x!r}")
    return numbers


def _known(x: Value) -> np.ndarray:
    """Lanes whose value is defined; a hint says nothing of the others."""
    if x.poison is None:
        return np.ones((1,) * x.data.ndim, np.bool_)
    return x.poison == 0


def multiple_of(input: Any, values: Any) -> Any:
    """tl.multiple_of: every run of consecutive values along an axis begins at a multiple.

    That is the compiler's reading: the divisibility of a block is that of the first value of each
    contiguous run (AxisInfo's divisibility); a pointer's counts bytes.
    """
    if is_number(input):
        return input
    x = lift(input)
    if not (is_int(x.dtype) or is_pointer(x.dtype)):
        raise execution.kernel_error(f"multiple_of: got {x!r}, expected integers or pointers")
    step = 1
    if is_pointer(x.dtype):
        step = max(1, x.dtype.element_ty.primitive_bitwidth // 8)
    for axis, v in enumerate(_per_axis(x, values, "multiple_of")):
        failed = (x.data % v != 0) & _known(x)
        if x.shape and v > 1:
            runs = np.zeros(x.data.shape, np.bool_)
            inner = (slice(None),) * (axis + 1) + (slice(1, None),)
            runs[inner] = np.diff(x.data, axis=axis + 1) == step
            failed = failed & ~runs
        if failed.any():
            lane = int(x.data[tuple(np.argwhere(failed)[0])])
            got = f"tl.multiple_of {v} of a run that begins at {lane}"
            _note("false_hint", failed, got, f"a multiple of {v}", x.base)
    return input


def _groups(x: Value, axis: int, n: int) -> np.ndarray:
    """The values in aligned groups of n lanes along an axis, the group's lanes last."""
    data = np.moveaxis(x.data, axis + 1, -1)
    n = min(n, data.shape[-1])
    return data.reshape(*data.shape[:-1], data.shape[-1] // n, n)


def max_contiguous(input: Any, values: Any) -> Any:
    """tl.max_contiguous: aligned groups of so many lanes hold consecutive values."""
    x = lift(input)
    for axis, n in enumerate(_per_axis(x, values, "max_contiguous")):
        if x.shape and n > 1:
            step = 1
            if is_pointer(x.dtype):
                step = max(1, x.dtype.element_ty.primitive_bitwidth // 8)
            lanes = _groups(x, axis, n)
            failed = np.diff(lanes, axis=-1) != step
            if failed.any():
                first = tuple(np.argwhere(failed)[0])
                got = int(lanes[first]), int(lanes[(*first[:-1], first[-1] + 1)])
                words = f"tl.max_contiguous {n} of lanes that hold {got[0]}, {got[1]}"
                _note("false_hint", failed, words, f"{got[0]}, {got[0] + step}", x.base)
    return input


def max_constancy(input: Any, values: Any) -> Any:
    """tl.max_constancy: aligned groups of so many lanes hold one value."""
    x = lift(input)
    for axis, n in enumerate(_per_axis(x, values, "max_constancy")):
        if x.shape and n > 1:
            lanes = _groups(x, axis, n)
            failed = lanes != lanes[..., :1]
            if failed.any():
                lane = tuple(np.argwhere(failed)[0])
                got, want = lanes[lane], lanes[(*lane[:-1], 0)]
                words = f"tl.max_constancy {n} of lanes that hold {want}, {got}"
                _note("false_hint", failed, words, f"{want} in the whole group", x.base)
    return input


def device_print(*args: Any, **_: Any) -> None:
    """tl.device_print, print: kept for who asks, at most a thousand lines."""
    prints = execution.current().session.run.prints
    if len(prints) < 1000:
        words = (str(x.data.tolist())[:200] if isinstance(x, Value) else str(x)[:200] for x in args)
        prints.append(" ".join(words))


def nothing(*_: Any, **__: Any) -> None:
    """A barrier or scheduling hint: it changes no value."""
