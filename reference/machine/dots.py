"""tl.dot: Triton's checks, the undefined lanes, and the arithmetic left to a dot model."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

import numpy as np
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import min_dot_size

from gemmproof.reference.dot import DotModel
from gemmproof.reference.dot_triton import folds, imprecise_acc, triton_dot
from gemmproof.reference.machine import execution, shared_tiles
from gemmproof.reference.machine.cast import format_name
from gemmproof.reference.machine.observation import Unsupported
from gemmproof.reference.machine.types import is_float, numpy_of
from gemmproof.reference.machine.value import Value, lift, union

# fp32 in Triton 3.6; None, which means acc's type, in later versions
_OUT_DTYPE = inspect.signature(tl.dot).parameters["out_dtype"].default


def dot(
    input: Any,
    other: Any,
    acc: Any = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: tl.dtype | None = _OUT_DTYPE,
) -> Value:
    """Product of blocks (..., M, K) and (..., K, N), added onto `acc` (..., M, N).

    Without a target the products are summed by the IEEE chain: one rounding a term, ascending k,
    starting from acc. With one, as the instruction does that Triton picks for the tile; a sum
    `acc + tl.dot(a, b)` is folded into the dot where the compiler folds it.
    Raises KernelError for what Triton refuses, Unsupported for a dot that has no model.
    """
    a, b = lift(input), lift(other)
    _check(a, b)
    if out_dtype is None:
        out_dtype = tl.float32 if acc is None else lift(acc).dtype
    result = _result_type(a, out_dtype)
    M, K, N = a.shape[-2], a.shape[-1], b.shape[-1]
    if acc is not None:
        onto = lift(acc)
        if onto.dtype != result or onto.shape != (*a.shape[:-2], M, N):
            raise execution.kernel_error(
                f"tl.dot: acc is {onto!r}, expected {result}{[*a.shape[:-2], M, N]}"
            )
    execution.current().tiles.add((M, N, K))
    if allow_tf32 is not None and input_precision is None:
        input_precision = "tf32" if allow_tf32 else "ieee"
    passed, apart, folds = _models(
        execution.current().session.target,
        format_name(a.dtype),
        format_name(b.dtype),
        format_name(result),
        (M, N, K),
        execution.current().num_warps,
        input_precision,
        max_num_imprecise_acc,
        len(a.shape),
        min((v.loaded for v in (a, b) if v.loaded), default=0),
    )
    if acc is not None:
        return _apply(passed, a, b, lift(acc), result)
    product = _apply(apart, a, b, None, result)
    if folds:
        product.fold = lambda onto: _apply(passed, a, b, onto, result)
    return product


@lru_cache(maxsize=1024)
def _models(
    target: str | None,
    a_format: str,
    b_format: str,
    acc_format: str,
    tile: tuple[int, int, int],
    num_warps: int,
    input_precision: str | None,
    max_num_imprecise_acc: int | None,
    ndim: int,
    loaded_bits: int,
) -> tuple[DotModel, DotModel, bool]:
    """The models of a dot with acc passed and of one from zero, and whether a sum is folded."""
    formats = a_format if a_format == b_format else (a_format, b_format)
    M, N, K = tile

    def model(acc_passed: bool) -> DotModel:
        return triton_dot(
            target,
            formats,
            acc_format,
            BLOCK_M=M,
            BLOCK_N=N,
            BLOCK_K=K,
            num_warps=num_warps,
            input_precision=input_precision,
            max_num_imprecise_acc=max_num_imprecise_acc,
            acc_passed=acc_passed,
            ndim=ndim,
            loaded_bits=loaded_bits or None,
        )

    try:
        interval = imprecise_acc(target, formats, max_num_imprecise_acc, K)
        return model(True), model(False), target is not None and folds(interval)
    except ValueError as error:
        raise Unsupported(f"tl.dot: {error}", execution.where()) from None


def _apply(model: DotModel, a: Value, b: Value, acc: Value | None, result: tl.dtype) -> Value:
    start = None if acc is None else acc.data
    data = None
    if a.shared is not None and b.shared is not None:
        data = shared_tiles.product(model, a.shared, b.shared, start)
    if data is None:
        data = model.dot(a.data, b.data, start)
    return Value(data.astype(numpy_of(result), copy=False), result, _poison(a, b, acc))


def _check(a: Value, b: Value) -> None:
    if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3):
        raise execution.kernel_error(f"tl.dot: got {a!r} and {b!r}, expected two blocks of rank 2")
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise execution.kernel_error(f"tl.dot: the inner sizes of {a!r} and {b!r} differ")
    both_fp8 = a.dtype.is_fp8() and b.dtype.is_fp8()
    if a.dtype != b.dtype and not both_fp8:
        raise execution.kernel_error(f"tl.dot: got {a!r} and {b!r}, expected one dtype")
    if not is_float(a.dtype) and a.dtype != tl.int8:
        raise execution.kernel_error(f"tl.dot: got {a.dtype}, of the integers only int8 is taken")
    if a.shape[-1] < (least := _least_k(a.dtype)):
        raise execution.kernel_error(f"tl.dot: got K={a.shape[-1]} for {a.dtype}, least is {least}")


def _least_k(dtype: tl.dtype) -> int:
    """The smallest K that the installed Triton compiles for NVIDIA."""
    block = tl.block_type(dtype, [16, 16])
    return int(min_dot_size(GPUTarget("cuda", 90, 32))(block, block)[2])


def _result_type(a: Value, out_dtype: tl.dtype) -> tl.dtype:
    if not is_float(a.dtype):
        return tl.int32
    if out_dtype == tl.bfloat16:
        raise execution.kernel_error("tl.dot: out_dtype bf16 is not supported")
    if out_dtype == tl.float16 and a.dtype not in (tl.float32, tl.bfloat16):
        return tl.float16
    return tl.float64 if a.dtype.is_fp64() else tl.float32


def _poison(a: Value, b: Value, acc: Value | None) -> np.ndarray | None:
    """An output is undefined if any of its terms is: undefined times zero may be NaN.

    For integers undefined times a defined zero is zero.
    """
    if a.poison is None and b.poison is None:
        return None if acc is None else acc.poison
    rows = _whole(a)
    columns = _whole(b)
    if is_float(a.dtype):
        found = np.bitwise_or(
            np.bitwise_or.reduce(rows, axis=-1, keepdims=True),
            np.bitwise_or.reduce(columns, axis=-2, keepdims=True),
        )
        return union(found, None if acc is None else acc.poison)
    live_a = ((a.data != 0) | (rows != 0)).astype(np.float32)
    live_b = ((b.data != 0) | (columns != 0)).astype(np.float32)
    bits = np.bitwise_or(np.bitwise_or.reduce(rows, None), np.bitwise_or.reduce(columns, None))
    terms = (rows != 0).astype(np.float32) @ live_b + live_a @ (columns != 0).astype(np.float32)
    return union((terms > 0) * bits, None if acc is None else acc.poison)


def _whole(x: Value) -> np.ndarray:
    if x.poison is None:
        return np.zeros((1, *x.shape), np.uint8)
    return np.broadcast_to(x.poison, x.poison.shape[:1] + x.shape)
