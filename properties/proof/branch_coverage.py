"""Cases that take each branch of a wrapper and of its kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.layouts import ROW
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import NONE, ContractError, KernelUnderTest
from gemmproof.properties.proof.counterexamples import read_sizes
from gemmproof.properties.proof.domain import Domain
from gemmproof.properties.proof.wrapper_paths import TracedPath
from gemmproof.reference.symbolic.formulas import Namer
from gemmproof.reference.symbolic.interpreter.interpret import Branch
from gemmproof.reference.symbolic.solver import OutOfTime, Solver
from gemmproof.reference.symbolic.terms import TRUE, Atom, Cond, evaluate, walk
from gemmproof.reference.symbolic.tracing import WrapperRun
from gemmproof.reference.symbolic.tracing.trace import Guard
from gemmproof.reference.work import counted_seconds

SHARE = 1 / 20  # of a kernel's time, for the search of sizes of branches and layouts
MOST_TRIED = 400  # layouts of all operands at once
MOST_DECISIONS = 3  # the last ones, by which a path is named
ELSEWHERE = {"batch": 3, "M": 37, "N": 53, "K": 29}  # sizes whose strides are all different


@dataclass(slots=True)
class BranchCoverage:
    """The paths that have a case, each with its description, and those that have none.

    `left`: the counted seconds that are left for the search. `branch_sizes` caches the sizes of
    branches, and `layout_strides` the strides of layouts, which formats and configurations share.
    """

    left: float
    covered: dict[tuple[str, str], None] = field(default_factory=dict)
    unvisited: dict[str, None] = field(default_factory=dict)
    branch_sizes: dict[tuple[Cond, Cond], Mapping[str, int] | str] = field(default_factory=dict)
    layout_strides: dict[tuple[Any, ...], Mapping[Atom, int]] = field(default_factory=dict)

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
    visits: BranchCoverage, kernel: KernelUnderTest, domain: Domain, case: Case, run: WrapperRun
) -> None:
    """Record a case that takes a run's path, or the path as unvisited."""
    _visit(visits, kernel, domain, case, _say(domain, run.guards), run.guards, run.sizes)


def visit_branches(
    visits: BranchCoverage, kernel: KernelUnderTest, traced: TracedPath, solver: Solver,
    assumptions: Cond,
) -> None:  # fmt: skip
    """Record a case for each side of each branch of a path's kernels, or the side as unvisited.

    `assumptions` are those of the path; `solver` has those on its programs and trips.
    """
    branches = dict.fromkeys(branch for machine in traced.machines for branch in machine.branches)
    if _list_named(traced.domain, traced.path.guards):
        solver = replace(solver, plainest=TRUE)  # strides that dense operands may not have
    for branch in branches:
        label = f"{branch.where}: this branch" if branch.where else "a branch"
        if any(x.kind == "unknown" for x in walk(branch.cond)):
            visits.unvisited[f"{label}, which depends on more than sizes"] = None
            continue
        label += " taken" if branch.is_taken else " left out"
        key = (assumptions, branch.cond)
        if key not in visits.branch_sizes:
            began = counted_seconds()
            visits.branch_sizes[key] = _seek(visits, traced, solver, branch)
            visits.left -= counted_seconds() - began
        sizes = visits.branch_sizes[key]
        if not isinstance(sizes, str):
            first = replace(traced.domain.case, config=traced.config)
            _visit(visits, kernel, traced.domain, first, label, traced.path.guards, sizes)
        elif sizes:
            visits.unvisited[f"{label}: {sizes}"] = None


def _seek(
    visits: BranchCoverage, traced: TracedPath, solver: Solver, branch: Branch
) -> Mapping[str, int] | str:
    """Return sizes at which a program takes a side of a branch, or the reason; "" if none does."""
    if visits.left <= 0:
        return "no time was left"
    with suppress(OutOfTime):
        model = solver.find(branch.cond, small=traced.domain.axes)
        if model is not None:
            return traced.domain.read_sides(model, traced.domain.case)
        return "" if solver.decide(branch.cond) == "unsat" else "no sizes were found"
    return "no time was left"


def _visit(
    visits: BranchCoverage, kernel: KernelUnderTest, domain: Domain, case: Case, label: str,
    guards: Sequence[Guard], sizes: Mapping[str, int],
) -> None:  # fmt: skip
    try:
        first = case.with_sides(domain.read_sides(sizes, case))
    except ValueError:
        visits.unvisited[f"{label or 'every path'}: no case has such sizes"] = None
        return
    began, match = counted_seconds(), None
    if visits.left > 0 or not _list_named(domain, guards):
        match = next(_list_cases(visits, kernel, domain, first, guards), None)
    if match is not None:
        visits.covered[label, match.to_json()] = None
    else:
        reason = "no layout has such strides" if visits.left > 0 else "no time was left"
        visits.unvisited[f"{label}: {reason}"] = None
    visits.left -= counted_seconds() - began


def _list_cases(
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
            candidate = _lay_out(candidate, name, word)
        with suppress(KeyError):  # a symbol that no case decides
            if all(bool(evaluate(cond, values)) for cond, _ in guards):
                yield candidate


def _list_others(kernel: KernelUnderTest, domain: Domain, first: Case) -> Iterator[Case]:
    """Yield cases of usual sizes, including sides of 1."""
    for choice in itertools.product((False, True), repeat=len(first.sides)):
        sides = zip(first.sides, choice, strict=True)
        fitted = kernel.contract.fit({x: 1 if is_1 else ELSEWHERE[x] for x, is_1 in sides})
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
    return own | {x.atom for x in strides if x.atom is not None} - set(domain.axes)


def _list_places(
    visits: BranchCoverage, kernel: KernelUnderTest, domain: Domain, base: Case, name: str
) -> Iterator[tuple[str, str, Mapping[Atom, int]]]:
    """Yield each layout of an operand, with the values of its symbols there."""
    layouts = kernel.contract.layout_names if name in ROLES else kernel.list_options().get(name, ())
    for layout in dict.fromkeys((ROW, *layouts)):
        key = (tuple(base.sides.items()), base.arguments, name, layout)
        if key not in visits.layout_strides and layout != NONE:
            with suppress(ContractError, ValueError):
                laid_out = _lay_out(base, name, layout)
                values = read_sizes(domain, laid_out, operands(laid_out, kernel))
                own = _list_own(domain, name)
                visits.layout_strides[key] = {x: n for x, n in values.items() if x in own}
        if key in visits.layout_strides:
            yield name, layout, visits.layout_strides[key]


def _lay_out(case: Case, name: str, layout: str) -> Case:
    if name in ROLES:
        return case.with_layout(name, layout)
    return case if layout == ROW else replace(case, arguments=(*case.arguments, (name, layout)))


def _say(domain: Domain, guards: Sequence[Guard]) -> str:
    """Format a path by its last decisions; "" without any."""
    strides = [
        (stride, f"{name}.stride({axis})")
        for name, operand in domain.operands.items()
        for axis, stride in enumerate(operand.strides)
        if stride.atom is not None and stride.atom not in domain.axes
    ]
    namer, texts = Namer(strides), []
    for cond, _ in guards[-MOST_DECISIONS:]:
        try:
            text = namer.judge(cond)
        except KeyError:  # an operation without an operator sign
            text = str(cond)
        texts.append(f"({text})" if " or " in text else text)
    where = guards[-1][1] if guards else None
    return (f"{where}: " if where else "") + " and ".join(texts)
