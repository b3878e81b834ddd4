"""Loops of a kernel: `range`, `tl.range` and `tl.static_range` over values of many programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import triton.language as tl

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.types import is_int, promote
from gemmproof.reference.machine.value import Value, is_number, lift


def dynamic_range(start: Any, stop: Any = None, step: Any = None, **hints: Any) -> Iterator[Value]:
    """`range` and `tl.range`: the index is a runtime integer, also where the bounds are constants.

    Programs with other trip counts go on in parts of their own. `hints` (num_stages, flatten, ...)
    steer the compiler only. Raises KernelError for bounds that are no scalar integers.
    """
    first, last, pace = _bounds(start, stop, step)
    if all(is_number(x) for x in (first, last, pace)):
        dtype = lift(first).dtype
    else:
        types = [lift(x).dtype for x in (first, last, pace)]
        numbers = [is_number(x) for x in (first, last, pace)]
        dtype = types[0]
        for other, number in zip(types[1:], numbers[1:], strict=True):
            dtype = promote(dtype, other, numbers[0], number)
    lows, highs, steps = (_scalars(x) for x in (first, last, pace))
    if (steps == 0).any():
        raise execution.kernel_error("range: got step 0, expected another")
    trips = np.maximum(-((lows - highs) // steps), 0)
    if trips.size > 1 and (trips != trips[0]).any():
        raise execution.Diverged(np.broadcast_to(trips, execution.current().programs.shape))
    for i in range(int(trips[0])):
        execution.check_time()
        yield execution.vocabulary().convert(Value(lows + i * steps, tl.int64), dtype)


def _bounds(start: Any, stop: Any, step: Any) -> tuple[Any, Any, Any]:
    if stop is None:
        start, stop = 0, start
    return start, stop, 1 if step is None else step


def _scalars(x: Any) -> np.ndarray:
    value = lift(x)
    if value.numel != 1 or not is_int(value.dtype):
        raise execution.kernel_error(f"range: got {value!r}, expected scalar integers")
    execution.used_undefined(value, "a loop bound")
    return value.data.reshape(value.data.shape[0]).astype(np.int64)


def static_range(start: Any, stop: Any = None, step: Any = None) -> range:
    """`tl.static_range`: unrolled, so bounds and index are constants."""
    bounds = _bounds(start, stop, step)
    if not all(is_number(x) for x in bounds):
        raise execution.kernel_error("tl.static_range: got runtime bounds, expected constants")
    return range(*(int(x) for x in bounds))
