"""The formulas of a traced path compared with the simulator's accesses, before anything is proved.

A proof is about a program over symbols. Here that program runs at a few sizes with plain numbers,
and so does the kernel on the simulator: every launch must have the same grid, and every program
must load, store and add to the same elements as often.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.layouts import HUGE
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.properties.proof.cases_of_paths import read_values
from gemmproof.properties.proof.domain import TracedPath
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.fake_cuda.multiprocessors import multiprocessors
from gemmproof.reference.simulator import run
from gemmproof.reference.symbolic.concrete import (
    Undetermined,
    make_lattice,
    run_loops,
)
from gemmproof.reference.symbolic.interpreter.interpret import Machine
from gemmproof.reference.symbolic.interpreter.symbolic_values import SymbolicAccess
from gemmproof.reference.symbolic.obligations.indices import find_unknown
from gemmproof.reference.symbolic.solver import OutOfTime, Solver
from gemmproof.reference.symbolic.terms import TRUE, Atom, Cond, eq, evaluate, walk
from gemmproof.reference.symbolic.tracing.trace import TracedLaunch

# -- sizes -----------------------------------------------------------------------------------------
COMPARED = 3  # sizes of each path; further configurations of it are compared at one
MOST_PROGRAMS = 512  # of a launch
MOST_WORK = 2**20  # products of a case
MOST_ELEMENTS = 2**22  # of an operand at strides of the solver's
# without it a copy engine stores to the end of 16 bytes, which no formula describes
_ROWS_END = "where a descriptor's rows end"


class Incomparable(Exception):
    """The reason why a case is not compared."""


@dataclass(frozen=True, slots=True)
class PathComparison:
    """The comparisons of one path: how many calls agreed, and the first difference, or ""."""

    agreed: int = 0
    difference: str = ""


@dataclass(frozen=True, slots=True)
class PathCall:
    """A call that may take a path: its case, its tensors and the values of the path's symbols."""

    case: Case
    tensors: Mapping[str, torch.Tensor]
    values: Mapping[Atom, int]


def compare_path(
    kernel: KernelUnderTest, traced: TracedPath, target: str | None, solver: Solver
) -> PathComparison:
    """Compare a path with the simulator in several calls that take it.

    `solver` has the path's condition; it finds sizes and strides if no usual ones take it.
    """
    agreed, most = 0, COMPARED if traced.config == 0 else 1
    state = find_state(kernel.launch)
    state.restore()
    for call in _list_calls(kernel, traced, solver):
        try:
            difference = _compare(kernel, traced, call, target)
        except Incomparable:
            continue
        finally:
            state.restore()
        if difference:
            return PathComparison(agreed, f"{difference}, at {call.case}")
        agreed += 1
        if agreed == most:
            break
    return PathComparison(agreed)


# -- calls -----------------------------------------------------------------------------------------
def _list_calls(kernel: KernelUnderTest, traced: TracedPath, solver: Solver) -> Iterator[PathCall]:
    """Yield calls on the path: of drawn cases, then of sizes and strides that the solver finds."""
    seen: set[Case] = set()
    for case in _list_cases(kernel, traced):
        if case in seen:
            continue
        seen.add(case)
        try:
            allocated = operands(case, kernel)
        except ContractError:
            continue
        tensors = {name: operand.tensor for name, operand in allocated.items()}
        values = read_values(traced.domain, case, tensors)
        if _holds(traced.path.condition, values):
            yield PathCall(case, tensors, values)
    for plainest in dict.fromkeys((solver.plainest, TRUE)):
        call = _solve(kernel, traced, replace(solver, plainest=plainest))
        if call is not None:
            yield call


def _list_cases(kernel: KernelUnderTest, traced: TracedPath) -> Iterator[Case]:
    """Yield cases that may take a path, in several layouts."""
    domain, contract = traced.domain, kernel.contract
    first = replace(domain.case, config=traced.config)
    near = [x for x in contract.layout_names if x not in HUGE]
    others = [x for x in near if x != near[0]] or near[:1]
    for number, sides in enumerate(_list_sides(traced)):
        fitted = contract.fit(sides)
        if fitted is None or prod(max(n, 1) for n in fitted.values()) > MOST_WORK:
            continue
        try:
            case = first.with_sides(fitted)
        except ValueError:  # more elements than a case has
            continue
        for layout in dict.fromkeys((others[number % len(others)] if number else near[0], near[0])):
            laid_out = case
            for name in ROLES:
                laid_out = laid_out.with_layout(name, layout)
            own = domain.fit(laid_out)
            if own is not None and is_admitted(own, contract):
                yield own


