"""Float arithmetic: one rounding, and the device's one NaN."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmproof.reference.formats import FORMATS
from gemmproof.reference.simulator.ops.registry import elementwise, operation
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.module import Op

Function = Callable[[np.ndarray, np.ndarray], np.ndarray]


CANONICAL = {
    f.storage: f.nan
    for f in FORMATS.values()
    if f.kind == "float" and f.stored is f and not f.is_fp8
}
_FLOAT: dict[str, tuple[Function, str]] = {
    "arith.addf": (np.add, "+"),
    "arith.subf": (np.subtract, "-"),
    "arith.mulf": (np.multiply, "*"),
    "arith.divf": (np.true_divide, "/"),
    "tt.precise_divf": (np.true_divide, "/"),
    "tt.approx_divf": (np.true_divide, "/"),
    "arith.minnumf": (lambda x, y: least(np.fmin, x, y), ""),
    "arith.maxnumf": (lambda x, y: greatest(np.fmax, x, y), ""),
    "arith.minimumf": (lambda x, y: least(np.minimum, x, y), ""),
    "arith.maximumf": (lambda x, y: greatest(np.maximum, x, y), ""),
}


def least(function: Function, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The smaller number; -0 is smaller than 0."""
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, np.where(np.signbit(x), x, y), function(x, y))


def greatest(function: Function, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The larger number; 0 is larger than -0."""
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, np.where(np.signbit(x), y, x), function(x, y))


def canonical(data: np.ndarray) -> np.ndarray:
    """The same numbers with the device's one NaN, whatever the operands' were."""
    if data.dtype in CANONICAL:
        nan = np.isnan(data)
        if nan.any():
            data = np.where(nan, CANONICAL[data.dtype], data)
    return data


@operation(*_FLOAT)
def _build_float(op: Op) -> Callable[..., Value]:
    function, rounds = _FLOAT[op.name]
    return elementwise(lambda x, y: canonical(function(x, y)), op.types[0].dtype, rounds)


@operation("arith.negf")
def _build_negation(op: Op) -> Callable[..., Value]:
    return elementwise(np.negative, op.types[0].dtype)


@operation("tt.clampf")
def _build_clamp(op: Op) -> Callable[..., Value]:
    keep = op.attrs.get("propagateNan", "none") == "all"
    low_of, high_of = (np.maximum, np.minimum) if keep else (np.fmax, np.fmin)

    def clamp(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return canonical(least(high_of, greatest(low_of, x, low), high))

    return elementwise(clamp, op.types[0].dtype)
