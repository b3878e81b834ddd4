"""The sizes that an axis may have: a first, a last, and what all are multiples of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MAX_SIDE = 65536
MAX_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """The multiples of `step` from `low` to `high`, both included.

    Raises ValueError, in one line, where there is none, or one beyond 0..MAX_SIDE.
    """

    low: int = 1
    high: int = MAX_SIDE
    step: int = 1

    def __post_init__(self) -> None:
        whole = all(type(n) is int for n in (self.low, self.high, self.step))
        if not whole or not 0 <= self.low <= self.high <= MAX_SIDE or self.step < 1:
            raise ValueError(f"got {self}, expected sizes from 0 to {MAX_SIDE}, low before high")
        if self.ceil(self.low) > self.high:
            raise ValueError(f"got {self}, which is no size at all, expected at least one")

    @staticmethod
    def of(value: object, top: int = MAX_SIDE) -> Sizes:
        """Sizes as a contract states them: a number, a range, text such as "16..4096:16", Sizes.

        `top` is the largest. Raises ValueError for anything else.
        """
        sizes = Sizes._read(value, top)
        if sizes.high > top:
            raise ValueError(f"got {sizes}, expected at most {top}")
        return sizes

    @staticmethod
    def _read(value: object, top: int) -> Sizes:
        if isinstance(value, Sizes):
            return value
        if type(value) is int:
            return Sizes(value, value)
        if isinstance(value, range) and len(value) and value.step > 0 and not value[0] % value.step:
            return Sizes(value[0], value[-1], value.step)
        if isinstance(value, str):
            return Sizes._parse(value, top)
        raise ValueError(f"got {value!r}, expected a number, a range, text or multiple_of(n)")

    @staticmethod
    def _parse(text: str, top: int) -> Sizes:
        found = re.fullmatch(r"(\d{0,6})(\.\.)?(\d{0,6})(?::(\d{1,6}))?", text)
        if not found or not text:
            raise ValueError(f"got {text!r}, expected a number, LOW..HIGH, or LOW..HIGH:STEP")
        low, dots, high, step = found.groups()
        if low and not dots and not step:
            return Sizes(int(low), int(low))
        first = int(low) if low else int(step or 1)
        return Sizes(first, int(high) if high else top, int(step or 1))

    def __str__(self) -> str:
        if self.low == self.high:
            return str(self.low)
        high = "" if self.high in (MAX_SIDE, MAX_BATCH) else self.high
        return f"{self.low}..{high}" + (f":{self.step}" if self.step != 1 else "")

    def __contains__(self, n: int) -> bool:
        return self.low <= n <= self.high and n % self.step == 0

    def ceil(self, n: int) -> int:
        """The smallest of them that is at least n; beyond `high` where there is none."""
        return -(-max(n, self.low) // self.step) * self.step

    def fit(self, n: int) -> int:
        """The largest of them that is at most n, or the smallest of all."""
        return max(self.ceil(self.low), min(n, self.high) // self.step * self.step)


def multiple_of(step: int, high: int = MAX_SIDE) -> Sizes:
    """The positive multiples of a number."""
    return Sizes(step, high, step)


def neighbours(sides: Mapping[str, int], sizes: Mapping[str, Sizes]) -> Iterator[dict[str, int]]:
    """Sides near the given ones: one up to 128 steps shorter or longer, or as long as another."""
    yield from _step(sides, sizes, range(1, 33))
    lengths = sides.values()
    equal = [{**sides, axis: sizes[axis].fit(n)} for axis in sides for n in lengths]
    equal += [{axis: sizes[axis].fit(n) for axis in sides} for n in lengths]
    yield from sorted(equal, key=lambda other: math.prod(other.values()))
    yield from _step(sides, sizes, range(33, 129))


def _step(
    sides: Mapping[str, int], sizes: Mapping[str, Sizes], steps: range
) -> Iterator[dict[str, int]]:
    for count in steps:
        for axis, n in sides.items():
            for other in (n - count * sizes[axis].step, n + count * sizes[axis].step):
                if other in sizes[axis]:
                    yield {**sides, axis: other}
