"""Every unmasked lane addresses an element of its operand, by an offset that fits its type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gemmproof.reference.symbolic.machine.values import Access
from gemmproof.reference.symbolic.obligations.coordinates import NoView, locate, split_choices
from gemmproof.reference.symbolic.obligations.verdict import OPEN, PROVED, Verdict, ask
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
    missing = []
    try:
        for case, indices in find_places(access):
            given = (access.path, access.mask, case)
            for index, size in zip(indices, access.tensor.owner_shape, strict=True):
                for goal in (le(0, index), lt(index, size)):
                    missing += [goal] if solver.follows(goal, *given) != YES else []
    except NoView:
        missing = [FALSE]
    if not missing:
        yield Verdict(PROVED, words, access.where)
        return
    # an index beyond its axis is a fault where the address is outside of the operand
    tensor = access.tensor
    offset = access.term + tensor.offset
    sides = zip(tensor.owner_shape, tensor.owner_strides, strict=True)
    last = sum(((n - 1) * step for n, step in sides), term(0))
    inside = le(0, offset) & le(offset, last)
    verdict = ask(solver, words, access.where, inside, (access.path, access.mask), small)
    if verdict.status == PROVED and not is_dense(tensor):
        verdict = Verdict(OPEN, words, access.where, "it may run from one row into the next")
    yield replace(verdict, lacks=missing[0] if missing[0] != FALSE else None)


def is_dense(tensor: Any) -> bool:
    """Whether every address from a tensor's first to its last is an element of it."""
    step = term(1)
    for n, stride in reversed(list(zip(tensor.owner_shape, tensor.owner_strides, strict=True))):
        if n.constant != 1 and stride != step:
            return False
        step = step * n
    return True


def judge_fit(solver: Solver, access: Access, small: tuple[Atom, ...]) -> Iterator[Verdict]:
    """Each 32-bit step of the pointer fits for every lane under the mask."""
    from gemmproof.reference.symbolic.machine.arithmetic import fits

    words = f"offset of the {access.kind} of {access.tensor.name}"
    for step, cond in access.steps:
        given = (access.path, access.mask, cond)
        yield ask(solver, words, access.where, fits(step, 32), given, small)
