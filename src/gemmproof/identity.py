"""The identity of a kernel: its contract, and every part of the source that it can reach."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import math
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.machinery import PathFinder
from os.path import realpath
from pathlib import Path
from typing import Any

from gemmproof.properties.codec import encode
from gemmproof.properties.kernel import KernelUnderTest, Operand, is_triton
from gemmproof.reference.provenance import format_error, owner
from gemmproof.report.record import Identity, hash_texts
from gemmproof.target import LOADED

# -- parts ---------------------------------------------------------------------------------------
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
        """The module, and the name of the part in it."""
        return (
            f"{self.source.module}:{self.names[0] if self.names else f'line of {self.digest[:8]}'}"
        )

    @property
    def digest(self) -> str:
        """A hash of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @cached_property
    def uses(self) -> dict[str, tuple[tuple[str, ...], ...]]:
        """The names that it reads, each with the attributes that it reads of it, () if bare."""
        uses: dict[str, dict[tuple[str, ...], None]] = {}
        inner: set[int] = set()
        for node in ast.walk(self.node):  # an attribute precedes its object
            if id(node) in inner:
                continue
            chain: list[str] = []
            base: ast.AST = node
            while isinstance(base, ast.Attribute):
                inner.add(id(base.value))
                chain.insert(0, base.attr)
                base = base.value
            if isinstance(base, ast.Name):
                uses.setdefault(base.id, {})[tuple(chain)] = None
        return {name: tuple(chains) for name, chains in uses.items()}


@dataclass(eq=False)
class ModuleText:
    """The parts of a file, by the names that they bind; `stars` are modules imported with *.

    `effects` bind no name, but may change what others do. `written`: the time of the last write, in
    seconds.
    """

    module: str
    path: str
    written: float
    parts: list[Statement] = field(default_factory=list)
    binding: dict[str, list[Statement]] = field(default_factory=dict)
    effects: list[Statement] = field(default_factory=list)
    stars: tuple[str, ...] = ()

    def find(self, line: int) -> Statement | None:
        """Return the part that a line belongs to, or None."""
        return next(
            (p for p in self.parts if first_line(p.node) <= line <= last_line(p.node)), None
        )


def first_line(node: ast.stmt) -> int:
    """Return the line that a statement begins in, its decorators included."""
    return min([node.lineno, *(x.lineno for x in getattr(node, "decorator_list", ()))])


def last_line(node: ast.stmt) -> int:
    """Return the line that a statement ends in."""
    return node.end_lineno or node.lineno


def read_source(path: str, module: str) -> ModuleText | None:
    """Return the parts of a file, None if it is no readable Python."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _read_source(path, module, (status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=512)
def _read_source(path: str, module: str, state: tuple[int, int]) -> ModuleText | None:
    try:
        text = Path(path).read_text(encoding="utf-8")
        return make_module(text, path, module, state[0] / 1e9)
    except (OSError, ValueError, SyntaxError):
        return None


def make_module(text: str, path: str, module: str = "", written: float = 0) -> ModuleText:
    """Return the parts of a module's text. Raises SyntaxError or ValueError if it is no Python."""
    tree = ast.parse(text)
    lines = text.splitlines()
    package = module if Path(path).stem == "__init__" else module.rpartition(".")[0]
    source = ModuleText(module, path, written)
    for node in tree.body:
        segment = "\n".join(lines[first_line(node) - 1 : last_line(node)])
        imports = dict(_list_imports(node, package))
        names = tuple(dict.fromkeys(_list_bound(node)))
        part = Statement(source, node, segment, names, imports)
        source.parts.append(part)
        source.stars += tuple(x.module for x in imports.values() if x.name == "*")
        for name in names:
            source.binding.setdefault(name, []).append(part)
        if not names and not _is_idle(node):
            source.effects.append(part)
    return source


def _is_idle(node: ast.stmt) -> bool:
    """Return whether a statement does nothing to an imported module: a text, or script code."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    return isinstance(node, ast.Pass) or "__name__" in ast.dump(getattr(node, "test", node))


def _list_bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement binds in its module."""
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
        target: ast.expr = node  # a store into a variable changes it
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name):
            yield target.id
    for child in ast.iter_child_nodes(node):
        yield from _list_bound(child)


