"""Hints, assertions and prints of a kernel: each claim is checked on concrete values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.access_checks import note_lanes
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.session import current
from gemmproof.reference.simulator.value import Value, union
from gemmproof.reference.ttir import Op

_MOST_PRINTS = 1000  # lines


def judge_hints(compute: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """Return `compute` with its operation's hints checked on its result's defined lanes."""
    shape = op.types[0].shape

    def compute_and_judge(*values: Value) -> Value:
        x = compute(*values)
        current().uses_hints = True
        if x.dtype.is_float:
            return x
        x = x.spread(shape)
        for attribute, judge in HINTS.items():
            if attribute in op.attrs:
                numbers = op.integers(attribute) * (len(shape) or 1)
                x = judge(x, numbers[: len(shape) or 1])
        return x

    return compute_and_judge


def _mark_doubtful(x: Value, failed: np.ndarray, reason: str) -> Value:
    """Return `x` with the misdescribed lanes marked: the compiler may compute anything there.

    A hint is reported if such a lane reaches a store; the idle lanes of a ragged tile do not. This
    is a violation even if no access gets vectors by the hint from this version of Triton: the hint
    is false of a value that matters, and Triton's documentation lets the compiler rely on it.
    access_checks.check_vectors judges the vectors, in which idle lanes matter, too.
    """
    bits = failed * session.poison_bit(reason, x.base, kind="false_hint")
    return Value(x.data, x.dtype, union(x.poison, bits), x.exact, x.base, x.loaded)


def _step(x: Value) -> int:
    """Return the distance of consecutive values: 1, for pointers the element's bytes."""
    return x.dtype.pointee.itemsize if x.dtype.pointee is not None else 1


def _judge_multiple(x: Value, values: list[int]) -> Value:
    """Check tl.multiple_of: every run of consecutive values along an axis begins at a multiple.

    That is the compiler's reading: the divisibility of a block is that of the first value of each
    contiguous run (AxisInfo's divisibility); a pointer's counts bytes.
    """
    for axis, v in enumerate(values):
        failed = (x.data % v != 0) & (x.marks() == 0)
        if x.data.ndim > 1 and v > 1 and failed.any():
            inner = (slice(None),) * (axis + 1)
            goes_on = np.zeros(x.data.shape, np.bool_)
            goes_on[(*inner, slice(1, None))] = np.diff(x.data, axis=axis + 1) == _step(x)
            failed = _mark_whole_runs(failed & ~goes_on, goes_on, axis + 1)
        if failed.any():
            reason = f"a false hint: tl.multiple_of({v}) of {_first(x, failed)}"
            x = _mark_doubtful(x, failed, reason)
    return x


def _mark_whole_runs(begins: np.ndarray, goes_on: np.ndarray, axis: int) -> np.ndarray:
    """Return the lanes of every run whose first lane is marked."""
    marked = np.moveaxis(begins.copy(), axis, -1)
    follows = np.moveaxis(goes_on, axis, -1)
    for i in range(1, marked.shape[-1]):
        marked[..., i] |= marked[..., i - 1] & follows[..., i]
    return np.moveaxis(marked, -1, axis)


def _first(x: Value, failed: np.ndarray) -> str:
    """Format the first marked lane: a number, or a pointer's distance into its operand."""
    lane = int(np.broadcast_to(x.data, failed.shape)[tuple(np.argwhere(failed)[0])])
    if x.dtype.pointee is None:
        return str(lane)
    if x.base is None:
        return "a pointer"
    view = x.base.view
    past = view.start & -view.start
    base = f"whose base is {past}-byte aligned" if past < 16 else "whose base is 16-byte aligned"
    return f"a pointer {lane - view.start} bytes into {x.base.shown}, {base}"


