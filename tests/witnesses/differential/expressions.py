"""Drawn expressions: the text of a value of a given type and shape.

Restrictions, each for a place where Triton's interpreter is not the compiled kernel:
- bf16 and fp8 do not occur: it multiplies their bit patterns.
- Floats are narrowed by the default rounding alone: with `fp_downcast_rounding` it truncates.
- A masked load always has `other`: it fills undefined lanes with zeros.
  Nor is `other` -0.0: a scalar one that is zero counts there as none.
- tl.dot sees small integers only, so that neither tf32 nor the order of the sum can show.
- Sums and products of floats are of small integers: it adds in another order.
- Floats have no %: it takes the exact remainder, the compiled kernel x - trunc(x / y) y.
- Floats become integers only within the integer's range; elsewhere numpy's cast is undefined.
- A shift is smaller than the width, a divisor is neither 0 nor -1: undefined in LLVM.
- min and max of floats do not see -0.0, argmax and sort no NaN: which of two equal lanes
  comes out is not defined.
- A bit cast from float does not see NaN: its payload differs between x86 and a GPU. For the same
  reason a NaN that is stored is compared as a NaN, whatever its bits.
- A number among the parameters is neither 1 (the frontend makes it a constant, with a constant's
  promotion) nor a float (the interpreter leaves it a Python float).
- A counter of a range is a Python int in the interpreter: it is assigned to a name first.
- A combine function of tl.reduce is associative and commutative, of a scan associative: the
  interpreter goes lane by lane, the compiled kernel does not.
- A histogram sees no value beyond its bins: the compiled kernel gives no rule for it.
- A name keeps its type: the interpreter would let it change. Nothing is assigned a constant.
"""

from __future__ import annotations

from tests.witnesses.differential import shaping
from tests.witnesses.differential.writer import (
    ALL,
    FLOATS,
    INTEGERS,
    SIGNED,
    Shape,
    Var,
    Writer,
    bits,
    limits,
)

HELPERS = """
@triton.jit
def bounded(x, LIMIT: tl.constexpr):
    return tl.where(tl.abs(x) < LIMIT, x, 5.0)


@triton.jit
def without_nan(x):
    return tl.where(x == x, x, 2.0) + 0.0
"""
COMPARE = ("<", "<=", ">", ">=", "==", "!=")


def draw_literal(w: Writer, dtype: str) -> str:
    """A constant in the type's range, exact in fp16 for floats."""
    if dtype in FLOATS:
        return str(w.rng.choice((0.0, 0.5, 1.0, 2.0, -1.5, 3.25, 1024.0, 0.0009765625)))
    low, high = limits(dtype)
    near = (0, 1, 2, 3, 7, 100, high, low, high - 1, w.rng.randint(low, high))
    value = w.rng.choice((*near, *([] if low == 0 else [-1, -5, -100])))
    return f"({value})" if value < 0 else str(value)


def draw_leaf(w: Writer, dtype: str, shape: Shape) -> str:
    """A variable in sight, cast if need be, or a constant block."""
    rng = w.rng
    if (candidates := w.find(dtype, shape)) and rng.random() < 0.85:
        return rng.choice(candidates[-6:] if rng.random() < 0.6 else candidates).name
    candidates = w.find(None, shape)
    if candidates and rng.random() < 0.8:
        return cast(w, rng.choice(candidates), dtype)
    if shape == () and w.pid is not None and rng.random() < 0.5:
        return cast(w, w.pid, dtype)
    value = rng.choice(("0", "1")) if dtype == "int1" else draw_literal(w, dtype)
    return f"tl.full({list(shape)}, {value}, tl.{dtype})"


