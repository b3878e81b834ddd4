"""A drawn program from a seed, and the module that holds many of them."""

from __future__ import annotations

import random
from math import prod

from tests.witnesses.differential import control, memory
from tests.witnesses.differential import expressions as ex
from tests.witnesses.differential.shaping import COMBINES
from tests.witnesses.differential.writer import ALL, SHAPES, Program, Shape, Var, Writer

GRIDS = ((1,), (2,), (3,), (5,), (6,), (2, 2), (3, 2), (1, 4), (2, 1, 3), (1, 2, 2), (3, 1, 2))
HEAD = "import triton\nimport triton.language as tl\n\n" + ex.HELPERS + COMBINES


def draw_program(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    grid = rng.choice(GRIDS)
    programs = prod(grid)
    w = Writer(rng, str(seed), programs)
    w.budget = 600 // programs
    shapes = [(), *rng.sample(SHAPES[1:], rng.randint(1, 3))]
    numbers = [w.parameter("number", "int32", value=_draw_number(rng)) for _ in range(2)]
    w.variables += [
        Var(n.name, "int64" if n.value >= 2**31 else "int32", (), fixed=True) for n in numbers
    ]
    _write_place(w, grid, shapes)
    for _ in range(rng.randint(1, 3)):
        memory.draw_load(w, rng.choice(ALL), rng.choice(shapes))
    control.draw_statements(w, rng.randint(2, 5), shapes)
    if rng.random() < 0.3:
        with w.block(f"if {control.draw_condition(w)}:"):
            control.draw_statements(w, rng.randint(0, 1), shapes)
            _store_some(w, 1)
            w.write("return")
        control.draw_statements(w, rng.randint(1, 2), shapes)
    _store_some(w, rng.randint(2, 6))
    parameters = ", ".join(o.name for o in w.operands)
    kernel = ["@triton.jit", f"def kernel{seed}({parameters}):", *w.lines, ""]
    source = "\n\n".join([*w.functions, "\n".join(kernel)])
    return Program(seed, source, grid, w.operands)


def _write_place(w: Writer, grid: tuple[int, ...], shapes: list[Shape]) -> None:
    """The linear program id; before it is known, programs may have gone apart and met again."""
    if len(grid) > 1 and w.rng.random() < 0.5:
        axis = w.rng.randrange(1, len(grid))
        w.pid = w.let(f"tl.program_id({axis})", "int32", (), fixed=True)
        w.inside = True
        w.let(f"{w.pid.name} + 1", "int32", ())
        control.draw_statements(w, 1, shapes)
        control.draw_branch(w, shapes)
        w.inside = False
    w.pid = Var("pid", "int32", (), fixed=True)
    w.write("pid = tl.program_id(0)")
    if len(grid) > 1:
        w.write("pid = pid + tl.program_id(1) * tl.num_programs(0)")
    if len(grid) > 2:
        w.write("pid = pid + tl.program_id(2) * tl.num_programs(0) * tl.num_programs(1)")
    w.variables.append(w.pid)


def _draw_number(rng: random.Random) -> int:
    return rng.choice(
        (0, 2, 3, 7, 16, 32, 1000, -1, -16, 2**31 - 1, 2**40 + 3, rng.randrange(2, 99))
    )


def _store_some(w: Writer, count: int) -> None:
    """Store several of the variables in sight, the latest among them."""
    candidates = [v for v in w.variables if not v.fixed]
    latest, rest = candidates[-1:], candidates[:-1]
    for var in [*latest, *w.rng.sample(rest, min(len(rest), count - 1))]:
        memory.draw_store(w, var)


def write_module(programs: list[Program]) -> str:
    """The source of a module that holds these programs."""
    return HEAD + "\n\n" + "\n\n".join(p.source for p in programs)
