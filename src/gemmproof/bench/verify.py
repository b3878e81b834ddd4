"""Whether results are right, before the clock starts: a wrong kernel has no speed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gemmproof.bench.formula.sampled import Sample
from gemmproof.bench.formula.stated import Stated
from gemmproof.bench.legs import Leg, poison
from gemmproof.bench.operands import Buffers, fill_integers
from gemmproof.reference.formats import Format


def verify(
    legs: list[tuple[Leg, str]], sets: Sequence[Buffers], stated: Stated, out: Format
) -> list[str]:
    """What is wrong with each leg, run in the way in which it will be timed; "" where nothing is.

    First every set holds integers whose products are exact (operands.fill_integers), and every
    element of every result must equal them; then the data that are timed, on which no element may
    stay NaN. Results are poisoned before both. The sets are left with the data that are timed.
    """
    place = f"{stated.problem} {stated.fmt.name}"
    exact = [fill_integers(x, stated.fmt, out, seed) for seed, x in enumerate(sets)]
    for leg, _ in legs:
        leg.refresh()
    wrong = [_find_wrong(leg, how, exact, place) for leg, how in legs]
    del exact
    for seed, buffers in enumerate(sets):
        stated.fill(buffers, seed)
    for leg, _ in legs:
        leg.refresh()
    if out.kind == "int":
        return wrong
    pairs = zip(wrong, legs, strict=True)
    return [found or _find_unwritten(leg, how, place) for found, (leg, how) in pairs]


def find_left_out(leg: Leg, how: str, place: str) -> str:
    """What a leg leaves as it was, on the data that are timed; NaN may be a result of a formula.

    An element is left out where it is still NaN, and still 0 after another run.
    """
    kept = [_keeps_poison(got) for got in _run_poisoned(leg, how)]
    if any(bool(x.any()) for x in kept):
        for result in leg.results(how):
            (result.view(torch.uint8) if result.element_size() == 1 else result).zero_()
        leg.run(how)()
        for number, (got, still) in enumerate(zip(leg.results(how), kept, strict=True)):
            unwritten = still & (_widen(got) == 0)
            if bool(unwritten.any()):
                return _describe(leg, place, number, got, unwritten, "a result", "nothing")
    return ""


def find_beyond(leg: Leg, how: str, samples: Sequence[Sample], place: str) -> str:
    """What of the last results is not the formula's within its bound, in the sampled blocks."""
    results = leg.results(how)
    for one in samples:
        if found := one.judge(results[one.number]):
            return f"{leg.callee.name} at {place}, {found}"
    return ""


def _keeps_poison(x: torch.Tensor) -> torch.Tensor:
    return _widen(x).isnan() if x.is_floating_point() else x == torch.iinfo(x.dtype).min


def _run_poisoned(leg: Leg, how: str) -> list[torch.Tensor]:
    poison(leg.results(how))
    leg.run(how)()
    return leg.results(how)


def _find_wrong(leg: Leg, how: str, exact: list[torch.Tensor], place: str) -> str:
    for number, (got, expected) in enumerate(zip(_run_poisoned(leg, how), exact, strict=True)):
        if got.shape != expected.shape or got.dtype != expected.dtype:
            return (
                f"{leg.callee.name} at {place}: got {got.dtype} {tuple(got.shape)}, expected"
                f" {expected.dtype} {tuple(expected.shape)}"
            )
        # NaN differs from itself, so that what stays poisoned is wrong too
        differs = _widen(got) != _widen(expected)
        if bool(differs.any()):
            return _describe(leg, place, number, got, differs, str(_at(expected, differs)))
    return ""


def _find_unwritten(leg: Leg, how: str, place: str) -> str:
    for number, got in enumerate(_run_poisoned(leg, how)):
        unwritten = _widen(got).isnan()
        if bool(unwritten.any()):
            return _describe(leg, place, number, got, unwritten, "a number")
    return ""


def _describe(
    leg: Leg,
    place: str,
    number: int,
    result: torch.Tensor,
    wrong: torch.Tensor,
    expected: str,
    got: str = "",
) -> str:
    where = [int(i) for i in wrong.nonzero()[0]]
    count, size = int(wrong.sum()), wrong.numel()
    return (
        f"{leg.callee.name} at {place}, c{where} of buffer {number}: got"
        f" {got or _at(result, wrong)}, expected {expected}; {count} of {size} elements wrong"
    )


def _at(x: torch.Tensor, wrong: torch.Tensor) -> float | int:
    return _widen(x)[tuple(wrong.nonzero()[0])].item()


def _widen(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in a format that torch can compare."""
    return x.float() if x.element_size() == 1 and x.is_floating_point() else x


def equal_bits(leg: Leg, other: Leg, how: str) -> bool:
    """Whether the last results of both have the same bits in every set."""
    return all(
        x.shape == y.shape
        and x.dtype == y.dtype
        and torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
        for x, y in zip(leg.results(how), other.results(how), strict=True)
    )
