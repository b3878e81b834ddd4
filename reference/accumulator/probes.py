"""Probes: products of a few large and small terms whose results tell how a kernel accumulates.

The methods are those of Fasi, Higham, Mikaitis and Pranesh (PeerJ CS 7:e330, 2021) for widths and
roundings, and of FPRev (Xie et al., USENIX ATC 2025) for the order of a sum: what is added between
+U and -U is absorbed if it is small, so what is left tells where a term joined.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, round_to, widen
from gemmproof.reference.formats import FORMATS

# One shape for every probe, so that a wrapper that chooses its kernel by shape chooses one.
M, N = 128, 64

# Powers of two that every operand format holds, the smallest as fp8e4m3's last subnormal. Large
# products stay in fp16's range, so that they overflow no accumulator; 32 bits lie below them.
LARGE, SMALL = 7, -9
SEEN = 2 * (LARGE - SMALL)


class ProbeError(Exception):
    """The results of a probe cannot be those of a product; the message is one line."""


class Unprobed(Exception):
    """Results of this format tell too little; the message is one line."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A kernel to probe: `product` maps storage arrays (M, K) and (K, N) to one (M, N)."""

    product: Callable[[Array, Array], Array]
    in_format: str
    K: int

    def multiply(self, a: Array, b: Array) -> Array:
        """The float64 values of c for operands of float64 values that in_format holds."""
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
    """For each pair (i, j) and k of `small`: is the term at k absorbed by +U at i and -U at j?

    k is absorbed when it joins the sum before or with the later one of i and j: it is a leaf below
    their lowest common ancestor. At most M - 1 pairs and N terms, of different k; bool
    (pairs, small). Raises ProbeError where a small term alone does not come through.
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
    """How much of a small term beside a large one is kept: `bits` below the large one's exponent.

    `rounding`: "chopped" or "nearest", "other" for what is neither; bits = SEEN: at least that.
    """

    bits: int
    rounding: str


def widths(p: Probed, triples: Sequence[tuple[int, int, int]]) -> list[Width]:
    """For each (e, i, j): the Width of a term at e added after +U at i and before -U at j.

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
    found = []
    for row in range(len(triples)):
        plain = _by_depth(c[2 * row : 2 * row + 2, :size])
        up, down = (
            _by_depth(c[2 * row : 2 * row + 2, size + s * (size - 1) : size + (s + 1) * (size - 1)])
            for s in (0, 1)
        )
        found.append(_width(plain, up, down))
    return found


def _by_depth(c: Array) -> dict[int, float]:
    """Results by i, the term being 2**-i of the large product's power of two."""
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
    """Whether 0 times the largest power of two raises the exponent at which other terms are cut.

    With zero taken as 2**emin, that product hides a term 2**-(bits + 1) as large. None where
    operands or result hold no such term.
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
    """The exponent of the last bit that is kept of terms near zero, of c and products alike.

    2**-149 - 2**-n is cut to 0 as long as the small term counts, and is 2**-149 once it does not.
    None for formats of fewer exponents, and where n from 150 to 170 shows no such change.
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
