"""Drift: error and bias against K, and the accumulator a kernel has against the one it declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from gemmproof.properties.case import Case
from gemmproof.properties.fills import elements
from gemmproof.reference.accumulator.probes import SEEN, M, N
from gemmproof.reference.accumulator.record import KEPT, Accumulator, format_keeping
from gemmproof.reference.bound import accumulated, rounded
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.dot.fdpa import Unit
from gemmproof.reference.formats import FORMATS, Array, format_of, widen

# Each kind of data has a diagonal block of c to itself: one product measures all of them.
DATA = {
    "positive": "same sign",
    "normal": "zero mean",
    "cancelling": "cancelling",
    "wide": "wide exponents",
}
ROWS, COLUMNS = M // len(DATA), N // len(DATA)

# The format that a sum of so many kept bits is rounded to; fp8 units keep theirs in fp32's range.
_HELD = {23: "fp32", 13: "fp32", 10: "fp16", 7: "bf16"}
# What fp32 operands are split into, by the bits that are then read of them.
_SPLITS = {23: ("tf32x3", "tf32"), 17: ("bf16x3", "bf16"), 24: ("bf16x6", "bf16")}


@dataclass(frozen=True, slots=True)
class Measure:
    """Errors of one K on one kind of data, as shares of |A||B| (all finite).

    `bias` is the sum of the errors in the direction of c over that of |A||B|: below 0, results are
    too small. `worst` and `bound` are the largest error and the largest allowed one of an element,
    `ratio` the largest error over the bound of that same element; Inf for NaN or Inf results.
    """

    K: int
    data: str
    bias: float
    worst: float
    bound: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Deviation:
    """One way in which a kernel's sums are worse than its contract says; `message` is one line."""

    fault: str
    message: str
    got: str
    expected: str


def operands(in_format: str, K: int, seed: int = 0) -> tuple[Array, Array]:
    """a (128, K) and b (K, 64) in storage dtypes: rows and columns of each kind of data.

    For tf32 these are fp32 operands of 24 bits, which the kernel is free to cut.
    """
    a, b = [], []
    dtype = "fp32" if in_format == "tf32" else in_format
    for kind in DATA:
        case = Case(M=ROWS, N=COLUMNS, K=K, dtype=dtype, fill=kind, seed=seed)
        a.append(elements(case, "a", (1, ROWS, K))[0])
        b.append(elements(case, "b", (1, K, COLUMNS))[0])
    return np.concatenate(a), np.concatenate(b, axis=1)


def measured(
    product: Callable[[Array, Array], Array],
    in_format: str,
    K: int,
    model: DotModel,
    split: tuple[int, str] = (1, "fp32"),
) -> list[Measure]:
    """One product of 128 x K by K x 64, judged by the bound of `model`, one Measure a data kind.

    split: how many shares of K are joined, and in which format.
    """
    a, b = operands(in_format, K)
    c = product(a, b)
    found = []
    for n, kind in enumerate(DATA):
        rows = slice(n * ROWS, (n + 1) * ROWS)
        columns = slice(n * COLUMNS, (n + 1) * COLUMNS)
        x, y = a[rows], b[:, columns]
        found.append(_measure(K, kind, x, y, c[rows, columns], model, split))
    return found


def _measure(
    K: int, kind: str, a: Array, b: Array, c: Array, model: DotModel, split: tuple[int, str]
) -> Measure:
    out = format_of(c.dtype)
    acc = accumulated(a, b, model, split_k=split[0], split_format=split[1])
    allowed = rounded(acc, out, FORMATS[model.acc_format]).error
    size = np.abs(widen(a)) @ np.abs(widen(b))
    size = np.where(size > 0, size, 1.0)
    judged = np.isfinite(allowed)  # where the output may not overflow
    if not judged.any():
        return Measure(K, kind, 0.0, 0.0, 0.0, 0.0)
    with np.errstate(all="ignore"):
        error = np.where(judged, widen(c) - acc.exact, 0.0)
        ratio = np.where(error == 0, 0.0, np.abs(error) / allowed)[judged]
    if not np.isfinite(error).all():
        return Measure(K, kind, 0.0, 0.0, float((allowed / size)[judged].max()), float("inf"))
    return Measure(
        K,
        kind,
        bias=float((np.sign(acc.exact) * error).sum() / size[judged].sum()),
        worst=float((np.abs(error) / size).max()),
        bound=float((allowed / size)[judged].max()),
        ratio=float(ratio.max()),
    )


