"""Block pointers and tensor descriptors in their own words: block, offsets, shape and strides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.memory import Argument

BLOCK_POINTER, DESCRIPTOR = "block pointer", "tensor descriptor"


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """What an access goes through: a block at `offsets` of a parent with `shape` and `strides`.

    Each part is an integer for every axis, an array over the programs or 1 long. `checked` are the
    axes along which lanes beyond the shape are left out.
    """

    kind: str
    block: tuple[int, ...]
    offsets: tuple[np.ndarray, ...]
    shape: tuple[np.ndarray, ...]
    strides: tuple[np.ndarray, ...]
    checked: tuple[int, ...]

    def describe(self, row: int, operand: Argument) -> str:
        """How lanes of the program in that row of the group leave the operand."""
        offsets, shape, strides = (
            [int(part[row if len(part) > 1 else 0]) for part in parts]
            for parts in (self.offsets, self.shape, self.strides)
        )
        words = f"{self.kind} of block {list(self.block)} at offsets {offsets}"
        words += f" of shape {shape} with strides {strides}"
        sides = zip(offsets, self.block, shape, strict=True)
        beyond = [d for d, (low, n, side) in enumerate(sides) if low < 0 or low + n > side]
        if missing := [d for d in beyond if d not in self.checked]:
            axes = f"ax{'e' if len(missing) > 1 else 'i'}s {' and '.join(map(str, missing))}"
            return f"{words}; its boundary_check lacks {axes}"
        view = operand.view
        own = f"{list(view.shape)} with strides {list(view.strides)}"
        return f"{words}, where {operand.shown} has {own}"


@contextmanager
def through(box: Box) -> Iterator[None]:
    """The accesses of the running launch go through a box meanwhile."""
    launch = context.current()
    launch.box = box
    try:
        yield
    finally:
        launch.box = None
