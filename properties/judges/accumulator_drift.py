"""The measured drift of an accumulator, and the judge of the declared one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import elements
from gemmproof.properties.contract import MAX_SIDE, ROLES
from gemmproof.properties.finding import Finding
from gemmproof.reference.accumulator import KEPT, SEEN, Accumulator, M, N, format_keeping
from gemmproof.reference.arithmetic import Array, format_of, widen
from gemmproof.reference.bounds import bound_accumulation, bound_rounding
from gemmproof.reference.dot import DotModel, dot_model
from gemmproof.reference.dot.tensor_core import Unit
from gemmproof.reference.formats import FORMATS, FP8

# -- measured drift ------------------------------------------------------------------------------
# Each kind of data has a diagonal block of c to itself: one product measures all of them.
DATA = {
    "positive": "same sign",
    "normal": "zero mean",
    "cancelling": "cancelling",
    "wide": "wide exponents",
}
ROWS, COLUMNS = M // len(DATA), N // len(DATA)


@dataclass(frozen=True, slots=True)
class Measure:
    """Errors at one K on one kind of data, relative to |A||B| (all finite).

    `bias` is the sum of the errors in the direction of c over that of |A||B|: below 0, results are
    too small. `worst` and `bound` are the largest error and the largest allowed error of an
    element, `ratio` the largest error over the bound of that element; Inf for NaN or Inf results.
    """

    K: int
    data: str
    bias: float
    worst: float
    bound: float
    ratio: float


def operands(in_format: str, K: int, seed: int = 0) -> tuple[Array, Array]:
    """Return a (128, K) and b (K, 64) in storage dtypes: rows and columns of each kind of data.

    For tf32 these are fp32 operands of 24 bits, which the kernel is free to truncate.
    """
    a, b = [], []
    dtype = FORMATS[in_format].stored.name
    for kind in DATA:
        case = Case(M=ROWS, N=COLUMNS, K=K, dtype=dtype, fill=kind, seed=seed)
        a.append(elements(case, ROLES["a"], (1, ROWS, K))[0])
        b.append(elements(case, ROLES["b"], (1, K, COLUMNS))[0])
    return np.concatenate(a), np.concatenate(b, axis=1)


def measure(
    product: Callable[[Array, Array], Array],
    in_format: str,
    K: int,
    model: DotModel,
    split: tuple[int, str] = (1, "fp32"),
) -> list[Measure]:
    """Judge one product of 128 x K by K x 64 by the bound of `model`: one Measure per data kind.

    `split`: the number of shares of K that are added up, and the format of that sum.
    """
    a, b = operands(in_format, K)
    c = product(a, b)
    measures = []
    for n, kind in enumerate(DATA):
        rows = slice(n * ROWS, (n + 1) * ROWS)
        columns = slice(n * COLUMNS, (n + 1) * COLUMNS)
        block = c[rows, columns]
        measures.append(_measure(K, kind, a[rows], b[:, columns], block, model, split))
    return measures


def _measure(
    K: int, kind: str, a: Array, b: Array, c: Array, model: DotModel, split: tuple[int, str]
) -> Measure:
    out = format_of(c.dtype)
    acc = bound_accumulation(a, b, model, split_k=split[0], split_format=split[1])
    allowed = bound_rounding(acc, out, FORMATS[model.acc_format]).error
    size = np.abs(widen(a)) @ np.abs(widen(b))
    size = np.where(size > 0, size, 1.0)
    judged = np.isfinite(allowed)  # where the output may not overflow
    if not judged.any():
        return Measure(K, kind, 0.0, 0.0, 0.0, 0.0)
    with np.errstate(all="ignore"):
        error = np.where(judged, widen(c) - acc.exact, 0.0)
        ratio = np.where(error == 0, 0.0, np.abs(error) / allowed)[judged]
    bound = float((allowed / size)[judged].max())
    if not np.isfinite(error).all():
        return Measure(K, kind, 0.0, 0.0, bound, float("inf"))
    bias = float((np.sign(acc.exact) * error).sum() / size[judged].sum())
    worst = float((np.abs(error) / size).max())
    return Measure(K, kind, bias, worst, bound, float(ratio.max()))


def slope(measures: list[Measure], data: str = "positive") -> float | None:
    """Fit the power of K by which the bias grows, by least squares; None for under two biases."""
    points = [(np.log2(m.K), np.log2(abs(m.bias))) for m in measures if m.data == data and m.bias]
    if len(points) < 2:
        return None
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])


# -- declared accumulator ------------------------------------------------------------------------
NAME = "accumulator_as_declared"

# Number of kept bits -> the format that sums are rounded to; fp8 units have fp32's range.
_HELD = {bits: FORMATS[name].stored.name for name, bits in KEPT.items()}
# The split of fp32 operands, by the bits that are then read of them.
_SPLITS = {23: ("tf32x3", "tf32"), 17: ("bf16x3", "bf16"), 24: ("bf16x6", "bf16")}


@dataclass(frozen=True, slots=True)
class Deviation:
    """One way in which a kernel's sums are worse than its contract declares."""

    fault: str
    location: str
    got: str
    expected: str


