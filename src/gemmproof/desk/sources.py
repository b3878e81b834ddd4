"""The files that a target is made of: its own, and what it imports of the project."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from gemmproof.target import Target, package_of

MOST = 1000  # files


def list_sources(target: Target) -> tuple[set[Path], bool]:
    """The files, those included that an import looked for in vain; and whether all could be read.

    Installed packages and Python's own modules are none of the project's.
    """
    roots, first = _find_roots(target), _find_files(target)
    todo = [path for path in first if path.is_file()]
    found, whole = set(first), todo == first
    while todo and len(found) < MOST:
        path = todo.pop()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # on escapes in strings
                tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            whole = False
            continue
        for name in _list_modules(tree, path):
            for other in _resolve(name, roots):
                if other not in found:
                    found.add(other)
                    todo += [other] * other.is_file()
    return found, whole


def _find_roots(target: Target) -> list[Path]:
    """The folders that the project's modules are imported from."""
    places = [Path.cwd()]
    if target.is_file:
        places.insert(0, package_of(Path(target.place).resolve())[0])
    theirs = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    known = [Path(entry or os.getcwd()) for entry in os.environ.get("PYTHONPATH", "").split(":")]
    roots = (path.resolve() for path in (*places, *known))
    return list(dict.fromkeys(path for path in roots if path not in theirs))


def _find_files(target: Target) -> list[Path]:
    if target.is_file:
        return [Path(target.place).resolve()]
    return list(_resolve(target.place, [Path.cwd()]))


def _list_modules(tree: ast.Module, path: Path) -> Iterator[str]:
    """What a file imports, at any depth of its code, by absolute name."""
    own = package_of(path)[1].split(".")
    package = own if path.stem == "__init__" else own[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def _resolve(name: str, roots: list[Path]) -> Iterator[Path]:
    """The files of a module, those of its packages included; where it would be if there is none."""
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names:
        return
    for root in roots:
        stems = [root.joinpath(*parts[: i + 1]) for i in range(len(parts))]
        places = (p for s in stems for p in (s.with_suffix(".py"), s / "__init__.py"))
        if there := [place for place in places if place.is_file()]:
            yield from there
            return
    if "site-packages" not in str(_find_origin(parts[0])):
        yield roots[0] / f"{parts[0]}.py"


def _find_origin(top: str) -> str | None:
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    return None if spec is None else (spec.origin or "site-packages")
