"""Dots, scaled dots, and tiles that programs share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from gemmproof.reference.arithmetic import round_to, to_fp32
from gemmproof.reference.dot import DotModel, dot_model, stacked
from gemmproof.reference.dot.stacked import Shared, Stacking, multiply
from gemmproof.reference.dot.triton_dot import NoModel, folds, imprecise_acc, triton_dot
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.simulation import PredictedDot, Unsupported
from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.ops.floats import widen_e5m2
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.session import current
from gemmproof.reference.simulator.value import Lazy, Value, loaded_width, union, unknown_block
from gemmproof.reference.ttir import F32, Dtype, Op
from gemmproof.reference.work import METER

# -- shared tiles --------------------------------------------------------------------------------
# Bytes of blocks deferred in one sum; beyond it they are multiplied.
MOST_WAITING = 1 << 24


class Tiles(Lazy):
    """Loaded blocks, of which programs share some."""

    __slots__ = ()

    def __init__(self, shared: Shared, dtype: Dtype) -> None:
        super().__init__(dtype, loaded=8 * dtype.itemsize)
        lanes = shared.blocks[:1].nbytes * len(shared.of)
        session.check_width(lanes)
        self.shared = shared

    def make(self) -> np.ndarray:
        return self.shared.blocks[self.shared.of]

    def select(self, rows: np.ndarray) -> Value:
        return Tiles(Shared(self.shared.blocks, self.shared.of[rows]), self.dtype)


class Product(Lazy):
    """A sum of dots of shared blocks onto `start`, multiplied when its data are first used."""

    __slots__ = ("layout", "model", "pairs", "start", "waiting")

    def __init__(
        self, dtype: Dtype, model: DotModel, layout: Stacking, start: np.ndarray | None
    ) -> None:
        super().__init__(dtype)
        self.model, self.layout, self.start = model, layout, start
        self.pairs: list[tuple[np.ndarray, np.ndarray]] = []
        self.waiting = 0

    def extend(self, a: Shared, b: Shared) -> Product:
        """Return the sum with one more dot appended."""
        result = Product(self.dtype, self.model, self.layout, self.start)
        result.pairs = [*self.pairs, (a.blocks, b.blocks)]
        result.waiting = self.waiting + a.blocks.nbytes + b.blocks.nbytes
        return result

    def make(self) -> np.ndarray:
        result = multiply(self.model, self.layout, self.pairs, self.start)
        return result.astype(self.dtype.numpy, copy=False)


def product(
    model: DotModel, a: Shared, b: Shared, acc: Value | None, dtype: Dtype
) -> Product | None:
    """Return the deferred dot of shared blocks onto acc, or None if stacking does not pay.

    Every pair of a block of a and a block of b must belong to exactly one program.
    """
    if (
        isinstance(acc, Product)
        and not acc.is_made
        and acc.model == model
        and acc.waiting < MOST_WAITING
        and acc.layout.fits(a, b)
    ):
        return acc.extend(a, b)
    layout = Stacking.find(a, b) if a.blocks.ndim == 3 else None  # of a batch nothing is stacked
    if layout is None:
        return None
    numel = len(a.of) * a.blocks.shape[1] * b.blocks.shape[2]
    session.check_width(numel * dtype.itemsize)
    start = None if acc is None else acc.data
    return Product(dtype, model, layout, start).extend(a, b)


def find_shared(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return representative programs, and the one of each program; None if too few coincide.

    Programs are alike if all the parts (programs or 1, *lanes) of their access are.
    """
    several = [p for p in parts if len(p) > 1]
    programs = len(several[0]) if several else 1
    if programs < 4 or parts[0].ndim == 1:
        return None
    known = current().shared  # in a loop the parts that programs differ in are mostly the same
    key = tuple(map(id, several))
    if key not in known:
        if len(known) > 64:
            known.clear()
        known[key] = several, _find_shared(several)
    return known[key][1]


