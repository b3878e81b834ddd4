"""The source of a kernel, a mutant of it, and its loading."""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import linecache
import os
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

# -- source --------------------------------------------------------------------------------------
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `start` to `end` of a file, and what is to stand there instead."""

    start: int
    end: int
    text: str


class SourceFile:
    """A file of a project. Every offset is one of its text in UTF-8, as those of a tree are."""

    def __init__(self, path: str) -> None:
        """Raises OSError, SyntaxError or ValueError for what is no Python source."""
        self.path = path
        raw = Path(path).read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        self.text = raw.decode(encoding)
        self.data = self.text.encode()
        self.tree = ast.parse(self.data)
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self.data.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        return starts

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where an expression or statement begins and ends, without brackets around it."""
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = self._starts[node.lineno - 1] + node.col_offset
        return first, self._starts[node.end_lineno - 1] + node.end_col_offset

    def outer_span(self, node: ast.AST) -> tuple[int, int]:
        """The same with the brackets that stand around it alone."""
        start, end = self.span(node)
        while True:
            before, after = self.data[:start].rstrip(), self.data[end:]
            inner = len(after) - len(after.lstrip())
            called = before[:-1].rstrip()[-1:]
            brackets = before.endswith(b"(") and after[inner : inner + 1] == b")"
            if not brackets or called.isalnum() or called in (b"_", b"]", b")"):
                return start, end
            start, end = len(before) - 1, end + inner + 1

    def segment(self, node: ast.AST) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def outer_segment(self, node: ast.AST) -> str:
        """The text of a node, with the brackets around it alone."""
        start, end = self.outer_span(node)
        return self.data[start:end].decode()

    def operand(self, node: ast.AST) -> str:
        """The text of a node in a form that any operator may stand beside."""
        text = self.outer_segment(node)
        simple = ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript
        if isinstance(node, simple) or self.outer_span(node) != self.span(node):
            return text
        return f"({text})"

    def line_of(self, offset: int) -> int:
        """The line, from 1, that an offset is in."""
        return self.data.count(b"\n", 0, offset) + 1

    def replace(self, node: ast.AST, text: str) -> Edit:
        """The edit that puts a text in a node's place."""
        return Edit(*self.span(node), text)

    def replace_outer(self, node: ast.AST, text: str) -> Edit:
        """The same for a node with the brackets around it alone."""
        return Edit(*self.outer_span(node), text)

    def drop_argument(self, argument: ast.AST) -> Edit:
        """The edit that takes an argument that is not the first out of a call, and its comma."""
        is_named = isinstance(argument, ast.keyword)
        start, end = self.span(argument) if is_named else self.outer_span(argument)
        before = self.data[:start].rstrip()
        return Edit(len(before) - before.endswith(b","), end, "")

    def apply(self, edit: Edit) -> str:
        """The file's text with one place replaced."""
        return (self.data[: edit.start] + edit.text.encode() + self.data[edit.end :]).decode()

    def functions(self) -> Iterator[Function]:
        """Every function of the file, lambdas among them, in order."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node

    def enclosing(self, node: ast.AST, kinds: type | tuple[type, ...]) -> ast.AST | None:
        """The nearest node of such a kind that holds another."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, kinds):
            above = self.parents.get(above)
        return above


# -- mutants -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Mutant:
    """A file of the project with one place changed by an operator.

    `where` is "kernel" for what Triton compiles and "launch" for what launches it; `shown` is the
    file as a person in the current folder would name it; `text` is the whole file, changed.
    """

    file: str
    shown: str
    line: int
    operator: str
    where: str
    text: str
    diff: str

    @property
    def key(self) -> str:
        """A short name that stays while the change is the same, wherever in its file.

        Changes of equal lines of a file share it.
        """
        lines = [x for x in self.diff.splitlines()[2:] if not x.startswith("@@")]
        words = [self.operator, self.shown, *lines]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        """What a record says of it."""
        return {
            "key": self.key,
            "file": self.shown,
            "line": self.line,
            "operator": self.operator,
            "where": self.where,
            "diff": self.diff,
        }


def make_diff(before: str, after: str, shown: str) -> str:
    """The unified diff of two texts, without lines around what changed."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), shown, shown, lineterm="", n=0
    )
    return "\n".join(lines)


# -- loading -------------------------------------------------------------------------------------
def replace_source(path: str, text: str) -> None:
    """From now on this process imports `text` where it imports the file at `path`.

    The module keeps its name, its package and its place, so relative imports find its neighbours;
    inspect, and Triton through it, read the same text, which no line of a report is moved by. For
    workers only: it holds to the end of the process.
    """
    place = os.path.realpath(path)
    compile_file = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if os.path.realpath(loader.path) != place:
            return compile_file(loader, name)
        # without a time of change it is never read again from the disk
        lines = text.splitlines(keepends=True)
        linecache.cache[loader.path] = (len(text), None, lines, loader.path)
        return compile(text, loader.path, "exec", dont_inherit=True)  # no bytecode of the original

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
