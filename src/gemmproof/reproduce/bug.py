"""A bug to reproduce, and the import path of its wrapper."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.finding import Finding
from gemmproof.reference.provenance import owner

# -- bug -----------------------------------------------------------------------------------------
# Whether values show it on a GPU, as the simulator says: whatever lies around the operands; or as
# what lies there, or undefined lanes hold, decides; or not at all. Or the call does not return.
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
    """A call that a test makes before the one of the case; `words` say which it is.

    `values` are as those of a Bug. It `shares` the tensors of the case, which have other elements
    for it where its `operands` say so; else it has tensors of its own.
    """

    words: str
    operands: tuple[StatedOperand, ...]
    values: dict[str, str] = field(default_factory=dict)
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Bug:
    """What a test needs to show a finding.

    `values` are the words of Python values by name. `at` is the wrong element that is shown, None
    where the values show none; `wanted` are the elements that the test compares, with what they may
    be off by, () for all of an exact product. `result` is the number of the result among `results`,
    `written` the operands that a call leaves results in. `shown` is whether values show it, a word
    of the above; `exact` whether float64 holds the whole product. `kept` of `given` elements are
    not zero. `tuned` names the tuned kernels of the target's module, each with the number of the
    configuration that is to run. `room`: whether the results need memory around them as well.
    `before` are calls that are made first, in order. The result is to have the bits of the first of
    them where it is the `same`, at least in as many `rows` as both have; None for all of it.
    """

    finding: Finding
    operands: tuple[StatedOperand, ...]
    values: dict[str, str] = field(default_factory=dict)
    at: Index | None = None
    got: float | None = None
    wanted: tuple[tuple[Index, float, float], ...] = ()
    result: int = 0
    results: int = 1
    written: tuple[str, ...] = ()
    shown: str = NEVER
    exact: bool = False
    kept: int = 0
    given: int = 0
    tuned: dict[str, int] = field(default_factory=dict)
    room: bool = False
    before: tuple[StatedCall, ...] = ()
    same: bool = False
    rows: int | None = None

    @property
    def case(self) -> Case:
        """The case that it is a bug at."""
        return self.finding.case

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "finding": self.finding.to_dict()}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Bug:
        """The bug that `to_dict` gave."""
        stated: dict[str, Any] = {
            "finding": Finding.from_dict(data["finding"]),
            "operands": _read_operands(data["operands"]),
            "before": tuple(
                StatedCall(**{**one, "operands": _read_operands(one["operands"])})
                for one in data["before"]
            ),
            "at": None if data["at"] is None else tuple(data["at"]),
            "wanted": tuple((tuple(at), x, off) for at, x, off in data["wanted"]),
            "written": tuple(data["written"]),
        }
        return Bug(**{**data, **stated})


def _read_operands(data: list[dict[str, Any]]) -> tuple[StatedOperand, ...]:
    return tuple(
        StatedOperand(
            **{
                **one,
                "shape": tuple(one["shape"]),
                "strides": tuple(one["strides"]),
                "elements": tuple((tuple(at), x) for at, x in one["elements"]),
            }
        )
        for one in data
    )


# -- import paths --------------------------------------------------------------------------------
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
class WrapperLocation:
    """A wrapper as a name in a file.

    `module` is what the file is imported as, "" where it was loaded by its path; `root` the folder
    that it is imported from, "" for what is installed.
    """

    file: str
    function: str
    module: str = ""
    root: str = ""


def find_wrapper(launch: Any) -> WrapperLocation:
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


def _find_import(module: types.ModuleType, function: str) -> WrapperLocation:
    file = os.path.abspath(str(module.__file__))
    if owner(file) != "user":
        return WrapperLocation(file, function, module.__name__)
    path, parts = Path(file), tuple(module.__name__.split("."))
    place = path.parent if path.stem == "__init__" else path.with_suffix("")
    if place.parts[-len(parts) :] != parts:  # a file that was loaded by its path has any name
        return WrapperLocation(file, function)
    return WrapperLocation(file, function, module.__name__, str(place.parents[len(parts) - 1]))


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