def _list_imports(node: ast.stmt, package: str) -> Iterator[tuple[str, Import]]:
    """Yield the names that it binds by importing, in functions too; "*" and a number for a star."""
    for number, child in enumerate(ast.walk(node)):
        if isinstance(child, ast.Import):
            for alias in child.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or whole, Import(whole, "")
        elif isinstance(child, ast.ImportFrom):
            above = package.split(".") if child.level else []
            above = above[: len(above) - child.level + 1] if child.level else above
            module = ".".join([*above, *filter(None, [child.module])])
            for alias in child.names:
                bound = f"* {number}" if alias.name == "*" else alias.asname or alias.name
                yield bound, Import(module, alias.name)


@lru_cache(maxsize=4096)
def find_file(module: str) -> str | None:
    """Return the file of a module, without importing it; None if there is none."""
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


# -- source --------------------------------------------------------------------------------------
Chains = tuple[tuple[str, ...], ...]


class Rewritten(Exception):
    """A file was written after it was imported: its current text is not what runs."""


def trace(*roots: object, imported: float = math.inf) -> dict[str, str]:
    """Return the parts that functions can reach, by module and name, with hashes of their texts.

    Raises Rewritten for a file that was written after `imported`, in seconds since the epoch.
    """
    walk = _Walk()
    for root in roots:
        walk.enter(root)
    for part in walk.seen:
        if part.source.written > imported:
            raise Rewritten(f"{part.source.module} was written after it was imported")
    digests_by_label: dict[str, list[str]] = {}
    for part in walk.seen:
        digests_by_label.setdefault(part.label, []).append(part.digest)
    traced = {label: " ".join(sorted(digests)) for label, digests in digests_by_label.items()}
    return dict(sorted({**traced, **walk.untraced}.items()))


def list_reached(*roots: object) -> list[Statement]:
    """Return the parts that functions can reach."""
    walk = _Walk()
    for root in roots:
        walk.enter(root)
    return list(walk.seen)


