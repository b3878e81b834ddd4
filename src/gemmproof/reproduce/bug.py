"""A bug to reproduce, and the import path of its wrapper."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.reference.provenance import owner

# -- bug -----------------------------------------------------------------------------------------
# How values show it on a GPU, according to the simulator: whatever surrounds the operands; or
# depending on that, or on undefined lanes; or not at all. Or the call does not return.
ALWAYS, BY_CHANCE, NEVER, ENDS = "always", "by chance", "never", "ends"
Index = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatedOperand:
    """A tensor of the case: zeros but for `elements`, `offset` elements into its memory.

    `dtype` is torch's name of it, `use` what a call does with it (operand.USES).
    """

    name: str
    dtype: str
    shape: Index
    strides: Index
    offset: int
    elements: tuple[tuple[Index, float], ...]
    use: str = "read"


@dataclass(frozen=True, slots=True)
class StatedCall:
    """A call that a test makes before that of the case; `label` describe it.

    `values` are as in a Bug. If it `shares` the tensors of the case, they hold the elements of its
    `operands` where these differ; else it has separate tensors.
    """

    label: str
    operands: tuple[StatedOperand, ...]
    values: dict[str, str] = field(default_factory=dict)
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Bug:
    """The inputs and expected elements of a test that shows a finding.

    `values` are the Python values as text, by name. `at` is the wrong element that is shown, None
    if values show none; `expected` are the elements that the test compares, with their allowed
    errors, () for all of an exact product. `result` is the index of the result among `results`,
    `written` the operands that a call stores results in. `shown` is how values show it, one of the
    constants above; `exact` whether float64 holds the whole product. `kept` of `given` elements are
    not zero. `tuned` names the tuned kernels of the target's module, each with the index of the
    configuration to run. `guarded`: whether the results need memory around them as well. `before`
    are the preceding calls, in order. If `same`, the result must have the bits of the first of
    them, at least in as many `rows` as both have; None for all of it.
    """

    finding: Finding
    operands: tuple[StatedOperand, ...]
    values: dict[str, str] = field(default_factory=dict)
    at: Index | None = None
    got: float | None = None
    expected: tuple[tuple[Index, float, float], ...] = ()
    result: int = 0
    results: int = 1
    written: tuple[str, ...] = ()
    shown: str = NEVER
    exact: bool = False
    kept: int = 0
    given: int = 0
    tuned: dict[str, int] = field(default_factory=dict)
    guarded: bool = False
    before: tuple[StatedCall, ...] = ()
    same: bool = False
    rows: int | None = None

    @property
    def case(self) -> Case:
        """The case of the finding."""
        return self.finding.case


# -- import paths --------------------------------------------------------------------------------
class Unreproducible(Exception):
    """A finding that no stand-alone test shows; the message gives the reason, in one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """The import path of the wrapper in a test.

    `kernels` is the path, from the test's folder, of the folder to import `module` from, None if it
    is installed; without a `module`, that of the file to load, which no import would find.
    """

    kernels: str | None
    module: str | None
    function: str


@dataclass(frozen=True, slots=True)
class WrapperLocation:
    """A wrapper as a name in a file.

    `module` is the name that the file is imported as, "" if it was loaded by its path; `root` the
    folder that it is imported from, "" if it is installed.
    """

    file: str
    function: str
    module: str = ""
    root: str = ""


def find_wrapper(launch: Any) -> WrapperLocation:
    """Return the module of a registered wrapper, and its name there. Raises Unreproducible."""
    for module in _list_modules(launch):
        if name := _find_name(module, launch):
            return _find_import(module, name)
    raise Unreproducible(
        f"got {_describe(launch)} registered as its wrapper, expected a function that stands in a"
        " module by a name, which a test can import"
    )


def _list_modules(launch: Any) -> Iterator[types.ModuleType]:
    """Yield the modules that may hold it: its own first, then the user's."""
    own = getattr(launch, "__module__", None)
    modules = dict(sys.modules)
    names = [*([own] if isinstance(own, str) and own in modules else ()), *modules]
    for name in dict.fromkeys(names):
        file = getattr(modules[name], "__file__", None)
        if isinstance(file, str) and (name == own or owner(file) == "user"):
            yield modules[name]


def _find_name(module: types.ModuleType, launch: Any) -> str:
    """Return its name in a module, "" if it is not there."""
    qualname = getattr(launch, "__qualname__", "")
    parts = qualname.split(".") if isinstance(qualname, str) else [""]
    value = vars(module).get(parts[0])
    for part in parts[1:]:
        value = getattr(value, part, None) if part.isidentifier() else None
    if value is launch:
        return ".".join(parts)
    return next((name for name, x in list(vars(module).items()) if x is launch), "")


def _find_import(module: types.ModuleType, function: str) -> WrapperLocation:
    file = os.path.abspath(str(module.__file__))
    if owner(file) != "user":
        return WrapperLocation(file, function, module.__name__)
    path, parts = Path(file), tuple(module.__name__.split("."))
    location = path.parent if path.stem == "__init__" else path.with_suffix("")
    if location.parts[-len(parts) :] != parts:  # a file that was loaded by its path has any name
        return WrapperLocation(file, function)
    return WrapperLocation(file, function, module.__name__, str(location.parents[len(parts) - 1]))


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
