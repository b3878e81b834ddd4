"""Errors against K: one product of several kinds of data, beside the exact one and its bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import elements
from gemmproof.properties.contract import ROLES
from gemmproof.reference.accumulator import M, N
from gemmproof.reference.arithmetic import Array, format_of, widen
from gemmproof.reference.bounds import bound_accumulation, bound_rounding
from gemmproof.reference.dot import DotModel
from gemmproof.reference.formats import FORMATS

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
    too small. `worst` and `bound` are the largest error and the largest allowed one of an element,
    `ratio` the largest error over the bound of that same element; Inf for NaN or Inf results.
    """

    K: int
    data: str
    bias: float
    worst: float
    bound: float
    ratio: float


def operands(in_format: str, K: int, seed: int = 0) -> tuple[Array, Array]:
    """a (128, K) and b (K, 64) in storage dtypes: rows and columns of each kind of data.

    For tf32 these are fp32 operands of 24 bits, which the kernel is free to cut.
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
    """One product of 128 x K by K x 64, judged by the bound of `model`, one Measure a data kind.

    `split`: how many shares of K are added up, and in which format.
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
    """The power of K that the bias grows with, by least squares; None for fewer than two biases."""
    points = [(np.log2(m.K), np.log2(abs(m.bias))) for m in measures if m.data == data and m.bias]
    if len(points) < 2:
        return None
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])