def _find_shared(several: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
    programs = len(several[0])
    # the first lanes usually distinguish programs; the others are compared afterwards
    keys = np.zeros(programs, np.int64)
    for part in several:
        keys = keys * 1000003 + part.reshape(programs, -1)[:, 0]
    some, like = _group(keys.tobytes())
    if 2 * len(some) > programs or not all(_repeats(p, some, like) for p in several):
        return None
    return some, like


@lru_cache(maxsize=256)
def _group(keys: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the first index of each key, and for every key the number of its first index."""
    unique = np.unique(np.frombuffer(keys, np.int64), return_index=True, return_inverse=True)
    return unique[1], unique[2]


def _repeats(part: np.ndarray, some: np.ndarray, like: np.ndarray) -> bool:
    """Return whether every program's block is its representative's; without a copy in a grid."""
    n, u = len(part), len(some)
    if n % u == 0 and np.array_equal(like, np.arange(n) % u):
        grid = part.reshape(n // u, u, *part.shape[1:])
        return bool((grid == grid[:1]).all())
    if n % u == 0 and np.array_equal(like, np.arange(n) // (n // u)):
        grid = part.reshape(u, n // u, *part.shape[1:])
        return bool((grid == grid[:, :1]).all())
    return np.array_equal(part[some][like], part)


# -- dot -----------------------------------------------------------------------------------------
def is_zero(value: Value) -> bool:
    """Return whether every lane is a defined zero."""
    return value.poison is None and not value.data.any()


def format_of(dtype: Dtype) -> str:
    """Return the format of a type by name. Raises Unsupported if it has none."""
    if not dtype.format:
        raise Unsupported(f"a dot of {dtype} is not known to the tile simulator")
    return dtype.format


def folds_sum(op: Op, target: str | None) -> bool:
    """Return whether the compiler folds `x + tl.dot(a, b)` into the dot."""
    if target not in TARGETS:
        return False
    a, b = (kind.dtype.format for kind in op.operand_types[:2])
    K = op.operand_types[0].shape[-1]
    return folds(imprecise_acc(target, (a, b), _interval(op, K), K))


def _interval(op: Op, K: int) -> int | None:
    """Return max_num_imprecise_acc as given, or None if it is the frontend's default."""
    declared = op.integer("maxNumImpreciseAcc")
    return declared if declared <= K else None


def pick_model(target: str | None, in_format: Any, acc_format: str, **how: Any) -> DotModel:
    """Return triton_dot's model for a target, or the IEEE chain if there is none."""
    try:
        return triton_dot(target if target in TARGETS else None, in_format, acc_format, **how)
    except NoModel:
        return triton_dot(None, in_format, acc_format, **how)


def note_model(model: DotModel, tile: tuple[int, ...], start: Value | None) -> None:
    """Record the model that predicts this dot, or that the target's GPU may round it differently.

    `tile` is (..., M, N, K), after the batch that a block holds; `start` is the sum that it is
    added to, None for a constant zero.
    """
    launch = current()
    if model.target is None:
        if launch.session.target in TARGETS:
            session.note_rounding("dot")
        return
    onto = PredictedDot(launch.where, tile, model, from_zero=False)
    if onto in launch.dots:
        return
    if start is None or not (isinstance(start, Product) or start.data.any()):
        launch.dots.add(replace(onto, from_zero=True))
    else:
        launch.dots.add(onto)


@operation("tt.dot", constant=False)
def _build_dot(op: Op) -> Callable[..., Value]:
    """Product of blocks (..., M, K) and (..., K, N), added onto acc (..., M, N).

    Without a target the products are summed by the IEEE chain: one rounding a term, ascending k,
    starting from acc; fp32 operands are cut to tf32 first if that is the input precision. With
    one, they are summed as by the instruction that Triton picks for the tile (pick_model).
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
                reason = f"no instruction for a dot of {a_format} and {b_format} onto {c_format}"
                raise session.kernel_error(f"tl.dot: Triton's compiler has {reason}") from None
            raise Unsupported(f"tl.dot: {error}", session.where()) from None

    def compute(a: Value, b: Value, c: Value) -> Value:
        launch = current()
        launch.tiles.add((M, N, K))
        if launch.session.sampled:
            return unknown_block(c_kind)
        a, b = _spread(a, a_kind.shape), _spread(b, b_kind.shape)
        METER.products += len(launch.programs) * prod((*c_kind.shape, K))
        pending = isinstance(c, Product)
        from_zero = not pending and c.data.size == 1 and is_zero(c)
        target, loaded = launch.session.target, loaded_width(a, b)
        model = model_of(target, launch.num_warps, loaded, not from_zero)
        poison = undefined_outputs(a, b, c)
        start = None if from_zero else c if pending else c.spread(c_kind.shape)
        note_model(model, (*c_kind.shape, K), start)
        if a.shared is not None and b.shared is not None and poison is None:
            deferred = product(model, a.shared, b.shared, start, c_kind.dtype)
            if deferred is not None:
                return deferred
        data = model.dot(a.data, b.data, None if start is None else start.data)
        return Value(data.astype(c_kind.dtype.numpy, copy=False), c_kind.dtype, poison)

    return compute


def _spread(x: Value, shape: tuple[int, ...]) -> Value:
    """Return the value with every lane present; the blocks that programs share stay known."""
    if x.shared is None or x.shared.blocks.shape[1:] == shape:
        return x if x.shared is not None else x.spread(shape)
    result = x.spread(shape)
    blocks = np.broadcast_to(x.shared.blocks, (len(x.shared.blocks), *shape))
    result.shared = Shared(blocks, x.shared.of)
    return result


def undefined_outputs(a: Value, b: Value, c: Value) -> np.ndarray | None:
    """Return poison of outputs with an undefined term: undefined times zero may be NaN.

    For integers undefined times a defined zero is zero.
    """
    if a.poison is None and b.poison is None:
        return c.poison
    rows, columns = _whole(a), _whole(b)
    if a.dtype.is_float:
        poison: Any = np.bitwise_or(
            np.bitwise_or.reduce(rows, axis=-1, keepdims=True),
            np.bitwise_or.reduce(columns, axis=-2, keepdims=True),
        )
        return union(poison, c.poison)
    live_a = ((a.data != 0) | (rows != 0)).astype(np.float32)
    live_b = ((b.data != 0) | (columns != 0)).astype(np.float32)
    present = int(np.bitwise_or.reduce(rows, None) | np.bitwise_or.reduce(columns, None))
    poison = c.poison
    for bit in (np.uint8(1 << i) for i in range(present.bit_length()) if present >> i & 1):
        undefined_a = (rows & bit != 0).astype(np.float32)
        undefined_b = (columns & bit != 0).astype(np.float32)
        terms = undefined_a @ live_b + live_a @ undefined_b
        poison = union(poison, (terms > 0) * bit)
    return poison


def _whole(x: Value) -> np.ndarray:
    marks = x.marks()
    return np.broadcast_to(marks, marks.shape[:1] + x.data.shape[1:])


# -- dot scaled ----------------------------------------------------------------------------------
_FORM = re.compile(r"tt\.dot_scaled %[^\s,]+( scale %[^\s,]+)?, %[^\s,]+( scale %[^\s,]+)?,")
_EXACT = dot_model(None, "fp32")


@operation("tt.dot_scaled", constant=False)
def _build_dot_scaled(op: Op) -> Callable[..., Value]:
    """Product of (..., M, K) and (..., K, N) with scales (..., M, K/group) and (..., N, K/group).

    Without a target, and where its tensor cores multiply scaled operands (no model of their sum is
    verified), the exact values are summed by the IEEE chain. Other targets widen the operands to 16
    bits, multiply them by their scales in that format, and sum them as any dot.
    Raises Unsupported for formats without a meaning here.
    """
    match = _FORM.search(op.text)
    scaled = [bool(match and match[i]) for i in (1, 2)]
    kinds, names = op.operand_types, (op.attrs.get("lhs", ""), op.attrs.get("rhs", ""))
    k_packed = [op.attrs.get(f"{side}_k_pack", "true") == "true" for side in ("lhs", "rhs")]
    fast_math = op.attrs.get("fastMath", "false") == "true"
    for name in names:
        if name not in stacked.KNOWN:
            raise Unsupported(f"tt.dot_scaled of {name} is not known to the tile simulator")

    def compute(*values: Value) -> Value:
        launch = current()
        if launch.session.sampled:
            return unknown_block(kinds[-1])
        target = launch.session.target
        to = stacked.computed_format(target, *names) if target in TARGETS else None
        operands = [v.spread(kind.shape) for v, kind in zip(values, kinds, strict=True)]
        c, rest, sides = operands.pop(), iter(operands), []
        for i, axis in enumerate((-1, -2)):
            x = _widen(next(rest), names[i], axis if k_packed[i] else -3 - axis, to)
            if scaled[i]:
                s = next(rest)
                s = s.map(lambda d: d.swapaxes(-1, -2)) if axis == -2 else s
                x = _scale(x, s, axis, to, fast_math)
            sides.append(x)
        a, b = sides
        M, K, N = *a.data.shape[-2:], b.data.shape[-1]
        launch.tiles.add((M, N, K))
        loaded = min(abs(loaded_width(*operands)) or 16, 4 if "e2m1" in names else 16)
        model = _EXACT
        if to is not None:
            tile = {"BLOCK_M": M, "BLOCK_N": N, "BLOCK_K": K, "num_warps": launch.num_warps}
            ndim = len(kinds[0].shape)
            model = pick_model(target, to, "fp32", **tile, ndim=ndim, loaded_bits=loaded)
            a, b = (Value(round_to(x.data, FORMATS[to]), F32, x.poison) for x in (a, b))
        note_model(model, (*kinds[-1].shape, K), c)
        data = model.dot(a.data, b.data, c.data.astype(np.float32))
        return Value(data.astype(c.dtype.numpy), c.dtype, undefined_outputs(a, b, c))

    return compute


def _widen(x: Value, name: str, packed_axis: int, to: str | None) -> Value:
    """Return the operand's values as fp32, exactly, or rounded to the format `to`."""
    raw, poison = np.ascontiguousarray(x.data), x.poison
    data = stacked.widen(raw, name, packed_axis)
    if to is not None:
        by_bias = name == "e5m2" and to == "bf16"
        data = to_fp32(widen_e5m2(raw) if by_bias else round_to(data, FORMATS[to]))
    if poison is not None and data.shape != x.data.shape:
        poison = np.repeat(np.broadcast_to(poison, x.data.shape), 2, axis=packed_axis)
    return Value(data, F32, poison)


def _scale(x: Value, scale: Value, axis: int, to: str | None, fast_math: bool) -> Value:
    """Return the operand times the scales of its groups along K."""
    raw = np.ascontiguousarray(scale.data)
    if to is None:
        data = stacked.scale(x.data, stacked.factors(raw), axis)
    else:
        factors = stacked.computed_factors(raw, to, fast_math)
        data = to_fp32(round_to(stacked.scale(x.data, factors, axis), FORMATS[to]))
    poison = x.poison
    if scale.poison is not None:
        n = x.data.shape[axis] // raw.shape[axis]
        bits = np.repeat(np.broadcast_to(scale.poison, raw.shape), n, axis=axis)
        poison = union(poison, bits)
    return Value(data, F32, poison)
