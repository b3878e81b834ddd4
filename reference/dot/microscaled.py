"""Microscaled operands: narrow floats, packed or not, and a scale for each group along K.

The formats are those of the OCP Microscaling Formats specification (MX), version 1.0.
"""

import numpy as np

from gemmproof.reference.arithmetic.conversions import Array, to_fp32
from gemmproof.reference.formats import FORMATS

# MX and PTX share the names of the 8-bit formats.
_BYTES = {f.ptx: f.storage for f in FORMATS.values() if f.is_fp8 and f.ptx}
KNOWN = ("e2m1", *_BYTES, "bf16", "fp16")
# The eight magnitudes of e2m1; the fourth bit is the sign.
_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)


def widen(x: Array, name: str, packed_axis: int) -> Array:
    """The values of the format `name`, one of KNOWN, as float32, exactly.

    A byte packs two values of e2m1, the first in its low half, so `packed_axis` doubles in length.
    """
    if name == "e2m1":
        raw = x.view(np.uint8)
        shape = list(raw.shape)
        shape[packed_axis] *= 2
        codes = np.stack([raw & 15, raw >> 4], axis=packed_axis + 1).reshape(shape)
        return np.where(codes & 8, -_E2M1[codes & 7], _E2M1[codes & 7])
    return to_fp32(x.view(_BYTES[name]) if name in _BYTES else x)


def scale(x: Array, scales: Array, axis: int) -> Array:
    """float32 values times 2**(scale - 127), or times an fp8 scale; e8m0's 255 is NaN.

    `axis` of `scales` has one scale for each group of neighbours along that axis of x.
    """
    n = x.shape[axis] // scales.shape[axis]
    with np.errstate(all="ignore"):
        if scales.dtype.kind not in "iu":
            return x * np.repeat(to_fp32(scales), n, axis=axis)
        exponent = np.repeat(scales.view(np.uint8), n, axis=axis).astype(np.int32) - 127
        made = np.ldexp(x, exponent).astype(np.float32)
        return np.where(exponent == 128, np.float32(np.nan), made)
