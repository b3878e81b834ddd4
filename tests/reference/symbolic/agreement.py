"""A kernel's formulas compared with the simulator's trace, at sizes and layouts drawn at random."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.observe import observe
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.proof.domain import (
    NotExpressible,
    TraceCache,
    Untraced,
    list_domains,
    list_paths,
)
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.symbolic.interpreter import follow
from gemmproof.reference.symbolic.interpreter.interpret import NotInterpretable
from gemmproof.reference.symbolic.lemmas import LANE
from gemmproof.reference.symbolic.solver import OutOfTime, Solver
from gemmproof.reference.symbolic.terms import evaluate, walk
from gemmproof.reference.work import counted_seconds

FAR = ("narrow", "narrow_transposed", "narrow_batch", "huge")
# no formula describes what the copy engine stores beyond rows that end elsewhere
ROWS_END = "where a descriptor's rows end"
MOST_LANES = 3_000_000
MOST_TRIPS = 400


class Left(Exception):
    """The reason why a launch is not compared."""


@dataclass
class Touches:
    """The accesses of each (kind, tensor, program, element), counted, and their number of lanes."""

    count: Counter
    lanes: int = 0


def follow_all(path):
    """The machines of a path's launches. Raises Left."""
    machines = []
    for number, launch in enumerate(path.launches):
        try:
            machines.append(follow(launch, number))
        except NotInterpretable as reason:
            raise Left(f"not followed: {reason}") from None
    for machine in machines:
        for access in machine.accesses:
            named = walk(access.term, access.mask, access.path, *ranges(machine, access.trips))
            for atom in named:
                if atom.kind == "unknown":
                    raise Left(f"unknown: {atom.args[0]}")
                if atom.kind == "symbol" and atom.args[0] == "trips":
                    raise Left("behind a while loop")
    return machines


def ranges(machine, trips):
    return [machine.known[trip] for trip in trips if trip in machine.known]


def list_trips(machine, trips, values):
    """Return every tuple of trips of nested loops, for one program."""
    if not trips:
        yield {}
        return
    *outer, inner = trips
    for at in list_trips(machine, outer, values):
        for n in range(MOST_TRIPS + 1):
            here = {**at, inner: n}
            if not bool(evaluate(machine.known[inner], {**values, **here})):
                break
            if n == MOST_TRIPS:
                raise Left("too many trips")
            yield here


def evaluate_accesses(machine, values):
    """Return the accesses of one launch for the given values of the symbols."""
    grid = [int(evaluate(n, values)) for n in machine.grid]
    touches = Touches(Counter())
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                here = dict(values)
                for pid, n in zip(machine.pids, (x, y, z), strict=True):
                    if pid.atom is not None:
                        here[pid.atom] = n
                number = x + grid[0] * (y + grid[1] * z)
                for access in machine.accesses:
                    for at in list_trips(machine, access.trips, here):
                        _touch(touches, access, {**here, **at}, number)
                        if touches.lanes > MOST_LANES:
                            raise Left("too many lanes")
    return touches


def _touch(touches, access, values, program):
    lanes = {}
    shape = access.shape
    for atom in walk(access.term, access.mask, access.path):
        if atom.kind == "symbol" and atom.args[0] == LANE:
            axis, size = atom.args[1], atom.args[2]
            assert shape[axis] == size, (atom, shape)
            lanes[atom] = np.arange(size).reshape((size,) + (1,) * (len(shape) - axis - 1))
    values, memo = {**values, **lanes}, {}
    if not bool(np.all(evaluate(access.path, values, memo))):
        return
    mask = np.broadcast_to(evaluate(access.mask, values, memo), shape)
    offsets = np.broadcast_to(evaluate(access.term, values, memo), shape)
    touches.lanes += max(mask.size, 1)
    elements, counts = np.unique(offsets[mask], return_counts=True)
    key = (access.kind, access.tensor.name, program)
    for element, n in zip(elements.tolist(), counts.tolist(), strict=True):
        touches.count[*key, element] += n


def count_touches(accesses):
    """Return the same from the simulator's trace of one launch, by the names of the parameters."""
    count = Counter()
    for access in accesses:
        for row, program in enumerate(access.programs.tolist()):
            offsets = access.offsets[row if len(access.offsets) > 1 else 0]
            if access.mask is not None:
                mask = access.mask[row if len(access.mask) > 1 else 0]
                offsets = np.broadcast_to(offsets, np.broadcast_shapes(offsets.shape, mask.shape))
                offsets = offsets[np.broadcast_to(mask, offsets.shape)]
            elements, counts = np.unique(offsets, return_counts=True)
            for element, n in zip(elements.tolist(), counts.tolist(), strict=True):
                count[access.kind, access.operand.name, program, element] += n
    return count


@dataclass
class Agreement:
    """The number of drawn calls that agree, the differences, and why others are not compared."""

    calls: int = 0
    lanes: int = 0
    differences: list = field(default_factory=list)
    left: Counter = field(default_factory=Counter)


