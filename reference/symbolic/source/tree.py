"""A kernel's source: its functions, where a name is bound, the calls that touch memory."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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

    `is_alias`: it computes nothing, so that no operation shows where it was run.
    """

    first: int
    last: int
    around: tuple[Around, ...]
    is_alias: bool


class Source:
    """One function of a file, by a line in it."""

    def __init__(self, lines: list[str], function: ast.FunctionDef) -> None:
        self.lines, self.function = lines, function
        self._around: dict[ast.AST, tuple[Around, ...]] = {}
        self._link(function, ())
        self.bound: dict[str, list[Assignment]] = {}
        for node in ast.walk(function):
            for name, value in _bindings(node):
                end = getattr(node, "end_lineno", None) or node.lineno  # type: ignore[attr-defined]
                alias = isinstance(value, ast.Name | ast.Constant | ast.Tuple | ast.Attribute)
                found = Assignment(node.lineno, end, self._around[node], alias)  # type: ignore[attr-defined]
                self.bound.setdefault(name, []).append(found)
        for assignments in self.bound.values():
            assignments.sort(key=lambda x: x.first)

    def _link(self, node: ast.AST, around: tuple[Around, ...]) -> None:
        self._around[node] = around
        for field, value in ast.iter_fields(node):
            inner = around
            if isinstance(node, _COMPOUND) and field in ("body", "orelse"):
                inner = (*around, (node, field == "orelse"))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self._link(child, inner)

    def around_line(self, line: int) -> tuple[Around, ...]:
        """The branches and loops around the statement of a line."""
        starts = (
            node for node in ast.walk(self.function)
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
        )  # fmt: skip
        return max((self._around[node] for node in starts), key=len, default=())

    def find_call(self, line: int, kind: str) -> ast.Call | None:
        """The only call of the line that loads, stores or adds atomically; None for several."""
        found = []
        for node in ast.walk(self.function):
            if isinstance(node, ast.Call) and node.lineno == line:
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name == kind or (kind == "atomic" and name.startswith("atomic_")):
                    found.append(node)
        return found[0] if len(found) == 1 else None

    def text(self, node: ast.expr) -> str:
        """An expression as it stands in the file."""
        return ast.get_source_segment("".join(self.lines), node) or ast.unparse(node)


def decide(test: ast.expr, constants: Mapping[str, Any]) -> bool | None:
    """Whether a test of constants holds, None where it is of anything else."""
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
    """The function that a line is in; None where its source cannot be read."""
    return _find(file, line, "".join(linecache.getlines(file)))


def add_to_mask(source: Source, call: ast.Call, kind: str, condition: str, sums: bool) -> str:
    """The text of a call with a condition more in its mask."""
    place, other = CALLS.get(kind, (_ATOMIC, None))
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    mask = named.get("mask") or (call.args[place] if len(call.args) > place else None)
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
    """Whether an expression is one of `&` already, to which another can be joined as it is."""
    return isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd)


def _bare(condition: str) -> str:
    """A condition without the brackets around all of it."""
    depth = 0
    for i, x in enumerate(condition):
        depth += (x == "(") - (x == ")")
        if not depth:
            whole = condition.startswith("(") and i == len(condition) - 1
            return condition[1:-1] if whole else condition
    return condition


def _replace(source: Source, call: ast.Call, old: ast.expr, new: str) -> str:
    """The call's text with another expression in place of one of its arguments."""
    lines = [line.encode() for line in source.lines]
    begin, end = call.lineno - 1, call.end_lineno or call.lineno

    def offset(line: int, column: int) -> int:
        return sum(map(len, lines[begin : line - 1])) + column

    text = b"".join(lines[begin:end])
    first, last = offset(call.lineno, call.col_offset), offset(end, call.end_col_offset or 0)
    start = offset(old.lineno, old.col_offset)
    stop = offset(old.end_lineno or old.lineno, old.end_col_offset or 0)
    return (text[first:start] + new.encode() + text[stop:last]).decode()
