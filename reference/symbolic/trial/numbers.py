"""The numbers that a launch computes, in exact arithmetic, and which of them are undefined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.formats import FORMATS
from gemmproof.reference.symbolic.machine.values import Access, Data
from gemmproof.reference.symbolic.trial.lattice import Lattice, Unclear
from gemmproof.reference.ttir.dtypes import DTYPES

# what an access reads of its tensor: numbers and whether they are undefined, at these elements
Read = Callable[[Access, np.ndarray], tuple[np.ndarray, np.ndarray]]
Number = tuple[Any, Any]

_SUMS = ("add", "arith.addi", "arith.addf")
_PRODUCTS = ("mul", "arith.muli", "arith.mulf", "dot")
_COMPUTED: dict[str, Callable[..., Any]] = {
    "arith.subf": np.subtract,
    "arith.subi": np.subtract,
    "arith.maximumf": np.maximum,
    "arith.maxnumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.minnumf": np.minimum,
    "arith.extsi": lambda x: x,
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """Computes what data are within a lattice; `read` gives what memory holds."""

    read: Read

    def of(self, data: Data, lattice: Lattice) -> Number:
        """Numbers, and whether each depends on an undefined lane. Raises Unclear."""
        match data.kind:
            case "number":
                return _parse(data.word), False
            case "load":
                return self._load(data.access, lattice)
            case "cast":
                x, bad = self.of(data.parts[0], lattice)
                return keep(x, data.word), bad
            case "choice":
                cond = lattice.evaluate(data.cond)
                (x, bad_x), (y, bad_y) = (self.of(part, lattice) for part in data.parts)
                return np.where(cond, x, y), np.where(cond, bad_x, bad_y)
            case "sum":
                assert data.over is not None
                inner = lattice.run_trips(data.over)
                return self._sum(inner, *self.of(data.parts[0], inner))
            case "reduce" | "dot" if data.over is not None:
                inner = lattice.bind(data.over, data.over.args[2])
                parts = [self.of(part, inner) for part in data.parts]
                return self._sum(inner, *_join(np.multiply, parts))
            case kind if kind in _SUMS:
                return _join(np.add, [self.of(part, lattice) for part in data.parts])
            case kind if kind in _PRODUCTS:
                return _join(np.multiply, [self.of(part, lattice) for part in data.parts])
            case kind if kind in _COMPUTED:
                return _join(_COMPUTED[kind], [self.of(part, lattice) for part in data.parts])
            case "undefined":
                return 0.0, True
        raise Unclear(f"{data.kind} of numbers")

    def _load(self, access: Access, lattice: Lattice) -> Number:
        here = lattice.evaluate(access.path) & lattice.evaluate(access.mask) & lattice.when
        at = np.where(here, lattice.evaluate(access.term), -1)
        x, bad = self.read(access, at)
        other: Number = (0.0, True) if access.other is None else self.of(access.other, lattice)
        return np.where(here, x, other[0]), np.where(here, bad, other[1])

    def _sum(self, inner: Lattice, x: Any, bad: Any) -> Number:
        """The sum over the front axis of a lattice, of the places that are there."""
        x, bad, when = (
            np.broadcast_to(part, _shape(inner, x, bad)) for part in (x, bad, inner.when)
        )
        return np.where(when, x, 0).sum(axis=0), (bad & when).any(axis=0)


def _shape(inner: Lattice, *parts: Any) -> tuple[int, ...]:
    """The shape of a sum's parts, axes that none of them has left 1 long but for the front."""
    shape = np.broadcast_shapes(*(np.shape(x) for x in (*parts, inner.when)))
    missing = len(inner.axes) - len(shape)
    return (inner.axes[-1], *((1,) * missing + shape)[1:])


def _join(compute: Callable[..., Any], parts: Sequence[Number]) -> Number:
    bad: Any = False
    for _, one in parts:
        bad = np.logical_or(bad, one)
    if len(parts) == 1 and compute in (np.add, np.multiply):
        return parts[0][0], bad
    return compute(*(x for x, _ in parts)), bad


def _parse(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise Unclear(f"the number {word}") from None


def keep(x: Any, name: str) -> Any:
    """Numbers that a type holds as they are. Raises Unclear where it may not."""
    kind = DTYPES.get(name)
    fmt = FORMATS.get(kind.format) if kind is not None else None
    if kind is None or fmt is None:
        raise Unclear(f"a cast to {name}")
    held = np.isnan(x)
    if kind.is_float:
        held |= (np.abs(x) <= min(2.0**fmt.p, fmt.max)) & (x == np.floor(x))
    else:
        held |= np.abs(x) < 2 ** (kind.bits - 1)
    if not np.all(held):
        raise Unclear(f"numbers that {name} does not hold")
    return x
