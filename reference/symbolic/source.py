"""The names that a kernel's source binds at an access."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gemmproof.reference.symbolic.interpreter.interpret import Invocation, Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import (
    BlockWindow,
    Ints,
    SymbolicAccess,
)
from gemmproof.reference.ttir import Block, Function, Op

# -- tree ----------------------------------------------------------------------------------------
_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try)
# by the function's name: the positions of the mask and of `other` among its arguments
CALLS: dict[str, tuple[int, int | None]] = {"load": (1, 2), "store": (2, None)}
_ATOMIC = 2
_PLAIN = (ast.Compare, ast.cmpop, ast.Constant, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop,
          ast.BinOp, ast.operator, ast.expr_context)  # fmt: skip
Around = tuple[ast.stmt, bool]  # a compound statement, and whether in its `else`


@dataclass(frozen=True, slots=True)
class Assignment:
    """A statement that binds a name: its lines, and the branches and loops around it.

    `is_alias`: it computes nothing, so that no operation shows that it ran.
    """

    first: int
    last: int
    around: tuple[Around, ...]
    is_alias: bool


class Source:
    """The function of a file that contains a line."""

    def __init__(self, lines: list[str], function: ast.FunctionDef) -> None:
        self.lines, self.function = lines, function
        self._around: dict[ast.AST, tuple[Around, ...]] = {}
        self._link(function, ())
        self.bound: dict[str, list[Assignment]] = {}
        for node in ast.walk(function):
            for name, value in _bindings(node):
                end = getattr(node, "end_lineno", None) or node.lineno  # type: ignore[attr-defined]
                alias = isinstance(value, ast.Name | ast.Constant | ast.Tuple | ast.Attribute)
                assignment = Assignment(node.lineno, end, self._around[node], alias)  # type: ignore[attr-defined]
                self.bound.setdefault(name, []).append(assignment)
        for assignments in self.bound.values():
            assignments.sort(key=lambda x: x.first)

    def _link(self, node: ast.AST, around: tuple[Around, ...]) -> None:
        self._around[node] = around
        for name, value in ast.iter_fields(node):
            inner = around
            if isinstance(node, _COMPOUND) and name in ("body", "orelse"):
                inner = (*around, (node, name == "orelse"))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self._link(child, inner)

    def around_line(self, line: int) -> tuple[Around, ...]:
        """Return the branches and loops around the statement at a line."""
        starts = (
            node for node in ast.walk(self.function)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
        )  # fmt: skip
        return max((self._around[node] for node in starts), key=len, default=())

    def find_call(self, line: int, kind: str) -> ast.Call | None:
        """Return the line's only call that loads, stores or adds atomically; None for several."""
        calls = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Call) and node.lineno == line:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name == kind or (kind == "atomic" and name.startswith("atomic_")):
                    calls.append(node)
        return calls[0] if len(calls) == 1 else None

    def text(self, node: ast.expr) -> str:
        """Return an expression as it is written in the file."""
        return ast.get_source_segment("".join(self.lines), node) or ast.unparse(node)


def decide(test: ast.expr, constants: Mapping[str, Any]) -> bool | None:
    """Return whether a test of constants holds, or None if it depends on anything else."""
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            if node.id not in constants:
                return None
        elif not isinstance(node, _PLAIN):
            return None
    try:
        code = compile(ast.fix_missing_locations(ast.Expression(test)), "<test>", "eval")
        return bool(eval(code, {"__builtins__": {}}, dict(constants)))
    except Exception:  # constants that do not compare: nothing is decided
        return None


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name):
                        yield inner.id, value if inner is target else ast.Tuple([], ast.Load())
        case ast.AugAssign(target=ast.Name(id=name)):
            yield name, None
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            yield name, value


@lru_cache(64)
def _parse(file: str, stamp: str) -> ast.Module | None:
    try:
        return ast.parse(stamp)
    except (SyntaxError, ValueError):
        return None


@lru_cache(256)
def _find(file: str, line: int, text: str) -> Source | None:
    tree = _parse(file, text)
    around = [
        node
        for node in ast.walk(tree or ast.Module([], []))
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    if not around:
        return None
    return Source(text.splitlines(keepends=True), max(around, key=lambda x: x.lineno))


def find_source(file: str, line: int) -> Source | None:
    """Return the function that contains a line, or None if its source cannot be read."""
    return _find(file, line, "".join(linecache.getlines(file)))


def add_to_mask(source: Source, call: ast.Call, kind: str, condition: str, sums: bool) -> str:
    """Return the text of a call with one more condition in its mask."""
    position, other = CALLS.get(kind, (_ATOMIC, None))
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    mask = named.get("mask") or (call.args[position] if len(call.args) > position else None)
    has_other = "other" in named or (other is not None and len(call.args) > other)
    filler = ", other=0.0" if kind == "load" and sums and not has_other else ""
    whole = source.text(call)
    if mask is None or (isinstance(mask, ast.Constant) and mask.value is None):
        if mask is not None:
            return _replace(source, call, mask, _bare(condition))
        inside = whole.rstrip()[:-1].rstrip()
        comma = "" if inside.endswith((",", "(")) else ","
        return f"{inside}{comma} mask={_bare(condition)}{filler})"
    old = source.text(mask)
    if not isinstance(mask, ast.Name | ast.Call | ast.Subscript) and not _is_joined(mask, old):
        old = f"({old})"
    joined = _replace(source, call, mask, f"{old} & {condition}")
    return f"{joined.rstrip()[:-1].rstrip().rstrip(',')}{filler})" if filler else joined


def _is_joined(mask: ast.expr, text: str) -> bool:
    """Return whether an expression is already a `&`, to which another can be joined as it is."""
    return isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd)


