"""Makes the address map of a wrapper: its paths, their kernels, and every access of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gemmproof.properties.explanation.access import explain_access
from gemmproof.properties.explanation.record import AccessMap, AddressMap, KernelMap
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.naming import parameters_of
from gemmproof.properties.operand import Misstated
from gemmproof.properties.proof.domain import Domain, NotSaid, list_domains
from gemmproof.properties.proof.paths import Decided, Traced, list_paths
from gemmproof.reference.symbolic.formulas import Namer
from gemmproof.reference.symbolic.interpreter import follow_on
from gemmproof.reference.symbolic.interpreter.interpret import NotFollowed
from gemmproof.reference.symbolic.solver import OutOfTime, Solver, fresh_state
from gemmproof.reference.symbolic.source import NamingMachine, Scene
from gemmproof.reference.symbolic.tracing import Path
from gemmproof.reference.symbolic.tracing.trace import TracedLaunch
from gemmproof.reference.work import counted_seconds

SECONDS = 20.0  # counted
MOST_PATHS = 12  # that are explained


@dataclass(slots=True)
class _Book:
    """What the paths are asked for, and what could not be followed."""

    kernel: KernelUnderTest
    unvisited: dict[str, None] = field(default_factory=dict)
    decided: Decided = field(default_factory=dict)
    traced: Traced = field(default_factory=dict)

    def leave_all_open(self, why: str, late: bool = False) -> None:
        self.unvisited[why] = None


@dataclass(frozen=True, slots=True)
class Followed:
    """One launch on one path, followed: its scenes, or why there are none."""

    domain: Domain
    path: Path
    launch: TracedLaunch
    machine: NamingMachine | None
    solver: Solver
    failed: str = ""


def follow_all(
    kernel: KernelUnderTest,
    target: str | None = None,
    config: int = 0,
    seconds: float = SECONDS,
    tell_open: Callable[[str], None] = lambda why: None,
) -> Iterator[Followed]:
    """Every launch that a wrapper makes, on each path, for each way of calling it."""
    deadline = counted_seconds() + seconds
    book, paths = _Book(kernel), 0
    try:
        for domain in list_domains(kernel):
            solver = Solver(domain.condition, deadline=deadline)
            for path in list_paths(book, domain, target, config, solver, deadline):
                paths += 1
                if path.failed is not None:
                    if not path.failed.raised:
                        book.leave_all_open(str(path.failed))
                    continue
                yield from _follow(domain, path, deadline)
                if paths >= MOST_PATHS:
                    book.leave_all_open(f"more than {MOST_PATHS} paths: the first are shown")
                    return
    except NotSaid as error:
        book.leave_all_open(str(error))
    except OutOfTime:
        book.leave_all_open(f"{seconds:g} s were not enough")
    finally:
        for why in book.unvisited:
            tell_open(why)


def _follow(domain: Domain, path: Path, deadline: float) -> Iterator[Followed]:
    inner = Solver(domain.condition & path.condition, plainest=domain.plainest, deadline=deadline)
    for number, launch in enumerate(path.launches):
        try:
            machine = follow_on(NamingMachine, launch, number)
        except NotFollowed as error:
            why = f"{error.where}: {error}" if error.where else str(error)
            yield Followed(domain, path, launch, None, inner, why)
            continue
        inner.known |= machine.known
        yield Followed(domain, path, launch, machine, inner)


@fresh_state()
def explain(
    kernel: KernelUnderTest,
    target: str | None = None,
    config: int = 0,
    seconds: float = SECONDS,
    tell: Callable[[], None] = lambda: None,
) -> AddressMap:
    """The address map of a wrapper in one configuration.

    Raises Misstated for one that none of its kernels has.
    """
    left: list[str] = []
    maps: dict[KernelMap, None] = {}
    scope, most = "", 1
    try:
        for one in follow_all(kernel, target, config, seconds, left.append):
            scope, most = scope or _say_scope(one.domain), max(most, one.launch.configs)
            maps[_explain_launch(kernel, one, tell)] = None
    except OutOfTime:
        left.append(f"{seconds:g} s were not enough")
    if 1 < most <= config:
        raise Misstated(f"--config: got {config}, expected one of the {most}: 0..{most - 1}")
    return AddressMap(_merge(list(maps)), tuple(dict.fromkeys(left)), scope)


def _say_scope(domain: Domain) -> str:
    said = f"every {', '.join(domain.sizes)}"
    return f"{said}, any strides" if domain.any_strides else said


def _explain_launch(kernel: KernelUnderTest, one: Followed, tell: Callable[[], None]) -> KernelMap:
    launch = one.launch
    grid = [Namer(()).say(n) for n in launch.grid]
    while len(grid) > 1 and grid[-1] == "1":
        grid.pop()
    constants = {
        name: str(value) for name, value in launch.constants.items() if _is_shown(name, value)
    }
    accesses: dict[AccessMap, None] = {}
    words = parameters_of(kernel.launch)
    for scene in _in_order(one.machine.scenes if one.machine else []):
        tell()
        accesses[explain_access(scene, one.solver, one.domain, launch.constants, words)] = None
    return KernelMap(
        launch.kernel,
        tuple(grid),
        say_path(one.path),
        tuple(constants.items()),
        tuple(accesses),
        one.failed,
    )


def say_path(path: Path) -> str:
    """The decisions of a wrapper in words."""
    return " and ".join(dict.fromkeys(Namer(()).judge(cond) for cond, _ in path.guards))


def _is_shown(name: str, value: object) -> bool:
    return type(value) in (int, bool, str) and not name.startswith(("stride", "s_"))


def _in_order(scenes: list[Scene]) -> list[Scene]:
    return sorted(
        scenes, key=lambda x: (x.access.where.line if x.access.where else 0, x.access.number)
    )


def _merge(maps: list[KernelMap]) -> tuple[KernelMap, ...]:
    """The maps with those that say the same told once, under the paths of all of them."""
    found: dict[object, list[KernelMap]] = {}
    for one in maps:
        found.setdefault(
            (one.kernel, one.grid, one.constants, one.accesses, one.failed), []
        ).append(one)
    merged = []
    for alike in found.values():
        paths = [one.path for one in alike]
        first = alike[0]
        everywhere = len(found) == 1 or "" in paths
        path = "" if everywhere else " or ".join(dict.fromkeys(paths))
        merged.append(
            KernelMap(first.kernel, first.grid, path, first.constants, first.accesses, first.failed)
        )
    return tuple(merged)
