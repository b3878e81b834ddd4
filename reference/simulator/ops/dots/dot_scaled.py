"""tt.dot_scaled: microscaled operands, widened exactly or as the target's compiler widens them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gemmproof.reference.arithmetic.conversions import round_to, to_fp32
from gemmproof.reference.dot import dot_model, microscaled
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.observation import Unsupported
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.ops.cast import widen_e5m2
from gemmproof.reference.simulator.ops.dots.dot import (
    note_model,
    pick_model,
    undefined_outputs,
)
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.value import Value, loaded_width, union, unknown_block
from gemmproof.reference.ttir.dtypes import F32
from gemmproof.reference.ttir.module import Op

_FORM = re.compile(r"tt\.dot_scaled %[^\s,]+( scale %[^\s,]+)?, %[^\s,]+( scale %[^\s,]+)?,")
_EXACT = dot_model(None, "fp32")


@operation("tt.dot_scaled", constant=False)
def _build_dot_scaled(op: Op) -> Callable[..., Value]:
    """Product of (..., M, K) and (..., K, N) with scales (..., M, K/group) and (..., N, K/group).

    Without a target, and where its tensor cores multiply scaled operands (no model of their sum is
    verified), the exact values are summed by the IEEE chain. Other targets widen the operands to 16
    bits, multiply them by their scales in that format, and sum them as any dot.
    Raises Unsupported for formats without a meaning here.
    """
    found = _FORM.search(op.text)
    scaled = [bool(found and found[i]) for i in (1, 2)]
    kinds, names = op.operand_types, (op.attrs.get("lhs", ""), op.attrs.get("rhs", ""))
    k_packed = [op.attrs.get(f"{side}_k_pack", "true") == "true" for side in ("lhs", "rhs")]
    fast_math = op.attrs.get("fastMath", "false") == "true"
    for name in names:
        if name not in microscaled.KNOWN:
            raise Unsupported(f"tt.dot_scaled of {name} is not known to the tile simulator")

    def compute(*values: Value) -> Value:
        launch = current()
        if launch.session.sampled:
            return unknown_block(kinds[-1])
        target = launch.session.target
        to = microscaled.computed_format(target, *names) if target in TARGETS else None
        operands = [v.spread(kind.shape) for v, kind in zip(values, kinds, strict=True)]
        c, rest, sides = operands.pop(), iter(operands), []
        for i, axis in enumerate((-1, -2)):
            x = _widen(next(rest), names[i], axis if k_packed[i] else -3 - axis, to)
            if scaled[i]:
                s = next(rest)
                s = s.map(lambda d: d.swapaxes(-1, -2)) if axis == -2 else s
                x = _scale(x, s, axis, to, fast_math)
            sides.append(x)
        a, b = sides
        M, K, N = *a.data.shape[-2:], b.data.shape[-1]
        launch.tiles.add((M, N, K))
        loaded = min(abs(loaded_width(*operands)) or 16, 4 if "e2m1" in names else 16)
        model = _EXACT
        if to is not None:
            tile = {"BLOCK_M": M, "BLOCK_N": N, "BLOCK_K": K, "num_warps": launch.num_warps}
            ndim = len(kinds[0].shape)
            model = pick_model(target, to, "fp32", **tile, ndim=ndim, loaded_bits=loaded)
            a, b = (Value(round_to(x.data, FORMATS[to]), F32, x.poison) for x in (a, b))
        note_model(model, (*kinds[-1].shape, K), c)
        data = model.dot(a.data, b.data, c.data.astype(np.float32))
        return Value(data.astype(c.dtype.numpy), c.dtype, undefined_outputs(a, b, c))

    return compute


def _widen(x: Value, name: str, packed_axis: int, to: str | None) -> Value:
    """The operand's values as fp32, exactly, or rounded to the format `to`."""
    raw, poison = np.ascontiguousarray(x.data), x.poison
    data = microscaled.widen(raw, name, packed_axis)
    if to is not None:
        by_bias = name == "e5m2" and to == "bf16"
        data = to_fp32(widen_e5m2(raw) if by_bias else round_to(data, FORMATS[to]))
    if poison is not None and data.shape != x.data.shape:
        poison = np.repeat(np.broadcast_to(poison, x.data.shape), 2, axis=packed_axis)
    return Value(data, F32, poison)


def _scale(x: Value, scale: Value, axis: int, to: str | None, fast_math: bool) -> Value:
    """The operand times the scales of its groups along K."""
    raw = np.ascontiguousarray(scale.data)
    if to is None:
        data = microscaled.scale(x.data, microscaled.factors(raw), axis)
    else:
        made = microscaled.computed_factors(raw, to, fast_math)
        data = to_fp32(round_to(microscaled.scale(x.data, made, axis), FORMATS[to]))
    poison = x.poison
    if scale.poison is not None:
        n = x.data.shape[axis] // raw.shape[axis]
        bits = np.repeat(np.broadcast_to(scale.poison, raw.shape), n, axis=axis)
        poison = union(poison, bits)
    return Value(data, F32, poison)
