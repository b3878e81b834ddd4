"""Probes of the roundings at both ends: of operands as they are read, of the result as stored."""

from dataclasses import dataclass

import numpy as np

from gemmproof.reference.accumulator.probes import M, Probed
from gemmproof.reference.formats import FORMATS


@dataclass(frozen=True, slots=True)
class Reading:
    """How operands are read: significant bits that count, and how the others are lost.

    `rounding`: "none" (all bits count), "truncated", "nearest" or "away" (half away from zero).
    """

    bits: int
    rounding: str


def probe_operands(p: Probed) -> Reading:
    """What is left of 1 + 2**-n, and of 1 + 2**-j + 2**-n, when 1 and 2**-j are subtracted again.

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
    """How c is rounded to `bits` significant bits: "nearest", "truncated", "away" or "other".

    "other" too where one more bit comes through, or nothing wider is there to be rounded.
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
