"""Number formats, one record each, from which every table of formats derives.

Standard library only: options are parsed without numpy. A new format is a record here, and its name
in gpus.py where tensor cores take it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Format:
    """A binary number format: finite values are m * 2**(e - p + 1), |m| < 2**p, emin <= e <= emax.

    For integers p counts the value bits without the sign, and emin = 0. `dtype` is its storage, by
    the name that numpy or ml_dtypes and torch share. `nan_bits` is the quiet NaN that NVIDIA's
    conversions and arithmetic deliver. `ttir` and `ptx` are its names there, "" if it has none,
    `triton` that of Triton's dtype, if it is not `name`.

    `spelled`: other common names for it.

    `operand`: a contract may name it for a and b. `sums`: the formats that its products may be
    accumulated in, the default first; () if no dot takes it. `units`: other formats that a contract
    may guarantee for its sums, of units that keep fewer bits than the register. `accumulator`: a
    kernel may declare that its sums keep this many bits. `result`: c may be of this dtype.
    """

    name: str
    p: int
    emin: int
    emax: int
    dtype: str
    max: float
    kind: Literal["float", "int"] = "float"
    has_inf: bool = False
    nan_bits: int = 0
    ttir: str = ""
    ptx: str = ""
    triton: str = ""
    spelled: tuple[str, ...] = ()
    operand: bool = False
    sums: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    accumulator: bool = False
    result: bool = True

    @property
    def declarable_sums(self) -> tuple[str, ...]:
        """The formats that a contract may guarantee for sums of products, the default first."""
        return self.sums + self.units

    @property
    def u(self) -> float:
        """Unit roundoff of round to nearest, 2**-p (integers: 0)."""
        return 2.0**-self.p if self.kind == "float" else 0.0

    @property
    def eta(self) -> float:
        """Smallest positive value, subnormals included (integers: 1)."""
        return 2.0 ** (self.emin - self.p + 1) if self.kind == "float" else 1.0

    @cached_property
    def storage(self) -> np.dtype[Any]:
        """The numpy dtype of an element."""
        import ml_dtypes
        import numpy as np

        return np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))

    @property
    def itemsize(self) -> int:
        """Bytes per element in memory."""
        return self.storage.itemsize

    @property
    def is_fp8(self) -> bool:
        """True for a float of 8 bits."""
        return self.dtype.startswith("float8")

    @cached_property
    def nan(self) -> Any:
        """The canonical NaN of a float format, as a scalar of its storage dtype."""
        import numpy as np

        return np.array(self.nan_bits, f"u{self.itemsize}").view(self.storage)[()]

    @cached_property
    def stored(self) -> Format:
        """The format in memory: fp32 for tf32 and e8m13, which leave its low bits unused."""
        return max((f for f in FORMATS.values() if f.dtype == self.dtype), key=lambda f: f.p)


def _float(
    name: str, p: int, emin: int, emax: int, dtype: str, nan_bits: int, *,
    has_inf: bool = True, **roles: Any,
) -> Format:  # fmt: skip
    # without Inf the top code is NaN, except in the fnuz formats, whose NaN is the code of -0
    lost = not has_inf and nan_bits & 1
    top = (2.0 - 2.0 ** (1 - p + lost)) * 2.0**emax
    return Format(name, p, emin, emax, dtype, top, "float", has_inf, nan_bits, **roles)


def _int(bits: int, sign: str, **roles: Any) -> Format:
    p = bits - (sign == "")
    # torch can do little more than store the wider unsigned integers
    result = sign == "" or bits == 8
    name, ttir = f"{sign}int{bits}", f"i{bits}"
    return Format(name, p, 0, p - 1, name, 2**p - 1, "int", ttir=ttir, result=result, **roles)


_HALF = ("fp32", "fp16")
_FORMATS = (
    _float("fp16", 11, -14, 15, "float16", 0x7FFF, ttir="f16", ptx="f16", spelled=("half",),
           operand=True, sums=_HALF, accumulator=True),
    _float("bf16", 8, -126, 127, "bfloat16", 0x7FFF, ttir="bf16", ptx="bf16",
           operand=True, sums=("fp32",), accumulator=True),
    _float("fp32", 24, -126, 127, "float32", 0x7FFFFFFF, ttir="f32", ptx="f32",
           spelled=("float", "single"), operand=True, sums=("fp32",), accumulator=True),
    # float32, of which a tensor core reads the upper 19 bits
    _float("tf32", 11, -126, 127, "float32", 0x7FFFFFFF, ptx="tf32", spelled=("tfloat32",),
           operand=True, sums=("fp32",), result=False),
    _float("fp64", 53, -1022, 1023, "float64", 0x7FFFFFFFFFFFFFFF, ttir="f64", ptx="f64",
           spelled=("double",), sums=("fp64",)),
    _float("fp8e4m3", 4, -6, 8, "float8_e4m3fn", 0x7F, has_inf=False, ttir="f8E4M3FN",
           ptx="e4m3", triton="fp8e4nv", spelled=("float8e4nv",), operand=True, sums=_HALF,
           units=("e8m13",)),
    _float("fp8e5m2", 3, -14, 15, "float8_e5m2", 0x7F, ttir="f8E5M2",
           ptx="e5m2", triton="fp8e5", spelled=("float8e5",), operand=True, sums=_HALF,
           units=("e8m13",)),
    # the bits that the fp8 units of sm_89 and sm_90 keep of a sum, in a float32 register
    _float("e8m13", 14, -126, 127, "float32", 0x7FFFFFFF, accumulator=True, result=False),
    _int(8, "", operand=True, sums=("int32",)),
    _int(8, "u"),
    *(_int(bits, sign) for bits in (16, 32, 64) for sign in ("", "u")),
)  # fmt: skip
FORMATS: Mapping[str, Format] = MappingProxyType({f.name: f for f in _FORMATS})

# TTIR types whose arithmetic has not been measured: ml_dtypes converts them, no more.
FNUZ = (
    _float("fp8e4m3fnuz", 4, -7, 7, "float8_e4m3fnuz", 0x80, has_inf=False, ttir="f8E4M3FNUZ",
           triton="fp8e4b8"),
    _float("fp8e5m2fnuz", 3, -15, 15, "float8_e5m2fnuz", 0x80, has_inf=False, ttir="f8E5M2FNUZ",
           triton="fp8e5b16"),
    _float("fp8e4m3b11fnuz", 4, -10, 4, "float8_e4m3b11fnuz", 0x80, has_inf=False,
           ttir="f8E4M3B11FNUZ"),
)  # fmt: skip

# Formats of codes that integer tensors hold: packed e2m1, and the scales of the OCP Microscaling
# Formats specification. A formula decodes codes to them; no tensor is drawn in them.
CODES: Mapping[str, Format] = MappingProxyType(
    {
        "e2m1": _float("e2m1", 2, 0, 2, "float4_e2m1fn", 0, has_inf=False, ptx="e2m1"),
        "e8m0": Format("e8m0", 1, -127, 127, "float8_e8m0fnu", 2.0**127, nan_bits=0xFF),
    }
)

OPERANDS = tuple(f.name for f in _FORMATS if f.operand)
FLOAT_OPERANDS = tuple(f.name for f in _FORMATS if f.operand and f.kind == "float")
RESULTS = tuple(f.name for f in _FORMATS if f.result)
FP8 = tuple(f.name for f in _FORMATS if f.is_fp8)
ACCUMULATORS = tuple(f.name for f in sorted(_FORMATS, key=lambda f: -f.p) if f.accumulator)


def format_named(name: str) -> Format:
    """Return the format called `name`; ValueError names the formats that exist."""
    if name not in FORMATS:
        raise ValueError(f"format: got {name!r}, expected one of {' '.join(FORMATS)}")
    return FORMATS[name]
