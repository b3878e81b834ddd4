"""Operations of TTIR on floats: casts, arithmetic, functions, inline assembly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from gemmproof.reference import bitwise
from gemmproof.reference.arithmetic import float_to_integer, round_float, round_to, to_fp32
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.libdevice import function_of
from gemmproof.reference.ptx import (
    Assembly,
    UnknownAsm,
    bind_constants,
    compile_asm,
    list_constants,
)
from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.ops.registry import elementwise, operation
from gemmproof.reference.simulator.value import Value, union
from gemmproof.reference.ttir import F32, F64, I1, Dtype, Op, Type, unsigned

# -- floats --------------------------------------------------------------------------------------
Function = Callable[[np.ndarray, np.ndarray], np.ndarray]


CANONICAL = {
    f.storage: f.nan
    for f in FORMATS.values()
    if f.kind == "float" and f.stored is f and not f.is_fp8
}
_FLOAT: dict[str, tuple[Function, str]] = {
    "arith.addf": (np.add, "+"),
    "arith.subf": (np.subtract, "-"),
    "arith.mulf": (np.multiply, "*"),
    "arith.divf": (np.true_divide, "/"),
    "tt.precise_divf": (np.true_divide, "/"),
    "tt.approx_divf": (np.true_divide, "/"),
    "arith.minnumf": (lambda x, y: least(np.fmin, x, y), ""),
    "arith.maxnumf": (lambda x, y: greatest(np.fmax, x, y), ""),
    "arith.minimumf": (lambda x, y: least(np.minimum, x, y), ""),
    "arith.maximumf": (lambda x, y: greatest(np.maximum, x, y), ""),
}


def least(function: Function, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the smaller number; -0 is smaller than 0."""
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, np.where(np.signbit(x), x, y), function(x, y))


