"""Mathematical functions, by the names under which the device libraries have them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmproof.reference.arithmetic import bitwise
from gemmproof.reference.libdevice import function_of
from gemmproof.reference.simulator.ops.floats import canonical
from gemmproof.reference.simulator.ops.registry import elementwise, operation
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.dtypes import unsigned
from gemmproof.reference.ttir.module import Op

# The library's name, where it is not the operation's. What rounds is noted: a GPU's own function
# may differ in the last bits.
_ROUNDED = {
    **{
        f"math.{name}": name
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan"),
            *("sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2"),
            *("sqrt", "rsqrt", "cbrt", "erf", "erfc", "copysign"),
        )
    },
    "math.powf": "pow",
    "tt.precise_sqrt": "sqrt",
}
_EXACT = {
    **{f"math.{name}": name for name in ("floor", "ceil", "trunc", "round", "fma")},
    "math.roundeven": "rint",
    "math.absf": "fabs",
}


@operation(*_ROUNDED, *_EXACT)
def _build_function(op: Op) -> Callable[..., Value]:
    function = function_of(f"__nv_{(_ROUNDED | _EXACT)[op.name]}")
    assert function is not None
    rounds = "math" if op.name in _ROUNDED else ""
    return elementwise(lambda *data: canonical(function(*data)), op.types[0].dtype, rounds)


@operation("arith.remf")
def _build_remainder(op: Op) -> Callable[..., Value]:
    """a - trunc(a / b) b as the compiled kernel has it: the quotient rounded, then one fma."""
    dtype = op.types[0].dtype
    multiply_add = function_of("__nv_fma")
    assert multiply_add is not None

    def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        quotient = np.trunc(np.true_divide(a, b).astype(dtype.numpy))
        return canonical(np.where(np.isinf(b), a, multiply_add(-quotient, b, a)))

    return elementwise(remainder, dtype, "/")


_BITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "math.absi": np.abs,
    "math.ctpop": lambda x: bitwise.count_ones(unsigned(x)),
    "math.ctlz": lambda x: bitwise.count_leading_zeros(unsigned(x)),
    "math.cttz": lambda x: np.where(x == 0, 8 * x.dtype.itemsize, bitwise.lowest_bit(x)),
}


@operation(*_BITS)
def _build_bit_function(op: Op) -> Callable[..., Value]:
    return elementwise(_BITS[op.name], op.types[0].dtype)
