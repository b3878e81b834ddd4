"""Comparison, and the choice between two values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.simulator.ops.registry import operation
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
    without_sign = word[0] == "u"

    def compute(a: Value, b: Value) -> Value:
        x, y = (unsigned(a.data), unsigned(b.data)) if without_sign else (a.data, b.data)
        return Value(function(x, y), I1, union(a.poison, b.poison), loaded=loaded_width(a, b))

    return compute


@operation("arith.cmpf")
def _build_float_compare(op: Op) -> Callable[..., Value]:
    word = op.words[0]

    def compute(a: Value, b: Value) -> Value:
        x, y = a.data, b.data
        unordered = np.isnan(x) | np.isnan(y)
        if word in ("true", "false"):
            data = np.full(unordered.shape, word == "true")
        elif word in ("ord", "uno"):
            data = unordered if word == "uno" else ~unordered
        else:
            found = _COMPARE[word[1:]](x, y)
            data = found | unordered if word[0] == "u" else found & ~unordered
        return Value(data, I1, union(a.poison, b.poison), loaded=loaded_width(a, b))

    return compute


@operation("arith.select")
def build_select(op: Op) -> Callable[..., Any]:
    def compute(condition: Value, x: Any, y: Any) -> Any:
        """A lane that is not picked leaves no trace, undefined or not."""
        if not isinstance(x, Value):
            return x.choose(condition, y)
        c = condition.data
        if c.ndim != x.data.ndim:  # one condition for the whole block
            c = c.reshape(len(c), *(1,) * (x.data.ndim - 1))
        data = np.where(c, x.data, y.data)
        poison = exact = None
        if x.poison is not None or y.poison is not None:
            poison = np.where(c, x.marks(), y.marks())
        if x.exact is not None or y.exact is not None:
            exact = np.where(c, x.unbounded(), y.unbounded())
            exact = exact if (exact != data).any() else None
        if condition.poison is not None:
            mask = condition.poison.reshape(
                len(condition.poison), *(condition.poison.shape[1:] or (1,) * (data.ndim - 1))
            )
            poison = union(poison, mask)
        base = x.base if x.base is y.base else None
        loaded = loaded_width(x, y)
        return Value(data, x.dtype, poison, exact, base, loaded)

    return compute
