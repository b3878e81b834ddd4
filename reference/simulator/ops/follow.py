"""The terms of an operation's results, computed beside their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gemmproof.reference.simulator.element_terms import Term
from gemmproof.reference.simulator.session import current
from gemmproof.reference.ttir import FLIP, Op

# Operations that move lanes, or that compute by others: their results have terms already.
_MOVES = frozenset({
    *("tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", FLIP),
    *("tt.join", "tt.split", "tt.cat", "tt.gather", "gemmproof.same", "tt.reduce", "tt.scan"),
    *("tt.map_elementwise", "tt.load", "tt.store", "tt.descriptor_load", "tt.descriptor_store"),
    *("tt.descriptor_gather", "tt.descriptor_scatter", "tt.descriptor_reduce"),
    *("tt.make_tensor_ptr", "tt.advance", "tt.make_tensor_descriptor", "tt.atomic_rmw"),
    *("tt.atomic_cas", "tt.atomic_load", "tt.atomic_store", "tt.atomic_poll", "tt.assert"),
    *("tt.print", "llvm.intr.assume"),
})  # fmt: skip
_OPAQUE = ("tt.dot_scaled", "tt.histogram", "tt.elementwise_inline_asm")  # without terms
# Operations whose result has the operands' format, to which it is rounded.
_ROUNDED = frozenset({
    *("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "math.fma", "tt.precise_divf"),
    *("math.exp", "math.exp2", "math.tanh", "math.sqrt", "math.erf"),
})  # fmt: skip


def follow(function: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """Return the function of an operation that also computes the terms of its results."""
    if op.name in _MOVES or not op.types:
        return function
    detail = _detail(op)

    def compute(*values: Any) -> Any:
        result = function(*values)
        if all(getattr(v, "terms", None) is None for v in values):
            return result
        terms = current().session.terms
        assert terms is not None
        if op.name == "tt.dot":
            a, b, c = (v.spread(k.shape) for v, k in zip(values, op.operand_types, strict=True))
            rows = terms.vectors(a)[..., :, None]
            columns = terms.vectors(b.map(lambda data: data.swapaxes(-1, -2)))[..., None, :]
            start = terms.fill(c.term_numbers(), c.data)
            result.terms = terms.combine("dot", None, [start, rows, columns])
        elif op.name in _OPAQUE:
            for part in result if isinstance(result, tuple) else (result,):
                opaque = terms.add(Term(op.name))
                part.terms = np.full((1,) * part.data.ndim, opaque, np.int64)
        elif op.name == "arith.select" and values[0].terms is None:
            condition, x, y = values
            parts = [terms.fill(v.term_numbers(), v.data) for v in (x, y)]
            result.terms = np.where(condition.data, *parts)
        elif hasattr(result, "term_numbers"):
            if any(result is v for v in values):
                result = result.map(lambda data: data)
            result.terms = terms.operate(op.name, detail, [_plain(v) for v in values])
            if op.name in _ROUNDED and op.types[0].dtype.name in ("f16", "bf16"):
                result.terms = terms.operate(
                    "arith.truncf", (op.types[0].dtype.name, "f32"), [result]
                )
        return result

    return compute


def _plain(value: Any) -> Any:
    """Return a value whose address counts for nothing: that of a pointer is another each run."""
    if not value.dtype.is_pointer:
        return value
    plain = value.map(lambda data: data)
    plain.data = np.zeros_like(value.data)
    return plain


def _detail(op: Op) -> Any:
    """Return what an operation needs to know besides its operands."""
    if op.name in ("arith.cmpf", "arith.cmpi"):
        return op.keywords[0]
    if op.name == "tt.extern_elementwise":
        return op.attrs.get("symbol", "")
    if op.name in ("arith.truncf", "tt.fp_to_fp", "arith.trunci", "arith.bitcast", "tt.bitcast"):
        return op.types[0].dtype.name, op.operand_types[0].dtype.name
    return None
