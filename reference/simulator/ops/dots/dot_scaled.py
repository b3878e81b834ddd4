"""tt.dot_scaled: microscaled operands are widened exactly, then summed by the IEEE chain."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gemmproof.reference.dot import dot_model, microscaled
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.observation import Unsupported
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.ops.dots.dot import undefined_outputs
from gemmproof.reference.simulator.ops.registry import operation, refusal
from gemmproof.reference.simulator.value import Value, union
from gemmproof.reference.ttir.dtypes import F32
from gemmproof.reference.ttir.module import Op

_FORM = re.compile(r"tt\.dot_scaled %[^\s,]+( scale %[^\s,]+)?, %[^\s,]+( scale %[^\s,]+)?,")


@operation("tt.dot_scaled", constant=False)
def _build_dot_scaled(op: Op) -> Callable[..., Value]:
    """Product of (M, K) and (K, N) with scales (M, K/group) and (N, K/group).

    Raises Unsupported for formats without a meaning here and, with a target, for all (no model of
    the hardware's sum is verified).
    """
    found = _FORM.search(op.text)
    scaled = [bool(found and found[i]) for i in (1, 2)]
    kinds, (lhs, rhs) = op.operand_types, (op.attrs.get("lhs", ""), op.attrs.get("rhs", ""))
    lhs_k_pack, rhs_k_pack = (op.attrs.get(f"{s}_k_pack", "true") == "true" for s in ("lhs", "rhs"))
    for name in (lhs, rhs):
        if name not in microscaled.KNOWN:
            raise Unsupported(f"tt.dot_scaled of {name} is not known to the tile simulator")
    model = dot_model(None, "fp32")

    def compute(*values: Value) -> Value:
        if current().session.target in TARGETS:
            raise Unsupported(refusal("tl.dot_scaled with a target"), context.where())
        operands = (v.spread(kind.shape) for v, kind in zip(values, kinds, strict=True))
        a = _widen(next(operands), lhs, 2 if lhs_k_pack else 1)
        if scaled[0]:
            a = _scale(a, next(operands), 2)
        b = _widen(next(operands), rhs, 1 if rhs_k_pack else 2)
        if scaled[1]:
            b = _scale(b, next(operands).map(lambda d: d.swapaxes(1, 2)), 1)
        c = next(operands)
        data = model.dot(a.data, b.data, c.data.astype(np.float32))
        return Value(data.astype(c.dtype.numpy), c.dtype, undefined_outputs(a, b, c))

    return compute


def _widen(x: Value, name: str, packed_axis: int) -> Value:
    """The operand's values as fp32, exactly."""
    data, poison = microscaled.widen(np.ascontiguousarray(x.data), name, packed_axis), x.poison
    if poison is not None and data.shape != x.data.shape:
        poison = np.repeat(np.broadcast_to(poison, x.data.shape), 2, axis=packed_axis)
    return Value(data, F32, poison)


def _scale(x: Value, scale: Value, axis: int) -> Value:
    """The operand times the scales of its groups along K."""
    data, poison = microscaled.scale(x.data, np.ascontiguousarray(scale.data), axis), x.poison
    if scale.poison is not None:
        n = x.data.shape[axis] // scale.data.shape[axis]
        bits = np.repeat(np.broadcast_to(scale.poison, scale.data.shape), n, axis=axis)
        poison = union(poison, bits)
    return Value(data, F32, poison)