def _list_sides(traced: TracedPath) -> Iterator[dict[str, int]]:
    """Yield sizes by axis: those of the traced run, odd ones, and some around tiles."""
    axes = list(traced.domain.case.sides)
    shapes = [x.shape for machine in traced.machines for x in machine.accesses]
    tile = min(max([n for shape in shapes for n in shape], default=16), 128)
    usual = {
        "batch": (2, 1, 3), "M": (37, 1, tile + 1), "N": (53, 3, tile), "K": (29, 67, 2 * tile),
    }  # fmt: skip
    yield {axis: usual[axis][0] for axis in axes}
    yield dict.fromkeys(axes, 1)  # for which Triton specialises: 1 is a constant
    yield from ({axis: usual[axis][i] for axis in axes} for i in (1, 2))
    yield {axis: {"batch": 2, "M": 48, "N": 64, "K": 2 * tile}[axis] for axis in axes}
    for i, j in itertools.permutations(range(3), 2):
        yield {axis: usual[axis][i if n % 2 else j] for n, axis in enumerate(axes)}
    yield traced.domain.read_sides(traced.path.sizes, traced.domain.case)


def _solve(kernel: KernelUnderTest, traced: TracedPath, solver: Solver) -> PathCall | None:
    """Return a call at sizes and strides of the solver's, or None if none is small enough."""
    domain = traced.domain
    try:
        model = solver.find(traced.path.condition, small=domain.axes)
        if model is None:
            return None
        sides = domain.read_sides(model, domain.case)
        case = replace(domain.case, config=traced.config).with_sides(sides)
        allocated = operands(case, kernel)
    except (OutOfTime, ValueError, ContractError):
        return None
    values = domain.add_strides({atom: n for atom, n in model.items() if atom.kind == "symbol"})
    for shift in range(16):
        tensors = {}
        for name, declared in domain.operands.items():
            shape = [int(evaluate(n, values)) for n in declared.shape]
            strides = [int(evaluate(step, values)) for step in declared.strides]
            span = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if n)
            if span > MOST_ELEMENTS:
                return None
            storage = torch.zeros(span + 16, dtype=declared.dtype)
            tensors[name] = storage.as_strided(shape, strides, shift)
        tensors = {name: tensors.get(name, operand.tensor) for name, operand in allocated.items()}
        own = read_values(domain, case, tensors)
        if _holds(traced.path.condition, own):
            return PathCall(case, tensors, own)
    return None


# -- comparisons -----------------------------------------------------------------------------------
Touched = dict[tuple[str, int], list[np.ndarray]]


def _compare(
    kernel: KernelUnderTest, traced: TracedPath, call: PathCall, target: str | None
) -> str:
    """Return how a call differs from its formulas, or "". Raises Incomparable."""
    case, tensors, values = call.case, call.tensors, call.values
    planned = []  # before the simulation, which may run for long where a loop has many trips
    for machine in traced.machines:
        grid = _find_grid(machine, values)
        if prod(grid) > MOST_PROGRAMS:
            raise Incomparable("too many programs")
        _require_formulas(machine, values, grid)
        planned.append(_list_formulas(machine, values, grid))
    trace: list[Any] = []

    def launch(*arguments: Any) -> object:
        with multiprocessors(case.sms):
            return kernel.call(case, dict(zip(tensors, arguments, strict=True)))

    try:
        run(
            launch, *tensors.values(), target=target, config=case.config, trace=trace,
            operands=dict(tensors),
        )  # fmt: skip
    except Exception as error:  # an operation that is not known, or the wrapper's own refusal
        raise Incomparable(str(error)) from None
    if len(trace) != len(traced.machines):
        return f"{len(trace)} launches, expected {len(traced.machines)}"
    for launched, machine, formulas, (name, launched_grid, touches) in zip(
        traced.path.launches, traced.machines, planned, trace, strict=True
    ):
        expected = _find_grid(machine, values)
        if expected != tuple(launched_grid):
            return f"{name}: a grid of {tuple(launched_grid)}, expected {expected}"
        difference = _compare_accesses(launched, machine, touches, values, formulas)
        if difference:
            return f"{name}: {difference}"
    return ""


def _find_grid(machine: Machine, values: Mapping[Atom, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(n, values)) for n in machine.grid)


def _holds(cond: Cond, values: Mapping[Atom, int]) -> bool:
    try:
        return bool(evaluate(cond, values))
    except KeyError:  # a symbol that no call decides
        return False


def _require_formulas(machine: Machine, values: Mapping[Atom, int], grid: Sequence[int]) -> None:
    """Raise Incomparable if a number does not fit its type: the formulas are exact."""
    programs = _list_programs(grid)
    for claim in machine.claims:
        if claim.kind != "fit":
            continue
        try:
            lattice = make_lattice(machine, values, programs, ())
            named = walk(claim.cond, claim.path)
            if any(x.is_leaf and x not in lattice.values for x in named):
                continue  # lanes and trips: accesses show whether it fits
            holds = lattice.evaluate(claim.cond) | ~np.asarray(lattice.evaluate(claim.path), bool)
        except Undetermined:
            continue
        if not np.all(holds):
            raise Incomparable(claim.text)


def _list_programs(grid: Sequence[int]) -> list[np.ndarray]:
    """Return the coordinates of all programs, x fastest."""
    number = np.arange(int(np.prod(grid)))
    return [number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1])]


