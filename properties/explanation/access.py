"""One access in words: its index along each axis, its mask, what it needs and what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gemmproof.properties.explanation.record import (
    INSIDE,
    MASKED,
    MISSING,
    OPEN,
    PROVED,
    AccessMap,
    Fix,
    Index,
    Need,
)
from gemmproof.properties.proof.domain import Domain
from gemmproof.reference.symbolic.formulas import (
    Expression,
    Namer,
    rank,
    spell_below,
    spell_natural,
    unambiguous,
)
from gemmproof.reference.symbolic.interpreter.symbolic_values import Access, Ints
from gemmproof.reference.symbolic.obligations import indices as verdicts
from gemmproof.reference.symbolic.obligations.in_bounds import find_places, judge_bounds
from gemmproof.reference.symbolic.obligations.indices import NoView, Verdict, find_unknown
from gemmproof.reference.symbolic.solver import YES, Model, Solver
from gemmproof.reference.symbolic.source import Scene, add_to_mask
from gemmproof.reference.symbolic.terms import Cond, Poly, every, le, lt

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
    except NoView:
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
        status, sizes = MISSING, _say_sizes(domain, verdict.model)
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


def _say_sizes(domain: Domain, model: Model | None) -> str:
    if model is None:
        return ""
    sizes = ((axis, size.atom) for axis, size in domain.sizes.items())
    return " ".join(f"{axis}={model[atom]}" for axis, atom in sizes if atom in model)
