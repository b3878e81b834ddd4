"""Comparison, and the choice between two values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.simulator.ops.registry import elementwise, operation
from gemmproof.reference.simulator.value import Value, loaded_width, union
from gemmproof.reference.ttir.dtypes import I1, unsigned
from gemmproof.reference.ttir.module import Op

_COMPARE: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@operation("arith.cmpi")
def _build_compare(op: Op) -> Callable[..., Value]:
    word = op.words[0]
    function = _COMPARE[word if word in _COMPARE else word[1:]]
    if word[0] == "u":
        return elementwise(lambda x, y: function(unsigned(x), unsigned(y)), I1)
    return elementwise(function, I1)


@operation("arith.cmpf")
def _build_float_compare(op: Op) -> Callable[..., Value]:
    word = op.words[0]

    def compare(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        unordered = np.isnan(x) | np.isnan(y)
        if word in ("true", "false"):
            return np.full(unordered.shape, word == "true")
        if word in ("ord", "uno"):
            return unordered if word == "uno" else ~unordered
        holds = _COMPARE[word[1:]](x, y)
        return holds | unordered if word[0] == "u" else holds & ~unordered

    return elementwise(compare, I1)


@operation("arith.select")
def build_select(op: Op) -> Callable[..., Any]:
    def compute(condition: Value, x: Any, y: Any) -> Any:
        """A lane that is not picked leaves no trace, undefined or not."""
        if not isinstance(x, Value):
            return x.choose(condition, y)
        if condition.data.ndim != x.data.ndim:  # one condition for the whole block
            ones = (1,) * (x.data.ndim - 1)
            condition = condition.map(lambda d: d.reshape(len(d), *ones))
        c = condition.data
        data = np.where(c, x.data, y.data)
        poison = exact = None
        if x.poison is not None or y.poison is not None:
            poison = np.where(c, x.marks(), y.marks())
        if x.exact is not None or y.exact is not None:
            exact = np.where(c, x.unbounded(), y.unbounded())
            exact = exact if (exact != data).any() else None
        base = x.base if x.base is y.base else None
        poison = union(poison, condition.poison)
        return Value(data, x.dtype, poison, exact, base, loaded_width(x, y))

    return compute
