"""Infers a kernel's accumulator from its results alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gemmproof.reference.accumulator.operand_probes import probe_operands, probe_output
from gemmproof.reference.accumulator.probes import (
    SEEN,
    M,
    N,
    Probed,
    ProbeError,
    Unprobed,
    Width,
    last_place_near_zero,
    widths,
    zero_raises_exponent,
)
from gemmproof.reference.accumulator.record import Accumulator
from gemmproof.reference.accumulator.summation_order import (
    LEAVES,
    Sampled,
    block,
    intervals,
    is_ordered,
    outer_starts,
    sample,
    starts,
    steps,
)
from gemmproof.reference.arithmetic.conversions import Array, format_of
from gemmproof.reference.formats import FORMATS

PROBE_K = 2048


@dataclass(frozen=True, slots=True)
class Sums:
    """Where sums start from zero: every `part` k (0: nowhere else), in `split` shares of K."""

    part: int
    split: int
    part_starts: tuple[int, ...] = (0,)
    split_starts: tuple[int, ...] = (0,)
    interleaved: bool = False


def infer_accumulator(
    product: Callable[[Array, Array], Array], in_format: str, K: int = PROBE_K
) -> Accumulator:
    """The accumulator of product(a, b) -> c on storage arrays (128, K), (K, 64) -> (128, 64).

    It takes about ten products. in_format: "tf32" is fp32 operands. Raises ValueError for
    integers, whose sums are exact, ProbeError where c cannot be a product, and Unprobed where its
    format is too coarse.
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
    found = register or inside
    if found is None:
        raise ProbeError("result: got no width, expected terms that are added one after the other")
    width = (inside or found).bits
    low = fallen[1] if fallen else None
    whole = out != "fp32" and min(found.bits, low.bits if low else SEEN) >= bits + 1
    fused = L is not None and L > 1
    return Accumulator(
        in_format,
        out,
        read.bits,
        read.rounding,
        L,
        "ascending" if ascending else "permuted",
        width,
        found.bits,
        found.rounding,
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
        raise Unprobed(f"result: got {out.name}, expected fp16, bf16, fp32 or fp64 to probe with")
    return out.name


def _find_repeated(groups: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    """The first groups, up to where they have taken every k below some number."""
    taken: set[int] = set()
    for n, group in enumerate(groups, 1):
        taken |= set(group)
        if max(taken) == len(taken) - 1:
            return tuple(tuple(g) for g in groups[:n])
    return tuple(tuple(g) for g in groups)


def _sums(p: Probed, near: list[int], coarse: Sampled) -> Sums:
    """Parts and shares of K, from where sums start near k = 0 and over all of K."""
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
    """Where the innermost sums start, and the sums of those."""
    far = starts(coarse)
    # a coarse pair lies within one sum only if that is two pairs long
    if len(near) > 1 and near[1] < 4 * coarse.spacing:
        return near, far
    return far, outer_starts(coarse, far)


def _registers(
    p: Probed, groups: list[list[int]], stop: int, sums: Sums
) -> tuple[Width | None, Width | None, tuple[int, Width] | None]:
    """Widths within steps and from step to step, and after how many k the latter drop, to what."""
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
    """After how many k the sum loses bits that it keeps from step to step, and the width then."""
    lowest = _least([w for w in (*between.values(), *distant.values()) if w.bits < top])
    if lowest is None:
        return None
    low_near = [k for k, w in between.items() if w.bits < top]
    low_far = [k for k, w in distant.items() if w.bits < top]
    low = low_far if 0 < len(low_far) < len(distant) else low_near
    return min(intervals([0, *low])), lowest


def _borders(sums: Sums, K: int) -> list[int]:
    """Every k at which another partial sum takes over."""
    step = sums.part or (K if sums.split == 1 else sums.split_starts[1])
    return list(range(step, K, step))


def _find_merged(p: Probed, sums: Sums) -> tuple[Width | None, Width | None]:
    """Widths in which parts are added to one another, and in which shares of K are."""
    carried = joined = None
    parts = [k for k in sums.part_starts if len(sums.split_starts) < 2 or k < sums.split_starts[1]]
    if not sums.interleaved and len(parts) > 2:
        carried = _least(widths(p, _triples(parts)))
    if sums.split > 1:
        joined = _least(widths(p, _triples(sums.split_starts)))
    return carried, joined


def _triples(found: Sequence[int]) -> list[tuple[int, int, int]]:
    """Terms of three sums, each in turn the small one: whatever the order, one is not the last."""
    if len(found) == 2:
        return [(found[0] + 1, found[0], found[1])]
    x, y, z = found[:3]
    return [(x + 1, y, z), (y + 1, z, x), (z + 1, x, y)]


def _least(found: list[Width]) -> Width | None:
    return min(found, key=lambda w: w.bits) if found else None
