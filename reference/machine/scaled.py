"""tl.dot_scaled: microscaled operands are widened exactly, then summed by the IEEE chain."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl

from gemmproof.reference.formats import to_fp32
from gemmproof.reference.machine import execution
from gemmproof.reference.machine.dots import dot
from gemmproof.reference.machine.value import Value, lift

_BYTES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
_WIDE = {"bf16": tl.bfloat16, "fp16": tl.float16}
# The eight magnitudes of e2m1; the fourth bit is the sign.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def dot_scaled(
    lhs: Any,
    lhs_scale: Any,
    lhs_format: str,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: str,
    acc: Any = None,
    fast_math: bool = False,
    lhs_k_pack: bool = True,
    rhs_k_pack: bool = True,
    out_dtype: tl.dtype = tl.float32,
) -> Value:
    """Product of (M, K) and (K, N) with power-of-two scales (M, K/group) and (N, K/group).

    Raises Unsupported with a target (no model is verified there) and KernelError for formats and
    shapes that Triton refuses.
    """
    if execution.current().session.target is not None:
        raise execution.unsupported("tl.dot_scaled with a target")
    a = _widened(lift(lhs), lhs_format, packed_axis=1 if lhs_k_pack else 0)
    b = _widened(lift(rhs), rhs_format, packed_axis=0 if rhs_k_pack else 1)
    if lhs_scale is not None:
        a = _scaled(a, lift(lhs_scale), k_axis=1)
    if rhs_scale is not None:
        scale = lift(rhs_scale)
        b = _scaled(b, scale.map(lambda d: d.swapaxes(1, 2)), k_axis=0)
    return dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)


def _widened(x: Value, name: str, packed_axis: int) -> Value:
    """The operand's values as fp32, exactly."""
    if name == "e2m1":
        if x.dtype != tl.uint8:
            raise execution.kernel_error(f"dot_scaled: e2m1 is packed in uint8, got {x!r}")
        axis = packed_axis + 1
        nibbles = np.stack([x.data & 15, x.data >> 4], axis=axis + 1)
        shape = list(x.data.shape)
        shape[axis] *= 2
        codes = nibbles.reshape(shape)
        data = np.where(codes & 8, -_E2M1[codes & 7], _E2M1[codes & 7])
        poison = None if x.poison is None else np.repeat(x.poison, 2, axis=axis)
        return Value(data, tl.float32, poison)
    if name in _BYTES:
        if x.data.dtype.itemsize != 1:
            raise execution.kernel_error(f"dot_scaled: {name} takes bytes, got {x!r}")
        data = np.ascontiguousarray(x.data).view(_BYTES[name])
        return Value(to_fp32(data), tl.float32, x.poison)
    if name in _WIDE and x.dtype == _WIDE[name]:
        return Value(to_fp32(x.data), tl.float32, x.poison)
    raise execution.kernel_error(f"dot_scaled: got format {name!r} for {x!r}")


def _scaled(x: Value, scale: Value, k_axis: int) -> Value:
    """Multiply groups along K by 2**(scale - 127); scale 255 is NaN."""
    axis = k_axis + 1
    groups = scale.data.shape[axis]
    if scale.data.dtype != np.uint8 or x.data.shape[axis] % groups:
        raise execution.kernel_error(f"dot_scaled: got scales {scale!r} for {x!r}")
    n = x.data.shape[axis] // groups
    exponent = np.repeat(scale.data, n, axis=axis).astype(np.int32) - 127
    data = np.ldexp(x.data, exponent).astype(np.float32)
    data = np.where(exponent == 128, np.float32(np.nan), data)
    poison = x.poison
    if scale.poison is not None:
        bits = np.repeat(np.broadcast_to(scale.poison, scale.data.shape), n, axis=axis)
        poison = bits if poison is None else poison | bits
    return Value(data, tl.float32, poison)
