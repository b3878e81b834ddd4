"""What the symbols of CUDA's libdevice and AMD's OCML compute, as functions of numpy arrays.

Values are IEEE ones: float32 functions are taken in float64 and rounded once, float64 functions are
numpy's or Python's. A GPU may differ from them by the ulps that its vendor documents for each
function; roundings (_rn, _rz, _rd, _ru), conversions and integer functions are exact. NaN is the
device's quiet NaN; special values are CUDA's where AMD documents none.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import bitwise
from gemmproof.reference.arithmetic.conversions import Array, bits, format_of, round_to
from gemmproof.reference.arithmetic.rounding import (
    Mode,
    arithmetic,
    float_to_integer,
    integer_to_float,
    round_float,
)
from gemmproof.reference.libdevice import bessel_functions as bessel
from gemmproof.reference.libdevice import special_functions as special
from gemmproof.reference.ptx.floats import divide_fast, saturate

Function = Callable[..., Array]

# libdevice's letters of PTX's modes
_MODES: dict[str, Mode] = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}

REFUSED: Mapping[str, str] = {
    "__nv_rcp64h": "a seed of about 20 bits whose value only the hardware's table defines",
}


def function_of(symbol: str) -> Function | None:
    """The function of a symbol, None for an unknown or refused one.

    Takes arrays of the symbol's own dtypes, integers of either signedness, and gives the result
    dtype of Triton's table; integers are signed, as TTIR's are signless.
    """
    return _FUNCTIONS.get(symbol)


def _round_result(function: Function) -> Function:
    """A function of float64 for arguments of one float format, in whose dtype the result is."""

    def run(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            wide = [a.astype(np.float64) for a in args]
            own = next(a.dtype for a in args if a.dtype.kind == "f")
            return round_to(function(*wide), format_of(own))

    return run


def _quiet(function: Function) -> Function:
    def run(*args: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*args)

    return run


def _read_unsigned(function: Function) -> Function:
    """function of the same bits as unsigned integers, its integers handed back as signed."""

    def run(*args: Array) -> Array:
        y = function(*(bits(a) if a.dtype.kind in "iu" else a for a in args))
        return y.view(f"i{y.dtype.itemsize}") if y.dtype.kind == "u" else y

    return run


def _read_signed(function: Function) -> Function:
    return lambda *args: function(*(a.view(f"i{a.dtype.itemsize}") for a in args))


def _exponent(x: Array) -> Array:
    """ilogb: INT_MIN of 0 and NaN, INT_MAX of infinities (CUDA C++ Programming Guide)."""
    with np.errstate(all="ignore"):
        e = np.frexp(x)[1] - 1
        e = np.where(np.isinf(x), np.iinfo(np.int32).max, e)
        return np.where((x == 0) | np.isnan(x), np.iinfo(np.int32).min, e).astype(np.int32)


def _exponent_as_float(x: Array) -> Array:
    e = (np.frexp(np.where(np.isfinite(x), x, 1.0))[1] - 1).astype(np.float64)
    return np.where(np.isfinite(x), np.where(x == 0, -np.inf, e), np.abs(x))


def _difference(x: Array, y: Array) -> Array:
    return np.where(x > y, x - y, np.where(np.isnan(x) | np.isnan(y), np.nan, 0.0))


def _logical(test: Callable[[Array], Array]) -> Function:
    return lambda x: test(x).astype(np.int32)


# By name: functions of float64 that take any float format.
_REAL: dict[str, Function] = {
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "rint", "sqrt", "cbrt")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: getattr(np, name) for name in ("exp", "exp2", "expm1", "log", "log2", "log10")},
    **{name: getattr(np, name) for name in ("log1p", "fmod", "hypot")},
    "nearbyint": np.rint,
    "round": special.round_away,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "exp10": lambda x: np.float_power(10.0, x),
    "sinpi": special.sinpi,
    "cospi": special.cospi,
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "tan2")},
    **{f"a{name}h": getattr(np, f"arc{name}h") for name in ("sin", "cos", "tan")},
    "pow": np.float_power,
    "powi": np.float_power,
    "pown": np.float_power,
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "norm3d": special.norm,
    "norm4d": special.norm,
    "rnorm3d": lambda *args: 1 / special.norm(*args),
    "rnorm4d": lambda *args: 1 / special.norm(*args),
    "j0": bessel.j0,
    "j1": bessel.j1,
    "jn": bessel.jn,
    "y0": bessel.y0,
    "y1": bessel.y1,
    "yn": bessel.yn,
    "i0": bessel.i0,
    "i1": bessel.i1,
    "cyl_bessel_i0": bessel.i0,
    "cyl_bessel_i1": bessel.i1,
    "erf": special.erf,
    "erfc": special.erfc,
    "erfcx": special.erfcx,
    "erfinv": special.erfinv,
    "erfcinv": special.erfcinv,
    "normcdf": special.normal_cdf,
    "normcdfinv": special.normal_cdf_inverse,
    "lgamma": special.log_gamma,
    "tgamma": special.gamma,
    "remainder": special.remainder,
    "fdim": _difference,
    "logb": _exponent_as_float,
}

# By name: functions with an own idea of dtypes, alike for all float formats.
_TYPED: dict[str, Function] = {
    "fabs": np.abs,
    "fma": partial(arithmetic, "fma", "rn"),
    "copysign": np.copysign,
    "nextafter": _quiet(np.nextafter),
    "ldexp": _quiet(np.ldexp),
    "scalbn": _quiet(np.ldexp),
    "ilogb": _exponent,
    "llrint": lambda x: float_to_integer(x, np.int64, "rn"),
    "llround": lambda x: float_to_integer(special.round_away(x), np.int64, "rz"),
    "isnan": _logical(np.isnan),
    "isinf": _logical(np.isinf),
    "isfinite": _logical(np.isfinite),
    "signbit": _logical(np.signbit),
}

_FAST: dict[str, Function] = {
    **{
        f"fast_{name}f": _round_result(_REAL[name])
        for name in ("sin", "cos", "tan", "exp", "exp10")
    },
    **{f"fast_{name}f": _round_result(_REAL[name]) for name in ("log", "log2", "log10")},
    # as 2**(y log2 x): NaN of negative x whatever y
    "fast_powf": _round_result(lambda x, y: np.exp2(y * np.log2(x))),
    "fast_fdividef": divide_fast,
    "saturatef": saturate,
}

_INTEGER: dict[str, Function] = {
    "clz": bitwise.count_leading_zeros,
    "clzll": bitwise.count_leading_zeros,
    "popc": bitwise.count_ones,
    "popcll": bitwise.count_ones,
    "ffs": lambda x: bitwise.lowest_bit(x) + np.int32(1),
    "ffsll": lambda x: bitwise.lowest_bit(x) + np.int32(1),
    "brev": bitwise.reverse_bits,
    "brevll": bitwise.reverse_bits,
    "byte_perm": _read_unsigned(bitwise.permute_bytes),
    "mulhi": _read_signed(bitwise.multiply_high),
    "mul64hi": _read_signed(bitwise.multiply_high),
    "umulhi": _read_unsigned(bitwise.multiply_high),
    "umul64hi": _read_unsigned(bitwise.multiply_high),
    "mul24": _read_signed(lambda x, y: ((x << 8) >> 8) * ((y << 8) >> 8)),
    "umul24": _read_unsigned(lambda x, y: (x & np.uint32(0xFFFFFF)) * (y & np.uint32(0xFFFFFF))),
    "sad": _read_signed(lambda x, y, z: bitwise.subtract_absolutely(x, y) + z),
    "usad": _read_unsigned(lambda x, y, z: bitwise.subtract_absolutely(x, y) + z),
    "abs": _read_signed(np.abs),
    "llabs": _read_signed(np.abs),
    "hadd": _read_signed(bitwise.halve_sum),
    "rhadd": _read_signed(partial(bitwise.halve_sum, carry=1)),
    "uhadd": _read_unsigned(bitwise.halve_sum),
    "urhadd": _read_unsigned(partial(bitwise.halve_sum, carry=1)),
}


def _view(dtype: str) -> Function:
    return lambda x: np.ascontiguousarray(x).view(dtype)


def _join(high: Array, low: Array) -> Array:
    code = (bits(high).astype(np.uint64) << np.uint64(32)) | bits(low)
    return code.view(np.float64)


_BITS: dict[str, Function] = {
    **{name: _view("f4") for name in ("int_as_float", "uint_as_float")},
    **{name: _view("i4") for name in ("float_as_int", "float_as_uint")},
    "longlong_as_double": _view("f8"),
    "double_as_longlong": _view("i8"),
    "hiloint2double": _join,
    "double2loint": lambda x: np.ascontiguousarray(bits(x).astype(np.uint32)).view(np.int32),
    "double2hiint": lambda x: (bits(x) >> np.uint64(32)).astype(np.uint32).view(np.int32),
}

_INTEGERS = {"int": "i4", "uint": "u4", "ll": "i8", "ull": "u8"}
_FLOATS = {"float": ("f4", "fp32"), "double": ("f8", "fp64")}


def _conversions() -> dict[str, Function]:
    """float2int_rz and its like: every pair of types in every direction."""
    table: dict[str, Function] = {}
    for end, mode in _MODES.items():
        table[f"double2float_{end}"] = partial(round_float, name="fp32", mode=mode)
        for integer, dtype in _INTEGERS.items():
            for real, (_, name) in _FLOATS.items():
                table[f"{real}2{integer}_{end}"] = _read_unsigned(
                    partial(float_to_integer, dtype=dtype, mode=mode)
                )
                sign = _read_unsigned if dtype[0] == "u" else _read_signed
                table[f"{integer}2{real}_{end}"] = sign(
                    partial(integer_to_float, name=name, mode=mode)
                )
    return table


def _roundings() -> dict[str, Function]:
    """fadd_rz, dadd_rz, fmaf_rz, fma_rz and their like."""
    table: dict[str, Function] = {}
    for end, mode in _MODES.items():
        for letter in "fd":
            for op in ("add", "mul", "div", "sqrt"):
                table[f"{letter}{op}_{end}"] = partial(arithmetic, op, mode)
            table[f"{letter}sub_{end}"] = partial(_subtract, mode)
            table[f"{letter}rcp_{end}"] = partial(_invert, mode)
        for name in ("fma", "fmaf"):
            table[f"{name}_{end}"] = partial(arithmetic, "fma", mode)
    return table | {"frsqrt_rn": _round_result(_REAL["rsqrt"])}


def _subtract(mode: Mode, x: Array, y: Array) -> Array:
    return arithmetic("add", mode, x, -y)


def _invert(mode: Mode, x: Array) -> Array:
    return arithmetic("div", mode, np.ones_like(x), x)


def _functions() -> Mapping[str, Function]:
    typed = {name: _round_result(function) for name, function in _REAL.items()} | _TYPED
    shared = _INTEGER | _BITS | _FAST | _conversions() | _roundings()
    table: dict[str, Any] = {f"__nv_{name}": function for name, function in shared.items()}
    for name, function in typed.items():
        # libdevice marks float by f; of the tests, double by d
        table |= {f"__nv_{name}f": function, f"__nv_{name}": function}
        table |= {f"__nv_{name}d": function} if name.startswith(("is", "signbit")) else {}
        table |= {f"__ocml_{name}_f32": function, f"__ocml_{name}_f64": function}
    return table | {
        "__nv_finitef": _TYPED["isfinite"],
        "__ockl_clz_u32": bitwise.count_leading_zeros,
        "__ockl_clz_u64": lambda x: bitwise.count_leading_zeros(x).astype(np.int64),
        "__ockl_popcount_u32": bitwise.count_ones,
        "__ockl_popcount_u64": bitwise.count_ones,
        "__triton_hip_iabs": _read_signed(np.abs),
        "__triton_hip_fabs": np.abs,
        "__triton_hip_rint": typed["rint"],
        "__triton_hip_llrint": typed["llrint"],
        "__triton_hip_fast_expf": _FAST["fast_expf"],
        "__triton_hip_fast_tanhf": typed["tanh"],
        "__triton_hip_fast_fdividef": lambda x, y: arithmetic("div", "rn", x, y),
    }


_FUNCTIONS = _functions()
