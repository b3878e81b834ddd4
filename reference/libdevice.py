"""The functions of libdevice and of AMD's device libraries, in numpy."""

from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import methodcaller
from typing import Any

import numpy as np

from gemmproof.reference import bitwise
from gemmproof.reference import special_functions as bessel
from gemmproof.reference import special_functions as special
from gemmproof.reference.arithmetic import (
    Array,
    Mode,
    arithmetic,
    bits,
    float_to_integer,
    format_of,
    integer_to_float,
    round_float,
    round_to,
)
from gemmproof.reference.ptx.float_instructions import divide_fast, saturate

Function = Callable[..., Array]

# PTX's rounding modes by libdevice's suffixes
_MODES: dict[str, Mode] = {"rn": "rn", "rz": "rz", "rd": "rm", "ru": "rp"}

REFUSED: Mapping[str, str] = {
    "__nv_rcp64h": "a seed of about 20 bits whose value only the hardware's table defines",
}


def function_of(symbol: str) -> Function | None:
    """Return the function of a symbol, or None for an unknown or refused one.

    It takes arrays of the symbol's own dtypes, integers of either signedness, and returns the
    dtype of Triton's table; integers are signed, as TTIR's are signless.
    """
    return _FUNCTIONS.get(symbol)


def _round_result(function: Function) -> Function:
    """Return a float64 function for arguments of one float format, which its result has."""

    def run(*args: Array) -> Array:
        float_dtype = next(a.dtype for a in args if a.dtype.kind == "f")
        return round_to(function(*(a.astype(np.float64) for a in args)), format_of(float_dtype))

    return run


def _read_as(kind: str, function: Function) -> Function:
    """Return `function` of integers read as kind, i or u; integer results are signed."""

    def view(a: Array, kind: str) -> Array:
        return a.view(f"{kind}{a.dtype.itemsize}") if a.dtype.kind in "iu" else a

    return lambda *args: view(function(*(view(a, kind) for a in args)), "i")


_read_signed, _read_unsigned = partial(_read_as, "i"), partial(_read_as, "u")


def _exponent(x: Array) -> Array:
    """logb of float64."""
    e = np.frexp(np.where(np.isfinite(x), x, 1.0))[1] - 1.0
    return np.where(np.isfinite(x), np.where(x == 0, -np.inf, e), np.abs(x))


def _logical(test: Callable[[Array], Array]) -> Function:
    return lambda x: test(x).astype(np.int32)


def _members(module: Any, names: str) -> dict[str, Function]:
    """Return the functions of a module by their names."""
    return {name: getattr(module, name) for name in names.split()}


# By name: functions of float64 that take any float format.
_REAL: dict[str, Function] = {
    **_members(np, "floor ceil trunc rint sqrt cbrt fmod exp exp2 expm1 log log2 log10 log1p"),
    **_members(np, "sin cos tan sinh cosh tanh"),
    **_members(special, "erf erfc erfcx erfinv erfcinv normcdf normcdfinv lgamma tgamma"),
    **_members(special, "sinpi cospi remainder"),
    **_members(bessel, "j0 j1 jn y0 y1 yn i0 i1"),
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "tan2")},
    **{f"a{name}h": getattr(np, f"arc{name}h") for name in ("sin", "cos", "tan")},
    **dict.fromkeys(("pow", "powi", "pown"), np.float_power),
    # hypot by hypot, so that no square overflows
    **dict.fromkeys(("hypot", "norm3d", "norm4d"), lambda *args: reduce(np.hypot, args)),
    **dict.fromkeys(("rhypot", "rnorm3d", "rnorm4d"), lambda *args: 1 / reduce(np.hypot, args)),
    "nearbyint": np.rint,
    "round": special.round_away,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "exp10": lambda x: np.float_power(10.0, x),
    "cyl_bessel_i0": bessel.i0,
    "cyl_bessel_i1": bessel.i1,
    "fdim": lambda x, y: np.where(x <= y, 0.0, x - y),
    "logb": _exponent,
}

# By name: functions that choose the dtype of their result, for every float format.
_TYPED: dict[str, Function] = {
    "fabs": np.abs,
    "fma": partial(arithmetic, "fma", "rn"),
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "ldexp": np.ldexp,
    "scalbn": np.ldexp,
    # INT_MIN for 0 and NaN, INT_MAX for infinities (CUDA C++ Programming Guide)
    "ilogb": lambda x: float_to_integer(_exponent(x.astype(np.float64)), np.int32, "rn"),
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
        for name in ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10")
    },
    # 2**(y log2 x): NaN for negative x whatever y
    "fast_powf": _round_result(lambda x, y: np.exp2(y * np.log2(x))),
    "fast_fdividef": divide_fast,
    "saturatef": saturate,
}

