"""Microscaled operands: narrow floats, packed or not, and a scale for each group along K.

The formats are those of the OCP Microscaling Formats specification (MX), version 1.0.
"""

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, round_to, to_fp32
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import GPUS

# MX and PTX share the names of the 8-bit formats.
_BYTES = {f.ptx: f.storage for f in FORMATS.values() if f.is_fp8 and f.ptx}
KNOWN = ("e2m1", *_BYTES, "bf16", "fp16")
# The eight magnitudes of e2m1; the fourth bit is the sign.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def computed_format(target: str, lhs: str, rhs: str) -> str | None:
    """The 16-bit format that Triton's compiler widens both operands to before a plain dot.

    None where tensor cores multiply scaled operands, from compute capability 10.0 on.
    """
    if GPUS[target].capability >= (10, 0):
        return None
    return "fp16" if "fp16" in (lhs, rhs) else "bf16"


def widen(x: Array, name: str, packed_axis: int) -> Array:
    """The values of the format `name`, one of KNOWN, as float32, exactly.

    A byte packs two values of e2m1, the first in its low half, so `packed_axis` doubles in length.
    """
    if name == "e2m1":
        raw = x.view(np.uint8)
        axis = packed_axis % raw.ndim
        shape = list(raw.shape)
        shape[axis] *= 2
        codes = np.stack([raw & 15, raw >> 4], axis=axis + 1).reshape(shape)
        return np.where(codes & 8, -_E2M1[codes & 7], _E2M1[codes & 7])
    return to_fp32(x.view(_BYTES[name]) if name in _BYTES else x)


def factors(scales: Array) -> Array:
    """What scales stand for, as float32: 2**(scale - 127), 255 is NaN; or the values of fp8."""
    if scales.dtype.kind not in "iu":
        return to_fp32(scales)
    exponent = scales.view(np.uint8).astype(np.int32) - 127
    powers = np.ldexp(np.float32(1), np.minimum(exponent, 127))
    return np.where(exponent == 128, np.float32(np.nan), powers)


def computed_factors(scales: Array, name: str, fast_math: bool) -> Array:
    """The factors as Triton's compiler makes them in the 16-bit format `name`, as float32.

    It shifts an e8m0 scale to where a float has its exponent: 0 becomes 0 and not 2**-127, and 255
    Inf, which becomes NaN afterwards unless fast_math.
    """
    made = factors(scales)
    if scales.dtype.kind in "iu":
        codes = scales.view(np.uint8)
        made = np.where(codes == 0, np.float32(0), made)
        made = np.where((codes == 255) & fast_math, np.float32(np.inf), made)
    return to_fp32(round_to(made, FORMATS[name]))


def scale(x: Array, made: Array, axis: int) -> Array:
    """float32 values times their factors, of which `axis` has one for each group along K."""
    with np.errstate(all="ignore"):
        return x * np.repeat(made, x.shape[axis] // made.shape[axis], axis=axis)
