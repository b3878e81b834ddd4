"""The paths of a wrapper over a domain, in every configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any

from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.domain import Domain
from gemmproof.reference.symbolic.interpreter import follow
from gemmproof.reference.symbolic.interpreter.interpret import Machine, NotInterpretable
from gemmproof.reference.symbolic.solver import OutOfTime, Solver
from gemmproof.reference.symbolic.terms import Atom, Cond, evaluate
from gemmproof.reference.symbolic.tracing import Path, Trace, WrapperRun, take_config, trace_wrapper

MOST_PATHS = 24
USUAL = (3, 37, 53, 29)  # batch, M, N, K
MOST_CONFIGS = 16


@dataclass(frozen=True, slots=True)
class TracedPath:
    """A path of a wrapper, in one configuration, with its launches over symbols."""

    domain: Domain
    config: int
    path: Path
    machines: list[Machine]


@dataclass(frozen=True, slots=True)
class Untraced:
    """A part of a domain whose calls are not known, and why; `late` if time ran out.

    `unvisited` names the path, if it is one that no call took.
    """

    why: str
    late: bool = False
    unvisited: str = ""


EVERY_PATH_RAISES = Untraced("every path of the wrapper raises")  # a proof would be vacuous


@dataclass(frozen=True, slots=True)
class TraceCache:
    """Results that the domains and configurations of a kernel share.

    `traced`: the trace of a domain, in any configuration; `decided`: sizes of a domain at which a
    condition holds, or None; `checked`: z3's answers to texts.
    """

    traced: dict[tuple[Case, tuple[Atom, ...], Cond], Trace] = field(default_factory=dict)
    decided: dict[tuple[Cond, Cond], Mapping[Atom, int] | None] = field(default_factory=dict)
    checked: dict[str, str] = field(default_factory=dict)


See = Callable[[Case, WrapperRun], None]  # gets each run, and the case of which only sizes differ


def iter_traced_paths(
    kernel: KernelUnderTest, domain: Domain, target: str | None, cache: TraceCache,
    deadline: Callable[[], float], see: See | None = None,
) -> Iterator[list[TracedPath | Untraced]]:  # fmt: skip
    """Yield the paths of each configuration, and the parts of the domain that they do not cover.

    A path that launches no more configurations than came before is not repeated. `deadline` is
    asked once a configuration, for the search for paths.
    """
    for config in range(MOST_CONFIGS):
        solver = Solver(domain.condition, deadline=deadline(), checked=cache.checked)
        parts: list[TracedPath | Untraced] = []
        configs, raised = 1, list[bool]()
        for path in list_paths(kernel, domain, target, config, solver, cache, see):
            if isinstance(path, Untraced):
                parts.append(path)
                continue
            configs = max([configs, *(launch.configs for launch in path.launches)])
            raised.append(path.failed is not None and path.failed.raised)
            if config < lcm(*(launch.configs for launch in path.launches)):
                parts += _follow(domain, path, config)
        yield [*parts, EVERY_PATH_RAISES] if raised and all(raised) else parts
        if config + 1 >= configs:
            return
    yield [Untraced(f"more than {MOST_CONFIGS} configurations")]


def _follow(domain: Domain, path: Path, config: int) -> Iterator[TracedPath | Untraced]:
    """Yield a path with its launches over symbols, or why it has none; neither if it raises."""
    if path.failed is not None:
        if not path.failed.raised:
            yield Untraced(str(path.failed), path.failed.late)
        return
    try:
        machines = [follow(launch, number) for number, launch in enumerate(path.launches)]
    except NotInterpretable as why:
        yield Untraced(f"{why.where}: {why}" if why.where else str(why))
        return
    yield TracedPath(domain, config, path, machines)


def list_paths(
    kernel: KernelUnderTest, domain: Domain, target: str | None, config: int, solver: Solver,
    cache: TraceCache, see: See | None = None,
) -> Iterator[Path | Untraced]:  # fmt: skip
    """Yield the parts of the domain that no path covers, then the paths of one configuration.

    A wrapper that ran in one configuration runs again in another only where that may change more
    than its launches.
    """
    key = (domain.case, domain.axes, domain.condition)
    case = replace(domain.case, config=config)

    def call(tensors: Mapping[str, object]) -> Any:
        return kernel.call(case, tensors)

    def find(cond: Cond) -> Mapping[Atom, int] | None:
        asked = (domain.condition, cond)  # formats and configurations ask the same
        with suppress(OutOfTime):
            if asked not in cache.decided:
                cache.decided[asked] = solver.find(cond, small=domain.axes)
            return cache.decided[asked]
        return None

    trace = take_config(cache.traced[key], config) if key in cache.traced else None
    if trace is None:
        hint = _usual_sizes(domain, kernel) or solver.find(domain.condition, small=domain.axes)
        if hint is None:
            yield Untraced("no sizes were parts that the contract admits")
            return
        trace = trace_wrapper(
            call, domain.operands, domain.condition, target, hint, find,
            most_paths=MOST_PATHS, config=config, deadline=solver.deadline,
        )  # fmt: skip
        cache.traced[key] = trace
    for left in trace.unvisited:
        if not _is_ruled_out(solver, left.condition):
            where = f"{left.where}: " if left.where else ""
            why = f"{where}a path that was not run: {left.why}"
            yield Untraced(why, left.late, f"{where}{left.why}")
    for run in trace.runs:
        if see is not None:
            see(case, run)
    yield from trace.paths


def _is_ruled_out(solver: Solver, cond: Cond) -> bool:
    with suppress(OutOfTime):
        return solver.decide(cond) == "unsat"
    return False


def _usual_sizes(domain: Domain, kernel: KernelUnderTest) -> Mapping[Atom, int] | None:
    """Return sizes neither small nor round, so that most wrappers take their general path."""
    sides = kernel.contract.fit(dict(zip(domain.sizes, USUAL[-len(domain.sizes) :], strict=True)))
    if sides is None:
        return None
    values = {size.atom: max(1, sides[axis]) for axis, size in domain.sizes.items() if size.atom}
    values = domain.add_strides(values, padding=3)
    return values if bool(evaluate(domain.condition, values)) else None