_INTEGER: dict[str, Function] = {
    **dict.fromkeys(("clz", "clzll"), bitwise.count_leading_zeros),
    **dict.fromkeys(("popc", "popcll"), bitwise.count_ones),
    **dict.fromkeys(("ffs", "ffsll"), lambda x: bitwise.lowest_bit(x) + np.int32(1)),
    **dict.fromkeys(("brev", "brevll"), bitwise.reverse_bits),
    **dict.fromkeys(("abs", "llabs"), _read_signed(np.abs)),
    **dict.fromkeys(("mulhi", "mul64hi"), _read_signed(bitwise.multiply_high)),
    **dict.fromkeys(("umulhi", "umul64hi"), _read_unsigned(bitwise.multiply_high)),
    "byte_perm": _read_unsigned(bitwise.permute_bytes),
    "mul24": _read_signed(lambda x, y: ((x << 8) >> 8) * ((y << 8) >> 8)),
    "umul24": _read_unsigned(lambda x, y: (x & np.uint32(0xFFFFFF)) * (y & np.uint32(0xFFFFFF))),
    "sad": _read_signed(lambda x, y, z: bitwise.subtract_absolutely(x, y) + z),
    "usad": _read_unsigned(lambda x, y, z: bitwise.subtract_absolutely(x, y) + z),
    "hadd": _read_signed(bitwise.halve_sum),
    "rhadd": _read_signed(partial(bitwise.halve_sum, carry=1)),
    "uhadd": _read_unsigned(bitwise.halve_sum),
    "urhadd": _read_unsigned(partial(bitwise.halve_sum, carry=1)),
}


def _join(high: Array, low: Array) -> Array:
    code = (bits(high).astype(np.uint64) << np.uint64(32)) | bits(low)
    return code.view(np.float64)


_BITS: dict[str, Function] = {
    **dict.fromkeys(("int_as_float", "uint_as_float"), methodcaller("view", "f4")),
    **dict.fromkeys(("float_as_int", "float_as_uint"), methodcaller("view", "i4")),
    "longlong_as_double": methodcaller("view", "f8"),
    "double_as_longlong": methodcaller("view", "i8"),
    "hiloint2double": _join,
    "double2loint": lambda x: bits(x).astype(np.uint32).view(np.int32),
    "double2hiint": lambda x: (bits(x) >> np.uint64(32)).astype(np.uint32).view(np.int32),
}

_INTEGERS = {"int": "i4", "uint": "u4", "ll": "i8", "ull": "u8"}
_FLOATS = {"float": "fp32", "double": "fp64"}


def _conversions() -> dict[str, Function]:
    """Return float2int_rz and its like: every pair of types in every direction."""
    table: dict[str, Function] = {}
    for end, mode in _MODES.items():
        table[f"double2float_{end}"] = partial(round_float, name="fp32", mode=mode)
        for integer, dtype in _INTEGERS.items():
            for real, name in _FLOATS.items():
                to_integer = partial(float_to_integer, dtype=dtype, mode=mode)
                to_float = partial(integer_to_float, name=name, mode=mode)
                table[f"{real}2{integer}_{end}"] = _read_as(dtype[0], to_integer)
                table[f"{integer}2{real}_{end}"] = _read_as(dtype[0], to_float)
    return table


def _roundings() -> dict[str, Function]:
    """Return fadd_rz, dadd_rz, fmaf_rz, fma_rz and their like."""
    table: dict[str, Function] = {}
    for end, mode in _MODES.items():
        for letter in "fd":
            for op in ("add", "sub", "mul", "div", "rcp", "sqrt"):
                table[f"{letter}{op}_{end}"] = partial(arithmetic, op, mode)
        for name in ("fma", "fmaf"):
            table[f"{name}_{end}"] = partial(arithmetic, "fma", mode)
    return table | {"frsqrt_rn": _round_result(_REAL["rsqrt"])}


def _functions() -> Mapping[str, Function]:
    typed = {name: _round_result(function) for name, function in _REAL.items()} | _TYPED
    shared = _INTEGER | _BITS | _FAST | _conversions() | _roundings()
    table: dict[str, Function] = {f"__nv_{name}": function for name, function in shared.items()}
    for name, function in typed.items():
        # libdevice marks float by a final f, and in predicates double by d
        table |= {f"__nv_{name}f": function, f"__nv_{name}": function}
        table |= {f"__nv_{name}d": function} if name.startswith(("is", "signbit")) else {}
        table |= {f"__ocml_{name}_f32": function, f"__ocml_{name}_f64": function}
    table |= {
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
        "__triton_hip_fast_fdividef": partial(arithmetic, "div", "rn"),
    }
    return {symbol: np.errstate(all="ignore")(function) for symbol, function in table.items()}


_FUNCTIONS = _functions()