@dataclass(frozen=True, slots=True)
class Drift:
    """The measured sums of a kernel, and the accumulator that its contract declares.

    `gpu` is the target that was simulated, or the name of the device that launched. `accumulator`
    is None if the results are not products. `slope` is the power of K by which the bias of data of
    one sign grows, for the reader only: the verdict follows from the probes and the bound.
    """

    in_format: str
    gpu: str
    declared: str
    accumulator: Accumulator | None = None
    measures: tuple[Measure, ...] = ()
    slope: float | None = None


def judge(drift: Drift, sizes: tuple[int, ...]) -> Iterator[Finding]:
    """Yield each sum that is worse than declared; a probe's finding has the smallest K measured."""
    assert drift.accumulator is not None
    for deviation in deviations(drift.accumulator, drift.declared, drift.in_format):
        yield state_deviation(deviation, drift, min(sizes))
    worst = max(drift.measures, key=lambda m: m.ratio, default=None)
    if worst is not None and worst.ratio > 1:
        where = f"c at K={worst.K}, {DATA[worst.data]} data"
        got = f"an error of {worst.ratio:.3g} times the bound"
        expected = f"at most the bound of {drift.declared} sums"
        deviation = Deviation("beyond_bound", where, got, expected)
        yield state_deviation(deviation, drift, worst.K, worst.bound)


def state_deviation(
    deviation: Deviation, drift: Drift, K: int, bound: float | None = None
) -> Finding:
    """Format a deviation as a finding."""
    where, got, expected = deviation.location, deviation.got, deviation.expected
    message = f"{where}: got {got}, expected {expected}"
    case = Case(M, N, min(K, MAX_SIDE), drift.in_format)
    more = {"operand": "c", "axis": "K", "got": got, "expected": expected}
    return Finding(NAME, deviation.fault, message, case, bound=bound, **more)