def declared_model(found: Accumulator, declared: str, in_format: str) -> DotModel:
    """The kernel's own order of summation, with nowhere fewer bits than `declared` keeps.

    It is for the bound: what is added at once and apart is as found, only the widths are those
    promised. fp8 units that are too narrow are taken to be promoted, at least after every step.
    """
    kept = KEPT[declared]
    held = max(kept, min(found.register, found.downcast_bits or SEEN, KEPT["fp32"]))
    base = dot_model(None, in_format)
    chopped = found.rounding == "chopped" and found.register < SEEN
    if found.block == 1 or (found.block is None and not chopped):
        acc_format = _HELD.get(held, "fp32")
        return replace(base, acc_format=acc_format, BLOCK_K=found.promotion,
                       from_zero=found.promotion > 0)  # fmt: skip
    # where the number of terms varies: one at a time is cut most often
    promoted, L = found.promotion, found.block or 1
    width = max(found.width, kept)
    if narrow_fp8(found, in_format) and kept > found.register:
        promoted, held, width = promoted or L, found.register, found.width
    rounding = "rne" if found.rounding == "nearest" or found.downcast else "rz"
    unit = Unit("fused", L, width, held, rounding)  # type: ignore[arg-type]
    model = replace(
        base,
        unit=unit,
        acc_format=_HELD.get(held, "fp32"),
        order=tuple(k for group in found.pattern for k in group),
        BLOCK_K=promoted,
        from_zero=promoted > 0,
    )
    if in_format == "fp32" and found.read in _SPLITS:
        split, piece = _SPLITS[found.read]
        return replace(model, split=split, as_format=piece)  # type: ignore[arg-type]
    return model


def declared_split(found: Accumulator, declared: str) -> tuple[int, str]:
    """How many shares of K the bound allows for, and the format that joins them."""
    bits = max(KEPT[declared], min(found.split_bits or SEEN, KEPT["fp32"]))
    return found.split, _HELD.get(bits, "fp32")


def narrow_fp8(found: Accumulator, in_format: str) -> bool:
    """Whether the sums are those of the fp8 units of sm_89 and sm_90, which keep 13 bits."""
    return in_format.startswith("fp8") and found.register == KEPT["e8m13"]


def deviations(found: Accumulator, declared: str, in_format: str) -> list[Deviation]:
    """Where the accumulator that probes found keeps less than the declared one; better is no fault.

    An fp8 unit of 13 bits is within fp32 where its sums are added to fp32 ones every so many k.
    """
    kept, low = KEPT[declared], []

    def say(fault: str, where: str, got: int, needed: int, of: str) -> None:
        low.append(
            Deviation(fault, f"{where}: got {_bits(got)}, expected {needed} bits ({of})",
                      _bits(got), f"{needed} bits")
        )  # fmt: skip

    promoted = found.promotion > 0 and (found.carried or 0) >= kept
    if found.register < kept and not (promoted and narrow_fp8(found, in_format)):
        every = f"sums of {found.promotion} k" if found.promotion else "the sum over k"
        say("narrow_accumulator", every, found.register, kept, declared)
    if found.promotion and found.carried is not None and found.carried < kept:
        where = f"the sum of sums of {found.promotion} k"
        say("narrow_accumulator", where, found.carried, kept, declared)
    if found.downcast and found.downcast_bits is not None and found.downcast_bits < kept:
        where = f"the sum after every {found.downcast} k"
        say("downcast_in_loop", where, found.downcast_bits, kept, declared)
    if found.split > 1 and found.split_bits is not None and found.split_bits < kept:
        where = f"the sum of {found.split} shares of K"
        say("narrow_split", where, found.split_bits, kept, declared)
    whole = FORMATS[in_format].p
    if found.read < whole:
        what = "tf32" if found.read == FORMATS["tf32"].p else found.reading
        got = f"{found.read} significant bits ({what})"
        message = f"operands: got {got}, expected all {whole} of {in_format}"
        low.append(Deviation("narrow_operands", message, got, f"{whole} bits"))
    if found.output == "truncated":
        message = f"c: got a truncated {found.out_format}, expected one rounded to nearest"
        low.append(Deviation("truncated_output", message, "truncated", "nearest"))
    return low


def beyond_bound(measures: list[Measure], declared: str) -> list[Deviation]:
    """The worst error that exceeds the bound of `declared` sums, if any does."""
    worst = max(measures, key=lambda m: m.ratio, default=None)
    if worst is None or worst.ratio <= 1:
        return []
    where = f"c at K={worst.K}, {DATA[worst.data]} data"
    got = f"an error of {worst.ratio:.3g} times the bound"
    expected = f"at most the bound of {declared} sums"
    return [Deviation("beyond_bound", f"{where}: got {got}, expected {expected}", got, expected)]


def slope(measures: list[Measure], data: str = "positive") -> float | None:
    """The power of K that the bias grows with, by least squares; None for fewer than two biases."""
    points = [(np.log2(m.K), np.log2(abs(m.bias))) for m in measures if m.data == data and m.bias]
    if len(points) < 2:
        return None
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])


def _bits(kept: int) -> str:
    name = format_keeping(kept)
    return f"{kept} bits" if name.endswith("bits") else f"{kept} bits ({name})"
