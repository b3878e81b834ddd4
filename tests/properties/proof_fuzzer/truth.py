"""The sizes at which a program is evaluated, and the properties that are false at one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .evaluate import Call, Invalid, Unsure
from .language import Op, Program, Terms

MAX_SIDE = 65536  # the largest size of a case, and of a proof
SPAN, HUGE_SPAN = 2**31 - 1, 2**38  # elements from the first of an operand to behind its last
MOST_ELEMENTS = 3_000_000  # of operands and result that are evaluated as a whole
COUNTS = (132, 142, 108, 5)  # of multiprocessors

Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Witness:
    """A call at which a property is false; all that is needed to repeat it."""

    property: str
    text: str
    sizes: Sizes
    strides: tuple[tuple[int, int], tuple[int, int]]
    configs: tuple[tuple[str, int], ...] = ()
    multiprocessors: int = COUNTS[0]
    whole: bool = True
    workspace: int = 0  # elements of the largest

    @property
    def is_of_grid(self) -> bool:
        """True if the launch is refused, because an axis of the grid is too long."""
        return self.text.startswith("axis")


@dataclass(slots=True)
class Truth:
    """The false properties of a program, each with its simplest witness; and what was evaluated."""

    false: dict[str, Witness] = field(default_factory=dict)
    calls: int = 0
    unsure: int = 0
    invalid: str = ""


def read_range(text: str) -> tuple[int, int, int]:
    """Return the lowest and the highest size, and the step, of a contract's text."""
    bounds, _, step = text.partition(":")
    low, dots, high = bounds.partition("..")
    if not dots:
        return int(low), int(low), 1
    return int(low or step or 1), int(high) if high else MAX_SIDE, int(step or 1)


def admits(terms: Terms, sizes: Sizes) -> bool:
    """Return whether a contract admits sizes, for dense operands."""
    for n, text in zip(sizes, (terms.M, terms.N, terms.K), strict=True):
        low, high, step = read_range(text)
        if not low <= n <= high or n % step:
            return False
    M, N, K = sizes
    most = HUGE_SPAN if terms.huge else SPAN
    return max(M * K, K * N) <= most and (terms.huge or M * N <= most)


def list_numbers(program: Program) -> list[int]:
    """List the numbers in a program from 1 to 2**20: tiles, thresholds, entries of tables."""
    numbers = {n for _, entries in program.tables for key, n in entries for n in (*key, n)}
    waiting: list[Any] = [program.kernels, program.wrapper]
    while waiting:
        x = waiting.pop()
        if isinstance(x, bool):
            continue
        if isinstance(x, int):
            numbers.add(abs(x))
        elif isinstance(x, tuple):
            waiting += x
        elif isinstance(x, Op):
            waiting += x.args
        elif hasattr(x, "__slots__"):
            waiting += [getattr(x, name) for name in x.__slots__]
    return sorted(n for n in numbers if 1 < n <= 2**20)


