"""Functions of the axes that index a tensor: read from their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from gemmproof.draft.polynomials import Unreadable

LONGEST_PERIOD = 64
FEWEST_VALUES = 4  # by which a rule is believed before the elements of a tensor


@dataclass(frozen=True, slots=True)
class IndexFunction:
    """A function of at most one axis: (axis // step % period) * scale + start, or a table.

    `axis` is None for the constant `start`. `period` 0 is none. `table` has the values of one
    period, where they follow no rule. `gather` names a tensor of integers that has the index: at
    the places `axes`, divided by `step`; or, if it `counts`, as the number of its elements from
    `start` on that are at most the axis, as the offsets of groups do.
    """

    axis: str | None = None
    step: int = 1
    period: int = 0
    scale: float = 1
    start: float = 0
    table: tuple[float, ...] = ()
    gather: str = ""
    axes: tuple[str, ...] = ()
    counts: bool = False

    @property
    def is_identity(self) -> bool:
        return self == IndexFunction(self.axis) and self.axis is not None

    @property
    def is_constant(self) -> bool:
        return not self.depends

    @property
    def depends(self) -> tuple[str, ...]:
        """The axes that it depends on."""
        return self.axes or ((self.axis,) if self.axis else ())


def read_function(
    values: np.ndarray,
    axes: Mapping[str, np.ndarray],
    integers: Mapping[str, np.ndarray] | None = None,
) -> IndexFunction:
    """Return the function of the axes with these values at all points; `axes` are coordinates.

    `integers` are the tensors of integers through which the values may be looked up; they come
    first where a rule rests on few values.
    Raises Unreadable if they follow no known rule.
    """
    if (values == values[0]).all():
        return IndexFunction(start=_plain(values[0]))
    tables = {axis: _tabulate(values, at) for axis, at in axes.items()}
    single = [(axis, table) for axis, table in tables.items() if table is not None]
    rules = [_read_rule(axis, *table) for axis, table in single]
    rule = next((r for r in rules if r is not None), None)
    if rule is not None and len(np.unique(values)) >= FEWEST_VALUES:
        return rule
    for name, data in (integers or {}).items():
        gathered = _read_gather(values, axes, name, data)
        if gathered is not None:
            return gathered
    if rule is not None:
        return rule
    for axis, (places, own) in single:
        for period in range(2, min(LONGEST_PERIOD, len(places) // 2) + 1):
            if (places[:period] == np.arange(period)).all() and (own[places % period] == own).all():
                entries = tuple(_plain(x) for x in own[:period])
                return IndexFunction(axis, 1, period, table=entries)
        raise Unreadable(f"an index along {axis} that follows no rule")
    raise Unreadable("an index that depends on several axes")


def _read_gather(
    values: np.ndarray, axes: Mapping[str, np.ndarray], name: str, data: np.ndarray
) -> IndexFunction | None:
    """Return the function that looks the values up in a tensor of integers, None if none does."""
    for chosen in permutations(axes, data.ndim):
        places = tuple(axes[axis] for axis in chosen)
        if all(p.max() < n for p, n in zip(places, data.shape, strict=True)):
            looked_up = data[places]
            if (looked_up == values).all():
                return IndexFunction(gather=name, axes=chosen)
            for step in range(2, 9):
                if (looked_up // step == values).all():
                    return IndexFunction(gather=name, axes=chosen, step=step)
    if data.ndim == 1:
        for axis, at in axes.items():
            for start in (0, 1):
                counted = (data[start:, None] <= at[None]).sum(axis=0)
                if (counted == values).all():
                    return IndexFunction(axis, start=start, gather=name, counts=True)
    return None


Table = tuple[np.ndarray, np.ndarray]  # coordinates in order, and the value at each


def _tabulate(values: np.ndarray, at: np.ndarray) -> Table | None:
    """Return the values by coordinate, None if they depend on more than that."""
    places, first, back = np.unique(at, return_index=True, return_inverse=True)
    own = values[first]
    is_whole = places[0] == 0 and (own[back.reshape(-1)] == values).all()
    return (places, own) if is_whole else None


def _read_rule(axis: str, places: np.ndarray, table: np.ndarray) -> IndexFunction | None:
    """Return the rule of a table of two or more values, None if it follows none."""
    start = _plain(table[0])
    changed = int(np.flatnonzero(np.diff(table))[0]) + 1
    step = int(places[changed])
    at = places // step
    scale = _plain(table[changed] - table[0])
    if (at * scale + start == table).all():
        return IndexFunction(axis, step, 0, scale, start)
    for period in range(2, min(LONGEST_PERIOD, int(at[-1]) + 1) + 1):
        if (at % period * scale + start == table).all():
            return IndexFunction(axis, step, period, scale, start)
    return None


def _plain(x: np.generic | float) -> float:
    value = float(x)
    return int(value) if value.is_integer() else value