def cast(w: Writer, var: Var, dtype: str) -> str:
    """A variable as a value of another type."""
    name = var.name
    if var.dtype == dtype:
        return name
    if var.dtype in FLOATS and dtype in INTEGERS:
        if bits(var.dtype) == bits(dtype) and w.rng.random() < 0.5:
            return f"without_nan({name}).to(tl.{dtype}, bitcast=True)"
        limit = 2.0 ** min(bits(dtype) - (dtype in SIGNED), 15)
        inner = f"bounded({name}, {limit})"
        return f"{inner if dtype in SIGNED else f'tl.abs({inner})'}.to(tl.{dtype})"
    if dtype == "int1" and w.rng.random() < 0.5:
        return f"({name} {w.rng.choice(COMPARE)} {draw_literal(w, var.dtype)})"
    equal = var.dtype in INTEGERS and dtype != "int1" and bits(var.dtype) == bits(dtype)
    if equal and w.rng.random() < 0.4:
        return f"{name}.to(tl.{dtype}, bitcast=True)"
    return f"{name}.to(tl.{dtype})"


def draw(w: Writer, dtype: str, shape: Shape, depth: int = 2) -> str:
    """The text of a value of this type and shape."""
    if depth <= 0 or w.rng.random() < 0.12:
        return draw_leaf(w, dtype, shape)
    if w.rng.random() < 0.3:
        shaped = shaping.draw_shaped(w, dtype, shape, depth)
        if shaped is not None:
            return shaped
    if dtype == "int1":
        return _draw_truth(w, shape, depth)
    return (_draw_float if dtype in FLOATS else _draw_integer)(w, dtype, shape, depth)


def _pick_smaller(w: Writer, shape: Shape) -> Shape:
    """A shape that broadcasts to `shape`."""
    if not shape or w.rng.random() < 0.7:
        return shape
    if w.rng.random() < 0.5:
        return ()
    side = w.rng.randrange(len(shape))
    return (*shape[:side], 1, *shape[side + 1 :])


def _draw_pair(w: Writer, x_dtype: str, y_dtype: str, shape: Shape, depth: int) -> tuple[str, str]:
    """Two operands, one of them perhaps smaller."""
    x, y = draw(w, x_dtype, shape, depth - 1), draw(w, y_dtype, _pick_smaller(w, shape), depth - 1)
    return x, y


def _draw_where(w: Writer, x_dtype: str, y_dtype: str, shape: Shape, depth: int) -> str:
    c = draw(w, "int1", shape, depth - 1)
    x, y = _draw_pair(w, x_dtype, y_dtype, shape, depth)
    return f"tl.where({c}, {x}, {y})"


def _draw_truth(w: Writer, shape: Shape, depth: int) -> str:
    rng = w.rng
    how = rng.randrange(7)
    if how == 0:
        x, y = _draw_pair(w, "int1", "int1", shape, depth)
        return f"({x} {rng.choice('&|^')} {y})"
    if how == 6:
        x, y = _draw_pair(w, "int1", "int1", shape, depth)
        return rng.choice(
            (f"({x} {rng.choice('+-*')} {y})", f"tl.m{rng.choice(('in', 'ax'))}imum({x}, {y})")
        )
    if how == 1:
        return f"(~{draw(w, 'int1', shape, depth - 1)})"
    if how == 2:
        return _draw_where(w, "int1", "int1", shape, depth)
    kind = rng.choice(ALL[1:])
    if how == 3:
        return f"({draw(w, kind, shape, depth - 1)} {rng.choice(COMPARE)} {draw_literal(w, kind)})"
    other = kind if rng.random() < 0.5 else rng.choice(ALL[1:])
    x, y = _draw_pair(w, kind, other, shape, depth)
    return f"({x} {rng.choice(COMPARE)} {y})"


