"""The accumulator of a tensor core, inferred from probes of its sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from gemmproof.reference.arithmetic import Array, format_of, round_to, widen
from gemmproof.reference.formats import ACCUMULATORS, FORMATS

# -- probes --------------------------------------------------------------------------------------
# One shape for every probe, so that a wrapper that picks kernels by shape picks a single one.
M, N = 128, 64

# Powers of two that every operand format holds, the smallest as fp8e4m3's last subnormal. Large
# products stay in fp16's range, so that they overflow no accumulator; 32 bits lie below them.
LARGE, SMALL = 7, -9
SEEN = 2 * (LARGE - SMALL)


class ProbeError(Exception):
    """The results of a probe cannot be those of a product; the message is one line."""


class NotMeasurable(Exception):
    """Results of this format are too coarse to probe; the message is one line."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A kernel to probe: `product` maps storage arrays (M, K) and (K, N) to one (M, N)."""

    product: Callable[[Array, Array], Array]
    in_format: str
    K: int

    def multiply(self, a: Array, b: Array) -> Array:
        """Return the float64 values of c for operands of float64 values that in_format holds."""
        fmt = FORMATS[self.in_format]
        held = [round_to(x, fmt.stored) for x in (a, b)]
        for name, wide, x in zip("ab", (a, b), held, strict=True):
            if not np.array_equal(widen(x), wide):
                raise ValueError(f"probe {name}: got values beyond {fmt.name}, expected exact ones")
        c = self.product(*held)
        if c.shape != (M, N):
            raise ProbeError(f"result: got shape {c.shape}, expected {(M, N)}")
        return widen(c)

    def blank(self) -> tuple[Array, Array]:
        """Operands of zeros, float64."""
        return np.zeros((M, self.K)), np.zeros((self.K, N))


def find_absorbed(p: Probed, pairs: Sequence[tuple[int, int]], small: Sequence[int]) -> Array:
    """Return, for each pair (i, j), which k of `small` are absorbed by +U at i and -U at j.

    k is absorbed when it joins the sum before or with the later one of i and j: it is a leaf below
    their lowest common ancestor. At most M - 1 pairs and N terms, of different k; bool
    (pairs, small). Raises ProbeError if a small term alone is lost.
    """
    a, b = p.blank()
    tiny = 2.0**SMALL
    for row, (i, j) in enumerate(pairs):
        a[row, list(small)] = tiny
        a[row, i], a[row, j] = 2.0**LARGE, -(2.0**LARGE)
        b[[i, j]] = 2.0**LARGE
    a[M - 1, list(small)] = tiny
    b[list(small), range(len(small))] = tiny
    c = p.multiply(a, b)[:, : len(small)]
    if not (c[M - 1] == tiny**2).all():
        got = c[M - 1][c[M - 1] != tiny**2][0]
        raise ProbeError(f"result: got {got:g} for a single term of {tiny**2:g}, expected that")
    return np.asarray(c[: len(pairs)] == 0)


@dataclass(frozen=True, slots=True)
class Width:
    """The bits kept of a small term added to a large one: `bits` below the large one's exponent.

    `rounding`: "chopped" or "nearest", "other" for neither; bits = SEEN: at least that.
    """

    bits: int
    rounding: str


def widths(p: Probed, triples: Sequence[tuple[int, int, int]]) -> list[Width]:
    """Return, for each (e, i, j), the Width of a term at e added after +U at i, before -U at j.

    At most M / 2 triples; no e may be an i or j of another triple. U is 1.5 times a power of two,
    so that sums just above and just below it lie on one grid.
    """
    a, b = p.blank()
    exponents = np.arange(LARGE, SMALL - 1, -1)
    size = len(exponents)
    columns = np.concatenate([2.0**exponents, *(s * 2.0 ** exponents[:-1] for s in (1.5, -1.5))])
    for row, (e, i, j) in enumerate(triples):
        for half, scale in enumerate((LARGE, SMALL)):
            at = 2 * row + half
            a[at, e] = 2.0**scale
            a[at, i], a[at, j] = 1.5 * 2.0**LARGE, -1.5 * 2.0**LARGE
        b[[i, j]] = 2.0**LARGE
        b[e, : len(columns)] = columns
    c = p.multiply(a, b)
    results = []
    for row in range(len(triples)):
        plain = _by_depth(c[2 * row : 2 * row + 2, :size])
        up, down = (
            _by_depth(c[2 * row : 2 * row + 2, size + s * (size - 1) : size + (s + 1) * (size - 1)])
            for s in (0, 1)
        )
        results.append(_width(plain, up, down))
    return results


