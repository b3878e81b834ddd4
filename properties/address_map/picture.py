"""The data of a picture of an access."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from gemmproof.properties.address_map.explain_access import Followed, axes_of, follow_all
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import smallest
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.observation import parameters_of
from gemmproof.reference.symbolic.interpreter.symbolic_values import SymbolicAccess
from gemmproof.reference.symbolic.obligations.in_bounds import find_places
from gemmproof.reference.symbolic.obligations.indices import NotAffine
from gemmproof.reference.symbolic.solver import fresh_state
from gemmproof.reference.symbolic.terms import Atom, Cond, Poly, evaluate

MOST_SIDE = 512
MOST_RUNS = 4096  # of programs and trips
NOTHING, UNTOUCHED, SEEN, MASKED, STRAY, TWICE = range(6)

Values = dict[Atom, Any]


class OperandPanel(TypedDict):
    """The grid of an operand, as plain data: `cells` are states of lanes, `origin` their corner."""

    operand: str
    kind: str
    where: str
    program: list[int]
    trip: list[int]
    shape: list[int]
    origin: list[int]
    axes: list[str]
    cells: list[list[int]]


class Picture(TypedDict):
    """The panels of a picture, as plain data; `order` is that of the tiles of c."""

    title: str
    panels: list[OperandPanel]
    order: list[list[int]]
    grid: list[int]


class NoPicture(Exception):
    """The reason why nothing can be drawn, in one line."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One access of one program in one trip: rows, columns and the state of its lanes."""

    program: tuple[int, ...]
    trip: tuple[int, ...]
    rows: Any
    columns: Any
    active: Any


@fresh_state()
def make_picture(
    kernel: KernelUnderTest, target: str | None, config: int, case: Case | None
) -> Picture:
    """Return the data of a picture. Raises NoPicture."""
    case = case or smallest(kernel.contract, kernel.contract.formats[0])
    sides = {"batch": case.batch or 1, "M": case.M, "N": case.N, "K": case.K}
    if max(sides.values()) > MOST_SIDE:
        raise NoPicture(f"got {case}, expected sides of at most {MOST_SIDE}")
    if not all(sides.values()):
        raise NoPicture(f"got {case}, expected elements to draw")
    open_: list[str] = []
    operand_names = parameters_of(kernel.launch)
    for followed in follow_all(kernel, target, config, on_open=open_.append):
        sizes = followed.domain.sizes
        values = followed.domain.add_strides({x.atom: sides[n] for n, x in sizes.items() if x.atom})
        if followed.domain.case.dtype != case.dtype or not _holds(followed.path.condition, values):
            continue
        if followed.machine is None:
            raise NoPicture(f"{followed.failed}; nothing can be drawn")
        return _draw(followed, values, case, operand_names)
    why = f": {open_[0]}" if open_ else ""
    raise NoPicture(f"no kernel could be followed at {case}{why}")


def _holds(cond: Cond, values: Values) -> bool:
    try:
        return bool(np.all(evaluate(cond, values)))
    except KeyError:
        return False


def _draw(
    followed: Followed, values: Values, case: Case, operand_names: Mapping[str, str]
) -> Picture:
    machine = followed.machine
    assert machine is not None
    try:
        grid = [int(evaluate(n, values)) for n in followed.launch.grid]
        runs = [(x, list(_run(followed, x, grid, values))) for x in machine.accesses]
    except KeyError as error:
        raise NoPicture(f"the addresses depend on {error}, which the sizes do not decide") from None
    drawn: dict[str, OperandPanel] = {}
    for access, access_runs in runs:
        if access_runs and access.tensor.name not in drawn:
            drawn[access.tensor.name] = _panel(access, access_runs, values, operand_names)
    if not drawn:
        raise NoPicture(f"no access has rows and columns at {case}")
    stores = [access_runs for access, access_runs in runs if access.kind != "load" and access_runs]
    order = _order(stores[-1], grid) if stores else []
    return {
        "title": f"{followed.launch.kernel} at {case}",
        "panels": list(drawn.values()),
        "order": order,
        "grid": grid,
    }


