"""A case for each run of a wrapper and each side of its kernels' branches, or why there is none."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.layouts import ROW
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.contract import ROLES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.operand import NONE, Misstated
from gemmproof.properties.proof.domain import Domain
from gemmproof.properties.proof.seek import Way, read_sizes
from gemmproof.reference.symbolic.machine.interpret import Branch
from gemmproof.reference.symbolic.solver import OutOfTime, Solver
from gemmproof.reference.symbolic.source.formula import Namer
from gemmproof.reference.symbolic.terms import TRUE, Atom, Cond, evaluate, walk
from gemmproof.reference.symbolic.wrapper import Run
from gemmproof.reference.symbolic.wrapper.record import Guard

SECONDS = 0.5  # of a kernel's time, in which sizes for its branches are sought
MOST_SAID = 3  # decisions, the last ones, that a path is named by
ELSEWHERE = (37, 53, 29)  # M, N, K of operands whose strides are told apart


@dataclass(slots=True)
class Visits:
    """The paths that have a case, each with its words, and those that have none.

    `sought`: the sizes of branches, which formats and configurations share.
    """

    found: dict[tuple[str, str], None] = field(default_factory=dict)
    unvisited: dict[str, None] = field(default_factory=dict)
    sought: dict[tuple[Cond, Cond], Mapping[str, int] | str] = field(default_factory=dict)
    left: float = SECONDS

    @property
    def cases(self) -> tuple[str, ...]:
        """Every case once; the first of each path come before a second one of any."""
        counts: dict[str, int] = {}
        ranked = []
        for words, case in self.found:
            counts[words] = counts.get(words, 0) + 1
            ranked.append((counts[words], case))
        return tuple(dict.fromkeys(case for _, case in sorted(ranked, key=lambda x: x[0])))


def visit_run(
    visits: Visits, kernel: KernelUnderTest, domain: Domain, case: Case, run: Run
) -> None:
    """Keep a case that takes a run's path, or its words."""
    _visit(visits, kernel, domain, case, _say(domain, run.guards), run.guards, run.sizes)


def visit_branches(
    visits: Visits, kernel: KernelUnderTest, way: Way, solver: Solver, given: Cond
) -> None:
    """Keep a case for each side of each branch of a path's kernels, or its words.

    `given` is what holds on the path, and `solver` knows of its programs and trips.
    """
    branches = dict.fromkeys(branch for machine in way.machines for branch in machine.branches)
    if any(_list_named(way.domain, way.path.guards).values()):
        solver = replace(solver, plainest=TRUE)  # strides that dense operands may not have
    for branch in branches:
        how = "taken" if branch.is_taken else "left out"
        words = f"{branch.where}: this branch {how}" if branch.where else f"a branch {how}"
        key = (given, branch.cond)
        if key not in visits.sought:
            began = time.thread_time()
            visits.sought[key] = _seek(visits, way, solver, branch)
            visits.left -= time.thread_time() - began
        sizes = visits.sought[key]
        if not isinstance(sizes, str):
            first = replace(way.domain.case, config=way.config)
            _visit(visits, kernel, way.domain, first, words, way.path.guards, sizes)
        elif sizes:
            visits.unvisited[f"{words}: {sizes}"] = None


def _seek(visits: Visits, way: Way, solver: Solver, branch: Branch) -> Mapping[str, int] | str:
    """Sizes at which some program takes a side of a branch, or why not; "" where none does."""
    if any(x.is_leaf and x.kind != "symbol" for x in walk(branch.cond)):
        return "it depends on more than sizes"
    if visits.left <= 0:
        return "no time was left"
    with suppress(OutOfTime):
        model = solver.find(branch.cond, small=way.domain.axes)
        if model is not None:
            return way.domain.read_sides(model, way.domain.case)
        return "" if solver.decide(branch.cond) == "unsat" else "no sizes were found"
    return "no time was left"


def _visit(
    visits: Visits, kernel: KernelUnderTest, domain: Domain, case: Case, words: str,
    guards: Sequence[Guard], sizes: Mapping[str, int],
) -> None:  # fmt: skip
    sides: dict[str, Any] = domain.read_sides(sizes, case)
    try:
        first = replace(case, **sides)
    except ValueError:
        visits.unvisited[f"{words or 'every path'}: no case has such sizes"] = None
        return
    for one in _list_cases(kernel, domain, first, guards):
        visits.found[words, one.to_json()] = None
        return
    visits.unvisited[f"{words}: no layout has such strides"] = None


def _list_cases(
    kernel: KernelUnderTest, domain: Domain, first: Case, guards: Sequence[Guard]
) -> Iterator[Case]:
    """The cases of these sizes, or of usual ones, whose layouts meet a path's guards."""
    placed = _list_named(domain, guards)
    if not placed:  # the sizes alone decide
        yield first
        return
    usual: Any = kernel.contract.fit({**first.sides, **dict(zip("MNK", ELSEWHERE, strict=True))})
    for base in (first, *((replace(first, **usual),) if usual else ())):
        if domain.fit(base) != base or not is_admitted(base, kernel.contract):
            continue
        with suppress(Misstated, ValueError, KeyError):
            values = read_sizes(domain, base, operands(base, kernel))
            options = [list(_list_places(kernel, domain, base, *x)) for x in placed.items()]
            for chosen in itertools.product(*options):
                met = dict(values)
                one = base
                for name, word, own in chosen:
                    met |= own
                    one = _lay_out(one, name, word)
                if all(bool(evaluate(cond, met)) for cond, _ in guards):
                    yield one


def _list_named(domain: Domain, guards: Sequence[Guard]) -> dict[str, set[Atom]]:
    """The symbols in decisions that the layout of an operand decides, by its name."""
    named = {x for cond, _ in guards for x in walk(cond) if x.kind == "symbol"}
    found = {}
    for name, declared in domain.operands.items():
        places = (f"{what} of {name}" for what in ("offset", "address"))
        own = {Atom("symbol", x, is_natural=True) for x in places}
        own |= {x.atom for x in declared.strides if x.atom is not None} - set(domain.axes)
        if own & named:
            found[name] = own & named
    return found


def _list_places(
    kernel: KernelUnderTest, domain: Domain, base: Case, name: str, own: set[Atom]
) -> Iterator[tuple[str, str, dict[Atom, int]]]:
    """Each layout of an operand, with the values that its symbols have there."""
    words = kernel.contract.layout_names if name in ROLES else kernel.list_options().get(name, ())
    for word in dict.fromkeys((ROW, *words)):
        if word != NONE:
            with suppress(Misstated, ValueError):
                one = _lay_out(base, name, word)
                values = read_sizes(domain, one, operands(one, kernel))
                yield name, word, {x: values[x] for x in own}


def _lay_out(case: Case, name: str, word: str) -> Case:
    if name in ROLES:
        return case.with_layout(name, word)
    return case if word == ROW else replace(case, arguments=(*case.arguments, (name, word)))


def _say(domain: Domain, guards: Sequence[Guard]) -> str:
    """A path by its last decisions; "" for one without."""
    strides = [
        (stride, f"{name}.stride({axis})")
        for name, operand in domain.operands.items()
        for axis, stride in enumerate(operand.strides)
        if stride.atom is not None and stride.atom not in domain.axes
    ]
    namer, said = Namer(strides), []
    for cond, _ in guards[-MOST_SAID:]:
        try:
            said.append(namer.judge(cond))
        except KeyError:  # an operation that has no sign
            said.append(str(cond))
    where = guards[-1][1] if guards else None
    return (f"{where}: " if where else "") + " and ".join(said)
