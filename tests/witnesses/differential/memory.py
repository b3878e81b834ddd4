"""Drawn accesses to memory: loads, stores, atomic updates, each within its operand."""

from __future__ import annotations

from math import prod

from tests.witnesses.differential import expressions as ex
from tests.witnesses.differential import writer
from tests.witnesses.differential.writer import Operand, Shape, Var, Writer

INDEX = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def draw_lanes(w: Writer, shape: Shape) -> str:
    """The number of each lane of a block, rows first."""
    if not shape:
        return "0"
    if len(shape) == 2 and w.rng.random() < 0.7:
        rows, columns = (f"tl.arange(0, {n})" for n in shape)
        return f"({rows}[:, None] * {shape[1]} + {columns}[None, :])"
    lanes = f"tl.arange(0, {prod(shape)})"
    return lanes if len(shape) == 1 else f"tl.reshape({lanes}, {list(shape)})"


def _pick_input(w: Writer, dtype: str) -> Operand:
    known = [o for o in w.operands if o.kind == "input" and o.dtype == dtype]
    return w.rng.choice(known) if known else w.parameter("input", dtype, writer.INPUT)


def draw_load(w: Writer, dtype: str, shape: Shape) -> Var:
    """A load from an operand that nothing stores to."""
    rng, p = w.rng, _pick_input(w, dtype).name
    assert w.pid is not None
    how = rng.randrange(4)
    if how == 0:  # contiguous, from the program's own offset
        offset = f"{w.pid.name} * {rng.choice((1, 32, 64))} + {draw_lanes(w, shape)}"
    elif how == 1 and len(shape) == 2:  # strided or transposed
        a, b = rng.choice(((1, shape[0]), (32, 1), (16, 2), (3, 5), (0, 1)))
        rows, columns = (f"tl.arange(0, {n})" for n in shape)
        offset = f"{rows}[:, None] * {a} + {columns}[None, :] * {b} + {w.pid.name}"
    elif how == 2:
        offset = f"{draw_lanes(w, shape)} * {rng.choice((0, 2, 3, 7))} + {rng.randrange(64)}"
    else:  # at offsets from data
        kind = rng.choice(INDEX)
        most = 127 if kind == "int8" else 255 if kind == "uint8" else 1023
        offset = f"({ex.draw(w, kind, shape, 1)} & {most})"
    if rng.random() < 0.5:
        return w.let(f"tl.load({p} + {offset})", dtype, shape)
    mask = ex.draw(w, "int1", shape, 1)
    other = rng.choice(("0", "1")) if dtype == "int1" else ex.draw_literal(w, dtype)
    if dtype != "int1" and rng.random() < 0.3:
        other = ex.draw(w, dtype, shape, 1) + (" + 0.0" if dtype in writer.FLOATS else "")
    return w.let(f"tl.load({p} + {offset}, mask={mask}, other={other})", dtype, shape)


def draw_store(w: Writer, var: Var) -> None:
    """Store a variable to a new result, each program to its own elements."""
    assert w.pid is not None
    n = prod(var.shape)
    p = w.parameter("output", var.dtype, n * w.programs).name
    offset = f"{w.pid.name} * {n} + {draw_lanes(w, var.shape)}"
    if w.rng.random() < 0.3:
        offset += f" ^ {n - 1}" if n > 1 and w.rng.random() < 0.5 else ""
        mask = ex.draw(w, "int1", var.shape, 1)
        w.write(f"tl.store({p} + ({offset}), {var.name}, mask={mask})")
    else:
        w.write(f"tl.store({p} + {offset}, {var.name})")


def draw_scratch(w: Writer, shape: Shape) -> Var:
    """Store a block and load it again in another order."""
    assert w.pid is not None
    rng, dtype, n = w.rng, w.rng.choice(writer.ALL), prod(shape)
    var = ex.draw_var(w, dtype, shape, 1)
    p = w.parameter("output", dtype, n * w.programs).name
    base = f"{p} + {w.pid.name} * {n}"
    w.write(f"tl.store({base} + {draw_lanes(w, shape)}, {var.name})")
    w.write("tl.debug_barrier()")
    order = f"({draw_lanes(w, shape)} ^ {rng.randrange(n)})"
    return w.let(f"tl.load({base} + {order})", dtype, shape)


def draw_atomic(w: Writer, shape: Shape) -> None:
    """Update a buffer that all programs share, by one operation that commutes."""
    rng = w.rng
    dtype = rng.choice(("int32", "uint32", "int64", "uint64"))
    name = rng.choice(("add", "max", "min", "and", "or", "xor"))
    p = w.parameter("shared", dtype, writer.SLOTS).name
    value = ex.draw(w, dtype, shape, 1)
    index = f"({ex.draw(w, rng.choice(INDEX), shape, 1)} & {writer.SLOTS - 1})"
    mask = f", mask={ex.draw(w, 'int1', shape, 1)}" if rng.random() < 0.5 else ""
    w.write(f"tl.atomic_{name}({p} + {index}, {value}{mask})")


def draw_own_atomic(w: Writer) -> Var:
    """Update a location private to the program and go on with its previous value."""
    rng = w.rng
    assert w.pid is not None
    dtype = rng.choice(("int32", "int64", "uint32"))
    p = w.parameter("shared", dtype, writer.SLOTS).name
    address = f"{p} + {w.pid.name} * 2"
    value = ex.draw(w, dtype, (), 1)
    if rng.random() < 0.3:
        compare = rng.choice((f"tl.load({address})", ex.draw(w, dtype, (), 1)))
        return w.let(f"tl.atomic_cas({address}, {compare}, {value})", dtype, ())
    name = rng.choice(("add", "max", "min", "and", "or", "xor", "xchg"))
    return w.let(f"tl.atomic_{name}({address}, {value})", dtype, ())


def draw_dot(w: Writer) -> Var:
    """A product of matrices of small integers, reduced to a row or a column."""
    rng = w.rng
    kind = rng.choice(("float16", "int8", "float32"))
    k = 32 if kind == "int8" else 16
    m, n = rng.choice(((16, 16), (32, 16), (16, 32)))
    sides = []
    for shape in ((m, k), (k, n)):
        source = _pick_input(w, rng.choice(writer.INTEGERS)).name
        x = f"tl.load({source} + {draw_lanes(w, shape)})"
        sides.append(f"(({x} & 7).to(tl.{kind}) - 3)")
    total = "int32" if kind == "int8" else "float32"
    how = ', input_precision="ieee"' if kind == "float32" else ""
    text = f"tl.dot({sides[0]}, {sides[1]}{how})"
    if rng.random() < 0.5:
        acc = f"tl.full(({m}, {n}), {rng.randrange(9)}, tl.{total})"
        more = "out_dtype=tl.int32" if kind == "int8" else how.removeprefix(", ")
        text = f"tl.dot({sides[0]}, {sides[1]}, {acc}{', ' + more if more else ''})"
        if rng.random() < 0.3:
            text = f"({acc} + tl.dot({sides[0]}, {sides[1]}{how}))"
    product = w.let(text, total, (m, n))
    w.variables.remove(product)
    if rng.random() < 0.3:
        draw_store(w, product)
    axis = rng.randrange(2)
    return w.let(f"tl.sum({product.name}, axis={axis})", total, ((n, m)[axis],))