def iter_sizes(program: Program) -> Iterator[Sizes]:
    """Yield sizes of which the whole result is evaluated, the smallest first."""
    yield from ((1, 1, 1), (2, 3, 1), (1, 2, 3), (3, 1, 2), (2, 2, 2), (3, 5, 7))
    numbers = list_numbers(program)
    tiles = [n for n in numbers if 16 <= n <= 64]
    for n in tiles:
        yield from ((n, n, n), (n + 1, n + 1, n + 1), (n - 1, 2 * n + 1, 2 * n))
        yield from ((2 * n, n - 1, n + 1), (1, n + 1, 2 * n + 1), (5 * n + 1, 1, 3 * n))
    yield from ((97, 130, 5), (130, 67, 35), (33, 300, 2))
    for key in (key for _, entries in program.tables for key, _ in entries):
        for rest in ((2, 3, 77), (17, 18, 5)):
            names = _find_key(program)
            sizes = {**dict(zip("MNK", rest, strict=True)), **dict(zip(names, key, strict=False))}
            yield sizes["M"], sizes["N"], sizes["K"]
    for n in numbers:
        if n in tiles or n > 8192:
            continue
        for m in (n - 1, n, n + 1):
            yield from ((m, 2, 3), (2, m, 3))
            if n <= 512:
                yield 2, 3, m
        if n > 512:
            yield from ((1, 2, n), (1, 1, n + 1))
    for n in numbers:
        if n in (1000, 2048):
            yield from ((16 * n + 1, 2, 1), (32 * n + 1, 1, 1))
        if n & (n - 1) == 0 and n >= 2**12:  # products of sizes and n that are 0 in 32 bits
            m = 2**32 // n
            yield from ((m, 1, 1), (1, m, 1), (256, m // 256, 1), (256, 4, max(m // 1024, 1)))
            yield 256, 256, max(m // 65536, 1)
    if "multiprocessors" in repr(program):
        yield from ((4545, 33, 1), (33, 4545, 1))


def _find_key(program: Program) -> tuple[str, ...]:
    for x in program.wrapper:
        if hasattr(x, "key"):
            return tuple(str(k) for k in x.key)
    return ()


def iter_far_sizes(program: Program) -> Iterator[Sizes]:
    """Yield sizes of which only the first and last programs, trips and lanes are evaluated."""
    most = MAX_SIDE
    yield from ((32769, 3, 2), (3, 32769, 2), (2, 3, 32769))
    yield from ((most - 1, 2, 5), (2, most - 1, 5), (5, 2, most - 1))
    yield from ((most, 2, 5), (2, most, 5), (5, 2, most), (1, most, 1))
    yield from ((46340, 46340, 2), (20000, 50000, 33), (46340, 3, 46340), (3, 46340, 46340))
    yield from ((most, 32767, 1), (32767, 1, most), (2, most, 32767), (32767, most, 2))
    numbers = [n for n in list_numbers(program) if n & (n - 1) == 0 and n > 64]
    for n in numbers:
        edge = (2**31 - 1) // n
        for m in (edge - 16, edge, edge + 1):
            if 4 < m <= most:
                yield from ((m, 1, 1), (1, m, 1), (1, 1, m))
    for axis in ("M", "N", "K"):
        _, high, _ = read_range(getattr(program.terms, axis))
        if high < most:
            for m in (high - 20, high - 1, high):
                sides = dict.fromkeys("MNK", 2) | {axis: m}
                yield sides["M"], sides["N"], sides["K"]
    if program.terms.huge:
        yield from ((most, most, 1), (most, 3, most), (3, most, most), (most, 40000, 40000))


def iter_strides(terms: Terms, sizes: Sizes, whole: bool) -> Iterator[Any]:
    """Yield the strides of a and b: dense, and if any are admitted padded, transposed and far."""
    M, N, K = sizes
    ways = [((K, 1), (N, 1))]
    most = HUGE_SPAN if terms.huge else SPAN
    if terms.layouts == "any":
        ways += [((1, M), (1, K)), ((K + 3, 1), (1, K + 5))]
        far = [(most - k) // (n - 1) for n, k in ((M, K), (K, N)) if n > 1]
        if not whole and len(far) == 2 and far[0] >= K and far[1] >= N:
            ways.append(((far[0], 1), (far[1], 1)))
    shapes = (M, K), (K, N)
    for way in ways:
        if all(_find_span(*x) <= most for x in zip(shapes, way, strict=True)):
            yield way


def _find_span(shape: tuple[int, int], strides: tuple[int, int]) -> int:
    return 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))


def find_truth(
    program: Program, about: Sequence[str] = (), counts: Sequence[int] = COUNTS
) -> Truth:
    """Evaluate a program at many sizes.

    `about`: the properties that are asked for. Without any, the first false one is enough.
    `counts`: the numbers of multiprocessors that it may run on.
    """
    truth, seen, spent = Truth(), set(), 0
    plans = [(sizes, True) for sizes in iter_sizes(program)]
    plans += [(sizes, False) for sizes in iter_far_sizes(program)]
    for drawn, whole in plans:
        sizes = fit(program.terms, drawn)
        M, N, K = sizes
        elements = M * N + M * K + K * N
        if (sizes, whole) in seen or not admits(program.terms, sizes):
            continue
        if whole and elements > MOST_ELEMENTS:
            continue
        seen.add((sizes, whole))
        for strides, configs, count in _iter_ways(program, whole, sizes, len(seen), counts):
            call = Call(program, dict(zip("MNK", sizes, strict=True)),
                        dict(zip("ab", strides, strict=True)), configs, count, whole)  # fmt: skip
            try:
                call.evaluate()
            except Invalid as why:
                truth.invalid = f"{sizes}: {why}"
                return truth
            except Unsure:
                truth.unsure += 1
            truth.calls += 1
            spent += call.spent
            for name, text in call.outcome.violated.items():
                witness = Witness(
                    name, text, sizes, strides, tuple(configs.items()), count, whole, call.workspace
                )
                held = truth.false.get(name)
                if held is None or _rank(witness) < _rank(held):
                    truth.false[name] = witness
        near = [name for name, x in truth.false.items() if not any(_rank(x))]
        if near and all(name in near for name in about):
            return truth
        if spent > MOST_SPENT:
            break
    return truth


def _rank(x: Witness) -> tuple[bool, bool]:
    return x.workspace > SPAN, x.is_of_grid


MOST_SPENT = 400_000_000  # lanes of all calls of a program


def _iter_ways(
    program: Program, whole: bool, sizes: Sizes, number: int, counts: Sequence[int]
) -> Iterator[Any]:
    """Yield strides, configurations and multiprocessors: every way at small sizes, or else one."""
    ways = [
        (strides, *choice)
        for strides in iter_strides(program.terms, sizes, whole)
        for choice in iter_choices(program, whole, sizes, counts)
    ]
    if max(sizes) <= 3 or not whole:
        yield from ways
    else:
        yield ways[number % len(ways)]
        if len(ways) > 1:
            yield ways[(number * 7 + 3) % len(ways)]


def fit(terms: Terms, sizes: Sizes) -> Sizes:
    """Return sizes moved into the ranges of a contract, by which they are rounded up."""
    fitted = []
    for n, text in zip(sizes, (terms.M, terms.N, terms.K), strict=True):
        low, high, step = read_range(text)
        n = max(low, min(n, high))
        n = -(-n // step) * step
        fitted.append(n if n <= high else high // step * step)
    return fitted[0], fitted[1], fitted[2]


def iter_choices(
    program: Program, whole: bool, sizes: Sizes, counts: Sequence[int]
) -> Iterator[tuple[dict[str, int], int]]:
    """Yield the configuration of each tuner, independently, and counts of multiprocessors."""
    tuned = [kernel for kernel in program.kernels if kernel.configs]
    ways = list(itertools.product(*(range(len(kernel.configs)) for kernel in tuned)))
    if "multiprocessors" not in repr(program) or not whole or max(sizes) <= 3:
        counts = counts[:1]
    for way in ways:
        for count in counts:
            yield {kernel.name: n for kernel, n in zip(tuned, way, strict=True)}, count
