"""Cases of a traced path: those that refute an obligation, and one for each side of a branch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.corners import list_far
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.layouts import ANY, CONTIGUOUS, HUGE, ROW
from gemmproof.properties.cases.operands import AllocatedOperand, operands, stored_elements
from gemmproof.properties.contract import ROLES, Contract
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import NONE, ContractError, KernelUnderTest
from gemmproof.properties.proof.domain import Domain, TracedPath
from gemmproof.properties.proof.sides import (
    PathSide,
    describe_condition,
    is_condition,
    make_namer,
)
from gemmproof.reference.bounds import exact_product
from gemmproof.reference.simulation import Where
from gemmproof.reference.symbolic import concrete_run
from gemmproof.reference.symbolic.concrete import OtherPath, Undetermined
from gemmproof.reference.symbolic.interpreter.interpret import Branch
from gemmproof.reference.symbolic.lemmas import list_terms
from gemmproof.reference.symbolic.solver import OutOfTime, Solver, find_at
from gemmproof.reference.symbolic.terms import (
    FALSE,
    TRUE,
    Atom,
    Cond,
    Poly,
    eq,
    evaluate,
    le,
    term,
    walk,
)
from gemmproof.reference.symbolic.tracing.trace import Guard, Unvisited, WrapperRun
from gemmproof.reference.work import counted_seconds

SEEKING = 2.0  # counted, in which cases are tried
MOST_UNCLEAR = 12  # undetermined cases, before no more are tried
MOST_SIDE = 8192
FAR_SIDES = (3, 17, 33, 129)  # of views whose last line lies beyond 2**31 elements
MOST_NUMBERS = 48  # that a kernel names, around which sizes are tried
MOST_OF_ALL = 66  # the length of all sides at once

# kind of violation in a trial -> the property that does not hold, the causes first
PROPERTY_OF: Mapping[str, str] = {
    concrete_run.FIT: memory_use.FIT,
    concrete_run.NARROW: memory_use.FIT,
    concrete_run.STRAY: memory_use.BOUNDS,
    concrete_run.ASSUMED: memory_use.HINTS,
    concrete_run.HINT: memory_use.HINTS,
    concrete_run.TWICE: memory_use.ONCE,
    concrete_run.HOLE: memory_use.ONCE,
    concrete_run.UNDEFINED: memory_use.LANES,
}
# certain faults; only a simulation can tell whether the others reach a result
CERTAIN = (
    concrete_run.FIT,
    concrete_run.STRAY,
    concrete_run.ASSUMED,
    concrete_run.TWICE,
    concrete_run.HOLE,
)


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A case at which a property does not hold; `is_certain`: needs no confirming simulation."""

    case: Case
    text: str
    where: Where | None
    is_certain: bool


def seek(
    kernel: KernelUnderTest, paths: Sequence[TracedPath], names: Collection[str], seconds: float,
    until: float = float("inf"),
) -> dict[str, Counterexample]:  # fmt: skip
    """Find a small counterexample for each of some properties, and for others seen on the way.

    No more than `seconds` are spent, and none after `until`, both counted.
    """
    until = min(until, counted_seconds() + seconds)
    results: dict[str, Counterexample] = {}
    for domain in {id(x.domain): x.domain for x in paths}.values():
        for config in dict.fromkeys(x.config for x in paths if x.domain is domain):
            own = [x for x in paths if x.domain is domain and x.config == config]
            smaller: list[Case] = []
            seen: set[Case] = set()
            clear = False
            for drawn in _list_cases(kernel, own, config):
                for candidate in _take(drawn, smaller):
                    case = domain.fit(candidate)
                    if case is None or not is_admitted(case, kernel.contract):
                        continue
                    missing = [name for name in names if name not in results]
                    if counted_seconds() > until:
                        return results
                    if case in seen or (_is_far(case) and memory_use.FIT not in missing):
                        continue
                    seen.add(case)
                    shown = try_case(kernel, own, case)
                    clear |= shown is not None
                    for name, counterexample in (shown or {}).items():
                        best = results.get(name)
                        if best is None or case.rank < best.case.rank:
                            results[name] = counterexample
                            smaller += _shrink(kernel.contract, case)
                if all(name in results for name in names):
                    return results
                if not clear and len(seen) >= MOST_UNCLEAR:
                    break
    return results


