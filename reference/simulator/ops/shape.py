"""Making blocks and changing their shape: ranges, constants, reshape, permute, join and others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemmproof.reference.observation import Unsupported
from gemmproof.reference.simulator import context
from gemmproof.reference.simulator.context import current
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.value import Value, loaded_width, union
from gemmproof.reference.ttir.dtypes import I32, Type
from gemmproof.reference.ttir.module import Op


@operation("tt.get_program_id", constant=False)
def _build_program_id(op: Op) -> Callable[..., Value]:
    axis = "xyz".index(op.words[0])

    def compute() -> Value:
        launch = current()
        x, y, _ = launch.grid
        ids = launch.programs
        ids = (ids % x, ids // x % y, ids // (x * y))[axis]
        made = Value((ids[:1] if launch.grid[axis] == 1 else ids).astype(np.int32), I32)
        made.span = (0, launch.grid[axis] - 1)
        return made

    return compute


@operation("tt.get_num_programs", constant=False)
def _build_num_programs(op: Op) -> Callable[..., Value]:
    axis = "xyz".index(op.words[0])
    return lambda: Value(np.array([current().grid[axis]], np.int32), I32)


@operation("arith.constant")
def _build_constant(op: Op) -> Callable[..., Value]:
    kind = op.types[0]
    value = Value(_read_constant(op.words[0], kind), kind.dtype)
    return lambda: value


def _read_constant(text: str, kind: Type) -> np.ndarray:
    """The data of a constant: one for all lanes, or a list."""
    dense = re.fullmatch(r"dense<(.*)>", text, re.DOTALL)
    inner = dense[1] if dense else text
    items = re.findall(r"[^\[\],\s]+", inner)
    numbers = np.array([_number(item, kind) for item in items]).astype(kind.dtype.numpy)
    if len(numbers) == 1:
        return numbers.reshape(1, *(1,) * len(kind.shape))
    return numbers.reshape(1, *kind.shape)


def _number(text: str, kind: Type) -> Any:
    """A number as MLIR writes it: true, 42, 1.5e+00, or the bits of a float in hexadecimal."""
    if text in ("true", "false"):
        return text == "true"
    dtype = kind.dtype
    if not dtype.is_float:
        return int(text, 0)
    if text.startswith("0x"):
        raw = np.array(int(text, 16), f"u{dtype.itemsize}")
        return raw.view(dtype.numpy)[()]
    return np.float64(text)


@operation("ub.poison", constant=False)
def _build_undefined(op: Op) -> Callable[..., Value]:
    kind = op.types[0]
    if kind.kind != "value":
        raise Unsupported(f"an undefined {kind.kind}")

    def compute() -> Value:
        ones = (1,) * (1 + len(kind.shape))
        bits = np.full(ones, context.poison_bit("an undefined value"))
        return Value(np.zeros(ones, kind.dtype.numpy), kind.dtype, bits)

    return compute


@operation("tt.make_range")
def _build_range(op: Op) -> Callable[..., Value]:
    start, end = op.integer("start"), op.integer("end")
    value = Value(np.arange(start, end, dtype=np.int32)[None], I32)
    value.span = (start, end - 1)
    return lambda: value


@operation("tt.splat", "tt.unsplat")
def _build_splat(op: Op) -> Callable[..., Value]:
    ones = (1,) * len(op.types[0].shape)
    return lambda x: x.map(lambda data: data.reshape(len(data), *ones))


@operation("tt.broadcast")
def _build_broadcast(op: Op) -> Callable[..., Value]:
    return lambda x: x  # an axis of length 1 stands for all its lanes


@operation("tt.expand_dims")
def _build_expand(op: Op) -> Callable[..., Value]:
    axis = op.integer("axis") + 1
    return lambda x: x.map(lambda data: np.expand_dims(data, axis))


@operation("tt.reshape")
def _build_reshape(op: Op) -> Callable[..., Value]:
    source, shape = op.operand_types[0].shape, op.types[0].shape

    def compute(x: Value) -> Value:
        """Row-major order is kept, also where the compiler might reorder."""
        if x.data[0].size == 1 and all(p is None or p[0].size == 1 for p in (x.poison, x.exact)):
            return x.map(lambda data: data.reshape(len(data), *(1,) * len(shape)))
        return x.spread(source).map(lambda data: data.reshape(len(data), *shape))

    return compute


@operation("tt.trans")
def _build_transpose(op: Op) -> Callable[..., Value]:
    axes = (0, *(k + 1 for k in op.integers("order")))
    return lambda x: x.map(lambda data: data.transpose(axes))


def concatenate(values: Sequence[Value], axis: int) -> Value:
    """Blocks with every lane present, side by side along an axis of their data."""
    programs = max(len(v.data) for v in values)

    def join(parts: list[np.ndarray]) -> np.ndarray:
        shapes = [(programs, *v.data.shape[1:]) for v in values]
        whole = [np.broadcast_to(p, shape) for p, shape in zip(parts, shapes, strict=True)]
        return np.concatenate(whole, axis=axis)

    marked = any(v.poison is not None for v in values)
    poison = join([v.marks() for v in values]) if marked else None
    base = values[0].base if all(v.base is values[0].base for v in values) else None
    data, loaded = join([v.data for v in values]), loaded_width(*values)
    return Value(data, values[0].dtype, poison, base=base, loaded=loaded)


@operation("tt.join")
def _build_join(op: Op) -> Callable[..., Value]:
    shape = op.operand_types[0].shape

    def compute(*values: Value) -> Value:
        columns = [v.spread(shape).map(lambda d: d[..., None]) for v in values]
        made = concatenate(columns, 1 + len(shape))
        made.loaded = -(abs(made.loaded) or 8 * made.dtype.itemsize)
        return made

    return compute


@operation("tt.split")
def _build_split(op: Op) -> Callable[..., tuple[Value, Value]]:
    shape = op.operand_types[0].shape

    def compute(x: Value) -> tuple[Value, Value]:
        whole = x.spread(shape)
        return whole.map(lambda d: d[..., 0]), whole.map(lambda d: d[..., 1])

    return compute


@operation("tt.cat")
def _build_cat(op: Op) -> Callable[..., Value]:
    shape = op.operand_types[0].shape
    grown = [m != n for m, n in zip(shape, op.types[0].shape, strict=True)]
    return lambda *values: concatenate([v.spread(shape) for v in values], 1 + grown.index(True))


@operation("tt.gather", constant=False)
def _build_gather(op: Op) -> Callable[..., Value]:
    axis = op.integer("axis") + 1
    source, picked = (kind.shape for kind in op.operand_types)

    def compute(x: Value, at: Value) -> Value:
        """Lanes picked along an axis; an index beyond it is undefined."""
        programs = max(len(x.data), len(at.data))
        lanes = np.broadcast_to(at.data, (programs, *picked)).astype(np.int64)
        inside = (lanes >= 0) & (lanes < source[axis - 1])
        safe = np.where(inside, lanes, 0)

        def pick(part: np.ndarray) -> np.ndarray:
            return np.take_along_axis(np.broadcast_to(part, (programs, *source)), safe, axis=axis)

        stray = None if inside.all() else ~inside * context.poison_bit("a gather beyond the block")
        poison = union(stray, at.poison, None if x.poison is None else pick(x.poison))
        return Value(pick(x.data), x.dtype, poison, loaded=x.loaded)

    return compute


@operation("tt.histogram", constant=False)
def _build_histogram(op: Op) -> Callable[..., Value]:
    bins, shape = op.types[0].shape[0], op.operand_types[0].shape

    def compute(x: Value, mask: Value | None = None) -> Value:
        """Counts of 0..bins-1; a lane outside leaves the counts undefined."""
        parts = [x.data, x.poison, None if mask is None else mask.data]
        programs = max(len(p) for p in parts if p is not None)
        data, poison, live = (
            None if p is None else np.broadcast_to(p, (programs, *shape)) for p in parts
        )
        assert data is not None
        live = np.ones(data.shape, np.bool_) if live is None else live
        stray = live & ((data < 0) | (data >= bins))
        if poison is not None:
            stray = stray | (live & (poison != 0))
        good = live & ~stray
        rows = (np.bincount(row[ok], minlength=bins) for row, ok in zip(data, good, strict=True))
        counts = np.stack(list(rows)).astype(op.types[0].dtype.numpy)
        bits: np.ndarray | None = None
        if stray.any():
            bad = np.asarray(stray.reshape(programs, -1).any(axis=1, keepdims=True))
            bits = bad * context.poison_bit("a histogram of values beyond its bins")
        return Value(counts, op.types[0].dtype, bits)

    return compute
