"""Casts as the compiled kernel does them: nearest even from the exact value, saturating fp8."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmproof.reference.arithmetic.conversions import round_to, to_fp32
from gemmproof.reference.arithmetic.rounding import float_to_integer, round_float
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.ops.floats import canonical
from gemmproof.reference.simulator.ops.registry import elementwise, operation
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.ttir.dtypes import F32, F64, I1, Dtype, unsigned
from gemmproof.reference.ttir.module import Op

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
        made = Value(data, dtype, x.poison, exact, loaded=x.loaded)
        if exact is None and x.span and (not without_sign or x.span[0] >= 0):
            made.span = x.span
        return made

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
        if missing and context.runs_on_nvidia():
            way = f"{source} to {dtype}{' toward zero' if cut else ''}"
            raise context.kernel_error(f"Triton's compiler has no conversion of {way}")
        if by_bias and context.runs_on_nvidia():
            return widen_e5m2(data)
        return round_float(data, dtype.format, "rz") if cut else to_float(data, dtype)

    return elementwise(convert, dtype)


def _lacks_conversion(source: Dtype, target: Dtype, cut: bool) -> bool:
    """Whether Triton's compiler ends at this conversion on every NVIDIA GPU."""
    fp8 = ("f8E4M3FN", "f8E5M2")
    if cut and target.bits < source.bits:
        if target.name in fp8:
            return target.name == "f8E4M3FN" or source is not F32
        return source is F64
    if source.name in fp8:
        return target is F64 or (target.name in fp8 and target is not source)
    return source is F64 and target.name in fp8


def to_float(data: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Numbers to floats, nearest even; fp8 saturates as PTX's conversions do."""
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
    """e5m2 as bf16, as Triton's code for NVIDIA does it: by the exponent's bias alone.

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
