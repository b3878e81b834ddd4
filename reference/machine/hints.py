"""What a kernel tells the compiler or asserts: each claim is checked on the concrete values."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.diagnose import Event
from gemmproof.reference.machine.shapes import constant
from gemmproof.reference.machine.types import is_int, is_pointer, itemsize
from gemmproof.reference.machine.value import Value, is_number, lift, union


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


def _doubtful(x: Value, failed: np.ndarray, words: str) -> Value:
    """`x` with the misdescribed lanes marked: the compiler may compute anything there.

    A hint is at fault where such a lane reaches a store; the idle lanes of a ragged tile do not.
    """
    bits = failed * execution.source(words, x.base, kind="false_hint")
    return Value(x.data, x.dtype, union(x.poison, bits), x.exact, x.base, x.loaded)


def _step(x: Value) -> int:
    """How far apart consecutive values are: 1, for pointers the element's bytes."""
    return itemsize(x.dtype.element_ty) if is_pointer(x.dtype) else 1


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
    for axis, v in enumerate(_per_axis(x, values, "multiple_of")):
        failed = (x.data % v != 0) & _known(x)
        if x.shape and v > 1 and failed.any():
            inner = (slice(None),) * (axis + 1)
            goes_on = np.zeros(x.data.shape, np.bool_)
            goes_on[(*inner, slice(1, None))] = np.diff(x.data, axis=axis + 1) == _step(x)
            begins = failed & ~goes_on
            failed = _whole_runs(begins, goes_on, axis + 1)
        if failed.any():
            x = _doubtful(x, failed, f"a false hint: tl.multiple_of({v}) of {_first(x, failed)}")
    return x


def _whole_runs(begins: np.ndarray, goes_on: np.ndarray, axis: int) -> np.ndarray:
    """The lanes of every run whose first lane is marked."""
    marked = np.moveaxis(begins.copy(), axis, -1)
    follows = np.moveaxis(goes_on, axis, -1)
    for i in range(1, marked.shape[-1]):
        marked[..., i] |= marked[..., i - 1] & follows[..., i]
    return np.moveaxis(marked, -1, axis)


def _first(x: Value, failed: np.ndarray) -> int:
    return int(np.broadcast_to(x.data, failed.shape)[tuple(np.argwhere(failed)[0])])


def _by_groups(input: Any, values: Any, hint: str, expected: Any) -> Any:
    """A hint on aligned groups of lanes; a lane must hold `expected(first lane, its number)`."""
    if is_number(input):
        return input
    x = lift(input)
    for axis, n in enumerate(_per_axis(x, values, hint)):
        if not x.shape or n <= 1:
            continue
        data = np.moveaxis(x.data, axis + 1, -1)
        n = min(n, data.shape[-1])
        groups = data.reshape(*data.shape[:-1], data.shape[-1] // n, n)
        wrong = groups != expected(groups[..., :1], np.arange(n, dtype=data.dtype))
        failed = np.moveaxis(wrong.reshape(data.shape), -1, axis + 1) & _known(x)
        if failed.any():
            x = _doubtful(
                x, failed, f"a false hint: tl.{hint}({n}) where a lane holds {_first(x, failed)}"
            )
    return x


def max_contiguous(input: Any, values: Any) -> Any:
    """tl.max_contiguous: aligned groups of so many lanes hold consecutive values."""
    step = 1 if is_number(input) else _step(lift(input))
    return _by_groups(input, values, "max_contiguous", lambda first, i: first + i * step)


def max_constancy(input: Any, values: Any) -> Any:
    """tl.max_constancy: aligned groups of so many lanes hold one value."""
    return _by_groups(input, values, "max_constancy", lambda first, i: first)


def device_print(*args: Any, **_: Any) -> None:
    """tl.device_print, print: kept for who asks, at most a thousand lines."""
    prints = execution.current().session.run.prints
    if len(prints) < 1000:
        words = (str(x.data.tolist())[:200] if isinstance(x, Value) else str(x)[:200] for x in args)
        prints.append(" ".join(words))


def nothing(*_: Any, **__: Any) -> None:
    """A barrier or scheduling hint: it changes no value."""
