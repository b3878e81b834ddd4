"""What a kernel's own names stand for where it accesses memory.

Triton's frontend names the values of TTIR by the variables that they are assigned to, and keeps
the order of the source. A name counts only where the source shows that it is still bound so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gemmproof.reference.symbolic.machine.interpret import Invocation, Machine
from gemmproof.reference.symbolic.machine.values import Access, BlockWindow, Ints
from gemmproof.reference.symbolic.source.tree import (
    Around,
    Assignment,
    Source,
    decide,
    find_source,
)
from gemmproof.reference.ttir.module import Block, Function, Op

_STRIDE = re.compile(r"strides?(_|$)|^ld[a-d]?$|^s[abc]\w?(\W|$)")


@dataclass(frozen=True, slots=True)
class Scene:
    """An access with the operation that makes it, and the values of its function by SSA name."""

    access: Access
    op: Op
    function: Function
    values: Mapping[str, Any]

    @property
    def source(self) -> Source | None:
        """The function that the access stands in."""
        loc = self.op.loc
        return None if loc is None else find_source(loc.file, loc.line)

    @property
    def is_direct(self) -> bool:
        """Whether the access stands in the user's own line, and not in a library's function."""
        where, loc = self.access.where, self.op.loc
        return where is not None and loc is not None and where.line == loc.line

    @property
    def is_window(self) -> bool:
        """Whether it goes through a block pointer or a descriptor, which take no mask."""
        return isinstance(self.values.get(self.op.operands[0]), BlockWindow)

    def names(self, constants: Mapping[str, Any]) -> dict[str, Ints]:
        """The integers that names of the source are bound to, the outermost first.

        `constants` are those of the kernel: they decide which branches its source has.
        """
        source = self.source
        if source is None or self.op.loc is None:
            return {}
        line = self.op.loc.line
        branches = {op.loc.line for op in _walk(self.function.body) if _branches(op) and op.loc}
        reading = _Reading(
            source, line, branches, frozenset(source.around_line(line)),
            constants if self.function.public else {},
        )  # fmt: skip
        found: dict[str, Ints] = {}
        for shown in _visible(self.function.body, self.op) or ():
            value = self.values.get(shown.ssa)
            for name in _candidates(shown.ssa):
                if reading.is_bound(name, shown):
                    found.pop(name, None)
                    if isinstance(value, Ints):
                        found[name] = value
                    break
        for parameter, _ in self.function.args:
            value, name = self.values.get(parameter), parameter.removeprefix("%")
            if isinstance(value, Ints) and reading.keeps(name, 0):
                found.setdefault(name, value)
        # a dense operand's stride is the size of another axis, which has its own name
        return {n: x for n, x in found.items() if x.shape or not _STRIDE.search(n)}


@dataclass(slots=True)
class NamingMachine(Machine):
    """A machine that keeps, for each access, what the names of the source stand for."""

    scenes: list[Scene] = field(default_factory=list)
    under_way: list[tuple[Op, Invocation]] = field(default_factory=list)

    def op(self, op: Op, frame: Invocation) -> None:
        self.under_way.append((op, frame))
        try:
            Machine.op(self, op, frame)
        finally:
            self.under_way.pop()

    def keep(self, access: Access) -> None:
        Machine.keep(self, access)
        if not self.muted:
            op, frame = self.under_way[-1]
            function = self.functions[frame.function]
            self.scenes.append(Scene(access, op, function, dict(frame.values)))


@dataclass(frozen=True, slots=True)
class _Shown:
    """An SSA name that an operation may use: of an operation, or carried by a loop."""

    ssa: str
    line: int
    is_carried: bool


def _walk(blocks: list[Block]) -> Iterator[Op]:
    for block in blocks:
        for op in block.ops:
            yield op
            for region in op.regions:
                yield from _walk(region)


def _branches(op: Op) -> bool:
    return op.name in ("scf.if", "cf.cond_br")


def _visible(blocks: list[Block], target: Op) -> list[_Shown] | None:
    """The names before an operation, in order; None where the operation is elsewhere."""
    seen: list[_Shown] = []
    for block in blocks:
        for op in block.ops:
            if op is target:
                return seen
            line = op.loc.line if op.loc else 0
            for region in op.regions:
                inner = _visible(region, target)
                if inner is not None:
                    carried = (name for b in region for name, _ in b.args)
                    return [*seen, *(_Shown(name, line, True) for name in carried), *inner]
            seen += [_Shown(name, line, False) for name in op.results]
    return None


def _candidates(ssa: str) -> list[str]:
    """The variables that an SSA name may be of: offs_k_31 is of offs_k, or of offs_k_31."""
    name = ssa.removeprefix("%").partition("#")[0]
    short = re.sub(r"_\d+$", "", name)
    return [name, short] if short != name else [name]


@dataclass(frozen=True, slots=True)
class _Reading:
    """The source of a function, read at a line: which value a name has there.

    `branches` are the lines of the `if` that are decided while the kernel runs; `around` are the
    branches and loops that the line is in.
    """

    source: Source
    line: int
    branches: set[int]
    around: frozenset[Around]
    constants: Mapping[str, Any]

    def is_bound(self, name: str, shown: _Shown) -> bool:
        """Whether a name stands for this value."""
        known = self.source.bound.get(name, [])
        if shown.is_carried:
            loops = [x for x, _ in self.around if isinstance(x, ast.For) and x.lineno == shown.line]
            if not loops:
                return False
            target = loops[0].target
            is_index = isinstance(target, ast.Name) and target.id == name
            return (is_index or bool(known)) and self.keeps(name, shown.line)
        own = [x for x in known if x.first <= shown.line <= x.last < self.line]
        if not own:
            return False
        left = [x for x in own[-1].around if x not in self.around]
        taken = all(isinstance(x, ast.If) and x.lineno not in self.branches for x, _ in left)
        return taken and self.keeps(name, own[-1].first)

    def keeps(self, name: str, since: int) -> bool:
        """Whether nothing binds the name anew between two lines, nor in a loop before."""
        for x in self.source.bound.get(name, ()):
            if since < x.first < self.line and not self._is_left_out(x):
                return False
            repeats = any(isinstance(s, ast.For | ast.While) for s, _ in {*x.around} & self.around)
            if x.first > self.line and x.is_alias and repeats and not self._is_left_out(x):
                return False
        return True

    def _is_left_out(self, assignment: Assignment) -> bool:
        """Whether an assignment stands in a branch that the compiler decided, against it.

        Had it been run, an operation would show it, unless it only gives a value another name.
        """
        inner = [x for x in assignment.around if x not in self.around]
        for statement, is_else in inner:
            if isinstance(statement, ast.If):
                decided = decide(statement.test, self.constants)
                if decided is not None and decided == is_else:
                    return True
        constant = all(isinstance(x, ast.If) and x.lineno not in self.branches for x, _ in inner)
        return bool(inner) and constant and not assignment.is_alias
