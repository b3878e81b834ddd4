"""Addresses and masks of each access in the names of the source, and missing conditions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
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
from gemmproof.properties.proof.domain import (
    Domain,
    NotExpressible,
    TraceCache,
    Untraced,
    list_domains,
    list_paths,
)
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
from gemmproof.reference.symbolic.interpreter.symbolic_values import Ints, SymbolicAccess
from gemmproof.reference.symbolic.obligations import indices as verdicts
from gemmproof.reference.symbolic.obligations.in_bounds import find_places, judge_bounds
from gemmproof.reference.symbolic.obligations.indices import NotAffine, Verdict, find_unknown
from gemmproof.reference.symbolic.solver import YES, Model, OutOfTime, Solver, fresh_state
from gemmproof.reference.symbolic.source import NamingMachine, Scene, add_to_mask
from gemmproof.reference.symbolic.terms import Cond, Poly, every, le, lt
from gemmproof.reference.symbolic.tracing.trace import Path, TracedLaunch
from gemmproof.reference.work import counted_seconds

# -- accesses ------------------------------------------------------------------------------------
AXES = {1: ("index",), 2: ("row", "column"), 3: ("batch", "row", "column")}


@dataclass(frozen=True, slots=True)
class _Goal:
    """A condition on an index, and the index."""

    cond: Cond
    index: Poly
    size: Poly | None
    text: str


def axes_of(rank_: int) -> tuple[str, ...]:
    """Return the labels of an operand's axes."""
    return AXES.get(rank_, tuple(f"index {i}" for i in range(rank_)))


