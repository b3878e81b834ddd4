"""Drawn statements: assignments, branches, loops, calls of helpers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.witnesses.differential import expressions as ex
from tests.witnesses.differential import memory
from tests.witnesses.differential.writer import ALL, FLOATS, INTEGERS, Shape, Var, Writer


def draw_statements(w: Writer, count: int, shapes: list[Shape]) -> None:
    """Draw `count` statements."""
    for _ in range(count):
        draw_statement(w, shapes)


def draw_statement(w: Writer, shapes: list[Shape]) -> None:
    """One statement; compound ones where they are not nested too deep."""
    rng, shape = w.rng, w.rng.choice(shapes)
    deep = w.depth > 3
    how = rng.random()
    if how < 0.22 and not deep:
        return draw_branch(w, shapes)
    if how < 0.36 and not deep and w.spend(4):
        return _draw_loop(w, shapes)
    if how < 0.45 and not w.inside:
        return _draw_call(w, shapes)
    if how < 0.55 and not w.inside:
        memory.draw_load(w, rng.choice(ALL), shape)
    elif how < 0.60 and not w.inside:
        memory.draw_atomic(w, shape)
    elif how < 0.63 and not w.inside and w.loops == 0:
        memory.draw_own_atomic(w)
    elif how < 0.66 and not w.inside and w.loops == 0:
        memory.draw_scratch(w, shape)
    elif how < 0.68 and not w.inside and w.loops == 0:
        memory.draw_dot(w)
    elif how < 0.82 and (candidates := [v for v in w.variables if not v.fixed]):
        assign(w, rng.choice(candidates))
    else:
        dtype = rng.choice(ALL)
        w.let(ex.draw(w, dtype, shape, 2), dtype, shape)


def assign(w: Writer, var: Var) -> None:
    """Another value for a variable."""
    w.write(f"{var.name} = {ex.draw(w, var.dtype, var.shape, 2)}")


def _assign_some(w: Writer, outer: list[Var]) -> None:
    """Give some of the variables that were there before a block another value, or swap two."""
    pairs = [(x, y) for x in outer for y in outer if x.name < y.name and _same_kind(x, y)]
    if pairs and w.rng.random() < 0.4:
        x, y = w.rng.choice(pairs)
        w.write(f"{x.name}, {y.name} = {y.name}, {x.name}")
    for var in w.rng.sample(outer, min(len(outer), w.rng.randint(1, 2))):
        assign(w, var)


def _same_kind(x: Var, y: Var) -> bool:
    """Return whether one variable can hold the value of the other."""
    return (x.dtype, x.shape) == (y.dtype, y.shape)


def draw_condition(w: Writer) -> str:
    """A scalar condition, more often one in which the programs differ."""
    rng = w.rng
    if w.pid is not None and rng.random() < 0.4:
        return f"{w.pid.name} {rng.choice(('<', '>', '==', '!=', '<='))} {rng.randrange(4)}"
    text = ex.draw(w, "int1", (), 2)
    how = rng.random()
    if how < 0.15:
        return f"{text} {rng.choice(('and', 'or'))} {ex.draw(w, 'int1', (), 1)}"
    return f"not {text}" if how < 0.25 else text


def draw_branch(w: Writer, shapes: list[Shape]) -> None:
    """if, elif, else, or the choice between two scalars."""
    rng = w.rng
    if rng.random() < 0.15:
        dtype = rng.choice(ALL)
        x, y = (ex.draw_var(w, dtype, (), 1).name for _ in range(2))
        w.let(f"{x} if {ex.draw(w, 'int1', (), 1)} else {y}", dtype, ())
        return
    outer = [v for v in w.variables if not v.fixed]
    tests = [draw_condition(w) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    heads = [f"{'elif' if i else 'if'} {test}:" for i, test in enumerate(tests)]
    for head in [*heads, *(["else:"] if rng.random() < 0.6 else [])]:
        with w.block(head):
            draw_statements(w, rng.randint(0, 2), shapes)
            _assign_some(w, outer)


def _draw_loop(w: Writer, shapes: list[Shape]) -> None:
    """A counted loop, a loop with a condition, or one that is written out."""
    rng = w.rng
    outer = [v for v in w.variables if not v.fixed]
    if outer and rng.random() < 0.5:  # something to swap
        var = rng.choice(outer)
        outer.append(w.let(ex.draw(w, var.dtype, var.shape, 2), var.dtype, var.shape))
    how = rng.random()
    if how < 0.2:
        name = w.fresh("s")
        with _loop_body(w, f"for {name} in tl.static_range({rng.randint(1, 3)}):"):
            draw_statements(w, rng.randint(0, 1), shapes)
            numbers = [v for v in w.find() if v.dtype in (*INTEGERS, *FLOATS) and not v.fixed]
            if numbers:
                var = rng.choice(numbers)
                w.write(f"{var.name} = ({var.name} + {name}).to(tl.{var.dtype})")
            _assign_some(w, outer)
        return
    if how < 0.7:
        kind = rng.choice(("int32", "int32", "int64", "uint32"))
        low = w.let(f"{ex.draw(w, kind, (), 1)} & 3", kind, (), fixed=True)
        high = w.let(f"{low.name} + ({ex.draw(w, kind, (), 1)} & 3)", kind, (), fixed=True)
        step = rng.choice(("", "", f", {rng.randint(2, 3)}"))
        name, shift = w.fresh("i"), rng.choice((0, 0, 2))
        begin = f"{low.name} - {shift}" if kind != "uint32" and shift else low.name
        with _loop_body(w, f"for {name} in range({begin}, {high.name}{step}):"):
            w.let(f"{low.name} * 0 + {name}", kind, (), fixed=True)
            draw_statements(w, rng.randint(0, 2), shapes)
            _assign_some(w, outer)
        return
    kind = rng.choice(("int32", "uint8", "int64"))
    rest = w.let(f"{ex.draw(w, kind, (), 1)} & 3", kind, (), fixed=True)
    step = rng.choice((f"{rest.name} - 1", f"{rest.name} >> 1"))
    first = rng.random() < 0.5
    with _loop_body(w, f"while {rest.name} {rng.choice(('>', '!='))} 0:"):
        if first:
            w.write(f"{rest.name} = {step}")
        draw_statements(w, rng.randint(0, 2), shapes)
        _assign_some(w, outer)
        if not first:
            w.write(f"{rest.name} = {step}")


@contextmanager
def _loop_body(w: Writer, head: str) -> Iterator[None]:
    """The body of a loop."""
    w.loops += 1
    with w.block(head):
        yield
    w.loops -= 1


def _draw_call(w: Writer, shapes: list[Shape]) -> None:
    """Write a helper and call it, perhaps twice."""
    rng = w.rng
    kinds = [(rng.choice(ALL), rng.choice(shapes)) for _ in range(rng.randint(1, 3))]
    given = [ex.draw_var(w, dtype, shape, 1) for dtype, shape in kinds]
    name = f"h{w.prefix}_{w.fresh('')}"
    inner = Writer(rng, w.prefix, functions=w.functions, inside=True)
    inner.budget, inner.loops = max(0, w.budget - w.cost), w.loops
    inner.count = 1000 * w.count
    inner.variables = [Var(f"x{i}", d, s) for i, (d, s) in enumerate(kinds)]
    results = [(rng.choice(ALL), rng.choice(shapes)) for _ in range(rng.choice((1, 1, 2, 3)))]
    packed = rng.random() < 0.2 and len(kinds) > 1
    scalars = all(shape == () for _, shape in [*kinds, *results])
    noinline = rng.random() < 0.6 and not packed and scalars
    if packed:
        for i in range(len(kinds)):
            inner.write(f"x{i} = x[{i}]")
    if rng.random() < 0.4 and (truth := ex.draw(inner, "int1", (), 2)):
        draw_statements(inner, rng.randint(0, 1), shapes)
        with inner.block(f"if {truth}:"):
            draw_statements(inner, rng.randint(0, 1), shapes)
            _write_return(inner, results)
    draw_statements(inner, rng.randint(0, 2), shapes)
    number = rng.choice(ex.INTEGERS)
    extra = inner.let(ex.draw(inner, number, (), 1), number, ())
    inner.write(f"{extra.name} = ({extra.name} + C).to(tl.{number})")
    _write_return(inner, results)
    w.cost += inner.cost
    head = "@triton.jit(noinline=True)" if noinline else "@triton.jit"
    names = "x" if packed else ", ".join(f"x{i}" for i in range(len(kinds)))
    w.functions.append(
        "\n".join([head, f"def {name}({names}, C: tl.constexpr = 3):", *inner.lines, ""])
    )
    for _ in range(rng.choice((1, 1, 2))):
        arguments = ", ".join(v.name for v in given)
        arguments = f"({arguments})" if packed else arguments
        targets = [w.fresh() for _ in results]
        constant = rng.choice(("", ", C=5", ", 7"))
        w.write(f"{', '.join(targets)} = {name}({arguments}{constant})")
        w.variables += [Var(v, d, s) for v, (d, s) in zip(targets, results, strict=True)]


def _write_return(w: Writer, results: list[tuple[str, Shape]]) -> None:
    """Return values of these types."""
    names = [ex.draw_var(w, dtype, shape, 1).name for dtype, shape in results]
    w.write(f"return {', '.join(names)}")
