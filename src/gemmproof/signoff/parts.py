"""A file of Python as parts: its top-level statements, and the names that each binds and uses."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.machinery import PathFinder
from os.path import realpath
from pathlib import Path

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
IMPORTS = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True, slots=True)
class Import:
    """A name of another module: `name` of it, or the module itself for "", or "*"."""

    module: str
    name: str


@dataclass(eq=False)
class Statement:
    """One top-level statement of a file.

    `names` are those that it binds there, `imports` those that it binds by importing, at any depth.
    """

    source: ModuleText
    node: ast.stmt
    text: str
    names: tuple[str, ...]
    imports: dict[str, Import] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The module and what the part is called in it."""
        return (
            f"{self.source.module}:{self.names[0] if self.names else f'line of {self.digest[:8]}'}"
        )

    @property
    def digest(self) -> str:
        """A hash of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def uses(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """The names that it reads, each with the attributes that it asks of it, () where bare."""
        found: dict[str, dict[tuple[str, ...], None]] = {}
        inner: set[int] = set()
        for node in ast.walk(self.node):  # an attribute comes before what it is of
            if id(node) in inner:
                continue
            chain: list[str] = []
            one: ast.AST = node
            while isinstance(one, ast.Attribute):
                inner.add(id(one.value))
                chain.insert(0, one.attr)
                one = one.value
            if isinstance(one, ast.Name):
                found.setdefault(one.id, {})[tuple(chain)] = None
        return {name: tuple(chains) for name, chains in found.items()}


@dataclass(eq=False)
class ModuleText:
    """The parts of a file, by the names that they bind; `stars` are modules imported wholly.

    `effects` bind no name, but may change what others do. `written`: when it was last, in seconds.
    """

    module: str
    written: float
    parts: list[Statement] = field(default_factory=list)
    binding: dict[str, list[Statement]] = field(default_factory=dict)
    effects: list[Statement] = field(default_factory=list)
    stars: tuple[str, ...] = ()

    def find(self, line: int) -> Statement | None:
        """The part that a line is of."""
        return next(
            (p for p in self.parts if first_line(p.node) <= line <= last_line(p.node)), None
        )


def first_line(node: ast.stmt) -> int:
    """The line that a statement begins in, its decorators included."""
    return min([node.lineno, *(x.lineno for x in getattr(node, "decorator_list", ()))])


def last_line(node: ast.stmt) -> int:
    """The line that a statement ends in."""
    return node.end_lineno or node.lineno


def read_source(path: str, module: str) -> ModuleText | None:
    """The parts of a file, None for what is no Python that can be read."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _read_source(path, module, (found.st_mtime_ns, found.st_size))


@lru_cache(maxsize=512)
def _read_source(path: str, module: str, state: tuple[int, int]) -> ModuleText | None:
    try:
        text = Path(path).read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return None
    lines = text.splitlines()
    package = module if Path(path).stem == "__init__" else module.rpartition(".")[0]
    found = ModuleText(module, state[0] / 1e9)
    for node in tree.body:
        own = "\n".join(lines[first_line(node) - 1 : last_line(node)])
        imports = dict(_list_imports(node, package))
        names = tuple(dict.fromkeys(_list_bound(node)))
        part = Statement(found, node, own, names, imports)
        found.parts.append(part)
        found.stars += tuple(x.module for x in imports.values() if x.name == "*")
        for name in names:
            found.binding.setdefault(name, []).append(part)
        if not names and not _is_idle(node):
            found.effects.append(part)
    return found


def _is_idle(node: ast.stmt) -> bool:
    """Whether it does nothing to a module that is imported: a text, or what runs as a script."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return isinstance(node, ast.Pass) or "__name__" in ast.dump(getattr(node, "test", node))


def _list_bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds in its module."""
    if isinstance(node, IMPORTS):
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name.partition(".")[0]
        return
    if isinstance(node, _SCOPES):
        yield getattr(node, "name", "")
        return
    if isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        yield node.id
    elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
        one: ast.expr = node  # what is stored in a variable is a part of it
        while isinstance(one, ast.Subscript | ast.Attribute):
            one = one.value
        if isinstance(one, ast.Name):
            yield one.id
    for child in ast.iter_child_nodes(node):
        yield from _list_bound(child)


def _list_imports(node: ast.stmt, package: str) -> Iterator[tuple[str, Import]]:
    """The names that it binds by importing, in functions too; "*" and a number for all of some."""
    for number, one in enumerate(ast.walk(node)):
        if isinstance(one, ast.Import):
            for alias in one.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or whole, Import(whole, "")
        elif isinstance(one, ast.ImportFrom):
            above = package.split(".") if one.level else []
            above = above[: len(above) - one.level + 1] if one.level else above
            module = ".".join([*above, *filter(None, [one.module])])
            for alias in one.names:
                bound = f"* {number}" if alias.name == "*" else alias.asname or alias.name
                yield bound, Import(module, alias.name)


@lru_cache(maxsize=4096)
def find_file(module: str) -> str | None:
    """The file that a module is of, without importing it; None where there is none."""
    if module in sys.modules:
        file = getattr(sys.modules[module], "__file__", None)
        return realpath(file) if isinstance(file, str) and file.endswith(".py") else None
    path: list[str] | None = None
    spec = None
    for end in range(1, len(names := module.split(".")) + 1):
        spec = PathFinder.find_spec(".".join(names[:end]), path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    origin = spec.origin if spec is not None else None
    return realpath(origin) if origin and origin.endswith(".py") else None