def _take(first: Case, others: list[Case]) -> Iterator[Case]:
    """Yield a case, then others until none is left, including those added meanwhile."""
    yield first
    while others:
        yield others.pop()


def _is_far(case: Case) -> bool:
    """Return whether elements lie beyond the addresses for which values are kept."""
    return case.is_sampled or any(case.layout(name) in HUGE for name in ROLES)


def try_case(
    kernel: KernelUnderTest, paths: Sequence[TracedPath], case: Case
) -> dict[str, Counterexample] | None:
    """Return the properties that do not hold at a case: the causes, without their consequences.

    None if the formulas do not determine the case.
    """
    paths = [x for x in paths if x.domain.fit(case) == case]
    try:
        allocated = operands(case, kernel)
    except ContractError:
        return None
    if not paths:
        return None
    sizes = read_sizes(paths[0].domain, case, allocated)
    is_far, contents = _is_far(case), {}
    if not is_far:
        contents = {n: stored_elements(x).astype(np.float64) for n, x in allocated.items()}
    for traced in paths:
        if any(n.constant not in (None, case.sides[x]) for x, n in traced.domain.sizes.items()):
            continue  # sizes of 0 have their own domain
        trial = concrete_run.ConcreteRun(
            traced.path, traced.machines, sizes, contents, is_partial=is_far
        )
        try:
            trial.run()
        except OtherPath:
            continue
        except Undetermined:
            return None
        return dict(_conclude(kernel, case, trial, contents))
    return {}


def read_sizes(
    domain: Domain, case: Case, allocated: Mapping[str, AllocatedOperand]
) -> dict[Atom, int]:
    """Return the values of a domain's symbols in a case."""
    return read_values(domain, case, {name: x.tensor for name, x in allocated.items()})


def read_values(domain: Domain, case: Case, tensors: Mapping[str, torch.Tensor]) -> dict[Atom, int]:
    """Return the values of a domain's symbols in a call: sizes, strides, offsets and addresses."""
    values = {size.atom: case.sides[axis] for axis, size in domain.sizes.items() if size.atom}
    for name, declared in domain.operands.items():
        tensor = tensors[name]
        for step, n in zip(declared.strides, tensor.stride(), strict=True):
            if step.atom is not None and step.atom.is_leaf:
                values.setdefault(step.atom, n)
        address = tensor.data_ptr() // tensor.element_size()
        for label, n in (("offset", int(tensor.storage_offset())), ("address", address)):
            values[Atom("symbol", f"{label} of {name}", is_natural=True)] = n
    return values


def _conclude(
    kernel: KernelUnderTest,
    case: Case,
    trial: concrete_run.ConcreteRun,
    contents: Mapping[str, np.ndarray],
) -> Iterator[tuple[str, Counterexample]]:
    """Yield the property that a trial shows not to hold."""
    for kind, name in PROPERTY_OF.items():
        seen = next((x for x in trial.violations if x.kind == kind), None)
        if seen is None:
            continue
        # a hint may be false of lanes that reach no result, such as those beyond a short side
        if kind != concrete_run.HINT or min(case.sides.values()) > 1:
            yield name, Counterexample(case, seen.text, seen.where, kind in CERTAIN)
        if kind != concrete_run.HINT:
            return
    if kernel.spec is None and not trial.is_partial and _is_wrong(trial, case, contents):
        launches = trial.path.launches
        where = launches[-1].where if launches else None
        yield exact_values.EXACT, Counterexample(case, "c = a b", where, False)


def _is_wrong(
    trial: concrete_run.ConcreteRun, case: Case, contents: Mapping[str, np.ndarray]
) -> bool:
    """Return whether the only result is known not to be the product."""
    views = [x for x in trial.path.results if hasattr(x, "storage")]
    with suppress(Undetermined):
        got = trial.read_result(views[0]) if len(views) == 1 else None
        if got is not None and got.shape == case.result_shape:
            return bool((got != exact_product(contents["a"], contents["b"])[0]).any())
    return False