def _by_depth(c: Array) -> dict[int, float]:
    """Return results by i, the term being 2**-i of the large product's power of two."""
    depths: dict[int, float] = {}
    for half, scale in enumerate((LARGE, SMALL)):
        for n, value in enumerate(c[half]):
            depths.setdefault(2 * LARGE - scale - (LARGE - n), float(value))
    return depths


def _width(plain: dict[int, float], up: dict[int, float], down: dict[int, float]) -> Width:
    top = 2.0 ** (2 * LARGE)
    bits = 0
    while bits < SEEN and plain[bits + 1] == top * 2.0 ** -(bits + 1):
        bits += 1
    if bits + 1 not in up:
        return Width(bits, "none")
    q = top * 2.0**-bits
    # three quarters of the last place, added and subtracted
    kinds = {(0.0, 0.0): "chopped", (0.0, -q): "chopped", (q, -q): "nearest"}
    return Width(bits, kinds.get((up[bits + 1], down[bits + 1]), "other"))


def zero_raises_exponent(p: Probed, bits: int) -> bool | None:
    """Return whether 0 times the largest power of two raises the exponent that cuts other terms.

    With zero taken as 2**emin, that product hides a term 2**-(bits + 1) as large. None if operands
    or result hold no such term.
    """
    fmt = FORMATS[p.in_format]
    e = fmt.emin + fmt.emax - bits - 1
    of_a = max(e // 2, fmt.emin)
    if e - of_a < fmt.emin:
        return None
    a, b = p.blank()
    a[0, 1] = 2.0**of_a
    b[0, 0] = 2.0**fmt.emax
    b[1, :2] = 2.0 ** (e - of_a)
    c = p.multiply(a, b)[0, :2]
    return bool(c[0] != 2.0**e) if c[1] == 2.0**e else None


def last_place_near_zero(p: Probed) -> int | None:
    """Return the exponent of the last bit that is kept of terms near zero, of c and products alike.

    2**-149 - 2**-n is cut to 0 as long as the small term counts, and is 2**-149 once it does not.
    None for formats of fewer exponents, and if n from 150 to 170 shows no such change.
    """
    fmt = FORMATS[p.in_format]
    if fmt.emin > -126:
        return None
    a, b = p.blank()
    steps = range(150, 171)
    for row, n in enumerate(steps):
        a[row, :2] = (2.0**-23, -(2.0 ** (126 - n)))
    b[:2] = 2.0**-126
    c = p.multiply(a, b)[: len(steps), 0]
    lost = np.flatnonzero(c == 2.0**-149)
    seen = np.flatnonzero(c == 0)
    if not len(lost) or not len(seen) or lost[0] != len(seen):
        return None
    return -int(steps[int(lost[0])]) + 1


# -- records -------------------------------------------------------------------------------------
# Bits kept below the leading one, by the format that keeps them.
KEPT = {name: FORMATS[name].p - 1 for name in ACCUMULATORS}


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The accumulation of a kernel, inferred from its results.

    Widths are bits kept below the leading bit of the larger term: `width` while terms are added at
    once, `register` from one such step to the next, rounded by `rounding` ("chopped", "nearest").
    `block`: terms added at once, None if that varies; `order` of k: "ascending", "permuted"
    (`pattern` is the groups of k in order) or "unknown". `promotion`: the number of k that are
    summed from zero and added to a sum that keeps `carried` bits (0: never). `split`: the number of
    sums that the whole K is divided into, joined in `split_bits`. `downcast`: the number of k after
    which the sum is rounded to `downcast_bits` (0: never). `read`, `reading`: significant bits of
    the operands that count, and how others are lost. `output`: the rounding of c to `out_format`.
    `zero_products`: True if 0 times a large number hides small terms; `last_place`: the exponent of
    the last bit kept near zero. None: could not be determined.
    """

    in_format: str
    out_format: str
    read: int
    reading: str
    block: int | None
    order: str
    width: int
    register: int
    rounding: str
    pattern: tuple[tuple[int, ...], ...] = ()
    promotion: int = 0
    carried: int | None = None
    split: int = 1
    split_bits: int | None = None
    downcast: int = 0
    downcast_bits: int | None = None
    output: str = "none"
    zero_products: bool | None = None
    last_place: int | None = None
    derived: ClassVar[tuple[str, ...]] = ("name",)  # written with the fields

    @property
    def name(self) -> str:
        """A short description: the format, the unit, and the treatment of the sums around it."""
        parts = [self._base()]
        if self.promotion:
            what = "promoted" if self.register < (self.carried or 0) else "summed apart"
            parts.append(f"{what} every {self.promotion}")
        if self.split > 1:
            parts.append(f"split-K of {self.split} in {format_keeping(self.split_bits)}")
        if self.downcast:
            parts.append(f"rounded to {format_keeping(self.downcast_bits)} every {self.downcast}")
        if self.order == "permuted":
            parts.append("k permuted")
        if self.output == "truncated":
            parts.append("c truncated")
        return ", ".join(parts)

    def _base(self) -> str:
        if self.register >= SEEN:
            return f"wider than {SEEN} bits"
        kept = format_keeping(self.register)
        if kept == "e8m13":
            kept = "fp8"
        whole = FORMATS[self.in_format].stored.p
        if self.read < whole:
            kept = "tf32" if self.read == FORMATS["tf32"].p else f"{kept} of {self.read}-bit inputs"
            if self.read == FORMATS["tf32"].p and self.register != KEPT["fp32"]:
                kept += f" in {format_keeping(self.register)}"
        if self.block == 1 and self.rounding == "nearest":
            return f"{kept} fma chain"
        L = "varies" if self.block is None else self.block
        return f"{kept} tensor core F={self.width} L={L}"


def format_keeping(bits: int | None) -> str:
    """Return the format that keeps so many bits below the leading one, or the number of bits."""
    if bits is None:
        return "unknown bits"
    return next((name for name, kept in KEPT.items() if kept == bits), f"{bits} bits")


# -- summation order -----------------------------------------------------------------------------
# LEAVES terms are sampled at a time, every other one large and every other one small.
LEAVES = 2 * N


@dataclass(frozen=True, slots=True)
class Sampled:
    """The absorbed leaves, leaf x being the term at k = x * spacing.

    `first[x]` are those of the other parity absorbed by the pair of x and the first leaf of its
    parity, `next[x]` by the pair of x and x + 2.
    """

    spacing: int
    first: dict[int, frozenset[int]]
    next: dict[int, frozenset[int]]


def sample(p: Probed, spacing: int) -> Sampled:
    """Probe all pairs by two products. Raises ProbeError."""
    first: dict[int, frozenset[int]] = {}
    after: dict[int, frozenset[int]] = {}
    for parity in (0, 1):
        large, small = range(parity, LEAVES, 2), range(1 - parity, LEAVES, 2)
        firsts = [(large[0], x) for x in large[1:]]
        nexts = [(x, x + 2) for x in large[:-1]]
        pairs = [(i * spacing, j * spacing) for i, j in firsts + nexts]
        absorbed = find_absorbed(p, pairs, [k * spacing for k in small])
        sets = [frozenset(k for k, hit in zip(small, row, strict=True) if hit) for row in absorbed]
        first |= {x: s for (_, x), s in zip(firsts, sets[: len(firsts)], strict=True)}
        after |= {x: s for (x, _), s in zip(nexts, sets[len(firsts) :], strict=True)}
    return Sampled(spacing, first, after)


def is_ordered(seen: Sampled) -> bool:
    """Return whether large terms absorb any: an exact or much wider accumulator loses nothing."""
    return any(seen.first.values())


def starts(seen: Sampled) -> list[int]:
    """Return the first k of every sum that starts from zero, [0] for a single chain.

    A pair within such a sum absorbs nothing from before its start.
    """
    return sorted({_start(seen, x) * seen.spacing for x in seen.next})


def outer_starts(seen: Sampled, inner: list[int]) -> list[int]:
    """Return the starts of the sums of those sums, from pairs that lie in different ones."""
    borders = {k // seen.spacing for k in inner[1:]}
    crossing = [x for x in seen.next if {x + 1, x + 2} & borders]
    return sorted({_start(seen, x) * seen.spacing for x in crossing}) or [0]


def _start(seen: Sampled, x: int) -> int:
    return min(seen.next[x] | {x}) // 2 * 2


def steps(seen: Sampled, stop: int) -> list[list[int]]:
    """Return the leaves before `stop` in the order of addition, those added at once together.

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

    def position(g: set[int]) -> tuple[float, int]:
        return sum(len(seen.first[x]) for x in g) / len(g), min(g)

    ordered = [sorted(g) for g in sorted(unique, key=position)]
    return [[0, 1, *ordered[0]], *ordered[1:]] if ordered else []


def block(groups: list[list[int]]) -> int | None:
    """Return the number of terms that are added at once, or None if it varies.

    The first group may be cut short by leaves 0 and 1, the last one by the end of the sample.
    """
    sizes = {len(g) for g in groups[1:-1] or groups[1:] or groups}
    return sizes.pop() if len(sizes) == 1 else None


def intervals(starts: list[int]) -> Iterator[int]:
    """Yield the distances of neighbours."""
    yield from (y - x for x, y in pairwise(starts))


# -- operand probes ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Reading:
    """The reading of operands: significant bits that count, and how the others are lost.

    `rounding`: "none" (all bits count), "truncated", "nearest" or "away" (half away from zero).
    """

    bits: int
    rounding: str


def probe_operands(p: Probed) -> Reading:
    """Measure what is left of 1 + 2**-n, and of 1 + 2**-j + 2**-n, when 1 and 2**-j are subtracted.

    The operand of which less is left counts. The second kind is for splits, which read a few bits
    at any depth.
    """
    P = FORMATS[p.in_format].stored.p
    steps = range(1, P)
    rows = [(n, j) for j in (0, 9, 12) for n in steps if j == 0 or n > j]
    halves = [(n, n + 1) for n in steps if n + 1 < P]
    a, b = p.blank()
    b[:3, 0] = 1
    for row, (n, j) in enumerate(rows):
        a[row, :3] = (1 + (2.0**-j if j else 0) + 2.0**-n, -1, -(2.0**-j) if j else 0)
    for row, (n, m) in enumerate(halves, len(rows)):
        a[row, :2] = (1 + 2.0**-n + 2.0**-m, -1)
    a[M - 1, :2] = (1, -1)
    columns = [1 + 2.0**-n for n in steps] + [1 + 2.0**-n + 2.0**-m for n, m in halves]
    b[0, 1 : 1 + len(columns)], b[1, 1:] = columns, 1
    c = p.multiply(a, b)
    kept_a = {(n, j): c[row, 0] == 2.0**-n for row, (n, j) in enumerate(rows)}
    kept_b = {n: c[M - 1, n] == 2.0**-n for n in steps}
    bits = 1
    while bits < P and kept_b[bits] and all(kept_a.get((bits, j), True) for j in (0, 9, 12)):
        bits += 1
    if bits == P:
        return Reading(P, "none")
    if bits + 1 >= P:
        return Reading(bits, "other")
    last, rest = 2.0 ** (1 - bits), halves.index((bits, bits + 1))
    more = (float(c[len(rows) + rest, 0]), float(c[M - 1, len(steps) + 1 + rest]))
    tie = (float(c[rows.index((bits, 0)), 0]), float(c[M - 1, bits]))
    kinds = {
        ((0.0,) * 2, (0.0,) * 2): "truncated",
        ((last,) * 2, (0.0,) * 2): "nearest",
        ((last,) * 2, (last,) * 2): "away",
    }
    return Reading(bits, kinds.get((more, tie), "other"))


def probe_output(p: Probed, bits: int) -> str:
    """Return the rounding of c to `bits` significant bits: "nearest", "truncated", "away", "other".

    Also "other" if one more bit is kept, or if nothing wider is rounded.
    """
    q = 2.0 ** (1 - bits)
    a, b = p.blank()
    # 1 + half, 1 + q + half, 1 + three quarters, and their negatives; by terms of two bits
    for row, (whole, part) in enumerate(((0, 2), (1, 2), (0, 3))):
        for sign in (1, -1):
            a[2 * row + (sign < 0), :3] = np.array([1, whole, part]) * sign
    b[0], b[1], b[2] = 1, 2.0**-4, 2.0**-4
    scale = q * 2.0**4
    a[:, 1] *= scale
    a[:, 2] *= scale / 4
    c = p.multiply(a, b)[:6, 0]
    kinds = {
        (1, 1 + 2 * q, 1 + q): "nearest",
        (1, 1 + q, 1): "truncated",
        (1 + q, 1 + 2 * q, 1 + q): "away",
    }
    plus, minus = tuple(c[::2]), tuple(-c[1::2])
    return kinds.get(plus, "other") if plus == minus else "other"


# -- inference of an accumulator -----------------------------------------------------------------
PROBE_K = 2048


@dataclass(frozen=True, slots=True)
class Sums:
    """The starts of sums from zero: every `part` k (0: nowhere else), in `split` shares of K."""

    part: int
    split: int
    part_starts: tuple[int, ...] = (0,)
    split_starts: tuple[int, ...] = (0,)
    interleaved: bool = False


def infer_accumulator(
    product: Callable[[Array, Array], Array], in_format: str, K: int = PROBE_K
) -> Accumulator:
    """Infer the accumulator of product(a, b) -> c on storage arrays (128, K), (K, 64) -> (128, 64).

    It takes about ten products. in_format: "tf32" is fp32 operands. Raises ValueError for
    integers, whose sums are exact, ProbeError if c cannot be a product, and
    NotMeasurable if its format is too coarse.
    """
    if in_format not in FORMATS or FORMATS[in_format].kind != "float":
        raise ValueError(f"in_format: got {in_format!r}, expected a float format")
    if K % (4 * LEAVES):
        raise ValueError(f"K: got {K}, expected a multiple of {4 * LEAVES}")
    p = Probed(product, in_format, K)
    out = _out_format(p)
    read = probe_operands(p)
    fine, coarse = sample(p, 1), sample(p, K // LEAVES)
    bits = FORMATS[out].p
    if not is_ordered(coarse):
        output = probe_output(p, bits) if bits <= FORMATS["fp16"].p else "none"
        return Accumulator(
            in_format, out, read.bits, read.rounding, None, "unknown", SEEN, SEEN, "none",
            output=output,
        )  # fmt: skip
    sums = _sums(p, starts(fine), coarse)
    stop = min(sums.part or LEAVES, LEAVES)
    groups = steps(fine, stop)
    flat = [k for group in groups for k in group]
    ascending = flat == sorted(flat)
    inside, register, fallen = _registers(p, groups, stop, sums)
    carried, joined = _find_merged(p, sums)
    if carried is None and sums.part and sums.split == 1:
        carried = register
    L = block(groups)
    kept = register or inside
    if kept is None:
        raise ProbeError("result: got no width, expected terms that are added one after the other")
    width = (inside or kept).bits
    low = fallen[1] if fallen else None
    whole = out != "fp32" and min(kept.bits, low.bits if low else SEEN) >= bits + 1
    fused = L is not None and L > 1
    return Accumulator(
        in_format,
        out,
        read.bits,
        read.rounding,
        L,
        "ascending" if ascending else "permuted",
        width,
        kept.bits,
        kept.rounding,
        pattern=() if ascending else _find_repeated(groups),
        promotion=0 if sums.interleaved else sums.part,
        carried=carried.bits if carried else None,
        split=sums.split,
        split_bits=joined.bits if joined else None,
        downcast=fallen[0] if fallen else 0,
        downcast_bits=low.bits if low else None,
        output=probe_output(p, bits) if whole else "none",
        zero_products=zero_raises_exponent(p, width) if fused else None,
        last_place=last_place_near_zero(p) if fused and out == "fp32" else None,
    )


def _out_format(p: Probed) -> str:
    c = p.product(*(np.zeros(s, FORMATS[p.in_format].storage) for s in ((M, p.K), (p.K, N))))
    out = format_of(c.dtype)
    if c.shape != (M, N):
        raise ProbeError(f"result: got shape {c.shape}, expected {(M, N)}")
    least = FORMATS["fp16"]
    if out.kind != "float" or out.eta > least.eta or out.emax < least.emax:
        raise NotMeasurable(
            f"result: got {out.name}, expected fp16, bf16, fp32 or fp64 to probe with"
        )
    return out.name


def _find_repeated(groups: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the first groups, until they cover every k below some number."""
    covered: set[int] = set()
    for n, group in enumerate(groups, 1):
        covered |= set(group)
        if max(covered) == len(covered) - 1:
            return tuple(tuple(g) for g in groups[:n])
    return tuple(tuple(g) for g in groups)


def _sums(p: Probed, near: list[int], coarse: Sampled) -> Sums:
    """Return parts and shares of K, from the starts of sums near k = 0 and over all of K."""
    inner, outer = _levels(near, coarse)
    if len(inner) == 1:
        return Sums(0, 1)
    part = inner[1] - inner[0]
    if inner is not near and (len(set(intervals(inner))) != 1 or inner[-1] + part < p.K):
        return Sums(part, len(inner), tuple(inner), tuple(inner), interleaved=True)
    # In half of K, starts that divide K stay as many; starts at fixed intervals are half as many.
    half = Probed(p.product, p.in_format, p.K // 2)
    fewer, apart = _levels(near, sample(half, half.K // LEAVES))
    if inner is not near and len(fewer) == len(inner):
        return Sums(0, len(inner), (0,), tuple(inner))
    if len(outer) > 1 and len(apart) == len(outer):
        return Sums(part, len(outer), tuple(inner), tuple(outer))
    return Sums(part, 1, tuple(outer if len(outer) > 2 else inner), (0,))


def _levels(near: list[int], coarse: Sampled) -> tuple[list[int], list[int]]:
    """Return the starts of the innermost sums, and of the sums of those."""
    far = starts(coarse)
    # a coarse pair lies within one sum only if that is two pairs long
    if len(near) > 1 and near[1] < 4 * coarse.spacing:
        return near, far
    return far, outer_starts(coarse, far)


def _registers(
    p: Probed, groups: list[list[int]], stop: int, sums: Sums
) -> tuple[Width | None, Width | None, tuple[int, Width] | None]:
    """Return widths within steps and between them, and the k and width where the latter drop."""
    step_of = {k: n for n, group in enumerate(groups) for k in group}
    near = [(x + 1, x, x + 2) for x in range(0, LEAVES - 2, 2)]
    inside, between = [], {}
    for (e, i, j), width in zip(near, widths(p, near), strict=True):
        if j >= stop:
            continue
        early, late = sorted((step_of[i], step_of[j]))
        if step_of[e] == late or (step_of[e] < late and early == late):
            inside.append(width)
        elif step_of[e] < late:
            between[j] = width
    pair = 2 * p.K // LEAVES
    far = [(k + 1, k, k + pair) for k in range(0, p.K - pair, pair)]
    apart = _borders(sums, p.K)
    distant = {
        j: width
        for (_, i, j), width in zip(far, widths(p, far), strict=True)
        if not any(i < k <= j for k in apart)
    }
    everywhere = [*between.values(), *distant.values()]
    within = _least(inside)
    if not everywhere:
        return within, None, None
    top = max(everywhere, key=lambda w: w.bits)
    fallen = _falls(between, distant, top.bits)
    if fallen:
        top = max(between.values() or everywhere, key=lambda w: w.bits)
    return within, top, fallen


def _falls(
    between: dict[int, Width], distant: dict[int, Width], top: int
) -> tuple[int, Width] | None:
    """Return the k after which the sum loses bits that it keeps between steps, and that width."""
    lowest = _least([w for w in (*between.values(), *distant.values()) if w.bits < top])
    if lowest is None:
        return None
    low_near = [k for k, w in between.items() if w.bits < top]
    low_far = [k for k, w in distant.items() if w.bits < top]
    low = low_far if 0 < len(low_far) < len(distant) else low_near
    return min(intervals([0, *low])), lowest


def _borders(sums: Sums, K: int) -> list[int]:
    """Return every k at which another partial sum begins."""
    step = sums.part or (K if sums.split == 1 else sums.split_starts[1])
    return list(range(step, K, step))


def _find_merged(p: Probed, sums: Sums) -> tuple[Width | None, Width | None]:
    """Return widths in which parts are added to one another, and in which shares of K are."""
    carried = joined = None
    parts = [k for k in sums.part_starts if len(sums.split_starts) < 2 or k < sums.split_starts[1]]
    if not sums.interleaved and len(parts) > 2:
        carried = _least(widths(p, _triples(parts)))
    if sums.split > 1:
        joined = _least(widths(p, _triples(sums.split_starts)))
    return carried, joined


def _triples(firsts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return terms of three sums, each in turn small: in any order, one of them is not the last."""
    if len(firsts) == 2:
        return [(firsts[0] + 1, firsts[0], firsts[1])]
    x, y, z = firsts[:3]
    return [(x + 1, y, z), (y + 1, z, x), (z + 1, x, y)]


def _least(candidates: list[Width]) -> Width | None:
    return min(candidates, key=lambda w: w.bits) if candidates else None
