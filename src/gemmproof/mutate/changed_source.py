"""The source of a kernel, its mutants, and their loading."""

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

from gemmproof.mutate.record import MutantResult

# -- source --------------------------------------------------------------------------------------
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `start` to `end` of a file, and their replacement."""

    start: int
    end: int
    text: str


class SourceFile:
    """A file of a project. Every offset is in bytes of its UTF-8 text, as in a tree."""

    def __init__(self, path: str) -> None:
        """Parse a file. Raises OSError, SyntaxError or ValueError if it is no Python source."""
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
        """Return the start and end of an expression or statement, without brackets around it."""
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = self._starts[node.lineno - 1] + node.col_offset
        return first, self._starts[node.end_lineno - 1] + node.end_col_offset

    def outer_span(self, node: ast.AST) -> tuple[int, int]:
        """Return the span with the brackets that enclose the node alone."""
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
        """Return the text of a node."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def outer_segment(self, node: ast.AST) -> str:
        """Return the text of a node, with the brackets that enclose it alone."""
        start, end = self.outer_span(node)
        return self.data[start:end].decode()

    def operand(self, node: ast.AST) -> str:
        """Return the text of a node in a form that can be an operand of any operator."""
        text = self.outer_segment(node)
        simple = ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript
        if isinstance(node, simple) or self.outer_span(node) != self.span(node):
            return text
        return f"({text})"

    def line_of(self, offset: int) -> int:
        """Return the line, from 1, that an offset is in."""
        return self.data.count(b"\n", 0, offset) + 1

    def replace(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that replaces a node with a text."""
        return Edit(*self.span(node), text)

    def replace_outer(self, node: ast.AST, text: str) -> Edit:
        """Return the edit that also replaces the brackets that enclose the node alone."""
        return Edit(*self.outer_span(node), text)

    def drop_argument(self, argument: ast.AST) -> Edit:
        """Return the edit that removes an argument, not the first, and its comma from a call."""
        is_named = isinstance(argument, ast.keyword)
        start, end = self.span(argument) if is_named else self.outer_span(argument)
        before = self.data[:start].rstrip()
        return Edit(len(before) - before.endswith(b","), end, "")

    def apply(self, edit: Edit) -> str:
        """Return the file's text with one edit applied."""
        return (self.data[: edit.start] + edit.text.encode() + self.data[edit.end :]).decode()

    def functions(self) -> Iterator[Function]:
        """Yield every function of the file, lambdas among them, in order."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node

    def enclosing(self, node: ast.AST, kinds: type | tuple[type, ...]) -> ast.AST | None:
        """Return the nearest node of such a kind that contains another, or None."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, kinds):
            above = self.parents.get(above)
        return above


# -- mutants -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Mutant:
    """A file of the project with one edit by an operator.

    `where` is "kernel" for code that Triton compiles and "launch" for code that launches it;
    `shown` is the file as displayed from the current folder; `text` is the whole file, changed.
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
        """A short name that is the same for the same change, anywhere in its file.

        Changes of equal lines of a file share it.
        """
        lines = [x for x in self.diff.splitlines()[2:] if not x.startswith("@@")]
        parts = [self.operator, self.shown, *lines]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]

    def start(self) -> MutantResult:
        """Return the result of the mutant before it is judged."""
        return MutantResult(self.key, self.shown, self.line, self.operator, self.where, self.diff)


def make_diff(before: str, after: str, shown: str) -> str:
    """Return the unified diff of two texts, without context lines."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), shown, shown, lineterm="", n=0
    )
    return "\n".join(lines)


# -- loading -------------------------------------------------------------------------------------
def replace_source(path: str, text: str) -> None:
    """Make this process import `text` in place of the file at `path` from now on.

    The module keeps its name, its package and its path, so relative imports find its neighbours;
    inspect, and Triton through it, read the same text, so lines of a report are not shifted. For
    workers only: it holds to the end of the process.
    """
    real_path = os.path.realpath(path)
    compile_file = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if os.path.realpath(loader.path) != real_path:
            return compile_file(loader, name)
        # without a modification time it is never read again from the disk
        lines = text.splitlines(keepends=True)
        linecache.cache[loader.path] = (len(text), None, lines, loader.path)
        return compile(text, loader.path, "exec", dont_inherit=True)  # no bytecode of the original

    SourceFileLoader.get_code = get_code  # type: ignore[assignment,method-assign]
