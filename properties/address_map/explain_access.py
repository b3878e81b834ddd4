"""Addresses and masks of each access in the names of the source, and missing conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gemmproof.properties.address_map import (
    INSIDE,
    MASKED,
    MISSING,
    OPEN,
    PROVED,
    AccessMap,
    AddressMap,
    Fix,
    Index,
    KernelMap,
    Need,
)
from gemmproof.properties.kernel import ContractError, KernelUnderTest
from gemmproof.properties.observation import parameters_of
from gemmproof.properties.proof.domain import Domain, NotExpressible, list_domains
from gemmproof.properties.proof.ledger import Decided, Traced, list_paths
from gemmproof.reference.symbolic.formulas import (
    Expression,
    Namer,
    rank,
    spell_below,
    spell_natural,
    unambiguous,
)
from gemmproof.reference.symbolic.interpreter import follow_on
from gemmproof.reference.symbolic.interpreter.interpret import NotInterpretable
from gemmproof.reference.symbolic.interpreter.symbolic_values import Access, Ints
from gemmproof.reference.symbolic.obligations import indices as verdicts
from gemmproof.reference.symbolic.obligations.in_bounds import find_places, judge_bounds
from gemmproof.reference.symbolic.obligations.indices import NotAffine, Verdict, find_unknown
from gemmproof.reference.symbolic.solver import YES, Model, OutOfTime, Solver, fresh_state
from gemmproof.reference.symbolic.source import NamingMachine, Scene, add_to_mask
from gemmproof.reference.symbolic.terms import Cond, Poly, every, le, lt
from gemmproof.reference.symbolic.tracing import Path
from gemmproof.reference.symbolic.tracing.trace import TracedLaunch
from gemmproof.reference.work import counted_seconds

# -- accesses ------------------------------------------------------------------------------------
AXES = {1: ("index",), 2: ("row", "column"), 3: ("batch", "row", "column")}


@dataclass(frozen=True, slots=True)
class _Goal:
    """What an index needs, and the index."""

    cond: Cond
    index: Poly
    size: Poly | None
    words: str


def axes_of(rank_: int) -> tuple[str, ...]:
    """What the axes of an operand are called."""
    return AXES.get(rank_, tuple(f"index {i}" for i in range(rank_)))


def explain_access(
    scene: Scene,
    solver: Solver,
    domain: Domain,
    constants: Mapping[str, Any],
    words: Mapping[str, str],
    fails: bool = False,
) -> AccessMap:
    """The access of a scene in words; what it needs is asked of the solver.

    `fails`: a case showed already that what is lacking is a fault, and no sizes are sought.
    """
    access = scene.access
    names = scene.names(constants)
    numbers = {n: x for n, x in constants.items() if type(x) is int}
    scalars = [(x.term, name) for name, x in names.items() if not x.shape]
    scalars.sort(key=lambda x: rank(x[0]), reverse=True)
    namer = Namer(scalars, unambiguous(numbers))
    where = access.where
    source = scene.source if scene.is_direct else None
    call = source.find_call(where.line, access.kind) if source and where else None
    operand = words.get(access.tensor.name, access.tensor.name)

    def make(indices: tuple[Index, ...], mask: str, status: str, **more: Any) -> AccessMap:
        return AccessMap(
            access.kind, operand, where.file if where else "", where.line if where else 0,
            None if call is None else call.col_offset + 1, access.shape, indices, mask, status,
            **more,
        )  # fmt: skip

    try:
        places = find_places(access)
    except NotAffine:
        places = []
    doubt = find_unknown(
        access.path, access.mask, *(x for _, at in places for x in map(_as_cond, at))
    )
    if not places:
        doubt = doubt or find_unknown(_as_cond(access.term))
        offset = Index("offset", namer.say(access.term + access.tensor.offset), ())
        why = doubt or "the offset is no sum of indices times strides"
        return make((offset,), namer.judge(access.mask), OPEN, why=why)
    case, at = places[0]
    labels = axes_of(len(at))
    by_axis = [_goals(labels[i], x, access, i, namer) for i, x in enumerate(at)]
    goals = [goal for some in by_axis for goal in some]
    statuses = [_judge(solver, goal, access, case) for goal in goals]
    lacking = [goal for goal, status in zip(goals, statuses, strict=True) if status == MISSING]
    status, why, sizes = PROVED, "", ""
    several = len(places) > 1  # ways in which a choice of strides makes the index
    if not several and (fails or not lacking):
        said_ = verdicts.REFUTED if lacking else verdicts.PROVED
        verdict = Verdict(said_, access.kind, access.where)
    else:
        (verdict,) = judge_bounds(solver, access, domain.axes)
    if verdict.status == verdicts.REFUTED:
        status, sizes = MISSING, _format_sizes(domain, verdict.model)
    elif verdict.status == verdicts.OPEN:
        status, why = OPEN, doubt or verdict.why
    else:
        statuses = [INSIDE if x == MISSING else x for x in statuses]
    if status == OPEN:
        statuses = [OPEN if x == MISSING else x for x in statuses]
    own = list(zip(at, labels, strict=True))
    plain = [(x, n) for x, n in scalars if n not in labels]
    masks = Namer([*own, *plain], unambiguous(numbers))
    fix = None
    if status != PROVED and lacking and not several:
        fix = _repair(scene, solver, names, lacking, goals, case, numbers)
        besides = _list_besides(solver, access, goals, case)
        fix = replace(fix, besides=" and ".join(map(masks.judge, besides)))
    said = dict(zip(map(id, goals), statuses, strict=True))
    indices = [
        Index(label, namer.say(x), tuple(Need(goal.words, said[id(goal)]) for goal in some))
        for label, x, some in zip(labels, at, by_axis, strict=True)
    ]
    mask = masks.judge(access.mask)
    return make(tuple(indices), mask, status, why=why, case=sizes, fix=fix)


def _as_cond(x: Poly) -> Cond:
    return Cond("le", x)


def _goals(label: str, index: Poly, access: Access, axis: int, namer: Namer) -> list[_Goal]:
    size = access.tensor.owner_shape[axis]
    goals = []
    if not index.is_natural:
        goals.append(_Goal(le(0, index), index, None, f"0 <= {label}"))
    goals.append(_Goal(lt(index, size), index, size, f"{label} < {namer.say(size)}"))
    return goals


def _judge(solver: Solver, goal: _Goal, access: Access, case: Cond) -> str:
    if solver.follows(goal.cond, access.path, case) == YES:
        return PROVED
    if solver.follows(goal.cond, access.path, access.mask, case) == YES:
        return MASKED
    return MISSING


def _list_besides(solver: Solver, access: Access, goals: list[_Goal], case: Cond) -> list[Cond]:
    """The parts of a mask that do not follow from the needs."""
    parts = access.mask.parts if access.mask.kind == "all" else (access.mask,)
    needed = (access.path, case, *(goal.cond for goal in goals))
    return [part for part in parts if solver.follows(part, *needed) != YES]


def _repair(
    scene: Scene, solver: Solver, names: Mapping[str, Ints], lacking: list[_Goal],
    goals: list[_Goal], case: Cond, numbers: Mapping[str, int],
) -> Fix:  # fmt: skip
    """The conditions that an access lacks, proved to be enough where they could be spelled."""
    access = scene.access
    spelled: list[Expression] = []
    for goal in lacking:
        if goal.size is None:
            made = spell_natural(goal.index, names, numbers, access.shape)
        else:
            made = spell_below(goal.index, goal.size, names, numbers, access.shape)
        if made is not None:
            spelled.append(made)
    words = " and ".join(goal.words for goal in lacking)
    if len(spelled) < len(lacking) or not scene.is_direct or scene.is_window:
        return Fix(words, "", "", False)
    added = every(x.cond for x in spelled)
    given = (access.path, access.mask, case, added)
    enough = all(solver.follows(goal.cond, *given) == YES for goal in goals)
    condition = " & ".join(dict.fromkeys(x.text for x in spelled))
    source, where = scene.source, access.where
    call = source.find_call(where.line, access.kind) if source and where else None
    if not enough or source is None or call is None:
        return Fix(words, "", "", enough)
    text = add_to_mask(source, call, access.kind, condition, sums=True)
    return Fix(words, condition, text, True)


def _format_sizes(domain: Domain, model: Model | None) -> str:
    if model is None:
        return ""
    sizes = ((axis, size.atom) for axis, size in domain.sizes.items())
    return " ".join(f"{axis}={model[atom]}" for axis, atom in sizes if atom in model)


# -- map -----------------------------------------------------------------------------------------
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
    except NotExpressible as error:
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
        except NotInterpretable as error:
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

    Raises ContractError for one that none of its kernels has.
    """
    left: list[str] = []
    maps: dict[KernelMap, None] = {}
    scope, most = "", 1
    try:
        for one in follow_all(kernel, target, config, seconds, left.append):
            scope, most = scope or _format_scope(one.domain), max(most, one.launch.configs)
            maps[_explain_launch(kernel, one, tell)] = None
    except OutOfTime:
        left.append(f"{seconds:g} s were not enough")
    if 1 < most <= config:
        raise ContractError(f"--config: got {config}, expected one of the {most}: 0..{most - 1}")
    return AddressMap(_merge(list(maps)), tuple(dict.fromkeys(left)), scope)