# -- cases ---------------------------------------------------------------------------------------
def _list_cases(
    kernel: KernelUnderTest, paths: Sequence[TracedPath], config: int
) -> Iterator[Case]:
    """Yield small cases, tiles, other layouts, views of huge parents, and a kernel's constants."""
    contract, first = kernel.contract, replace(paths[0].domain.case, config=config)
    axes = tuple(first.sides)
    tiles, others = _list_numbers(paths)
    yield from _make(contract, first, itertools.product(*(_SMALL[axis] for axis in axes)))
    yield from _lay_out(contract, _make(contract, first, [[2] * len(axes)]))
    around = sorted({n + more for n in tiles for more in (-1, 0, 1)} - {0, 1, 2})
    yield from _make(contract, first, _list_sides(axes, around))
    for layout, name, axis in itertools.product(contract.layout_names, ROLES, axes):
        if layout in HUGE:
            sides = ([n if x == axis else 1 for x in axes] for n in FAR_SIDES)
            for case in _make(contract, first, sides):
                yield from _admit(contract, case.with_layout(name, layout))
    for far in list_far(first, contract):
        yield from _admit(contract, far)
    yield from _make(contract, first, _list_sides(axes, others))
    yield from _make(contract, first, _list_pairs(axes, tiles))
    most = max(tiles, default=2) + 1
    yield from _lay_out(contract, _make(contract, first, [[min(most, MOST_OF_ALL)] * len(axes)]))


def _lay_out(contract: Contract, cases: Iterable[Case]) -> Iterator[Case]:
    """Yield cases with one operand in each other layout that is near."""
    for case in cases:
        for name, layout in itertools.product(ROLES, contract.layout_names):
            if layout not in HUGE:
                yield from _admit(contract, case.with_layout(name, layout))


_SMALL = {"M": (1, 2), "N": (1, 2), "K": (0, 1, 2), "batch": (1, 2)}