def _judge_groups(x: Value, values: list[int], hint: str, step: int) -> Value:
    """Check a hint that in aligned groups of lanes each value is the last one plus `step`."""
    for axis, n in enumerate(values):
        if x.data.ndim == 1 or n <= 1:
            continue
        data = np.moveaxis(x.data, axis + 1, -1)
        n = min(n, data.shape[-1])
        groups = data.reshape(*data.shape[:-1], data.shape[-1] // n, n)
        wrong = groups != (groups[..., :1] + step * np.arange(n)).astype(data.dtype)
        failed = np.moveaxis(wrong.reshape(data.shape), -1, axis + 1) & (x.marks() == 0)
        if failed.any():
            reason = f"a false hint: tl.{hint}({n}) where a lane holds {_first(x, failed)}"
            x = _mark_doubtful(x, failed, reason)
    return x


# Attributes that tl.multiple_of, tl.max_contiguous and tl.max_constancy leave on an operation.
HINTS: dict[str, Callable[[Value, list[int]], Value]] = {
    "tt.divisibility": _judge_multiple,
    "tt.contiguity": lambda x, values: _judge_groups(x, values, "max_contiguous", _step(x)),
    "tt.constancy": lambda x, values: _judge_groups(x, values, "max_constancy", 0),
}


# -- claims and prints ---------------------------------------------------------------------------
@operation("llvm.intr.assume", "tt.assert", pure=False)
def _build_claim(op: Op) -> Callable[..., None]:
    """A condition that must be true for every program: the compiler relies on an assumption."""
    kind, got = "false_hint", "tl.assume of a condition that is false"
    if op.name == "tt.assert":
        kind, got = "failed_assert", f"device_assert failed: {''.join(op.strings[:1])}"[:200]

    def compute(condition: Value) -> None:
        current().uses_hints |= kind == "false_hint"
        failed = condition.data == 0
        if failed.any():
            note_lanes(kind, "hint", failed, got=got, expected="a true condition")

    return compute


@operation("tt.print", pure=False)
def _build_print(op: Op) -> Callable[..., None]:
    prefix = (op.strings[0] if op.strings else "").strip().removesuffix(":")
    in_hex = op.attrs.get("hex", "false") == "true"

    def compute(*values: Value) -> None:
        """Keep at most a thousand lines, one for each program, with its position in the grid."""
        launch = current()
        blocks = [
            v.spread(kind.shape).data for v, kind in zip(values, op.operand_types, strict=True)
        ]
        for i, program in enumerate(
            launch.programs[: _MOST_PRINTS - len(launch.session.run.prints)]
        ):
            x, rest = program % launch.grid[0], program // launch.grid[0]
            position = f"program ({x}, {rest % launch.grid[1]}, {rest // launch.grid[1]})"
            shown = [_describe(b[i if len(b) > 1 else 0], in_hex) for b in blocks]
            line = ": ".join(part for part in (position, prefix, ", ".join(shown)) if part)
            where = "" if launch.where is None else f"{launch.where} "
            launch.session.run.prints.append(where + line)

    return compute


def _describe(block: np.ndarray, in_hex: bool) -> str:
    """Format a value in one line: its shape if it has one, and its first and last lanes."""
    digits = 2 * block.dtype.itemsize

    def to_hex(lane: Any) -> str:
        return f"0x{int(lane) % (1 << 4 * digits):0{digits}x}"

    whole = in_hex and block.dtype.kind in "iu"
    if block.ndim == 0:
        return to_hex(block) if whole else str(block)
    text = np.array2string(
        block,
        threshold=64,
        edgeitems=4,
        max_line_width=1 << 20,
        formatter={"int": to_hex} if whole else None,
    )
    shape = "x".join(map(str, block.shape))
    return f"({shape}) {' '.join(text.split()).replace('[ ', '[')}"


@operation("ttg.barrier", "gpu.barrier", pure=False)
@operation("tt.grid_dependency_wait", "tt.grid_dependency_launch_dependents", pure=False)
def _build_nothing(op: Op) -> Callable[..., None]:
    """Order among the threads of a program, or between launches: both run one after the other."""
    return lambda: None