def _format_scope(domain: Domain) -> str:
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
        format_path(one.path),
        tuple(constants.items()),
        tuple(accesses),
        one.failed,
    )


def format_path(path: Path) -> str:
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


# -- missing conditions --------------------------------------------------------------------------
@fresh_state()
def find_missing(
    kernel: KernelUnderTest,
    target: str | None,
    config: int,
    lines: Collection[str],
    seconds: float,
) -> dict[str, str]:
    """For each of the lines, as "file.py:21", what its mask lacks: proved to be enough.

    Nothing is said of a line where paths differ in what they lack, or where no name spells it.
    """
    found: dict[str, set[str]] = {}
    try:
        for one in follow_all(kernel, target, config, seconds) if lines else ():
            for scene in one.machine.scenes if one.machine else ():
                line = str(scene.access.where)
                if line in lines:
                    said = explain_access(
                        scene, one.solver, one.domain, one.launch.constants, {}, fails=True
                    )
                    if said.status == MISSING:
                        found.setdefault(line, set()).add(_spell(said))
            if found.keys() == set(lines):
                break
    except OutOfTime:  # what was found by then holds
        pass
    return {line: said.pop() for line, said in found.items() if len(said) == 1 and "" not in said}


def _spell(access: AccessMap) -> str:
    """Where the mask tests what no lane needs, the index may be the wrong one: nothing is said."""
    if access.fix is None or not access.fix.condition or access.fix.besides:
        return ""
    return f"{'mask=' if access.mask == 'always' else '& '}{access.fix.condition}"