def compare(kernel, draws, seed=0, seconds=20.0, most=40, target=None):
    """Compare `draws` calls of a kernel, all of one calling form and one configuration."""
    agreement, rng = Agreement(), random.Random(f"{kernel.name} {seed}")
    state = find_state(kernel.launch)
    try:
        domain = next(iter(list_domains(kernel)))
        config = seed if seed else 0
        deadline = counted_seconds() + seconds
        solver = Solver(domain.condition, deadline=deadline)
        parts = list_paths(kernel, domain, target, config, solver, TraceCache())
        paths = [part for part in parts if not isinstance(part, Untraced)]
    except (NotExpressible, OutOfTime) as reason:
        agreement.left[f"no paths: {reason}"] += draws
        return agreement
    finally:
        state.restore()
    machines = {}
    for _ in range(draws):
        case = _draw(rng, kernel, replace(domain.case, config=config), most)
        if case is None:
            agreement.left["no case"] += 1
            continue
        try:
            _compare_one(agreement, kernel, case, domain, paths, machines, target)
        except Left as reason:
            agreement.left[str(reason)] += 1
        finally:
            state.restore()
    return agreement


def _draw(rng, kernel, case, most):
    contract = kernel.contract
    names = [x for x in contract.layout_names if x not in FAR]
    for _ in range(20):
        sides = {x: rng.choice((1, rng.randint(1, most), 16, 32)) for x in case.sides}
        if "batch" in sides:
            sides["batch"] = rng.randint(1, 3)
        fitted = contract.fit(sides)
        if fitted is None:
            continue
        layouts = tuple((name, rng.choice(names)) for name in "ab")
        drawn = replace(case, layouts=layouts, **fitted)
        if is_admitted(drawn, contract) and not drawn.is_sampled:
            return drawn
    return None


def _compare_one(agreement, kernel, case, domain, paths, machines, target):
    observation = observe(kernel, case, Simulator(target), traced=True)
    if observation.raised is not None:
        raise Left(f"the call raised: {observation.raised.kind}")
    values = _read(domain, case, observation)
    matches = [i for i, path in enumerate(paths) if _holds(path.condition, values)]
    if len(matches) != 1:
        raise Left(f"{len(matches)} paths of these sizes")
    path = paths[matches[0]]
    if path.failed is not None:
        raise Left(f"not traced: {path.failed.message}")
    if matches[0] not in machines:
        try:
            machines[matches[0]] = follow_all(path)
        except Left as reason:
            machines[matches[0]] = reason
    if isinstance(machines[matches[0]], Left):
        raise machines[matches[0]]
    trace = observation.trace
    if len(trace) != len(path.launches):
        text = f"{case}: {len(trace)} launches, expected {len(path.launches)}"
        agreement.differences.append(text)
        return
    for launch, machine, (_, grid, touches) in zip(
        path.launches, machines[matches[0]], trace, strict=True
    ):
        if not all(evaluate(x.cond, values) for x in machine.claims if x.text == ROWS_END):
            raise Left("rows stored to their last 16 bytes")
        at = tuple(int(evaluate(n, values)) for n in machine.grid)
        if at != tuple(grid):
            agreement.differences.append(f"{case}: grid {at}, expected {tuple(grid)}")
            continue
        evaluated = evaluate_accesses(machine, values)
        agreement.lanes += evaluated.lanes
        given = _names(launch, machine)
        formula_counts, traced_counts = Counter(), Counter()
        for (kind, name, *rest), n in evaluated.count.items():
            formula_counts[kind, given[name], *rest] += n
        for (kind, name, *rest), n in count_touches(touches).items():
            traced_counts[kind, given.get(name, name), *rest] += n
        if formula_counts != traced_counts:
            extra, missing = formula_counts - traced_counts, traced_counts - formula_counts
            text = f"{launch.kernel} at {case}: formulas add {list(extra.items())[:3]}"
            agreement.differences.append(f"{text}, lack {list(missing.items())[:3]}")
    agreement.calls += 1


def _read(domain, case, observation):
    """The values of the domain's symbols in a case."""
    values = {x.atom: case.sides[axis] for axis, x in domain.sizes.items()}
    for name, declared in domain.operands.items():
        strides = observation.operands[name].tensor.stride()
        for x, n in zip(declared.strides, strides, strict=True):
            if x.atom is not None and x.atom not in values:
                values[x.atom] = n
    return values


def _holds(cond, values):
    """Return whether a condition holds; operands lie at addresses that are multiples of 2**12."""
    other = {x: 2**12 for x in walk(cond) if x.is_leaf and x not in values}
    return bool(evaluate(cond, {**other, **values}))


def _names(launch, machine):
    """One name for each tensor of a launch, whatever a parameter or the wrapper calls it."""
    names = {}
    for parameter, argument in zip(launch.parameters, launch.arguments, strict=True):
        tensor = getattr(argument, "tensor", argument)
        if hasattr(tensor, "memory"):
            names[tensor.name] = names[parameter.partition("[")[0]] = f"#{tensor.storage}"
    return names