class _Walk:
    """A walk from values to the statements that define them, and on to what those name."""

    def __init__(self) -> None:
        self.seen: dict[Statement, None] = {}
        self.untraced: dict[str, str] = {}  # what has no text, by a hash of its code
        self._values: dict[int, object] = {}
        self._asked: set[tuple[str, str, Chains]] = set()
        self._package = ""  # the installed package of the first function

    def enter(self, value: object) -> None:
        """Follow a value: a function and all that it holds, a Triton kernel, a container."""
        if id(value) in self._values:
            return
        self._values[id(value)] = value
        if isinstance(value, functools.partial):
            self._enter_all(value.func, value.args, value.keywords)
        elif isinstance(value, types.MethodType):
            self._enter_all(value.__func__, value.__self__)
        elif isinstance(value, dict):
            self._enter_all(*value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            self._enter_all(*value)
        elif isinstance(value, types.FunctionType):
            self._enter_function(value)
        elif isinstance(value, type):
            self._enter_class(value)
        elif is_triton(value) and hasattr(value, "fn"):
            self._enter_all(value.fn)
        elif hasattr(value, "__wrapped__"):
            self._enter_all(value.__wrapped__)
        elif callable(value) and not isinstance(value, types.ModuleType):
            self._enter_all(type(value), vars(value) if hasattr(value, "__dict__") else ())

    def _enter_all(self, *values: object) -> None:
        for value in values:
            self.enter(value)

    def _enter_function(self, function: types.FunctionType) -> None:
        code = function.__code__
        self._enter_all(*_list_cells(function))
        if hasattr(function, "__wrapped__"):
            self.enter(function.__wrapped__)
        if code.co_filename.startswith("<") or not Path(code.co_filename).is_file():
            # created at run time: only its names can be followed
            text = repr((code.co_code, code.co_names, [c for c in code.co_consts if _is_plain(c)]))
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            self.untraced[f"{function.__module__}:{function.__qualname__}"] = digest
            known = function.__globals__
            self._enter_all(*(known[name] for name in code.co_names if name in known))
            return
        self._enter_line(code.co_filename, code.co_firstlineno, function.__module__)

    def _enter_class(self, value: type) -> None:
        file = find_file(value.__module__)
        source = self._read(file, value.__module__) if file else None
        if source is not None:
            self._follow_bound(source, value.__qualname__.partition(".")[0], ((),))

    def _enter_line(self, filename: str, line: int, module: str) -> None:
        path = realpath(filename)
        name = _label_module(path, module)
        if not self.seen and owner(path) == "installed":
            self._package = name.partition(".")[0]
        source = self._read(path, name)
        part = source.find(line) if source is not None else None
        if part is not None:
            self._take(part)

    def _read(self, path: str, module: str) -> ModuleText | None:
        """Return the parts of a file of the project; None for other code."""
        origin = owner(path)
        foreign = origin == "installed" and module.partition(".")[0] != self._package
        return None if origin == "library" or foreign else read_source(path, module)

    def _take(self, part: Statement) -> None:
        """Add a part, and what it names."""
        if part in self.seen:
            return
        self.seen[part] = None
        for effect in part.source.effects:
            self._take(effect)
        for name, chains in part.uses.items():
            if name in part.imports:
                self._follow_import(part.imports[name], chains)
            self._follow_bound(part.source, name, chains)

    def _follow_bound(self, source: ModuleText, name: str, chains: Chains) -> None:
        """Follow a name of a module, of which attributes are read."""
        key = (source.module, name, chains)
        if key in self._asked:
            return
        self._asked.add(key)
        for part in source.binding.get(name, []):
            if name in part.imports:
                self._follow_import(part.imports[name], chains)
            if not isinstance(part.node, IMPORTS):
                self._take(part)
        if name not in source.binding:
            for module in source.stars:
                file = find_file(module)
                star = self._read(file, module) if file else None
                if star is not None:  # a name that it lacks is local, or built in
                    self._follow_bound(star, name, chains)

    def _follow_import(self, imported: Import, chains: Chains) -> None:
        if not imported.name:
            for chain in chains:
                self._follow_module(imported.module, chain)
            return
        for chain in chains:
            self._follow_module(imported.module, (imported.name, *chain))

    def _follow_module(self, module: str, chain: tuple[str, ...]) -> None:
        """Follow an attribute of a module: a name that it binds, a submodule, or else all of it."""
        file = find_file(module)
        source = self._read(file, module) if file else None
        if chain and source is not None and (chain[0] in source.binding or source.stars):
            self._follow_bound(source, chain[0], (chain[1:],))
        elif chain and find_file(f"{module}.{chain[0]}"):
            self._follow_module(f"{module}.{chain[0]}", chain[1:])
        elif source is not None and not (chain and chain[0].startswith("__")):
            for part in source.parts:
                if not isinstance(part.node, IMPORTS):
                    self._take(part)


def _label_module(path: str, module: str) -> str:
    """Return the module's name if the file is its own, else that of the file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    is_own = isinstance(file, str) and realpath(file) == path
    return module.removeprefix(LOADED) if is_own else Path(path).stem


def _list_cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not bound yet
            yield cell.cell_contents


def _is_plain(value: object) -> bool:
    """Return whether its text is the same in every process."""
    return isinstance(value, str | bytes | int | float | complex | type(None) | type(...))


# -- facts ---------------------------------------------------------------------------------------
def describe(kernel: KernelUnderTest, imported: float = math.inf) -> Identity:
    """Return the facts of a kernel; never raises: `lack` is the reason why they are incomplete.

    `imported`: a time before its files were imported, in seconds since the epoch.
    """
    try:
        return _describe(kernel, imported)
    except Rewritten as rewritten:
        return Identity(lack=str(rewritten))
    except Exception as error:  # its objects may do anything when they are inspected
        return Identity(lack=f"its source was not read: {format_error(error)}")


def _describe(kernel: KernelUnderTest, imported: float) -> Identity:
    declared = encode(kernel.contract)
    contract = {
        name: _label_function(value) if callable(value) else value
        for name, value in declared.items()
    }
    operands = {name: _format_operand(operand) for name, operand in kernel.operands.items()}
    source = trace(kernel.launch, imported=imported)
    has_formula = kernel.spec is not None and not kernel.memory_only
    formula = trace(kernel.spec) if has_formula else {}
    # a formula in the same function as the wrapper changes with it
    lack = "" if source else "its source was not found"
    own = {label: text for label, text in formula.items() if label not in source}
    return Identity(source, own, contract, operands, lack)


def _format_operand(operand: object) -> str:
    """Format an operand; a function of its values by a hash of its text."""
    if not isinstance(operand, Operand):
        return repr(operand)
    parts = [operand.format, str(list(operand.axes)).replace("'", "")]
    parts += [operand.use] * operand.is_result + ["optional"] * operand.optional
    layouts = operand.layouts if isinstance(operand.layouts, str) else " ".join(operand.layouts)
    parts += [f"layouts {layouts}"] if layouts != "contiguous" else []
    if operand.values is not None:
        named = _label_function(operand.values) if callable(operand.values) else str(operand.values)
        parts.append(f"values {named}")
    return " ".join(parts)


def _label_function(function: object) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name} {hash_texts(trace(function).values())[:8]}"