def _bare(condition: str) -> str:
    """Return a condition without the parentheses around all of it."""
    depth = 0
    for i, x in enumerate(condition):
        depth += (x == "(") - (x == ")")
        if not depth:
            whole = condition.startswith("(") and i == len(condition) - 1
            return condition[1:-1] if whole else condition
    return condition


def _replace(source: Source, call: ast.Call, old: ast.expr, new: str) -> str:
    """Return the call's text with another expression in place of one of its arguments."""
    lines = [line.encode() for line in source.lines]
    begin, end = call.lineno - 1, call.end_lineno or call.lineno

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[begin : line - 1])) + column

    text = b"".join(lines[begin:end])
    first, last = offset(call.lineno, call.col_offset), offset(end, call.end_col_offset or 0)
    start = offset(old.lineno, old.col_offset)
    stop = offset(old.end_lineno or old.lineno, old.end_col_offset or 0)
    return (text[first:start] + new.encode() + text[stop:last]).decode()


# -- scope ---------------------------------------------------------------------------------------
_STRIDE = re.compile(r"strides?(_|$)|^ld[a-d]?$|^s[abc]\w?(\W|$)")


@dataclass(frozen=True, slots=True)
class Scene:
    """An access with its operation, and the values of its function by SSA name."""

    access: SymbolicAccess
    op: Op
    function: Function
    values: Mapping[str, Any]

    @property
    def source(self) -> Source | None:
        """The function that contains the access."""
        loc = self.op.loc
        return None if loc is None else find_source(loc.file, loc.line)

    @property
    def is_direct(self) -> bool:
        """True if the access is in the user's own line, and not in a library's function."""
        where, loc = self.access.where, self.op.loc
        return where is not None and loc is not None and where.line == loc.line

    @property
    def is_window(self) -> bool:
        """True if it goes through a block pointer or a descriptor, which take no mask."""
        return isinstance(self.values.get(self.op.operands[0]), BlockWindow)

    def names(self, constants: Mapping[str, Any]) -> dict[str, Ints]:
        """Return the integers that names of the source are bound to, the outermost first.

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
        bound: dict[str, Ints] = {}
        for shown in _visible(self.function.body, self.op) or ():
            value = self.values.get(shown.ssa)
            for name in _candidates(shown.ssa):
                if reading.is_bound(name, shown):
                    bound.pop(name, None)
                    if isinstance(value, Ints):
                        bound[name] = value
                    break
        for parameter, _ in self.function.args:
            value, name = self.values.get(parameter), parameter.removeprefix("%")
            if isinstance(value, Ints) and reading.keeps(name, 0):
                bound.setdefault(name, value)
        # a dense operand's stride is the size of another axis, which has its own name
        return {n: x for n, x in bound.items() if x.shape or not _STRIDE.search(n)}


@dataclass(slots=True)
class NamingMachine(Machine):
    """A machine that records, for each access, the values of the names in the source."""

    scenes: list[Scene] = field(default_factory=list)
    under_way: list[tuple[Op, Invocation]] = field(default_factory=list)

    def op(self, op: Op, frame: Invocation) -> None:
        self.under_way.append((op, frame))
        try:
            Machine.op(self, op, frame)
        finally:
            self.under_way.pop()

    def keep(self, access: SymbolicAccess) -> None:
        Machine.keep(self, access)
        if not self.suppressed:
            op, frame = self.under_way[-1]
            function = self.functions[frame.function]
            self.scenes.append(Scene(access, op, function, dict(frame.values)))


@dataclass(frozen=True, slots=True)
class _Shown:
    """An SSA name that an operation may use: an operation's result, or carried by a loop."""

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
    """Return the names before an operation, in order, or None if the operation is elsewhere."""
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
    """Return the variables that an SSA name may be of: offs_k_31 is of offs_k, or offs_k_31."""
    name = ssa.removeprefix("%").partition("#")[0]
    short = re.sub(r"_\d+$", "", name)
    return [name, short] if short != name else [name]


@dataclass(frozen=True, slots=True)
class _Reading:
    """The source of a function as of a line: the value that a name has there.

    `branches` are the lines of the `if` that are decided while the kernel runs; `around` are the
    branches and loops that contain the line.
    """

    source: Source
    line: int
    branches: set[int]
    around: frozenset[Around]
    constants: Mapping[str, Any]

    def is_bound(self, name: str, shown: _Shown) -> bool:
        """Return whether a name stands for this value."""
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
        is_taken = all(isinstance(x, ast.If) and x.lineno not in self.branches for x, _ in left)
        return is_taken and self.keeps(name, own[-1].first)

    def keeps(self, name: str, since: int) -> bool:
        """Return whether nothing rebinds the name between two lines, nor in a loop before."""
        for x in self.source.bound.get(name, ()):
            if since < x.first < self.line and not self._is_excluded(x):
                return False
            repeats = any(isinstance(s, ast.For | ast.While) for s, _ in {*x.around} & self.around)
            if x.first > self.line and x.is_alias and repeats and not self._is_excluded(x):
                return False
        return True

    def _is_excluded(self, assignment: Assignment) -> bool:
        """Return whether an assignment is in a branch that the compiler decided not to take.

        Had it run, an operation would show it, unless it only gives a value another name.
        """
        inner = [x for x in assignment.around if x not in self.around]
        for statement, is_else in inner:
            if isinstance(statement, ast.If):
                decided = decide(statement.test, self.constants)
                if decided is not None and decided == is_else:
                    return True
        constant = all(isinstance(x, ast.If) and x.lineno not in self.branches for x, _ in inner)
        return bool(inner) and constant and not assignment.is_alias
