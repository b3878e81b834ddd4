"""Where a test finds the wrapper: by import, or in a file; in a worker, where it is registered."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmproof.reference.provenance import owner


class Unreproducible(Exception):
    """What no test that stands alone shows; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a test finds the wrapper.

    `kernels` is the path, from the test's folder, of the folder to import `module` from, None for
    what is installed; without a `module`, that of the file to load, which no import would find.
    """

    kernels: str | None
    module: str | None
    function: str


@dataclass(frozen=True, slots=True)
class Found:
    """A wrapper as a name in a file.

    `module` is what the file is imported as, "" where it was loaded by its path; `root` the folder
    that it is imported from, "" for what is installed.
    """

    file: str
    function: str
    module: str = ""
    root: str = ""


def find_wrapper(launch: Any) -> Found:
    """The module and the name there of a registered wrapper. Raises Unreproducible."""
    for module in _list_modules(launch):
        if name := _find_name(module, launch):
            return _find_import(module, name)
    raise Unreproducible(
        f"got {_describe(launch)} registered as its wrapper, expected a function that stands in a"
        " module by a name, which a test can import"
    )


def _list_modules(launch: Any) -> Iterator[types.ModuleType]:
    """The modules that may hold it: its own first, then those of the user's."""
    own = getattr(launch, "__module__", None)
    every = dict(sys.modules)
    names = [*([own] if isinstance(own, str) and own in every else ()), *every]
    for name in dict.fromkeys(names):
        file = getattr(every[name], "__file__", None)
        if isinstance(file, str) and (name == own or owner(file) == "user"):
            yield every[name]


def _find_name(module: types.ModuleType, launch: Any) -> str:
    """What it is called in a module, "" where it is not there."""
    said = getattr(launch, "__qualname__", "")
    parts = said.split(".") if isinstance(said, str) else [""]
    found = vars(module).get(parts[0])
    for part in parts[1:]:
        found = getattr(found, part, None) if part.isidentifier() else None
    if found is launch:
        return ".".join(parts)
    return next((name for name, x in list(vars(module).items()) if x is launch), "")


def _find_import(module: types.ModuleType, function: str) -> Found:
    file = os.path.abspath(str(module.__file__))
    if owner(file) != "user":
        return Found(file, function, module.__name__)
    path, parts = Path(file), tuple(module.__name__.split("."))
    place = path.parent if path.stem == "__init__" else path.with_suffix("")
    if place.parts[-len(parts) :] != parts:  # a file that was loaded by its path has any name
        return Found(file, function)
    return Found(file, function, module.__name__, str(place.parents[len(parts) - 1]))


def _describe(launch: Any) -> str:
    if isinstance(launch, functools.partial):
        return "a partial"
    if isinstance(launch, types.MethodType):
        return f"the method {launch.__qualname__} of an object"
    name = getattr(launch, "__qualname__", "")
    if name.endswith("<lambda>"):
        return "a lambda"
    if "<locals>" in name:
        return f"the function {launch.__name__} of another function"
    return f"the function {name}" if name else f"an object of {type(launch).__name__}"
