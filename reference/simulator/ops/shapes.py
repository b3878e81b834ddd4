"""Operations of TTIR on shapes, and reductions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemmproof.reference.simulation import Unsupported
from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.ops.registry import operation
from gemmproof.reference.simulator.program import Program
from gemmproof.reference.simulator.session import current
from gemmproof.reference.simulator.value import Value, loaded_width, union
from gemmproof.reference.ttir import FLIP, I32, Op, Type


# -- shape ---------------------------------------------------------------------------------------
@operation("tt.get_program_id", constant=False)
def _build_program_id(op: Op) -> Callable[..., Value]:
    axis = "xyz".index(op.keywords[0])

    def compute() -> Value:
        launch = current()
        x, y, _ = launch.grid
        ids = launch.programs
        ids = (ids % x, ids // x % y, ids // (x * y))[axis]
        result = Value((ids[:1] if launch.grid[axis] == 1 else ids).astype(np.int32), I32)
        result.span = (0, launch.grid[axis] - 1)
        return result

    return compute


@operation("tt.get_num_programs", constant=False)
def _build_num_programs(op: Op) -> Callable[..., Value]:
    axis = "xyz".index(op.keywords[0])
    return lambda: Value(np.array([current().grid[axis]], np.int32), I32)


@operation("arith.constant")
def _build_constant(op: Op) -> Callable[..., Value]:
    kind = op.types[0]
    value = Value(_read_constant(op.keywords[0], kind), kind.dtype)
    return lambda: value


def _read_constant(text: str, kind: Type) -> np.ndarray:
    """Return the data of a constant: one for all lanes, or a list."""
    dense = re.fullmatch(r"dense<(.*)>", text, re.DOTALL)
    inner = dense[1] if dense else text
    items = re.findall(r"[^\[\],\s]+", inner)
    numbers = np.array([_number(item, kind) for item in items]).astype(kind.dtype.numpy)
    if len(numbers) == 1:
        return numbers.reshape(1, *(1,) * len(kind.shape))
    return numbers.reshape(1, *kind.shape)


def _number(text: str, kind: Type) -> Any:
    """Parse a number of MLIR: true, 42, 1.5e+00, or the bits of a float in hexadecimal."""
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
        bits = np.full(ones, session.poison_bit("an undefined value"))
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


@operation("tt.reshape", constant=False)
def _build_reshape(op: Op) -> Callable[..., Value]:
    source, shape = op.operand_types[0].shape, op.types[0].shape
    # axes of length 1 come and go without another order
    reorders = "allow_reorder" in op.keywords and _list_sides(source) != _list_sides(shape)

    def compute(x: Value) -> Value:
        """Keep row-major order; if the compiler may reorder elements, they are reversed."""
        if x.data[0].size == 1 and all(p is None or p[0].size == 1 for p in (x.poison, x.exact)):
            return x.map(lambda data: data.reshape(len(data), *(1,) * len(shape)))
        whole = x.spread(source)
        if reorders:
            whole = _reverse(whole, "tl.reshape with can_reorder")
        return whole.map(lambda data: data.reshape(len(data), *shape))

    return compute


def _list_sides(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n > 1]


def _reverse(x: Value, word: str) -> Value:
    """Return a block's elements in another order, and note the line that leaves their order open.

    The compiler chooses an order that depends on layouts. Code that is right for any order is right
    for the reverse of the row-major one.
    """
    current().reorders.add((word, session.where()))
    return x.map(lambda data: data.reshape(len(data), -1)[:, ::-1].reshape(data.shape))


@operation("tt.trans")
def _build_transpose(op: Op) -> Callable[..., Value]:
    axes = (0, *(k + 1 for k in op.integers("order")))
    return lambda x: x.map(lambda data: data.transpose(axes))


@operation(FLIP)
def _build_flip(op: Op) -> Callable[..., Value]:
    axis = op.integer("axis") + 1
    return lambda x: x.map(lambda data: np.flip(data, axis))


def concatenate(values: Sequence[Value], axis: int) -> Value:
    """Concatenate blocks with every lane present along an axis of their data."""
    programs = max(len(v.data) for v in values)

    def join(parts: list[np.ndarray]) -> np.ndarray:
        shapes = [(programs, *v.data.shape[1:]) for v in values]
        whole = [np.broadcast_to(p, shape) for p, shape in zip(parts, shapes, strict=True)]
        return np.concatenate(whole, axis=axis)

    marked = any(v.poison is not None for v in values)
    poison = join([v.marks() for v in values]) if marked else None
    base = values[0].base if all(v.base is values[0].base for v in values) else None
    data, loaded = join([v.data for v in values]), loaded_width(*values)
    result = Value(data, values[0].dtype, poison, base=base, loaded=loaded)
    if any(v.terms is not None for v in values):
        result.terms = join([v.term_numbers() for v in values])
    return result


@operation("tt.join")
def _build_join(op: Op) -> Callable[..., Value]:
    shape = op.operand_types[0].shape

    def compute(*values: Value) -> Value:
        columns = [v.spread(shape).map(lambda d: d[..., None]) for v in values]
        result = concatenate(columns, 1 + len(shape))
        result.loaded = -(abs(result.loaded) or 8 * result.dtype.itemsize)
        return result

    return compute


@operation("tt.split")
def _build_split(op: Op) -> Callable[..., tuple[Value, Value]]:
    shape = op.operand_types[0].shape

    def compute(x: Value) -> tuple[Value, Value]:
        whole = x.spread(shape)
        return whole.map(lambda d: d[..., 0]), whole.map(lambda d: d[..., 1])

    return compute


@operation("tt.cat", constant=False)
def _build_cat(op: Op) -> Callable[..., Value]:
    shape = op.operand_types[0].shape
    grown = [m != n for m, n in zip(shape, op.types[0].shape, strict=True)]

    def compute(*values: Value) -> Value:
        """Concatenate in reverse: the operation leaves the order of the elements open."""
        whole = concatenate([v.spread(shape) for v in values], 1 + grown.index(True))
        return _reverse(whole, "tl.cat with can_reorder")

    return compute


@operation("tt.gather", constant=False)
def _build_gather(op: Op) -> Callable[..., Value]:
    axis = op.integer("axis") + 1
    source, picked = (kind.shape for kind in op.operand_types)

    def compute(x: Value, at: Value) -> Value:
        """Pick lanes along an axis; an index beyond it is undefined."""
        programs = max(len(x.data), len(at.data))
        lanes = np.broadcast_to(at.data, (programs, *picked)).astype(np.int64)
        inside = (lanes >= 0) & (lanes < source[axis - 1])
        safe = np.where(inside, lanes, 0)

        def pick(part: np.ndarray) -> np.ndarray:
            return np.take_along_axis(np.broadcast_to(part, (programs, *source)), safe, axis=axis)

        outside = (
            None if inside.all() else ~inside * session.poison_bit("a gather beyond the block")
        )
        poison = union(outside, at.poison, None if x.poison is None else pick(x.poison))
        result = Value(pick(x.data), x.dtype, poison, loaded=x.loaded)
        result.terms = None if x.terms is None else pick(x.terms)
        return result

    return compute


@operation("tt.histogram", constant=False)
def _build_histogram(op: Op) -> Callable[..., Value]:
    bins, shape = op.types[0].shape[0], op.operand_types[0].shape

    def compute(x: Value, mask: Value | None = None) -> Value:
        """Count 0..bins-1; a lane outside leaves the counts undefined."""
        parts = [x.data, x.poison, None if mask is None else mask.data]
        programs = max(len(p) for p in parts if p is not None)
        data, poison, live = (
            None if p is None else np.broadcast_to(p, (programs, *shape)) for p in parts
        )
        assert data is not None
        live = np.ones(data.shape, np.bool_) if live is None else live
        outside = live & ((data < 0) | (data >= bins))
        if poison is not None:
            outside = outside | (live & (poison != 0))
        good = live & ~outside
        rows = (np.bincount(row[ok], minlength=bins) for row, ok in zip(data, good, strict=True))
        counts = np.stack(list(rows)).astype(op.types[0].dtype.numpy)
        bits: np.ndarray | None = None
        if outside.any():
            bad = np.asarray(outside.reshape(programs, -1).any(axis=1, keepdims=True))
            bits = bad * session.poison_bit("a histogram of values beyond its bins")
        return Value(counts, op.types[0].dtype, bits)

    return compute


# -- reduce --------------------------------------------------------------------------------------
def _apply(program: Program, values: Sequence[Value]) -> list[Value]:
    """Return a region's results for every lane of its operands, each lane a separate program."""
    from gemmproof.reference.simulator.scheduler import run_region

    rows = len(current().programs) if program.asks_place else 1
    shape = np.broadcast_shapes(
        (rows, *(1,) * (values[0].data.ndim - 1)), *(v.data.shape for v in values)
    )
    lanes = int(np.prod(shape))

    def flatten(part: np.ndarray) -> np.ndarray:
        whole = part if part.size == 1 else np.broadcast_to(part, shape)
        return whole.reshape(-1)

    def unflatten(part: np.ndarray) -> np.ndarray:
        return np.broadcast_to(part, (lanes,)).reshape(shape)

    results = run_region(program, [v.map(flatten) for v in values], shape[0], lanes)
    return [v.map(unflatten) for v in results]


