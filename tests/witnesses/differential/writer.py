"""Shared parts of the generator: types, shapes, the lines written so far, the names."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("float16", "float32")
ALL = ("int1", *INTEGERS, *FLOATS)

SHAPES: tuple[tuple[int, ...], ...] = (
    (), (8,), (16,), (32,), (4, 8), (8, 4), (2, 16), (4, 4), (1, 8), (2, 2, 4),
)  # fmt: skip
Shape = tuple[int, ...]

INPUT = 1024  # elements of each operand
SLOTS = 32  # elements of a buffer that programs update together


def bits(dtype: str) -> int:
    """The width of a type."""
    return int("".join(c for c in dtype if c.isdigit()))


def limits(dtype: str) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    n = bits(dtype)
    return (-(2 ** (n - 1)), 2 ** (n - 1) - 1) if dtype in SIGNED else (0, 2**n - 1)


@dataclass(frozen=True)
class Var:
    """A name of the kernel that holds a block of `shape`, () for a scalar."""

    name: str
    dtype: str
    shape: Shape
    fixed: bool = False  # nothing may be assigned to it


@dataclass
class Operand:
    """A parameter of the kernel: `kind` is input, output, shared (updated by all) or number."""

    name: str
    kind: str
    dtype: str
    size: int = 0
    value: int = 0


@dataclass
class Program:
    """A drawn program: its source, the grid, and what it is launched with."""

    seed: int
    source: str
    grid: tuple[int, ...]
    operands: list[Operand]


@dataclass
class Writer:
    """A function that is being written.

    `variables` are those in sight, innermost last. `cost` counts what makes Triton's interpreter
    slow, `budget` bounds it.
    """

    rng: random.Random
    prefix: str
    programs: int = 1
    lines: list[str] = field(default_factory=list)
    variables: list[Var] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    depth: int = 1
    count: int = 0
    cost: int = 0
    budget: int = 400
    loops: int = 0
    inside: bool = False  # a helper's body: no memory, no program ids
    pid: Var | None = None  # the linear program id

    def write(self, line: str) -> None:
        """Add a line at the present depth."""
        self.lines.append("    " * self.depth + line)

    def fresh(self, stem: str = "v") -> str:
        """An unused name."""
        self.count += 1
        return f"{stem}{self.count}"

    def let(self, text: str, dtype: str, shape: Shape, fixed: bool = False) -> Var:
        """A new variable that holds `text`."""
        var = Var(self.fresh(), dtype, shape, fixed)
        self.write(f"{var.name} = {text}")
        self.variables.append(var)
        return var

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block; what is defined in it goes out of sight behind it."""
        self.write(head)
        self.depth += 1
        seen, length = len(self.variables), len(self.lines)
        yield
        if len(self.lines) == length:
            self.write("pass")
        del self.variables[seen:]
        self.depth -= 1

    def find(self, dtype: str | None = None, shape: Shape | None = None) -> list[Var]:
        """The variables in sight of this type and shape."""
        return [
            v
            for v in self.variables
            if (dtype is None or v.dtype == dtype) and (shape is None or v.shape == shape)
        ]

    def spend(self, cost: int) -> bool:
        """Return whether something that costs so much in each turn may still be written."""
        cost *= 4**self.loops
        if self.cost + cost > self.budget:
            return False
        self.cost += cost
        return True

    def parameter(self, kind: str, dtype: str, size: int = 0, value: int = 0) -> Operand:
        """A new parameter of the kernel."""
        operand = Operand(self.fresh({"number": "n"}.get(kind, "p")), kind, dtype, size, value)
        self.operands.append(operand)
        return operand
