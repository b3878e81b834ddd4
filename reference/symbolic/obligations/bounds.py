"""Every unmasked lane addresses an element of its operand, by an offset that fits its type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.coordinates import NoView, locate, split_choices
from gemmproof.reference.symbolic.obligations.verdict import OPEN, PROVED, Verdict, ask
from gemmproof.reference.symbolic.obligations.walks import join_walks
from gemmproof.reference.symbolic.solver import YES, Solver
from gemmproof.reference.symbolic.terms import FALSE, Atom, Cond, Poly, le, lt, term

Place = tuple[Cond, tuple[Poly, ...]]


def find_places(access: Access, view: Any = None) -> list[Place]:
    """The index of an access along each axis of its operand, in each case. Raises NoView.

    `view`: of the same memory, where not the operand's own view is meant.
    """
    tensor = access.tensor
    offset = access.term + tensor.offset
    shape, strides = tensor.owner_shape, tensor.owner_strides
    if view is not None:
        offset, shape, strides = offset - view.offset, view.shape, view.strides
    cases = split_choices(offset, strides)
    return [(case, locate(part, shape, strides)) for case, part in cases]


def judge_bounds(solver: Solver, access: Access, small: tuple[Atom, ...]) -> Iterator[Verdict]:
    """Along each axis: 0 <= index < size for every lane under the mask."""
    words = f"{access.kind} of {access.tensor.name}"
    if solver.remembers("bounds", access.place):
        yield Verdict(PROVED, words, access.where)
        return
    said = _judge_bounds(solver, access, small, words)
    if said.status == PROVED:
        solver.remember("bounds", access.place)
    yield said


def _judge_bounds(solver: Solver, access: Access, small: tuple[Atom, ...], words: str) -> Verdict:
    access, _ = join_walks(solver, access)
    tensor = access.tensor
    # an index beyond its axis is a fault where the address is outside of the operand
    offset = access.term + tensor.offset
    sides = zip(tensor.owner_shape, tensor.owner_strides, strict=True)
    last = sum(((n - 1) * step for n, step in sides), term(0))
    inside, given = le(0, offset) & le(offset, last), (access.path, access.mask)
    dense = is_dense(tensor)
    missing: list[Cond] = []
    try:
        places = find_places(access)
        is_flat = dense and any(is_counted_through(tensor, at) for _, at in places)
        if is_flat and solver.follows(inside, *given) == YES:
            return Verdict(PROVED, words, access.where)
        for case, indices in places:
            for index, size in zip(indices, tensor.owner_shape, strict=True):
                for goal in (le(0, index), lt(index, size)):
                    missing += [goal] if solver.follows(goal, *given, case) != YES else []
    except NoView:
        missing = [FALSE]
    if not missing:
        return Verdict(PROVED, words, access.where)
    verdict = ask(solver, words, access.where, inside, given, small)
    if verdict.status == PROVED and not dense:
        verdict = Verdict(OPEN, words, access.where, "it may run from one row into the next")
    return replace(verdict, lacks=missing[0] if missing[0] != FALSE else None)


def is_dense(tensor: Any) -> bool:
    """Whether every address from a tensor's first to its last is an element of it."""
    step = term(1)
    for n, stride in reversed(list(zip(tensor.owner_shape, tensor.owner_strides, strict=True))):
        if n.constant != 1 and stride != step:
            return False
        step = step * n
    return True


def is_whole(view: Any) -> bool:
    """Whether a view is all of its memory, as it was declared or allocated."""
    own = (view.owner_shape, view.owner_strides, term(0))
    return (view.shape, view.strides, view.offset) == own


def is_counted_through(tensor: Any, at: Sequence[Poly]) -> bool:
    """Whether an access goes through a tensor's elements as if these were a single row."""
    sides = zip(at, tensor.owner_shape, strict=True)
    return any(x.constant is not None and n.constant is None for x, n in sides)


def judge_fit(solver: Solver, access: Access, small: tuple[Atom, ...]) -> Iterator[Verdict]:
    """Each 32-bit step of the pointer fits for every lane under the mask."""
    from gemmproof.reference.symbolic.machine.arithmetic import fits

    words = f"offset of the {access.kind} of {access.tensor.name}"
    access, _ = join_walks(solver, access)
    for step, cond in access.steps:
        given = (access.path, access.mask, cond)
        yield ask(solver, words, access.where, fits(step, 32), given, small)