def _run(
    followed: Followed, access: SymbolicAccess, grid: list[int], values: Values
) -> Iterator[_Run]:
    """Yield every run of an access, program by program."""
    try:
        places = find_places(access)
    except NotAffine:
        return
    lanes = _lanes(access)
    known = followed.machine.known if followed.machine else {}
    for program in itertools.product(*(range(n) for n in reversed(grid))):
        here = dict(values)
        for axis, n in zip("zyx", program, strict=True):
            here[Atom("symbol", f"pid_{axis}", access.launch, is_natural=True)] = n
        for trips in _trips(list(access.trips), known, here):
            here.update(zip(access.trips, trips, strict=True))
            if not _holds(access.path, here):
                continue
            for cond, at in places:
                if _holds(cond, here):
                    numbers = {**here, **lanes}
                    *rest, columns = (_fill(x, numbers, access.shape) for x in at[-2:])
                    rows = rest[0] if rest else np.zeros_like(columns)
                    active = np.broadcast_to(evaluate(access.mask, numbers), access.shape)
                    yield _Run(program[::-1], trips, rows, columns, active)
                    break


def _trips(
    trips: list[Atom], known: Mapping[Atom, Cond], values: Values
) -> Iterator[tuple[int, ...]]:
    if not trips:
        yield ()
        return
    first, *rest = trips
    for n in range(MOST_RUNS):
        here = {**values, first: n}
        if first not in known or not bool(evaluate(known[first], here)):
            return
        for inner in _trips(rest, known, here):
            yield (n, *inner)


def _lanes(access: SymbolicAccess) -> Values:
    lanes = {}
    for axis, n in enumerate(access.shape):
        if n > 1:
            shape = [1] * len(access.shape)
            shape[axis] = n
            lanes[Atom("symbol", "lane", axis, n)] = np.arange(n).reshape(shape)
    return lanes


def _fill(x: Poly, values: Values, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(np.asarray(evaluate(x, values), dtype=np.int64), shape)


def _panel(
    access: SymbolicAccess, runs: list[_Run], values: Values, operand_names: Mapping[str, str]
) -> OperandPanel:
    """Return the grid of an operand with the lanes of the most revealing program."""
    sides = [int(evaluate(n, values)) for n in access.tensor.owner_shape][-2:]
    height, width = sides if len(sides) == 2 else (1, sides[0])

    def inside(run: _Run) -> Any:
        rows = (run.rows >= 0) & (run.rows < height)
        return rows & (run.columns >= 0) & (run.columns < width)

    def shows(run: _Run) -> tuple[int, int]:
        outside = int((run.active & ~inside(run)).sum())
        return outside, int((~run.active).sum())

    counted = np.zeros((height, width), dtype=np.int64)
    if access.kind == "store":
        for run in runs:
            seen = run.active & inside(run)
            np.add.at(counted, (run.rows[seen], run.columns[seen]), 1)
    chosen = max(runs, key=shows)
    top, left = min(0, int(chosen.rows.min())), min(0, int(chosen.columns.min()))
    bottom = max(height, int(chosen.rows.max()) + 1)
    right = max(width, int(chosen.columns.max()) + 1)
    if bottom - top > 2 * MOST_SIDE or right - left > 2 * MOST_SIDE:
        raise NoPicture(f"the lanes of {access.tensor.name} are too far apart to be drawn")
    cells = np.full((bottom - top, right - left), NOTHING)
    cells[-top : height - top, -left : width - left] = UNTOUCHED
    within = inside(chosen)
    for state, where in (
        (MASKED, ~chosen.active),
        (SEEN, chosen.active & within),
        (STRAY, chosen.active & ~within),
    ):
        cells[chosen.rows[where] - top, chosen.columns[where] - left] = state
    cells[-top : height - top, -left : width - left][counted > 1] = TWICE
    labels = axes_of(len(access.tensor.owner_shape))[-2:]
    return {
        "operand": operand_names.get(access.tensor.name, access.tensor.name),
        "kind": access.kind,
        "where": str(access.where),
        "program": list(chosen.program),
        "trip": list(chosen.trip),
        "shape": [height, width],
        "origin": [top, left],
        "axes": list(labels) if len(labels) == 2 else ["", *labels],
        "cells": cells.tolist(),
    }


def _order(runs: list[_Run], grid: list[int]) -> list[list[int]]:
    """Return each program's tile in the order of their numbers: first row, first column, sides."""
    tiles = []
    for run in runs:
        if not run.active.any():
            continue
        rows, columns = run.rows[run.active], run.columns[run.active]
        x, y, z = run.program
        number = x + grid[0] * (y + grid[1] * z)
        first = int(rows.min()), int(columns.min())
        tiles.append(
            [number, *first, int(rows.max()) - first[0] + 1, int(columns.max()) - first[1] + 1]
        )
    return sorted(tiles)
