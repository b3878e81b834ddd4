"""A small kernel with its inputs and expected results: CASES holds those of ttir_kernels.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
from tests.support.triton_versions import holds


@dataclass(frozen=True)
class Case:
    """A kernel that reads `given` and stores `expected`, over `grid` programs.

    `needs` names the difference between versions of Triton that it depends on, if any.
    """

    kernel: Any
    given: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]
    grid: tuple[int, ...] = (1,)
    needs: str | None = None

    @property
    def name(self) -> str:
        return str(self.kernel.fn.__name__)

    def launch(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The wrapper: new outputs after the given tensors."""
        triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8))
        outs = [torch.zeros(e.shape, dtype=torch.from_numpy(e).dtype) for e in self.expected]
        self.kernel[self.grid](*tensors, *outs)
        return tuple(outs)

    def tensors(self) -> list[torch.Tensor]:
        return [torch.from_numpy(x.copy()) for x in self.given]


CASES: list[Case] = []


def case(given: Any, expected: Any, **how: Any) -> Callable[[Any], Any]:
    """Register a kernel; `expected` computes what it stores from what it reads."""

    def register(kernel: Any) -> Any:
        results = expected(*given)
        results = results if isinstance(results, tuple) else (results,)
        CASES.append(Case(kernel, tuple(given), results, **how))
        return kernel

    return register


def existing() -> list[Case]:
    """The kernels that the installed Triton can compile."""
    return [c for c in CASES if c.needs is None or holds(c.needs)]
