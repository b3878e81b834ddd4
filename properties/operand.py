"""What a wrapper takes besides a and b: scales, a bias, zero points, packed weights, indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gemmproof.properties.cases.relation import evaluate
from gemmproof.reference.formats import FORMATS

Values = Callable[..., Any] | tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand that the wrapper takes by name: its format, its shape, what its elements may be.

    `shape`: an axis, or a tuple of up to three: numbers, or text over M, N, K and batch such as
    "M" or "K // 128". `values`: None for data that tell each element from its neighbours (signed
    powers of two for floats, all values for integers), (low, high) for integers from low to high,
    or a function of a numpy Generator, the shape and the sizes (M=, N=, K=) that returns an array.

    Raises ValueError, in one line, for what no operand can be.
    """

    format: str
    shape: str | int | tuple[str | int, ...] = ()
    values: Values = None

    def __post_init__(self) -> None:
        fmt = FORMATS.get(self.format)
        if fmt is None or fmt.stored is not fmt:
            known = " ".join(f.name for f in FORMATS.values() if f.stored is f)
            raise ValueError(f"operand format: got {self.format!r}, expected one of {known}")
        if len(self.axes) > 3:
            raise ValueError(f"operand shape: got {self.shape!r}, expected at most three axes")
        try:
            self.sides({"M": 1, "N": 1, "K": 1, "batch": 1})
        except (ValueError, TypeError) as mistake:
            raise ValueError(f"operand shape: {mistake}") from None
        ranged = isinstance(self.values, tuple)
        if ranged and (fmt.kind != "int" or len(self.values) != 2):  # type: ignore[arg-type]
            raise ValueError(
                f"operand values: got {self.values!r} for {self.format}, expected (low, high) of"
                " an integer format, a function or None"
            )

    @property
    def axes(self) -> tuple[str | int, ...]:
        """The shape as a tuple."""
        return self.shape if isinstance(self.shape, tuple) else (self.shape,)

    def sides(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at given sizes, by axis of the product."""
        given = {"batch": 1, **sizes}
        return tuple(n if isinstance(n, int) else evaluate(n, given) for n in self.axes)
