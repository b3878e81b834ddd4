"""The order of a sum, read from which terms a pair of large ones absorbs (probes.find_absorbed)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gemmproof.reference.accumulator.probes import N, Probed, find_absorbed

# LEAVES terms are sampled at a time, every other one large and every other one small.
LEAVES = 2 * N


@dataclass(frozen=True, slots=True)
class Sampled:
    """Which leaves are absorbed, leaf x being the term at k = x * spacing.

    `first[x]` are those of the other parity absorbed by the pair of x and the first leaf of its
    parity, `next[x]` by the pair of x and x + 2.
    """

    spacing: int
    first: dict[int, frozenset[int]]
    next: dict[int, frozenset[int]]


def sample(p: Probed, spacing: int) -> Sampled:
    """Two products ask for all pairs. Raises ProbeError."""
    first: dict[int, frozenset[int]] = {}
    after: dict[int, frozenset[int]] = {}
    for parity in (0, 1):
        large, small = range(parity, LEAVES, 2), range(1 - parity, LEAVES, 2)
        firsts = [(large[0], x) for x in large[1:]]
        nexts = [(x, x + 2) for x in large[:-1]]
        pairs = [(i * spacing, j * spacing) for i, j in firsts + nexts]
        found = find_absorbed(p, pairs, [k * spacing for k in small])
        sets = [frozenset(k for k, hit in zip(small, row, strict=True) if hit) for row in found]
        first |= {x: s for (_, x), s in zip(firsts, sets[: len(firsts)], strict=True)}
        after |= {x: s for (x, _), s in zip(nexts, sets[len(firsts) :], strict=True)}
    return Sampled(spacing, first, after)


def is_ordered(seen: Sampled) -> bool:
    """Whether large terms absorb at all: an exact or a much wider accumulator loses nothing."""
    return any(seen.first.values())


def starts(seen: Sampled) -> list[int]:
    """The first k of every sum that starts from zero, [0] for a single chain.

    A pair within such a sum absorbs nothing from before its start.
    """
    return sorted({_start(seen, x) * seen.spacing for x in seen.next})


def outer_starts(seen: Sampled, inner: list[int]) -> list[int]:
    """The same for the sums of those sums: of pairs that lie in different ones."""
    borders = {k // seen.spacing for k in inner[1:]}
    crossing = [x for x in seen.next if {x + 1, x + 2} & borders]
    return sorted({_start(seen, x) * seen.spacing for x in crossing}) or [0]


def _start(seen: Sampled, x: int) -> int:
    return min(seen.next[x] | {x}) // 2 * 2


def steps(seen: Sampled, stop: int) -> list[list[int]]:
    """The leaves before `stop` in the order in which they are added, those added at once together.

    Two leaves of different parity are added at once if each is absorbed by a pair that ends at the
    other. Leaves 0 and 1, which start all pairs, join the earliest.
    """
    inside = [x for x in sorted(seen.first) if x < stop]
    group = {x: {x} for x in inside}
    for x in inside:
        for y in seen.first[x]:
            if y in group and x in seen.first[y] and group[x] is not group[y]:
                group[x] |= group[y]
                for z in group[y]:
                    group[z] = group[x]
    unique = {id(g): g for g in group.values()}.values()

    def place(g: set[int]) -> tuple[float, int]:
        return sum(len(seen.first[x]) for x in g) / len(g), min(g)

    ordered = [sorted(g) for g in sorted(unique, key=place)]
    return [[0, 1, *ordered[0]], *ordered[1:]] if ordered else []


def block(groups: list[list[int]]) -> int | None:
    """How many terms are added at once; None where that varies.

    The first group may be cut short by leaves 0 and 1, the last one by the end of the sample.
    """
    sizes = {len(g) for g in groups[1:-1] or groups[1:] or groups}
    return sizes.pop() if len(sizes) == 1 else None


def intervals(found: list[int]) -> Iterator[int]:
    """Distances of neighbours."""
    yield from (y - x for x, y in pairwise(found))