def _take(x: Value, axis: int, part: slice) -> Value:
    key = (slice(None),) * axis + (part,)
    return x.map(lambda data: data[key])


@operation("tt.reduce", constant=False)
def _build_reduce(op: Op) -> Callable[..., Any]:
    program: Any = op.regions[0]
    axis, shape = op.integer("axis") + 1, op.operand_types[0].shape
    floats = any(kind.dtype.is_float for kind in op.types)

    def compute(*values: Value) -> Any:
        """Combine halves lane by lane until one lane is left (a balanced tree)."""
        if floats:
            session.note_rounding("reduce")
        parts = [v.spread(shape) for v in values]
        while (n := parts[0].data.shape[axis]) > 1:
            half = n // 2
            left = [_take(v, axis, slice(0, half)) for v in parts]
            right = [_take(v, axis, slice(half, 2 * half)) for v in parts]
            joined = _apply(program, [*left, *right])
            if n % 2:
                rest = [_take(v, axis, slice(n - 1, n)) for v in parts]
                joined = [concatenate([j, r], axis) for j, r in zip(joined, rest, strict=True)]
            parts = joined
        results = tuple(v.map(lambda d: d.squeeze(axis)) for v in parts)
        return results[0] if len(results) == 1 else results

    return compute


@operation("tt.scan", constant=False)
def _build_scan(op: Op) -> Callable[..., Any]:
    program: Any = op.regions[0]
    axis, shape = op.integer("axis") + 1, op.operand_types[0].shape
    reverse = op.flag("reverse")
    floats = any(kind.dtype.is_float for kind in op.types)

    def compute(*values: Value) -> Any:
        """Inclusive, one lane after the other."""
        if floats:
            session.note_rounding("scan")
        parts = [v.spread(shape) for v in values]
        n = shape[axis - 1]
        lanes: list[list[Value]] = []
        for i in range(n - 1, -1, -1) if reverse else range(n):
            lane = [_take(v, axis, slice(i, i + 1)) for v in parts]
            lanes.append(_apply(program, [*lanes[-1], *lane]) if lanes else lane)
        if reverse:
            lanes.reverse()
        results = tuple(concatenate(column, axis) for column in zip(*lanes, strict=True))
        return results[0] if len(results) == 1 else results

    return compute


@operation("tt.map_elementwise", constant=False)
def _build_map(op: Op) -> Callable[..., Any]:
    program: Any = op.regions[0]
    pack, shape = op.integer("pack", 1), op.operand_types[0].shape

    def compute(*values: Value) -> Any:
        """A scalar function of every lane, or of every `pack` neighbours at once."""
        if pack == 1:
            direct = tuple(_apply(program, values))
            return direct[0] if len(direct) == 1 else direct
        packed = []
        for v in values:
            groups = v.spread(shape).map(lambda d: d.reshape(len(d), -1, pack))
            packed += [_take(groups, 2, slice(i, i + 1)) for i in range(pack)]
        results = _apply(program, packed)
        whole = []
        for r in range(len(results) // pack):
            joined = concatenate(results[r * pack : (r + 1) * pack], 2)
            whole.append(joined.map(lambda d: d.reshape(len(d), *shape)))
        return whole[0] if len(whole) == 1 else tuple(whole)

    return compute
