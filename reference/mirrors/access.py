"""One access of one program, as data, and where two lists of accesses first differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Pid = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """A load or store of one block by one program.

    operand: a, b, c or what the caller calls it; of memory that the wrapper made, the kernel's
    parameter. offsets: int64, in elements from the operand's first element, block shaped. mask:
    bool of that shape, None for all lanes. other: what masked lanes of a load receive, None if
    undefined.
    """

    kind: Literal["load", "store"]
    operand: str
    offsets: NDArray[np.int64]
    mask: NDArray[np.bool_] | None
    other: float | None
    pid: Pid

    def __str__(self) -> str:
        lanes = "x".join(str(n) for n in self.offsets.shape)
        return f"{self.kind} {self.operand} by pid {self.pid}, {lanes} lanes"


def first_difference(got: Sequence[Touch], expected: Sequence[Touch]) -> str | None:
    """The first disagreement between two traces in `where: got, expected` form, None if equal.

    Offsets count only where a lane is active: what a masked lane would address touches nothing.
    """
    for position, (x, y) in enumerate(zip(got, expected, strict=False)):
        difference = touch_difference(x, y)
        if difference is not None:
            return f"access {position}, {difference}"
    if len(got) != len(expected):
        longer = got if len(got) > len(expected) else expected
        shorter = min(len(got), len(expected))
        return (
            f"access {shorter}, {longer[shorter]}: "
            f"got {len(got)} accesses, expected {len(expected)}"
        )
    return None


def touch_difference(got: Touch, expected: Touch) -> str | None:
    """Where one access differs from another, None if they touch the same elements."""
    if (got.kind, got.operand, got.pid) != (expected.kind, expected.operand, expected.pid):
        return f"got {got}, expected {expected}"
    if got.offsets.shape != expected.offsets.shape:
        return f"block of {expected}: got {got.offsets.shape}, expected {expected.offsets.shape}"
    got_mask, expected_mask = _lanes(got), _lanes(expected)
    wrong = got_mask != expected_mask
    if wrong.any():
        return _at("mask", expected, wrong, got_mask, expected_mask)
    wrong = (got.offsets != expected.offsets) & expected_mask
    if wrong.any():
        return _at("offsets", expected, wrong, got.offsets, expected.offsets)
    if got.other != expected.other and not expected_mask.all():
        lanes = int((~expected_mask).sum())
        return (
            f"other of {expected}, {lanes} of {expected_mask.size} lanes: "
            f"got {got.other}, expected {expected.other}"
        )
    return None


def _lanes(touch: Touch) -> NDArray[np.bool_]:
    if touch.mask is None:
        return np.ones(touch.offsets.shape, bool)
    return np.broadcast_to(touch.mask, touch.offsets.shape)


def _at(
    what: str,
    expected: Touch,
    wrong: NDArray[np.bool_],
    got_values: NDArray[np.generic],
    expected_values: NDArray[np.generic],
) -> str:
    lane = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{what} of {expected}, {int(wrong.sum())} differ, first at {lane}: "
        f"got {got_values[lane]}, expected {expected_values[lane]}"
    )
