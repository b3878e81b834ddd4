"""tt.dot: the undefined lanes, and the arithmetic left to a dot model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from gemmproof.reference.dot import DotModel
from gemmproof.reference.dot.triton import NoModel, folds, imprecise_acc, triton_dot
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.observation import PredictedDot, Unsupported
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.ops.dots import shared_tiles
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.value import Value, loaded_width, union, unknown_block
from gemmproof.reference.ttir.dtypes import Dtype
from gemmproof.reference.ttir.module import Op
from gemmproof.reference.work import METER


def is_zero(value: Value) -> bool:
    """Whether every lane is a defined zero."""
    return value.poison is None and not value.data.any()


def format_of(dtype: Dtype) -> str:
    """The name under which the numerics know a type. Raises Unsupported where they do not."""
    if not dtype.format:
        raise Unsupported(f"a dot of {dtype} is not known to the tile simulator")
    return dtype.format


def folds_sum(op: Op, target: str | None) -> bool:
    """Whether the compiler folds `x + tl.dot(a, b)` into the dot."""
    if target not in TARGETS:
        return False
    a, b = (kind.dtype.format for kind in op.operand_types[:2])
    K = op.operand_types[0].shape[-1]
    return folds(imprecise_acc(target, (a, b), _interval(op, K), K))


def _interval(op: Op, K: int) -> int | None:
    """max_num_imprecise_acc as it was given, None where the frontend filled in its default."""
    stated = op.integer("maxNumImpreciseAcc")
    return stated if stated <= K else None


def pick_model(target: str | None, in_format: Any, acc_format: str, **how: Any) -> DotModel:
    """triton_dot's model for a target, or the IEEE chain where there is none."""
    try:
        return triton_dot(target if target in TARGETS else None, in_format, acc_format, **how)
    except NoModel:
        return triton_dot(None, in_format, acc_format, **how)


def note_model(model: DotModel, tile: tuple[int, ...], start: Value | None) -> None:
    """Record which model predicts this dot, or that the target's GPU may round it differently.

    `tile` is (..., M, N, K), after the batch that a block holds; `start` is the sum that it is
    added to, None for a constant zero.
    """
    launch = current()
    if model.target is None:
        if launch.session.target in TARGETS:
            context.note_rounding("dot")
        return
    onto = PredictedDot(launch.where, tile, model, from_zero=False)
    if onto in launch.dots:
        return
    if start is None or not (isinstance(start, shared_tiles.Product) or start.data.any()):
        launch.dots.add(replace(onto, from_zero=True))
    else:
        launch.dots.add(onto)


@operation("tt.dot", constant=False)
def _build_dot(op: Op) -> Callable[..., Value]:
    """Product of blocks (..., M, K) and (..., K, N), added onto acc (..., M, N).

    Without a target the products are summed by the IEEE chain: one rounding a term, ascending k,
    starting from acc; fp32 operands are cut to tf32 first where that is the input precision. With
    one, as the instruction does that Triton picks for the tile (pick_model).
    """
    a_kind, b_kind, c_kind = op.operand_types
    M, K, N = a_kind.shape[-2], a_kind.shape[-1], b_kind.shape[-1]
    a_format, b_format, c_format = (format_of(kind.dtype) for kind in (a_kind, b_kind, c_kind))

    @lru_cache(maxsize=64)
    def model_of(target: str | None, num_warps: int, loaded: int, acc_passed: bool) -> DotModel:
        try:
            return pick_model(
                target,
                a_format if a_format == b_format else (a_format, b_format),
                c_format,
                BLOCK_M=M,
                BLOCK_N=N,
                BLOCK_K=K,
                num_warps=num_warps,
                input_precision=op.attrs.get("inputPrecision", "ieee"),
                max_num_imprecise_acc=_interval(op, K),
                acc_passed=acc_passed,
                ndim=len(a_kind.shape),
                loaded_bits=abs(loaded) or None,
                joined=loaded < 0,
            )
        except ValueError as error:
            if c_format not in ("fp32", "fp16") and a_format not in ("int8", "fp64"):
                words = f"no instruction for a dot of {a_format} and {b_format} onto {c_format}"
                raise context.kernel_error(f"tl.dot: Triton's compiler has {words}") from None
            raise Unsupported(f"tl.dot: {error}", context.where()) from None

    def compute(a: Value, b: Value, c: Value) -> Value:
        launch = current()
        launch.tiles.add((M, N, K))
        if launch.session.sampled:
            return unknown_block(c_kind)
        a, b = _spread(a, a_kind.shape), _spread(b, b_kind.shape)
        METER.products += len(launch.programs) * prod((*c_kind.shape, K))
        pending = isinstance(c, shared_tiles.Product)
        from_zero = not pending and c.data.size == 1 and is_zero(c)
        target, loaded = launch.session.target, loaded_width(a, b)
        model = model_of(target, launch.num_warps, loaded, not from_zero)
        poison = undefined_outputs(a, b, c)
        start = None if from_zero else c if pending else c.spread(c_kind.shape)
        note_model(model, (*c_kind.shape, K), start)
        if a.shared is not None and b.shared is not None and poison is None:
            made = shared_tiles.product(model, a.shared, b.shared, start, c_kind.dtype)
            if made is not None:
                return made
        data = model.dot(a.data, b.data, None if start is None else start.data)
        return Value(data.astype(c_kind.dtype.numpy, copy=False), c_kind.dtype, poison)

    return compute


def _spread(x: Value, shape: tuple[int, ...]) -> Value:
    """The value with every lane present; the blocks that programs share keep being known."""
    if x.shared is None or x.shared.blocks.shape[1:] == shape:
        return x if x.shared is not None else x.spread(shape)
    made = x.spread(shape)
    blocks = np.broadcast_to(x.shared.blocks, (len(x.shared.blocks), *shape))
    made.shared = shared_tiles.Shared(blocks, x.shared.of)
    return made


def undefined_outputs(a: Value, b: Value, c: Value) -> np.ndarray | None:
    """An output is undefined if any of its terms is: undefined times zero may be NaN.

    For integers undefined times a defined zero is zero.
    """
    if a.poison is None and b.poison is None:
        return c.poison
    rows, columns = _whole(a), _whole(b)
    if a.dtype.is_float:
        found: Any = np.bitwise_or(
            np.bitwise_or.reduce(rows, axis=-1, keepdims=True),
            np.bitwise_or.reduce(columns, axis=-2, keepdims=True),
        )
        return union(found, c.poison)
    live_a = ((a.data != 0) | (rows != 0)).astype(np.float32)
    live_b = ((b.data != 0) | (columns != 0)).astype(np.float32)
    bits = np.bitwise_or(np.bitwise_or.reduce(rows, None), np.bitwise_or.reduce(columns, None))
    terms = (rows != 0).astype(np.float32) @ live_b + live_a @ (columns != 0).astype(np.float32)
    return union((terms > 0) * bits, c.poison)


def _whole(x: Value) -> np.ndarray:
    marks = x.marks()
    return np.broadcast_to(marks, marks.shape[:1] + x.data.shape[1:])