def _draw_integer(w: Writer, dtype: str, shape: Shape, depth: int) -> str:
    rng = w.rng
    kind = dtype if rng.random() < 0.6 else rng.choice(INTEGERS)
    other = kind if rng.random() < 0.6 else rng.choice(INTEGERS)
    how = rng.randrange(13)
    if how <= 2:
        x, y = _draw_pair(w, kind, other, shape, depth)
        text = f"({x} {rng.choice('+-*&|^')} {y})"
    elif how == 3:
        x = draw(w, kind, shape, depth - 1)
        sides = [x, draw_literal(w, kind)]
        rng.shuffle(sides)
        text = f"({sides[0]} {rng.choice('+-*&|^')} {sides[1]})"
    elif how == 4:
        x, y = _draw_pair(w, kind, kind, shape, depth)
        divisor = f"(({y} & 15) + {rng.choice((1, 3))})"
        if kind in SIGNED and rng.random() < 0.5:
            divisor = f"(({y} & 15) - 20)"
        text = f"({x} {rng.choice(('//', '%'))} {divisor})"
    elif how == 5:
        x, y = _draw_pair(w, kind, kind, shape, depth)
        text = f"({x} {rng.choice(('<<', '>>'))} ({y} & {bits(kind) - 1}))"
    elif how == 6:
        x = draw(w, kind, shape, depth - 1)
        text = f"({x} {rng.choice(('<<', '>>'))} {rng.randrange(bits(kind))})"
    elif how == 7:
        x, y = _draw_pair(w, kind, other, shape, depth)
        text = f"tl.{rng.choice(('minimum', 'maximum'))}({x}, {y})"
    elif how == 8:
        text = _draw_where(w, kind, other, shape, depth)
    elif how == 9:
        x = draw(w, kind, shape, depth - 1)
        text = rng.choice((f"tl.abs({x})", f"(-{x})", f"(~{x})"))
    elif how == 10:
        x, y = _draw_pair(w, "int1", kind, shape, depth)
        text = f"({x} {rng.choice('+*')} {y})"
    elif how == 11:
        x, y = _draw_pair(w, "uint32", "uint32", shape, depth)
        text = f"tl.umulhi({x}, {y})"
    else:
        text = cast(w, draw_var(w, rng.choice(ALL), shape, depth - 1), dtype)
    return f"{text}.to(tl.{dtype})"


def draw_var(w: Writer, dtype: str, shape: Shape, depth: int) -> Var:
    """A variable of this type and shape, a new one if need be."""
    text = draw(w, dtype, shape, depth)
    known = [v for v in w.find(dtype, shape) if v.name == text]
    return known[0] if known else w.let(text, dtype, shape)


def _draw_float(w: Writer, dtype: str, shape: Shape, depth: int) -> str:
    rng = w.rng
    kind = dtype if rng.random() < 0.7 else rng.choice(FLOATS)
    other = kind if rng.random() < 0.6 else rng.choice(ALL[1:])
    how = rng.randrange(11)
    if how <= 2:
        x, y = _draw_pair(w, kind, other, shape, depth)
        text = f"({x} {rng.choice('+-*/')} {y})"
    elif how == 3:
        x = draw(w, kind, shape, depth - 1)
        text = f"({x} {rng.choice('+-*/')} {draw_literal(w, kind)})"
    elif how == 4:
        x, y = _draw_pair(w, kind, kind, shape, depth)
        text = f"tl.where({x} < {y}, {y} * 2.0, {x})"
    elif how == 5:
        x, y = _draw_pair(w, kind, kind, shape, depth)
        text = f"tl.{rng.choice(('minimum', 'maximum'))}({x} + 0.0, {y} + 0.0)"
    elif how == 6:
        text = _draw_where(w, kind, other, shape, depth)
    elif how == 7:
        x = draw(w, kind, shape, depth - 1)
        text = rng.choice((f"tl.abs({x})", f"(-{x})"))
    elif how == 8:
        x = draw(w, "float32", shape, depth - 1)
        text = f"tl.{rng.choice(('floor', 'ceil', 'sqrt_rn'))}({x})"
    elif how == 9:
        x, y, z = (draw(w, dtype, shape, depth - 1) for _ in range(3))
        text = f"tl.fma({x}, {y}, {z})"
    else:
        kind = rng.choice([d for d in INTEGERS if bits(d) == bits(dtype)])
        text = f"{draw(w, kind, shape, depth - 1)}.to(tl.{dtype}, bitcast=True)"
    return f"{text}.to(tl.{dtype})"
