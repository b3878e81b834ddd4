"""Whole matrices gathered by an index, as in w[expert]: multiplied group by group, never copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array
from gemmproof.reference.spec.arithmetic import apply
from gemmproof.reference.spec.array import SpecArray


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """base[ids] of a base (E, K, N) and ids (M,): all of it only where more than `@` is asked.

    Operators, numpy's functions and methods are installed by `operators`.
    """

    base: SpecArray
    ids: Array

    @property
    def rules(self) -> Any:
        """The base's."""
        return self.base.rules

    @property
    def shape(self) -> tuple[int, ...]:
        """Its axes."""
        return (len(self.ids), *self.base.shape[1:])

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return self.base.ndim

    @property
    def mT(self) -> Gathered:
        """Every matrix transposed."""
        return Gathered(apply(self.base, lambda z: np.swapaxes(z, -1, -2)), self.ids)

    def spread(self) -> SpecArray:
        """All matrices, copied."""
        return apply(self.base, lambda z: z[self.ids])


def spread(x: Any) -> Any:
    """x with nothing left to gather."""
    return x.spread() if isinstance(x, Gathered) else x
