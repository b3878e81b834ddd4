"""The calls that a bug needs, reduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import AllocatedOperand, operands
from gemmproof.properties.judges import determinism
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import ObservedCase, RelatedCall
from gemmproof.reference.arithmetic import Array

# -- reduction -----------------------------------------------------------------------------------
T = TypeVar("T")


def reduce_items(items: Sequence[T], fails: Callable[[Sequence[T]], bool | None]) -> list[T]:
    """Return items of which no single one can be dropped, unless the time ran out.

    `fails` returns whether these alone still fail; None, when no more may be tried, ends the search
    with the items found so far.
    """
    left = list(items)
    verdict = fails([])
    if verdict:
        return []
    parts = 2
    while verdict is not None and left and parts <= 2 * len(left):
        size = max(1, len(left) // parts)
        for start in range(0, len(left), size):
            rest = left[:start] + left[start + size :]
            verdict = fails(rest) if rest else False
            if verdict is None:
                return left
            if verdict:
                left, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts *= 2
    return left


# -- calls ---------------------------------------------------------------------------------------
Elements = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Before:
    """A call before that of the case.

    `data` are its elements, None for those of the case. If it `shares` the tensors of the case,
    they hold its elements meanwhile. If it is `linked`, elements at indices that the case has as
    well are those of the case.
    """

    case: Case
    label: str
    allocated: Mapping[str, AllocatedOperand]
    data: Elements | None = None
    shares: bool = False
    linked: bool = False

    def elements(self, own: Elements) -> Elements:
        """Return its elements, given the case's `own`."""
        if self.data is None or not self.linked:
            return own if self.data is None else self.data
        copies = {name: array.copy() for name, array in self.data.items()}
        for name, array in copies.items():
            sides = zip(array.shape, own[name].shape, strict=True)
            corner = tuple(slice(min(pair)) for pair in sides)
            bits = f"u{array.itemsize}"
            array.view(bits)[corner] = own[name].view(bits)[corner]
        return copies


@dataclass(frozen=True, slots=True)
class Series:
    """Calls before that of the case; if `same`, its result must equal that of the first of them.

    It must do so in as many `rows` as both have, None for all. Otherwise it must be right alone.
    """

    before: tuple[Before, ...]
    same: bool = False
    rows: int | None = None


ALONE = Series(())


def list_series(
    kernel: KernelUnderTest, case: Case, allocated: Mapping[str, AllocatedOperand]
) -> Iterator[Series]:
    """Yield the series of calls that may show the finding of a case of several calls."""
    alone = replace(case, calls=1, compare=None)
    observation = ObservedCase(kernel, alone, None, allocated)
    if case.compare == "rows":
        for related in determinism.call_at_other_m(observation):
            call = replace(_prepare(kernel, related), linked=True)
            yield Series((call,), same=True, rows=min(case.M, related.case.M))
    elif case.compare == "order":
        # the last is the call of the case, in the tensors of the one before it
        *others, other, _ = determinism.call_in_order(observation)
        before = [_prepare(kernel, related) for related in others]
        before.append(replace(_prepare(kernel, other), shares=True))
        yield Series(tuple(before))
        first = Before(alone, "the call by itself", allocated)
        yield Series((first, *before), same=True)
    else:
        own = Before(alone, "the first call", allocated, shares=True)
        again = replace(own, label="the same call again")
        yield from (Series((own, *[again] * more), same=True) for more in range(case.calls - 1))


def _prepare(kernel: KernelUnderTest, related: RelatedCall) -> Before:
    allocated = operands(related.case, kernel)
    data = {name: operand.data for name, operand in allocated.items()}
    return Before(related.case, related.description, allocated, data)
