"""Faults that can be planted in a source file: an operator, a number, a condition, a result."""

from __future__ import annotations

import ast
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

Offset = Callable[[int, int], int]  # of a line and a column of bytes, in characters
FOLDERS = ("reference", "properties", "src")
OPERATORS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Fault:
    """A fault by its text, so that it is the same one after lines above it have changed.

    In a file and a function of that qualified name ("" for none), the `nth` time that `old` stands
    for such a fault in a line of that text, it becomes `new`.
    """

    path: str
    function: str
    line: str
    old: str
    new: str
    nth: int

    def __str__(self) -> str:
        return f"{self.path}: {self.function}: {self.line}: `{self.old}` -> `{self.new}`"


class Span(NamedTuple):
    """The characters of a file that a fault replaces."""

    start: int
    end: int


def sample_faults(root: Path, count: int, seed: int) -> list[Fault]:
    """Return `count` faults of the sources below `root`, the same ones for one seed."""
    faults = [fault for path in _list_files(root) for fault in find_faults(root / path, path)]
    return sorted(random.Random(seed).sample(faults, count))


def plant(root: Path, fault: Fault) -> str | None:
    """Return the source of the file with the fault, or None if its line is gone."""
    file = root / fault.path
    span = find_faults(file, fault.path).get(fault) if file.exists() else None
    if span is None:
        return None
    source = file.read_text()
    return source[: span.start] + fault.new + source[span.end :]


def _list_files(root: Path) -> list[str]:
    files = [file for folder in FOLDERS for file in (root / folder).rglob("*.py")]
    own = [file for file in files if not any(x.is_symlink() for x in file.parents)]
    return sorted(str(file.relative_to(root)) for file in own)


def find_faults(file: Path, path: str) -> dict[Fault, Span]:
    """Return every fault that can be planted in one file, which is called `path`."""
    source = file.read_text()
    lines, data = source.splitlines(keepends=True), source.encode()
    ends = list(itertools.accumulate((len(line.encode()) for line in lines), initial=0))

    def offset(line: int, column: int) -> int:
        return len(data[: ends[line - 1] + column].decode())

    faults: dict[Fault, Span] = {}
    for node, function in _walk(ast.parse(source), ()):
        for first, last, new in _changes(node, source, offset):
            line = lines[source.count("\n", 0, first)].strip()
            named = (path, ".".join(function), line, source[first:last], new)
            numbered = (Fault(*named, nth) for nth in itertools.count())
            faults[next(fault for fault in numbered if fault not in faults)] = Span(first, last)
    return faults


def _walk(node: ast.AST, function: tuple[str, ...]) -> Iterator[tuple[ast.AST, tuple[str, ...]]]:
    """Yield the evaluated nodes, each with the names of its enclosing definitions."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else (value,):
            if not isinstance(child, ast.AST) or _is_text(child):
                continue
            inside = function
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = (*function, child.name)
            yield child, inside
            yield from _walk(child, inside)


def _is_text(node: ast.AST) -> bool:
    """Return True for docstrings, f-strings and imports for annotations: no test is about those."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return is_for_types or isinstance(node, ast.JoinedStr)


def _changes(node: ast.AST, source: str, offset: Offset) -> Iterator[tuple[int, int, str]]:
    """Yield the faults of a node, each as the characters that it replaces and its text."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _swap(node.left, node.ops[0], node.comparators[0], source, offset)
    elif isinstance(node, ast.BinOp):
        yield from _swap(node.left, node.op, node.right, source, offset)
    elif isinstance(node, ast.BoolOp):
        yield from _swap(node.values[0], node.op, node.values[1], source, offset)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        text = str(not node.value) if type(node.value) is bool else str(node.value + 1)
        yield (*_span_of(node, offset), text)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        first, last = _span_of(node.test, offset)
        yield first, last, f"not ({source[first:last]})"
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield (*_span_of(node.value, offset), "None")
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield (*_span_of(node, offset), "None")


def _swap(
    left: ast.expr, op: ast.AST, right: ast.expr, source: str, offset: Offset
) -> Iterator[tuple[int, int, str]]:
    if type(op) not in OPERATORS:
        return
    old, new = OPERATORS[type(op)]
    first, last = _span_of(left, offset)[1], _span_of(right, offset)[0]
    at = source.find(old, first, last)
    if at >= 0:
        yield at, at + len(old), new


def _span_of(node: ast.expr | ast.Expr, offset: Offset) -> tuple[int, int]:
    last = offset(node.end_lineno or 0, node.end_col_offset or 0)
    return offset(node.lineno, node.col_offset), last