def explain_access(
    scene: Scene,
    solver: Solver,
    domain: Domain,
    constants: Mapping[str, Any],
    operand_names: Mapping[str, str],
    fails: bool = False,
) -> AccessMap:
    """Return the map of a scene's access; the solver is asked for its needs.

    `fails`: a case already showed that the missing condition is a fault, and no sizes are searched
    for.
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
    operand = operand_names.get(access.tensor.name, access.tensor.name)

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
    goals = [goal for group in by_axis for goal in group]
    statuses = [_judge(solver, goal, access, case) for goal in goals]
    missing = [goal for goal, status in zip(goals, statuses, strict=True) if status == MISSING]
    status, why, sizes = PROVED, "", ""
    several = len(places) > 1  # choices of strides that give the index
    if not several and (fails or not missing):
        outcome = verdicts.REFUTED if missing else verdicts.PROVED
        verdict = Verdict(outcome, access.kind, access.where)
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
    if status != PROVED and missing and not several:
        fix = _repair(scene, solver, names, missing, goals, case, numbers)
        besides = _list_besides(solver, access, goals, case)
        fix = replace(fix, besides=" and ".join(map(masks.judge, besides)))
    status_of = dict(zip(map(id, goals), statuses, strict=True))
    indices = [
        Index(label, namer.say(x), tuple(Need(goal.text, status_of[id(goal)]) for goal in group))
        for label, x, group in zip(labels, at, by_axis, strict=True)
    ]
    mask = masks.judge(access.mask)
    return make(tuple(indices), mask, status, why=why, case=sizes, fix=fix)


def _as_cond(x: Poly) -> Cond:
    return Cond("le", x)


def _goals(label: str, index: Poly, access: SymbolicAccess, axis: int, namer: Namer) -> list[_Goal]:
    size = access.tensor.owner_shape[axis]
    goals = []
    if not index.is_natural:
        goals.append(_Goal(le(0, index), index, None, f"0 <= {label}"))
    goals.append(_Goal(lt(index, size), index, size, f"{label} < {namer.say(size)}"))
    return goals


def _judge(solver: Solver, goal: _Goal, access: SymbolicAccess, case: Cond) -> str:
    if solver.follows(goal.cond, access.path, case) == YES:
        return PROVED
    if solver.follows(goal.cond, access.path, access.mask, case) == YES:
        return MASKED
    return MISSING


def _list_besides(
    solver: Solver, access: SymbolicAccess, goals: list[_Goal], case: Cond
) -> list[Cond]:
    """List the parts of a mask that do not follow from the needs."""
    parts = access.mask.parts if access.mask.kind == "all" else (access.mask,)
    needed = (access.path, case, *(goal.cond for goal in goals))
    return [part for part in parts if solver.follows(part, *needed) != YES]


def _repair(
    scene: Scene, solver: Solver, names: Mapping[str, Ints], missing: list[_Goal],
    goals: list[_Goal], case: Cond, numbers: Mapping[str, int],
) -> Fix:  # fmt: skip
    """Return the conditions that an access lacks, proved to be enough if they could be spelled."""
    access = scene.access
    spelled: list[Expression] = []
    for goal in missing:
        if goal.size is None:
            expression = spell_natural(goal.index, names, numbers, access.shape)
        else:
            expression = spell_below(goal.index, goal.size, names, numbers, access.shape)
        if expression is not None:
            spelled.append(expression)
    text = " and ".join(goal.text for goal in missing)
    if len(spelled) < len(missing) or not scene.is_direct or scene.is_window:
        return Fix(text, "", "", False)
    added = every(x.cond for x in spelled)
    assumptions = (access.path, access.mask, case, added)
    enough = all(solver.follows(goal.cond, *assumptions) == YES for goal in goals)
    condition = " & ".join(dict.fromkeys(x.text for x in spelled))
    source, where = scene.source, access.where
    call = source.find_call(where.line, access.kind) if source and where else None
    if not enough or source is None or call is None:
        return Fix(text, "", "", enough)
    call_text = add_to_mask(source, call, access.kind, condition, sums=True)
    return Fix(text, condition, call_text, True)


def _format_sizes(domain: Domain, model: Model | None) -> str:
    if model is None:
        return ""
    sizes = ((axis, size.atom) for axis, size in domain.sizes.items())
    return " ".join(f"{axis}={model[atom]}" for axis, atom in sizes if atom in model)


# -- map -----------------------------------------------------------------------------------------
SECONDS = 20.0  # counted
MOST_PATHS = 12  # that are explained


@dataclass(frozen=True, slots=True)
class Followed:
    """One launch on one path, followed: its scenes, or the reason why there are none."""

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
    on_open: Callable[[str], None] = lambda why: None,
) -> Iterator[Followed]:
    """Yield every launch of a wrapper, on each path, for each way of calling it."""
    deadline = counted_seconds() + seconds
    cache, left, paths = TraceCache(), dict[str, None](), 0
    try:
        for domain in list_domains(kernel):
            solver = Solver(domain.condition, deadline=deadline)
            for path in list_paths(kernel, domain, target, config, solver, cache):
                if isinstance(path, Untraced):
                    left[path.why] = None
                    continue
                paths += 1
                if path.failed is not None:
                    if not path.failed.raised:
                        left[str(path.failed)] = None
                    continue
                yield from _follow(domain, path, deadline)
                if paths >= MOST_PATHS:
                    left[f"more than {MOST_PATHS} paths: the first are shown"] = None
                    return
    except NotExpressible as error:
        left[str(error)] = None
    except OutOfTime:
        left[f"{seconds:g} s were not enough"] = None
    finally:
        for why in left:
            on_open(why)


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
    """Return the address map of a wrapper in one configuration.

    Raises ContractError if none of its kernels has that configuration.
    """
    left: list[str] = []
    maps: dict[KernelMap, None] = {}
    scope, most = "", 1
    try:
        for followed in follow_all(kernel, target, config, seconds, left.append):
            scope, most = scope or followed.domain.scope, max(most, followed.launch.configs)
            maps[_explain_launch(kernel, followed, tell)] = None
    except OutOfTime:
        left.append(f"{seconds:g} s were not enough")
    if 1 < most <= config:
        raise ContractError(f"--config: got {config}, expected one of the {most}: 0..{most - 1}")
    return AddressMap(_merge(list(maps)), tuple(dict.fromkeys(left)), scope)


def _explain_launch(
    kernel: KernelUnderTest, followed: Followed, tell: Callable[[], None]
) -> KernelMap:
    launch = followed.launch
    grid = [Namer(()).say(n) for n in launch.grid]
    while len(grid) > 1 and grid[-1] == "1":
        grid.pop()
    constants = {
        name: str(value) for name, value in launch.constants.items() if _is_shown(name, value)
    }
    accesses: dict[AccessMap, None] = {}
    operand_names = parameters_of(kernel.launch)
    for scene in _in_order(followed.machine.scenes if followed.machine else []):
        tell()
        accesses[
            explain_access(scene, followed.solver, followed.domain, launch.constants, operand_names)
        ] = None
    return KernelMap(
        launch.kernel,
        tuple(grid),
        format_path(followed.path),
        tuple(constants.items()),
        tuple(accesses),
        followed.failed,
    )


def format_path(path: Path) -> str:
    """Format the decisions of a wrapper."""
    return " and ".join(dict.fromkeys(Namer(()).judge(cond) for cond, _ in path.guards))


def _is_shown(name: str, value: object) -> bool:
    return type(value) in (int, bool, str) and not name.startswith(("stride", "s_"))


def _in_order(scenes: list[Scene]) -> list[Scene]:
    return sorted(
        scenes, key=lambda x: (x.access.where.line if x.access.where else 0, x.access.number)
    )


def _merge(maps: list[KernelMap]) -> tuple[KernelMap, ...]:
    """Merge equal maps under the paths of all of them."""
    groups: dict[object, list[KernelMap]] = {}
    for kernel_map in maps:
        groups.setdefault(
            (
                kernel_map.kernel,
                kernel_map.grid,
                kernel_map.constants,
                kernel_map.accesses,
                kernel_map.failed,
            ),
            [],
        ).append(kernel_map)
    merged = []
    for alike in groups.values():
        paths = [kernel_map.path for kernel_map in alike]
        first = alike[0]
        everywhere = len(groups) == 1 or "" in paths
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
    """Return the missing condition of each line, as "file.py:21", proved to be enough.

    A line is omitted if paths differ in what they lack, or if no name spells it.
    """
    conditions: dict[str, set[str]] = {}
    try:
        for followed in follow_all(kernel, target, config, seconds) if lines else ():
            for scene in followed.machine.scenes if followed.machine else ():
                line = str(scene.access.where)
                if line in lines:
                    access_map = explain_access(
                        scene,
                        followed.solver,
                        followed.domain,
                        followed.launch.constants,
                        {},
                        fails=True,
                    )
                    if access_map.status == MISSING:
                        conditions.setdefault(line, set()).add(_spell(access_map))
            if conditions.keys() == set(lines):
                break
    except OutOfTime:  # the conditions found so far are valid
        pass
    return {
        line: texts.pop()
        for line, texts in conditions.items()
        if len(texts) == 1 and "" not in texts
    }


def _spell(access: AccessMap) -> str:
    """Spell the missing condition; "" also if the mask tests too much: its index may be wrong."""
    if access.fix is None or not access.fix.condition or access.fix.besides:
        return ""
    return f"{'mask=' if access.mask == 'always' else '& '}{access.fix.condition}"