def _list_formulas(
    machine: Machine, values: Mapping[Atom, int], grid: tuple[int, ...]
) -> tuple[Touched, set[tuple[str, int]]]:
    """Return what the accesses touch, and the memories whose accesses depend on data.

    Raises Incomparable if the formulas do not determine it.
    """
    formulas: Touched = {}
    skipped: set[tuple[str, int]] = set()
    for access in machine.accesses:
        key = access.kind, access.tensor.storage
        if find_unknown(eq(access.term, 0), access.mask, access.path):
            skipped.add(key)
            continue
        try:
            formulas.setdefault(key, []).append(_evaluate(machine, access, values, grid))
        except Undetermined as reason:
            raise Incomparable(str(reason)) from None
    return formulas, skipped


def _compare_accesses(
    launched: TracedLaunch, machine: Machine, touches: Sequence[Any],
    values: Mapping[Atom, int], planned: tuple[Touched, set[tuple[str, int]]],
) -> str:  # fmt: skip
    storages: dict[str, int] = {}
    for parameter, argument in zip(launched.parameters, launched.arguments, strict=True):
        tensor = getattr(argument, "tensor", argument)
        if hasattr(tensor, "memory"):
            storages[tensor.name] = storages[parameter.partition("[")[0]] = tensor.storage
    unnamed = {touch.operand.name for touch in touches} - set(storages)
    others = sorted(
        {x.tensor.storage for x in machine.accesses}
        - {storages[touch.operand.name] for touch in touches if touch.operand.name in storages}
    )
    if len(unnamed) == len(others) == 1:  # one of several results
        storages[unnamed.pop()] = others[0]
    traced: Touched = {}
    for touch in touches:
        storage = storages.get(touch.operand.name)
        if storage is None:
            raise Incomparable(f"an access of {touch.operand.name}, which no argument names")
        traced.setdefault((touch.kind, storage), []).append(_list_touched(touch))
    formulas, skipped = planned[0], set(planned[1])
    ends = (claim.cond for claim in machine.claims if claim.text == _ROWS_END)
    if not all(bool(evaluate(cond, values)) for cond in ends):
        skipped |= {key for key in traced if key[0] == "store"}
    compared = sorted({*traced, *formulas} - skipped)
    if not compared and skipped:
        raise Incomparable("every access depends on data")
    for key in compared:
        got, expected = (_sort(x.get(key, [])) for x in (traced, formulas))
        if not np.array_equal(got, expected):
            kind, storage = key
            named = next((n for n, x in storages.items() if x == storage), "a tensor")
            return (
                f"{kind}s of {named}: {len(got)} elements in the simulator, "
                f"{len(expected)} in the formulas{_first_difference(got, expected)}"
            )
    return ""


def _list_touched(touch: Any) -> np.ndarray:
    """Return the program and element of each active lane of an access of the simulator."""
    shape = np.broadcast_shapes(
        touch.offsets.shape, (len(touch.programs),) + (1,) * (touch.offsets.ndim - 1),
        () if touch.mask is None else touch.mask.shape,
    )  # fmt: skip
    programs = touch.programs.reshape((-1,) + (1,) * (len(shape) - 1))
    pair = np.stack([np.broadcast_to(programs, shape), np.broadcast_to(touch.offsets, shape)])
    return pair[:, np.broadcast_to(True if touch.mask is None else touch.mask, shape)]


def _evaluate(
    machine: Machine, access: SymbolicAccess, values: Mapping[Atom, int], grid: tuple[int, ...]
) -> np.ndarray:
    """Return the same of a formula. Raises Undetermined."""
    programs = _list_programs(grid)
    space = run_loops(make_lattice(machine, values, programs, access.shape), access.trips)
    here = space.evaluate(access.path) & space.evaluate(access.mask) & space.when
    here = np.broadcast_to(np.asarray(here, bool), space.shape)
    number = space.along(np.arange(len(programs[0])), len(access.shape))
    pair = np.stack(
        [
            np.broadcast_to(number, space.shape),
            np.broadcast_to(space.evaluate(access.term), space.shape),
        ]
    )
    return pair[:, here]


def _sort(parts: list[np.ndarray]) -> np.ndarray:
    if not parts:
        return np.zeros((0, 2), np.int64)
    pairs = np.concatenate(parts, axis=1).astype(np.int64)
    return pairs[:, np.lexsort(pairs[::-1])].T


def _first_difference(got: np.ndarray, expected: np.ndarray) -> str:
    n = min(len(got), len(expected))
    differ = np.flatnonzero((got[:n] != expected[:n]).any(axis=1))
    at = int(differ[0]) if differ.size else n
    pairs = [(x, rows[at]) for x, rows in (("got", got), ("expected", expected)) if at < len(rows)]
    texts = (f"{word} element {pair[1]} in program {pair[0]}" for word, pair in pairs)
    return f"; first: {', '.join(texts)}"