def declared_model(probed: Accumulator, declared: str, in_format: str) -> DotModel:
    """Return the kernel's own order of summation, nowhere with fewer bits than `declared` keeps.

    For the bound: terms are grouped as the probes measured, and only the widths are those
    declared. fp8 units that are too narrow count as promoted, at least after every step.
    """
    kept = KEPT[declared]
    held = max(kept, min(probed.register, probed.downcast_bits or SEEN, KEPT["fp32"]))
    base = dot_model(None, in_format)
    chopped = probed.rounding == "chopped" and probed.register < SEEN
    if probed.block == 1 or (probed.block is None and not chopped):
        acc_format = _HELD.get(held, "fp32")
        promoted = probed.promotion
        return replace(base, acc_format=acc_format, BLOCK_K=promoted, from_zero=promoted > 0)
    # where the number of terms varies: one term at a time is truncated most often
    promoted, L = probed.promotion, probed.block or 1
    width = max(probed.width, kept)
    if narrow_fp8(probed, in_format) and kept > probed.register:
        promoted, held, width = promoted or L, probed.register, probed.width
    rounding = "rne" if probed.rounding == "nearest" or probed.downcast else "rz"
    unit = Unit("fused", L, width, held, rounding)  # type: ignore[arg-type]
    model = replace(
        base,
        unit=unit,
        acc_format=_HELD.get(held, "fp32"),
        order=tuple(k for group in probed.pattern for k in group),
        BLOCK_K=promoted,
        from_zero=promoted > 0,
    )
    if in_format == "fp32" and probed.read in _SPLITS:
        split, piece = _SPLITS[probed.read]
        return replace(model, split=split, as_format=piece)  # type: ignore[arg-type]
    return model


def declared_split(probed: Accumulator, declared: str) -> tuple[int, str]:
    """Return the number of shares of K that the bound allows for, and the format of their sum."""
    bits = max(KEPT[declared], min(probed.split_bits or SEEN, KEPT["fp32"]))
    return probed.split, _HELD.get(bits, "fp32")


def narrow_fp8(probed: Accumulator, in_format: str) -> bool:
    """Return whether the sums are those of the fp8 units of sm_89 and sm_90, which keep 13 bits."""
    return in_format in FP8 and probed.register == KEPT["e8m13"]


def deviations(probed: Accumulator, declared: str, in_format: str) -> list[Deviation]:
    """List where the probed accumulator keeps less than the declared one; more is no fault.

    An fp8 unit of 13 bits is within fp32 if its sums are added to fp32 ones every so many k.
    """
    kept = KEPT[declared]
    low = [
        Deviation(fault, where, _bits(bits), f"{kept} bits ({declared})")
        for fault, where, bits in _list_narrow(probed, in_format, kept)
    ]
    whole = FORMATS[in_format].p
    if probed.read < whole:
        label = "tf32" if probed.read == FORMATS["tf32"].p else probed.reading
        got = f"{probed.read} significant bits ({label})"
        expected = f"all {whole} of {in_format}"
        low.append(Deviation("narrow_operands", "operands", got, expected))
    if probed.output == "truncated":
        got = f"a truncated {probed.out_format}"
        low.append(Deviation("truncated_output", "c", got, "one rounded to nearest"))
    return low


def find_kept(probed: Accumulator, in_format: str) -> int:
    """Return the most bits that a contract may promise of these sums."""
    return next(n for n in range(SEEN, -1, -1) if not _list_narrow(probed, in_format, n))


def _list_narrow(probed: Accumulator, in_format: str, kept: int) -> list[tuple[str, str, int]]:
    """Return the sums that keep fewer bits: the fault, the sum's name, and its bits."""
    sums: list[tuple[str, str, int | None]] = []
    promoted = probed.promotion > 0 and (probed.carried or 0) >= kept
    if not (promoted and narrow_fp8(probed, in_format)):
        every = f"sums of {probed.promotion} k" if probed.promotion else "the sum over k"
        sums.append(("narrow_accumulator", every, probed.register))
    if probed.promotion:
        where = f"the sum of sums of {probed.promotion} k"
        sums.append(("narrow_accumulator", where, probed.carried))
    if probed.downcast:
        where = f"the sum after every {probed.downcast} k"
        sums.append(("downcast_in_loop", where, probed.downcast_bits))
    if probed.split > 1:
        sums.append(("narrow_split", f"the sum of {probed.split} shares of K", probed.split_bits))
    return [(fault, where, n) for fault, where, n in sums if n is not None and n < kept]


def _bits(kept: int) -> str:
    name = format_keeping(kept)
    return f"{kept} bits" if name.endswith("bits") else f"{kept} bits ({name})"
