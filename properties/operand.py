"""What a wrapper takes besides a and b: scales, a bias, packed weights, indices, out=, alpha."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from keyword import iskeyword
from typing import Any

from gemmproof.properties.cases.layouts import ANY, BATCHED, CONTIGUOUS, HUGE, LAYOUTS, ROW, view
from gemmproof.properties.cases.relation import evaluate
from gemmproof.reference.formats import FORMATS, Format

Values = Callable[..., Any] | tuple[int, int] | None

READ, WRITTEN, UPDATED = USES = ("read", "written", "updated")
NONE = "None"  # what a case says of an operand that is left out


class Misstated(ValueError):
    """An operand that no case can have as it is stated, through no fault of the kernel."""


@dataclass(frozen=True, slots=True, repr=False)
class Operand:
    """A tensor that the wrapper takes by name: its format, its shape, what its elements may be.

    `shape`: an axis, or a tuple of up to three: numbers, or text over M, N, K, batch and the
    integers of a OneOf such as "M" or "K // 128". `values`: None for data that tell each element
    from its neighbours (signed powers of two for floats, all values for integers), (low, high) for
    integers from low to high, or a function of a numpy Generator, the shape and, by their names,
    sizes, values of a OneOf and operands stated before, which returns an array. `use`: "read";
    "written" for memory that the wrapper is to fill, as out=; "updated" for what it reads and
    overwrites. The last two are results. `optional`: None is given in some cases. `layouts`:
    "contiguous", "any" view, or names from layouts.LAYOUTS.

    Raises ValueError, in one line, for what no operand can be.
    """

    format: str
    shape: str | int | tuple[str | int, ...] = ()
    values: Values = None
    use: str = READ
    optional: bool = False
    layouts: str | tuple[str, ...] = CONTIGUOUS

    def __post_init__(self) -> None:
        fmt = FORMATS.get(self.format) if isinstance(self.format, str) else None
        if fmt is None or fmt.stored is not fmt:
            known = " ".join(f.name for f in FORMATS.values() if f.stored is f)
            raise ValueError(f"operand format: got {self.format!r}, expected one of {known}")
        if len(self.axes) > 3:
            raise ValueError(f"operand shape: got {self.shape!r}, expected at most three axes")
        if not all(type(axis) is int or isinstance(axis, str) for axis in self.axes):
            raise ValueError(f"operand shape: got {self.shape!r}, expected numbers and text")
        if self.values is not None and not callable(self.values) and not self._is_range(fmt):
            raise ValueError(
                f"operand values: got {self.values!r} for {self.format}, expected (low, high) of"
                " an integer format, a function or None"
            )
        if self.use not in USES:
            raise ValueError(f"operand use: got {self.use!r}, expected one of {' '.join(USES)}")
        if not isinstance(self.optional, bool) or (self.optional and self.use != READ):
            raise ValueError(
                f"operand optional: got {self.optional!r} for one that is {self.use}, expected"
                " True of one that is read, or False"
            )
        names = (self.layouts,) if isinstance(self.layouts, str) else self.layouts
        layouts = (ANY, CONTIGUOUS) if isinstance(self.layouts, str) else tuple(LAYOUTS)
        if not isinstance(names, tuple) or not names or not set(names) <= set(layouts):
            raise ValueError(
                f"operand layouts: got {self.layouts!r}, expected 'any', 'contiguous' or a tuple of"
                f" {' '.join(LAYOUTS)}"
            )

    def __repr__(self) -> str:
        first = f"{self.format!r}, {self.shape!r}"
        words = ("values", "use", "optional", "layouts")
        usual = {f.name: f.default for f in fields(self)}
        said = (f"{n}={getattr(self, n)!r}" for n in words if getattr(self, n) != usual[n])
        return f"Operand({', '.join((first, *said))})"

    def _is_range(self, fmt: Format) -> bool:
        """Whether the values are a lowest and a highest one that the format holds."""
        stated = self.values
        pair = isinstance(stated, tuple) and len(stated) == 2 and fmt.kind == "int"
        if not pair or any(type(n) is not int for n in stated):  # type: ignore[union-attr]
            return False
        low, high = stated  # type: ignore[misc]
        signed = fmt.storage.kind == "i"
        bits = 8 * fmt.itemsize - signed
        return -(2**bits) * signed <= low <= high < 2**bits

    @property
    def axes(self) -> tuple[str | int, ...]:
        """The shape as a tuple."""
        return self.shape if isinstance(self.shape, tuple) else (self.shape,)

    @property
    def is_result(self) -> bool:
        """Whether the call is to leave a result in it."""
        return self.use != READ

    def sides(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at given sizes, by axis of the product."""
        given = {**sizes, "batch": sizes.get("batch", 1)}
        sides = tuple(n if isinstance(n, int) else evaluate(n, given) for n in self.axes)
        if any(n < 0 for n in sides):
            at = " ".join(f"{axis}={n}" for axis, n in sizes.items())
            raise ValueError(f"got {self.shape!r}, which is {sides} at {at}, expected sizes from 0")
        return sides

    def list_layouts(self) -> tuple[str, ...]:
        """The layouts that it may have, row-major and dense first; each with strides of its own."""
        named = self.layouts if isinstance(self.layouts, tuple) else tuple(LAYOUTS)
        shape, found = ((1, 1, 1, *(5, 6, 7)[: len(self.axes)])[-3:]), dict[Any, str]()
        for name in LAYOUTS if self.layouts != CONTIGUOUS else (ROW,):
            # one element that stands for many is no set of indices, and no result
            repeats = name.startswith("expanded") or name == "shared"
            lacks = (name in HUGE and name not in self.layouts) or (
                name in BATCHED and len(self.axes) < 3
            )
            lacks |= repeats and (callable(self.values) or self.is_result)
            if name not in named or lacks:
                continue
            place = view(name, (shape[0], shape[1], shape[2]), 2, 1)
            own = tuple(step for n, step in zip(shape, place.strides, strict=True) if n > 1)
            found.setdefault((own, place.first), name)
        return tuple(found.values())


def is_name(word: Any) -> bool:
    """Whether it can be the name of a parameter."""
    return isinstance(word, str) and word.isidentifier() and not iskeyword(word)


class OneOf:
    """A Python value that the wrapper takes by name, one of some: alpha, a flag, a group's size.

    Cases take the first where nothing asks for another. Raises ValueError, in one line.
    """

    def __init__(self, *values: Any) -> None:
        self.values = values
        if not values:
            raise ValueError("OneOf: got no value, expected one or more")
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError(f"OneOf: got {', '.join(names)}, expected different values")

    @property
    def names(self) -> tuple[str, ...]:
        """What cases call the values."""
        return tuple(map(repr, self.values))

    def value(self, name: str) -> Any:
        """The value that a case calls so. Raises ValueError for another name."""
        if name not in self.names:
            raise ValueError(f"got {name}, expected one of {' '.join(self.names)}")
        return self.values[self.names.index(name)]

    def __repr__(self) -> str:
        return f"OneOf({', '.join(self.names)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneOf) and other.names == self.names

    def __hash__(self) -> int:
        return hash(self.names)


def list_parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names that a function has for its arguments, none where it hides them."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def call_by_name(function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
    """What a function returns for these arguments and those of `named` that it has a name for."""
    parameters = inspect.signature(function).parameters.values()
    if all(p.kind is not p.VAR_KEYWORD for p in parameters):
        takes = {p.name for p in parameters}
        named = {name: value for name, value in named.items() if name in takes}
    return function(*given, **named)
