"""What of a project a function can reach, as hashes of the texts of its parts.

The parts are top-level statements of the project's own files: the wrapper, the kernels that it
launches, what they call and the constants that they name, by the names in their texts. So neither a
function beside them nor a comment between two of them is a change, and what is written in another
place of the file is none either. Not followed: what is found by a name that is made at run time,
and data that the project reads from files.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import sys
import types
from collections.abc import Iterator
from os.path import realpath
from pathlib import Path
from typing import Any

from gemmproof.properties.kernel import is_triton
from gemmproof.reference.provenance import owner
from gemmproof.signoff.parts import IMPORTS, Import, ModuleText, Statement, find_file, read_source

Chains = tuple[tuple[str, ...], ...]
LOADED = "gemmproof_target_"  # what target.py puts before the name of a file of its own


class Rewritten(Exception):
    """A file was written after it was imported: what it says now is not what runs."""


def trace(*roots: object, imported: float = math.inf) -> dict[str, str]:
    """The parts that functions can reach, by module and name, each with a hash of its text.

    Raises Rewritten for a file that was written after `imported`, in seconds since the epoch.
    """
    walk = _Walk()
    for root in roots:
        walk.enter(root)
    for part in walk.seen:
        if part.source.written > imported:
            raise Rewritten(f"{part.source.module} was written after it was imported")
    found: dict[str, list[str]] = {}
    for part in walk.seen:
        found.setdefault(part.label, []).append(part.digest)
    traced = {label: " ".join(sorted(digests)) for label, digests in found.items()}
    return dict(sorted({**traced, **walk.unread}.items()))


class _Walk:
    """A walk from values to the statements that made them, and on to what those name."""

    def __init__(self) -> None:
        self.seen: dict[Statement, None] = {}
        self.unread: dict[str, str] = {}  # what has no text, by a hash of its code
        self._values: dict[int, object] = {}
        self._asked: set[tuple[str, str, Chains]] = set()
        self._package = ""  # the installed one that the first function is of

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
            # it was made at run time: its names are all that can be followed
            text = repr((code.co_code, code.co_names, [c for c in code.co_consts if _is_plain(c)]))
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            self.unread[f"{function.__module__}:{function.__qualname__}"] = digest
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
        name = _name_module(path, module)
        if not self.seen and owner(path) == "installed":
            self._package = name.partition(".")[0]
        source = self._read(path, name)
        part = source.find(line) if source is not None else None
        if part is not None:
            self._take(part)

    def _read(self, path: str, module: str) -> ModuleText | None:
        """The parts of a file of the project's; None for what others made."""
        whose = owner(path)
        theirs = whose == "installed" and module.partition(".")[0] != self._package
        return None if whose == "library" or theirs else read_source(path, module)

    def _take(self, part: Statement) -> None:
        """Take a part in, and what it names."""
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
        """Follow a name of a module, of which attributes are asked."""
        asked = (source.module, name, chains)
        if asked in self._asked:
            return
        self._asked.add(asked)
        for part in source.binding.get(name, []):
            if name in part.imports:
                self._follow_import(part.imports[name], chains)
            if not isinstance(part.node, IMPORTS):
                self._take(part)
        if name not in source.binding:
            for module in source.stars:
                file = find_file(module)
                all_of_it = self._read(file, module) if file else None
                if all_of_it is not None:  # a name that it has not is a local one, or Python's
                    self._follow_bound(all_of_it, name, chains)

    def _follow_import(self, asked: Import, chains: Chains) -> None:
        if not asked.name:
            for chain in chains:
                self._follow_module(asked.module, chain)
            return
        for chain in chains:
            self._follow_module(asked.module, (asked.name, *chain))

    def _follow_module(self, module: str, chain: tuple[str, ...]) -> None:
        """Follow what is asked of a module: what it binds, a module in it, or else all of it."""
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


def _name_module(path: str, module: str) -> str:
    """The module's name where the file is its own, else that of the file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    is_own = isinstance(file, str) and realpath(file) == path
    return module.removeprefix(LOADED) if is_own else Path(path).stem


def _list_cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not bound yet
            yield cell.cell_contents


def _is_plain(value: object) -> bool:
    """Whether its text is the same in every process."""
    return isinstance(value, str | bytes | int | float | complex | type(None) | type(...))