def _list_sides(axes: Sequence[str], numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield sides with each number on one axis, and on all of them if it is small."""
    for n in numbers:
        for axis in axes:
            if axis != "batch":
                yield [n if x == axis else 1 for x in axes]
        if n <= MOST_OF_ALL:
            yield [2 if x == "batch" else n for x in axes]


def _list_pairs(axes: Sequence[str], tiles: Sequence[int]) -> Iterator[list[int]]:
    """Yield sides of which a product is whole tiles, and a single one is not."""
    near = {n for tile in tiles for n in (tile // 2, tile, 2 * tile)}
    for m, n in itertools.permutations(sorted(near), 2):
        yield [{"M": m, "N": n}.get(axis, 1) for axis in axes]


def _make(contract: Contract, first: Case, sides: Iterable[Sequence[int]]) -> Iterator[Case]:
    """Yield the admitted cases of sides, the smallest first."""
    cases: dict[Case, None] = {}
    for lengths in sides:
        fitted = contract.fit(dict(zip(first.sides, lengths, strict=True)))
        with suppress(ValueError):  # no case has such sizes
            if fitted is not None:
                cases[first.with_sides(fitted)] = None
    for case in sorted(cases, key=lambda x: x.rank):
        yield from _admit(contract, case)


def _admit(contract: Contract, case: Case) -> Iterator[Case]:
    if is_admitted(case, contract):
        yield case


def _shrink(contract: Contract, case: Case) -> Iterator[Case]:
    """Yield cases that are smaller along one axis."""
    for axis, n in case.sides.items():
        for less in _SMALL[axis]:
            if less < n:
                yield from _make(contract, case, [[*{**case.sides, axis: less}.values()]])


def _list_numbers(paths: Sequence[TracedPath]) -> tuple[list[int], list[int]]:
    """List the sides of tiles; and sizes around other constants: thresholds, numbers of tiles.

    The first sizes are those beyond a wrapper's thresholds that leave one row in the last tile.
    """
    tiles: dict[int, None] = {}
    conds: list[Cond] = []
    for traced in paths:
        conds.append(traced.path.condition)
        for machine in traced.machines:
            conds += machine.known.values()
            conds += [cond for x in machine.accesses for cond in (x.path, x.mask, eq(x.term, 0))]
            tiles |= dict.fromkeys(n for x in machine.accesses for n in x.shape if n > 1)
    terms = [x for cond in conds for x in list_terms(cond)]
    terms += [x for atom in walk(*conds) for x in atom.args if isinstance(x, Poly)]
    named = {abs(n) for x in terms for n in x.terms.values() if abs(n) > 1}
    numbers = {n + more for n in named | set(tiles) for more in (-1, 0, 1)}
    numbers |= {n * m + more for n in named for m in tiles for more in (0, 1, 1 - m)}
    guards = (traced.path.condition for traced in paths)
    thresholds = {abs(n) for cond in guards for x in list_terms(cond) for n in x.terms.values()}
    beyond = sorted({(n // m + 1) * m + 1 for n in thresholds if n > 1 for m in tiles})
    chosen = dict.fromkeys((*beyond, *sorted(numbers)))
    return list(tiles), [n for n in chosen if 2 < n <= MOST_SIDE][:MOST_NUMBERS]


# -- branches --------------------------------------------------------------------------------------
SHARE = 1 / 20  # of a kernel's time, for the search of sizes of branches and layouts
MOST_TRIED = 400  # layouts of all operands at once
MOST_DECISIONS = 3  # the last ones, by which a path is named
# sizes whose strides are all different, and such whole multiples of 16
ELSEWHERE = ({"batch": 3, "M": 37, "N": 53, "K": 29}, {"batch": 3, "M": 48, "N": 80, "K": 32})


KernelSide = tuple[str, int, bool]  # a file, a line, and the truth of its condition


@dataclass(slots=True)
class BranchCoverage:
    """The paths that have a case, each with its description, and the sides of branches.

    `left`: the counted seconds that are left for the search. `branch_sizes` caches the sizes of
    branches, and `layout_strides` the strides of layouts, which formats and configurations share.
    `sides` are those of the wrapper's decisions by line and condition. `reached` tells of the sides
    of a kernel's branches, by line, whether a path may take them; `not_laid_out` are those on paths
    for which the contract has no layouts. `noted` are the ways to take sides that are known.
    """

    left: float
    covered: dict[tuple[str, str], None] = field(default_factory=dict)
    branch_sizes: dict[tuple[Cond, Cond], tuple[bool, Mapping[str, int] | None]] = field(
        default_factory=dict
    )
    layout_strides: dict[tuple[Any, ...], Mapping[Atom, int]] = field(default_factory=dict)
    sides: dict[tuple[str, str], PathSide] = field(default_factory=dict)
    reached: dict[KernelSide, bool] = field(default_factory=dict)
    not_laid_out: set[KernelSide] = field(default_factory=set)
    noted: set[tuple[Any, ...]] = field(default_factory=set)

    @property
    def cases(self) -> tuple[str, ...]:
        """Every case once; the first of each path comes before a second one of any."""
        counts: dict[str, int] = {}
        ranked = []
        for text, case in self.covered:
            counts[text] = counts.get(text, 0) + 1
            ranked.append((counts[text], case))
        return tuple(dict.fromkeys(case for _, case in sorted(ranked, key=lambda x: x[0])))


def visit_run(
    visits: BranchCoverage, kernel: KernelUnderTest, domain: Domain, case: Case,
    run: WrapperRun | Unvisited,
) -> None:  # fmt: skip
    """Record a case that takes a run's path, if one was run, and its decisions' sides."""
    if isinstance(run, Unvisited):
        _note_side(visits, domain, run.condition, run.decision, run.where, None)
        return
    sizes: Mapping[str, int] = run.sizes
    if visits.left > 0 and measure_work(domain.read_sides(sizes, case)) > CHEAP:
        began = counted_seconds()
        conds = [cond for cond, _ in run.guards]
        solver = Solver(domain.condition)
        cheaper = find_cheaper(solver, domain, case, conds, sizes, began + visits.left)
        visits.left -= counted_seconds() - began
        sizes = cheaper or sizes
    is_laid_out = _visit(visits, kernel, domain, case, _say(domain, run.guards), run.guards, sizes)
    condition = TRUE
    for cond, where in run.guards:
        condition &= cond
        is_reachable = kernel.contract.layouts == ANY or is_laid_out
        _note_side(visits, domain, condition, cond, where, is_reachable)


def _note_side(
    visits: BranchCoverage, domain: Domain, condition: Cond, decision: Cond, where: Where | None,
    is_reachable: bool | None,
) -> None:  # fmt: skip
    """Record the side that a decision takes on a path of this condition."""
    if where is None or not is_condition(where):
        return
    # the texts of conditions take a while, and every configuration has the same
    key = (domain.case, domain.axes, where, condition, is_reachable)
    if key in visits.noted:
        return
    visits.noted.add(key)
    text = describe_condition(domain, decision)
    side = visits.sides.setdefault((str(where), text), PathSide(str(where), text, decision))
    side.ways.append((condition, domain))
    known = {side.is_reachable, is_reachable} if len(side.ways) > 1 else {is_reachable}
    side.is_reachable = True if True in known else None if None in known else False


# -- cheap sizes -----------------------------------------------------------------------------------
CHEAP = 2**22  # of less work are all sizes that the solver finds at first
USUAL_TILE = {"M": 64, "N": 64, "K": 32}
FIXED = (32, 256, 1024, 4096)  # sizes of the axes other than the one that is made small


def measure_work(sides: Mapping[str, int]) -> int:
    """Return the multiply-adds of the tiles of a problem, with tiles of a usual size."""
    tiled = (-(-max(n, 1) // (b := USUAL_TILE.get(axis, 1))) * b for axis, n in sides.items())
    return math.prod(tiled)


def find_cheaper(
    solver: Solver, domain: Domain, case: Case, conds: Sequence[Cond], sizes: Mapping[Any, int],
    until: float,
) -> Mapping[str, int] | None:  # fmt: skip
    """Return sizes of less work at which conditions hold, None if none were found `until` then.

    One axis at a time is made as small as the conditions admit; the others have the least size that
    the contract admits, or a usual one.
    """
    whole = solver.knowledge.close((*conds, solver.domain, solver.plainest))
    free = {axis: size.atom for axis, size in domain.sizes.items() if size.atom is not None}
    best, least = None, domain.read_sides({}, case)
    most = measure_work(domain.read_sides(sizes, case))
    for axis, atom in free.items():
        others = [x for x in free if x != axis]
        options = ([least[x], *(FIXED if x in USUAL_TILE else ())] for x in others)
        for chosen in itertools.product(*options):
            fixed = {**least, **dict(zip(others, chosen, strict=True))}
            if measure_work(fixed) >= most or counted_seconds() > until:
                continue
            n = _find_least(solver, whole, {free[x]: fixed[x] for x in others}, atom)
            sides = fixed | {axis: n or 0}
            if n is not None and measure_work(sides) < most:
                best, most = sides, measure_work(sides)
    return best


def _find_least(
    solver: Solver, whole: list[Cond], fixed: Mapping[Atom, int], atom: Atom
) -> int | None:
    """Return the least value of a symbol at which conditions hold, None if none was found."""
    values = {x: term(n) for x, n in fixed.items()}
    model = find_at(solver, whole, dict(values))
    if model is None:
        return None
    low, high = 0, model[atom]
    while low < high:
        middle = (low + high) // 2
        model = find_at(solver, [*whole, le(term(atom), middle)], dict(values))
        low, high = (middle + 1, high) if model is None else (low, min(middle, model[atom]))
    return high


# -- branches of kernels ---------------------------------------------------------------------------


def visit_branches(
    visits: BranchCoverage, kernel: KernelUnderTest, traced: TracedPath, solver: Solver,
    assumptions: Cond,
) -> None:  # fmt: skip
    """Record a case for each side of each branch of a path's kernels, and if it may be taken.

    `assumptions` are those of the path; `solver` has those on its programs and trips.
    """
    branches = dict.fromkeys(branch for machine in traced.machines for branch in machine.branches)
    depends_on_layouts = bool(_list_named(traced.domain, traced.path.guards))
    if depends_on_layouts:
        solver = replace(solver, plainest=TRUE)  # strides that dense operands may not have
    has_layouts = not branches or _may_have_layouts(visits, kernel, traced)
    for branch in branches:
        if branch.cond == FALSE:
            _note_reached(visits, branch, False, has_layouts)
            continue
        if any(x.kind == "unknown" for x in walk(branch.cond)):
            _note_reached(visits, branch, True, has_layouts)
            continue
        label = f"{branch.where}: this branch" if branch.where else "a branch"
        label += " taken" if branch.is_taken else " left out"
        key = (assumptions, branch.cond)
        if key not in visits.branch_sizes:
            began = counted_seconds()
            visits.branch_sizes[key] = _seek(visits, traced, solver, branch)
            visits.left -= counted_seconds() - began
        is_reached, sizes = visits.branch_sizes[key]
        _note_reached(visits, branch, is_reached, has_layouts)
        if branch.is_loop:  # hardly a case leaves it out
            is_covered = any(text == label for text, _ in visits.covered)
            if depends_on_layouts or is_covered:
                continue
        if sizes is not None:
            first = replace(traced.domain.case, config=traced.config)
            _visit(visits, kernel, traced.domain, first, label, traced.path.guards, sizes)


def _note_reached(
    visits: BranchCoverage, branch: Branch, has_sizes: bool, has_layouts: bool
) -> None:
    """Record whether a path may take a side of a kernel's branch."""
    if branch.where is not None:
        side = (branch.where.file, branch.where.line, branch.is_taken)
        visits.reached[side] = visits.reached.get(side, False) or (has_sizes and has_layouts)
        if has_sizes and not has_layouts:
            visits.not_laid_out.add(side)


def _may_have_layouts(visits: BranchCoverage, kernel: KernelUnderTest, traced: TracedPath) -> bool:
    """Return whether the contract may have the layouts that a path needs.

    Of dense operands only the addresses are left to the layouts, at all sizes alike; for others it
    is not known.
    """
    domain, guards = traced.domain, traced.path.guards
    named = _list_named(domain, guards)
    owners = [kernel.contract if x in ROLES else kernel.tensors[x] for x in named]
    if not named or any(x.layouts != CONTIGUOUS for x in owners) or visits.left <= 0:
        return True
    known = {*domain.axes}.union(*(_list_own(domain, name) for name in named))
    if any(x.is_leaf and x not in known for x in walk(*(cond for cond, _ in guards))):
        return True
    began = counted_seconds()
    try:
        first = domain.case.with_sides(domain.read_sides(traced.path.sizes, domain.case))
    except ValueError:  # no case has such sizes
        return True
    match = next(_list_layouts(visits, kernel, domain, first, guards), None)
    visits.left -= counted_seconds() - began
    return match is not None


def _seek(
    visits: BranchCoverage, traced: TracedPath, solver: Solver, branch: Branch
) -> tuple[bool, Mapping[str, int] | None]:
    """Return whether a program may take a side of a branch, and known sizes at which one does."""
    if visits.left <= 0:
        return True, None
    with suppress(OutOfTime):
        model = solver.find(branch.cond, small=traced.domain.axes)
        if model is not None:
            sides = traced.domain.read_sides(model, traced.domain.case)
            if measure_work(sides) <= CHEAP:
                return True, sides
            domain, until = traced.domain, counted_seconds() + visits.left
            cheaper = find_cheaper(solver, domain, domain.case, [branch.cond], sides, until)
            return True, cheaper or sides
        return solver.decide(branch.cond) != "unsat", None
    return True, None


def _visit(
    visits: BranchCoverage, kernel: KernelUnderTest, domain: Domain, case: Case, label: str,
    guards: Sequence[Guard], sizes: Mapping[str, int],
) -> bool | None:  # fmt: skip
    """Record a case of a path; return whether the contract has its layouts, None if not known."""
    try:
        first = case.with_sides(domain.read_sides(sizes, case))
    except ValueError:
        return True if not _list_named(domain, guards) else None
    began, match = counted_seconds(), None
    if visits.left > 0 or not _list_named(domain, guards):
        match = next(_list_layouts(visits, kernel, domain, first, guards), None)
    if match is not None:
        visits.covered[label, match.to_json()] = None
    is_late = visits.left <= 0
    visits.left -= counted_seconds() - began
    return True if match is not None else None if is_late else False


def _list_layouts(
    visits: BranchCoverage,
    kernel: KernelUnderTest,
    domain: Domain,
    first: Case,
    guards: Sequence[Guard],
) -> Iterator[Case]:
    """Yield the cases of these sizes, or of usual ones, whose layouts meet a path's guards."""
    named = _list_named(domain, guards)
    if not named:  # only the sizes decide
        yield first
        return
    for base in dict.fromkeys((first, *_list_others(kernel, domain, first))):
        yield from _lay_out_all(visits, kernel, domain, base, guards, named)


def find_layouts(
    visits: BranchCoverage,
    kernel: KernelUnderTest,
    domain: Domain,
    case: Case,
    guards: Sequence[Guard],
) -> Case | None:
    """Return the case with layouts, dense ones first, that meet a path's guards, or None."""
    named = _list_named(domain, guards)
    if not named:
        return case
    return next(_lay_out_all(visits, kernel, domain, case, guards, named), None)


def _lay_out_all(
    visits: BranchCoverage, kernel: KernelUnderTest, domain: Domain, base: Case,
    guards: Sequence[Guard], named: Sequence[str],
) -> Iterator[Case]:  # fmt: skip
    """Yield the case with every choice of layouts that meets a path's guards."""
    options = [list(_list_places(visits, kernel, domain, base, name)) for name in named]
    sizes = {n.atom: base.sides[axis] for axis, n in domain.sizes.items() if n.atom is not None}
    for chosen in itertools.islice(itertools.product(*options), MOST_TRIED):
        values, candidate = dict(sizes), base
        for name, word, own in chosen:
            values |= own
            candidate = _set_layout(candidate, name, word)
        with suppress(KeyError):  # a symbol that no case decides
            if all(bool(evaluate(cond, values)) for cond, _ in guards):
                yield candidate


def _list_others(kernel: KernelUnderTest, domain: Domain, first: Case) -> Iterator[Case]:
    """Yield cases of usual sizes, including sides of 1."""
    choices = itertools.product((False, True), repeat=len(first.sides))
    for choice, usual in itertools.product(choices, ELSEWHERE):
        sides = zip(first.sides, choice, strict=True)
        fitted = kernel.contract.fit({x: 1 if is_1 else usual[x] for x, is_1 in sides})
        other = None if fitted is None else domain.fit(first.with_sides(fitted))
        if other is not None and is_admitted(other, kernel.contract):
            yield other


def _list_named(domain: Domain, guards: Sequence[Guard]) -> list[str]:
    """List the operands whose layout affects decisions."""
    named = {x for cond, _ in guards for x in walk(cond) if x.kind == "symbol"}
    return [name for name in domain.operands if _list_own(domain, name) & named]


def _list_own(domain: Domain, name: str) -> set[Atom]:
    """Return the symbols of an operand that its layout decides."""
    places = (f"{label} of {name}" for label in ("offset", "address"))
    own = {Atom("symbol", x, is_natural=True) for x in places}
    strides = domain.operands[name].strides
    return own | {x.atom for x in strides if x.atom is not None and x.atom.is_leaf} - set(
        domain.axes
    )


def _list_places(
    visits: BranchCoverage, kernel: KernelUnderTest, domain: Domain, base: Case, name: str
) -> Iterator[tuple[str, str, Mapping[Atom, int]]]:
    """Yield each layout of an operand, with the values of its symbols there."""
    layouts = kernel.contract.layout_names if name in ROLES else kernel.list_options().get(name, ())
    declared, shape = kernel.tensors.get(name), tuple[int, ...]()
    with suppress(ValueError):
        shape = declared.sides(kernel.sizes_of(base)) if declared is not None else shape
    for layout in dict.fromkeys((ROW, *layouts)):
        key = (tuple(base.sides.items()), shape, name, layout)
        if key not in visits.layout_strides and layout != NONE:
            with suppress(ContractError, ValueError):
                laid_out = _set_layout(base, name, layout)
                values = read_sizes(domain, laid_out, operands(laid_out, kernel))
                own = _list_own(domain, name)
                visits.layout_strides[key] = {x: n for x, n in values.items() if x in own}
        if key in visits.layout_strides:
            yield name, layout, visits.layout_strides[key]


def _set_layout(case: Case, name: str, layout: str) -> Case:
    if name in ROLES:
        return case.with_layout(name, layout)
    return case if layout == ROW else replace(case, arguments=(*case.arguments, (name, layout)))


def _say(domain: Domain, guards: Sequence[Guard]) -> str:
    """Format a path by its last decisions; "" without any."""
    namer, texts = make_namer(domain), []
    for cond, _ in guards[-MOST_DECISIONS:]:
        try:
            text = namer.judge(cond)
        except KeyError:  # an operation without an operator sign
            text = str(cond)
        texts.append(f"({text})" if " or " in text else text)
    where = guards[-1][1] if guards else None
    return (f"{where}: " if where else "") + " and ".join(texts)
