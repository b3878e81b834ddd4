"""Drawn expressions that move lanes, make them, or join several into one."""

from __future__ import annotations

from math import prod

from tests.support.triton_versions import holds
from tests.witnesses.differential import expressions as ex
from tests.witnesses.differential.writer import FLOATS, INTEGERS, SHAPES, Shape, Writer

COMBINES = """
@triton.jit
def combine_add(a, b):
    return a + b


@triton.jit
def combine_larger(a, b):
    if a > b:
        return a
    return b


@triton.jit
def combine_bits(a, b):
    return (a & b) | (a ^ b)


@triton.jit
def combine_first(a, b):
    return tl.where(a != 0, a, b)


@triton.jit
def combine_linear(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def combine_largest(a, i, b, j):
    wins = (a > b) | ((a == b) & (i < j))
    return tl.where(wins, a, b), tl.where(wins, i, j)


@triton.jit
def combine_both(a, i, b, j):
    if i > j:
        k = i
    else:
        k = j
    return a + b, k
"""


def draw_shaped(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    """Return a value of this type and shape made from one of another shape, or None if none fit."""
    ways = [
        _draw_reduction,
        _draw_scan,
        _draw_move,
        _draw_broadcast,
        _draw_constant,
        _draw_join,
        _draw_order,
        _draw_gather,
    ]
    return w.rng.choice(ways)(w, dtype, shape, depth - 1)


def draw_integers(w: Writer, dtype: str, shape: Shape, depth: int) -> str:
    """Floats that are small integers."""
    kind = w.rng.choice(INTEGERS)
    return f"(({ex.draw(w, kind, shape, depth)} & 7).to(tl.{dtype}) - {w.rng.choice((0, 3))})"


def _pick_wider(w: Writer, shape: Shape) -> tuple[Shape, int] | None:
    """A shape that becomes `shape` without one of its axes."""
    wider = []
    for other in SHAPES:
        for axis in range(len(other)):
            if other[:axis] + other[axis + 1 :] == shape:
                wider.append((other, axis))
    return w.rng.choice(wider) if wider else None


def _draw_reduction(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    rng = w.rng
    wide = _pick_wider(w, shape)
    if wide is None or dtype == "int1":
        return None
    outer, axis = wide
    if dtype in FLOATS:
        if rng.random() < 0.5:
            x = draw_integers(w, "float32", outer, depth)
            return f"tl.sum({x}, axis={axis}).to(tl.{dtype})"
        x = f"without_nan({ex.draw(w, dtype, outer, depth)})"
        return f"tl.{rng.choice(('max', 'min'))}({x}, axis={axis}).to(tl.{dtype})"
    kind = rng.choice(INTEGERS)
    names = ["sum", "max", "min", "argmax", "argmin"]
    slow = ["xor_sum", "reduce_or", "combine_add", "combine_larger", "combine_bits", "two", "both"]
    if not w.spend(2 * prod(outer)):
        slow = []
    name = rng.choice(names + slow)
    x = ex.draw(w, kind, outer, depth)
    if name.startswith("combine"):
        text = f"tl.reduce({x}, {axis}, {name})"
    elif name in ("two", "both"):
        function = "combine_largest" if name == "two" else "combine_both"
        lanes = f"tl.arange(0, {outer[axis]})" + (
            ""
            if len(outer) == 1
            else f".reshape({[1] * axis + [outer[axis]] + [1] * (len(outer) - axis - 1)})"
        )
        index = f"tl.broadcast_to({lanes}, {list(outer)})"
        best, at = w.fresh(), w.fresh()
        w.write(f"{best}, {at} = tl.reduce(({x}, {index}), {axis}, {function})")
        text = rng.choice((f"({best} + {at})", f"({at})"))
    elif axis == len(outer) - 1 and name == "sum" and len(outer) == 1 and rng.random() < 0.3:
        text = f"tl.sum({x})"
    elif name in ("argmax", "argmin") and kind in ("uint64", "int64") and rng.random() < 0.5:
        text = f"tl.{name[3:]}({x}, axis={axis}, return_indices=True)[{rng.randrange(2)}]"
    else:
        text = f"tl.{name}({x}, axis={axis})"
    return f"{text}.to(tl.{dtype})"


def _draw_scan(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    rng = w.rng
    if not shape or dtype == "int1":
        return None
    axis, reverse = rng.randrange(len(shape)), rng.random() < 0.4
    if dtype in FLOATS:
        x = draw_integers(w, "float32", shape, depth)
        return f"tl.cumsum({x}, axis={axis}, reverse={reverse}).to(tl.{dtype})"
    x = ex.draw(w, rng.choice(INTEGERS), shape, depth)
    if rng.random() < 0.5 or not w.spend(2 * prod(shape)):
        name = rng.choice(("cumsum", "cumprod"))
        return f"tl.{name}({x}, axis={axis}, reverse={reverse}).to(tl.{dtype})"
    if rng.random() < 0.7:
        name = rng.choice(("combine_add", "combine_larger", "combine_bits", "combine_first"))
        return f"tl.associative_scan({x}, {axis}, {name}, reverse={reverse}).to(tl.{dtype})"
    name = rng.choice(("combine_linear", "combine_both"))
    kind = rng.choice(("int32", "int64", "uint32"))
    x, y = (ex.draw(w, kind, shape, depth) for _ in range(2))
    first, second = w.fresh(), w.fresh()
    how = f"{axis}, {name}, reverse={reverse}"
    w.write(f"{first}, {second} = tl.associative_scan(({x}, {y}), {how})")
    return f"({first} ^ {second}).to(tl.{dtype})"


def _draw_move(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    """Reshape, trans, permute, ravel, expand_dims."""
    rng = w.rng
    if not shape:
        return None
    others = [s for s in SHAPES if s and prod(s) == prod(shape) and s != shape]
    if len(shape) == 2 and rng.random() < 0.5:
        x = ex.draw(w, dtype, (shape[1], shape[0]), depth)
        return rng.choice((f"tl.trans({x})", f"tl.permute({x}, (1, 0))", f"tl.trans({x}, 1, 0)"))
    if len(shape) == 3:
        order = rng.choice(((1, 0, 2), (2, 1, 0), (2, 0, 1), (0, 2, 1)))
        inner = tuple(shape[order.index(i)] for i in range(3))
        return f"tl.permute({ex.draw(w, dtype, inner, depth)}, {order})"
    if len(shape) == 2 and 1 in shape and rng.random() < 0.6:
        axis = shape.index(1)
        x = ex.draw(w, dtype, (prod(shape),), depth)
        key = "None, :" if axis == 0 else ":, None"
        return rng.choice((f"tl.expand_dims({x}, {axis})", f"{x}[{key}]"))
    if not others:
        return None
    x = ex.draw(w, dtype, rng.choice(others), depth)
    if len(shape) == 1 and rng.random() < 0.4:
        return f"tl.ravel({x})"
    return f"tl.reshape({x}, {list(shape)})"


def _draw_broadcast(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    if not shape:
        return None
    side = w.rng.randrange(len(shape))
    inner = w.rng.choice(((*shape[:side], 1, *shape[side + 1 :]), (1,) * len(shape), ()))
    return f"tl.broadcast_to({ex.draw(w, dtype, inner, depth)}, {list(shape)})"


def _draw_constant(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    """arange, zeros, full of a scalar."""
    rng = w.rng
    if len(shape) == 1 and dtype in INTEGERS:
        low = rng.choice((0, 0, shape[0], 4 * shape[0]))
        return f"tl.arange({low}, {low + shape[0]}).to(tl.{dtype})"
    if rng.random() < 0.3:
        return f"tl.zeros({list(shape)}, tl.{dtype})"
    return f"tl.full({list(shape)}, {ex.draw(w, dtype, (), depth)}, tl.{dtype})"


def _draw_join(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    """join, split, cat, interleave."""
    rng = w.rng
    if not shape or shape[-1] < 2:
        return None
    half = (*shape[:-1], shape[-1] // 2)
    how = rng.randrange(4)
    if how == 0:
        x, y = (ex.draw(w, dtype, half, depth) for _ in range(2))
        return f"tl.interleave({x}, {y})"
    if how == 1 and len(shape) == 1 and holds("ordered_cat"):
        x, y = (ex.draw(w, dtype, half, depth) for _ in range(2))
        return f"tl.cat({x}, {y})"
    if how == 2:
        x, y = (ex.draw(w, dtype, shape, depth) for _ in range(2))
        first, second = w.fresh(), w.fresh()
        w.write(f"{first}, {second} = tl.split(tl.join({x}, {y}))")
        return rng.choice((first, second))
    x, y = (ex.draw(w, dtype, half, depth) for _ in range(2))
    return f"tl.reshape(tl.join({x}, {y}), {list(shape)})"


def _draw_order(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    """sort, flip, histogram."""
    rng = w.rng
    if len(shape) != 1 or shape[0] < 4 or dtype == "int1":
        return None
    how = rng.randrange(3)
    if how < 2 and not w.spend(6 * prod(shape)):
        return None
    if how == 0:
        x = ex.draw(w, dtype, shape, depth)
        x = f"without_nan({x})" if dtype in FLOATS else x
        return f"tl.sort({x}, descending={rng.random() < 0.5})"
    if how == 1:
        return f"tl.flip({ex.draw(w, dtype, shape, depth)}, 0)"
    if dtype in FLOATS:
        return None
    x = f"({ex.draw(w, 'int32', (rng.choice((8, 16, 32)),), depth)} & {shape[0] - 1})"
    return f"tl.histogram({x}, {shape[0]}).to(tl.{dtype})"


def _draw_gather(w: Writer, dtype: str, shape: Shape, depth: int) -> str | None:
    if not shape:
        return None
    axis = w.rng.randrange(len(shape))
    kind = w.rng.choice(("int8", "int16", "int32", "int64", "uint8", "uint32"))
    x = ex.draw(w, dtype, shape, depth)
    index = f"({ex.draw(w, kind, shape, depth)} & {shape[axis] - 1})"
    return f"tl.gather({x}, {index}, {axis})"