def greatest(function: Function, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the larger number; 0 is larger than -0."""
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, np.where(np.signbit(x), y, x), function(x, y))


def canonical(data: np.ndarray) -> np.ndarray:
    """Return the same numbers with the device's one NaN, whatever the operands' were."""
    if data.dtype in CANONICAL:
        nan = np.isnan(data)
        if nan.any():
            data = np.where(nan, CANONICAL[data.dtype], data)
    return data


@operation(*_FLOAT)
def _build_float(op: Op) -> Callable[..., Value]:
    function, rounds = _FLOAT[op.name]
    return elementwise(lambda x, y: canonical(function(x, y)), op.types[0].dtype, rounds)


@operation("arith.negf")
def _build_negation(op: Op) -> Callable[..., Value]:
    return elementwise(np.negative, op.types[0].dtype)


@operation("tt.clampf")
def _build_clamp(op: Op) -> Callable[..., Value]:
    keep = op.attrs.get("propagateNan", "none") == "all"
    low_of, high_of = (np.maximum, np.minimum) if keep else (np.fmax, np.fmin)

    def clamp(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return canonical(least(high_of, greatest(low_of, x, low), high))

    return elementwise(clamp, op.types[0].dtype)


# -- cast ----------------------------------------------------------------------------------------
_KNOWN_STORAGE = {f.storage.name for f in FORMATS.values()}


@operation("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.index_castui")
def build_integer_cast(op: Op) -> Callable[..., Value]:
    dtype = op.types[0].dtype
    without_sign = op.name in ("arith.extui", "arith.index_castui")

    def compute(x: Value) -> Value:
        if dtype is I1:
            return Value((x.data & 1).astype(np.bool_), dtype, x.poison, loaded=x.loaded)
        read = unsigned(x.data) if without_sign else x.data
        if x.dtype is I1 and not without_sign:
            read = -read.astype(np.int8)  # the sign of one bit
        data = read.astype(dtype.numpy)
        exact = x.exact
        if exact is None and dtype.bits < x.dtype.bits:
            exact = read.astype(np.int64)
        if exact is not None and (exact == data).all():
            exact = None
        result = Value(data, dtype, x.poison, exact, loaded=x.loaded)
        if exact is None and x.span and (not without_sign or x.span[0] >= 0):
            result.span = x.span
        return result

    return compute


@operation("arith.fptosi", "arith.fptoui")
def _build_to_integer(op: Op) -> Callable[..., Value]:
    """Floats to integers: cut toward zero, saturating at the width that PTX converts to.

    PTX has no conversion to 8 bits: cvt.rzi.s16 (u16) saturates at 16 and the low byte is kept.
    """
    dtype = op.types[0].dtype
    sign = "u" if op.name == "arith.fptoui" else "i"
    wide = np.dtype(f"{sign}{max(2, dtype.itemsize)}")

    def convert(data: np.ndarray) -> np.ndarray:
        whole = float_to_integer(data, wide, "rz")
        return whole & 1 if dtype is I1 else whole

    return elementwise(convert, dtype)


@operation("arith.sitofp", "arith.uitofp")
def _build_from_integer(op: Op) -> Callable[..., Value]:
    source, dtype = op.operand_types[0].dtype, op.types[0].dtype
    without_sign = op.name == "arith.uitofp"

    def convert(data: np.ndarray) -> np.ndarray:
        if source is I1:
            data = data.astype(np.int8) if without_sign else -data.astype(np.int8)
        return to_float(unsigned(data) if without_sign else data, dtype)

    return elementwise(convert, dtype)


@operation("arith.extf", "arith.truncf", "tt.fp_to_fp")
def _build_float_cast(op: Op) -> Callable[..., Value]:
    source, dtype = op.operand_types[0].dtype, op.types[0].dtype
    cut = op.attrs.get("rounding") == "rtz"
    by_bias = source.name == "f8E5M2" and dtype.name == "bf16"
    missing = _lacks_conversion(source, dtype, cut)

    def convert(data: np.ndarray) -> np.ndarray:
        if missing and session.runs_on_nvidia():
            way = f"{source} to {dtype}{' toward zero' if cut else ''}"
            raise session.kernel_error(f"Triton's compiler has no conversion of {way}")
        if by_bias and session.runs_on_nvidia():
            return widen_e5m2(data)
        return round_float(data, dtype.format, "rz") if cut else to_float(data, dtype)

    return elementwise(convert, dtype)


def _lacks_conversion(source: Dtype, target: Dtype, cut: bool) -> bool:
    """Return whether Triton's compiler fails at this conversion on every NVIDIA GPU."""
    fp8 = ("f8E4M3FN", "f8E5M2")
    if cut and target.bits < source.bits:
        if target.name in fp8:
            return target.name == "f8E4M3FN" or source is not F32
        return source is F64
    if source.name in fp8:
        return target is F64 or (target.name in fp8 and target is not source)
    return source is F64 and target.name in fp8


def to_float(data: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Convert numbers to floats, nearest even; fp8 saturates as PTX's conversions do."""
    target = dtype.numpy
    if data.dtype == target:
        return data
    if not dtype.format:  # the fnuz types of AMD: widen to fp32, then ml_dtypes rounds
        return data.astype(np.float32).astype(target)
    if data.dtype.name not in _KNOWN_STORAGE:
        data = data.astype(np.float32) if data.dtype.kind != "u" else data.astype(np.uint64)
    if dtype is F32 and data.dtype.name == "bfloat16":
        return to_fp32(data)  # a shift: a NaN keeps its bits
    if dtype is F32 and (data.dtype == np.float16 or data.dtype.itemsize == 1):
        return canonical(to_fp32(data) if data.dtype.kind != "i" else data.astype(target))
    return round_to(data, FORMATS[dtype.format], saturate=target.itemsize == 1)


def widen_e5m2(data: np.ndarray) -> np.ndarray:
    """Convert e5m2 to bf16 as Triton's code for NVIDIA does, by the exponent's bias alone.

    So Inf becomes 65536, and NaN a number beyond it (recorded on an H200).
    """
    codes = data.view(np.uint8)
    fraction = (codes & 3).astype(np.float32)
    special = np.copysign(np.float32(65536) * (1 + fraction / 4), np.where(codes & 128, -1, 1))
    wide = np.where(codes & 0x7C == 0x7C, special, to_fp32(data))
    return round_to(wide.astype(np.float32), FORMATS["bf16"])


@operation("arith.bitcast", "tt.bitcast", "tt.ptr_to_int", "tt.int_to_ptr", "gemmproof.same")
def _build_bitcast(op: Op) -> Callable[..., Value]:
    dtype = op.types[0].dtype

    def compute(x: Value) -> Value:
        if x.dtype is dtype:
            return x
        if dtype.is_pointer or x.dtype.is_pointer:
            base = x.base if dtype.is_pointer else None
            return Value(x.data.astype(dtype.numpy), dtype, x.poison, x.exact, base)
        data = np.ascontiguousarray(x.data).view(dtype.numpy)
        return Value(data, dtype, x.poison, loaded=x.loaded)

    return compute


# -- math ----------------------------------------------------------------------------------------
# The library's name, if it differs from the operation's. Functions that round are recorded: a GPU's
# own function may differ in the last bits.
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
    """a - trunc(a / b) b as the compiled kernel does: the quotient rounded, then one fma."""
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


# -- special -------------------------------------------------------------------------------------
# NVIDIA's registers, and the instructions of AMD's assembly in Triton's own library.
_READS = re.compile(
    r"mov\.[bus](?:32|64) \$0, %(globaltimer(?:_lo|_hi)?|clock(?:_hi|64)?|n?smid) ?;?"
    r"|(s_memrealtime|s_sendmsg_rtn_b64|s_getreg_b32) \$0\b.*"
)
_GRID_CONTROL = re.compile(r"griddepcontrol\.(?:wait|launch_dependents) ?;?")
_TICK = 1000  # a clock advances by this at each read, so that a kernel that waits for it ends


def special_register(asm: str, kind: Type) -> Callable[[], Value] | None:
    """Return the function that computes the result of such assembly, or None for any other."""
    text = " ".join(re.sub(r"/\*.*?\*/|//[^\n]*", " ", asm, flags=re.DOTALL).split())
    if _GRID_CONTROL.fullmatch(text):  # launches run one after the other
        return lambda: Value(np.zeros(1, kind.dtype.numpy), kind.dtype)
    match = _READS.fullmatch(text)
    if match is None:
        return None
    reason = f"a value that only the GPU knows ({match[1] or match[2]})"

    def compute() -> Value:
        launch = session.current()
        launch.ticks += _TICK
        now = np.array([launch.ticks]).astype(kind.dtype.numpy)
        return Value(now, kind.dtype, np.ones(1, np.uint8) * session.poison_bit(reason))

    return compute


# -- assembly ------------------------------------------------------------------------------------
@operation("tt.elementwise_inline_asm", constant=False)
def _build_assembly(op: Op) -> Callable[..., Any]:
    asm, pack = op.strings[0], op.integer("packed_element", 1)
    if not op.operand_types and (read := special_register(asm, op.types[0])) is not None:
        return read
    shape = op.operand_types[0].shape if op.operand_types else op.types[0].shape
    sources = [kind.dtype.numpy for kind in op.operand_types]
    results = [kind.dtype.numpy for kind in op.types]
    types = op.attrs["constraints"], sources, results, pack
    fixed: list[int] = []

    @lru_cache
    def compile_with(*numbers: int) -> Assembly:
        constants = dict(zip(fixed, numbers, strict=True))
        text, constraints = bind_constants(asm, *types, constants)
        rest = [dtype for i, dtype in enumerate(sources) if i not in constants]
        return compile_asm(text, constraints, rest, results, pack)

    try:
        fixed += list_constants(*types)
        compile_with(*[0] * len(fixed))
    except UnknownAsm as error:
        raise Unsupported(f"inline assembly {' '.join(asm.split())[:80]!r}: {error}") from None

    def compute(*values: Value) -> Any:
        """Neighbouring lanes share registers, so a lane is as undefined as its group."""
        numbers = [int(values[i].data.flat[0]) for i in fixed]
        if any((values[i].data != n).any() for i, n in zip(fixed, numbers, strict=True)):
            raise session.kernel_error("inline assembly: constraint n needs a constant operand")
        assembly = compile_with(*numbers)
        for rounding in assembly.rounds:
            session.note_rounding(rounding)
        programs = max((len(v.data) for v in values), default=1)
        full = (programs, *shape)
        flat = [np.ascontiguousarray(np.broadcast_to(v.data, full)).reshape(-1) for v in values]
        variable = [x for i, x in enumerate(flat) if i not in fixed]
        arrays = assembly.run(variable, math.prod(full))
        poison = union(*(v.poison for v in values))
        if poison is not None and pack > 1:
            groups = np.broadcast_to(poison, full).reshape(-1, pack)
            poison = np.repeat(np.bitwise_or.reduce(groups, axis=1), pack).reshape(full)
        results = tuple(
            Value(part.reshape(full), kind.dtype, poison)
            for part, kind in zip(arrays, op.types, strict=True)
        )
        return results[0] if len(results) == 1 else results

    return compute


@operation("tt.extern_elementwise", constant=False)
def _build_extern(op: Op) -> Callable[..., Value]:
    symbol = op.attrs["symbol"]
    function = function_of(symbol)
    if function is None:
        raise Unsupported(f"the library function {symbol} is not known to the tile simulator")
    return elementwise(function, op.types[0].dtype, "math")
