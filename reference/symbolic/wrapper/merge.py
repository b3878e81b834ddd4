"""Paths that part at a decision and then do the same are one path without that decision."""

from __future__ import annotations

from gemmproof.reference.symbolic.wrapper.record import Guard, Path

# the decisions that are left to make, and the path that they lead to
_Rest = tuple[list[Guard], Path]


def merge(paths: list[Path]) -> list[Path]:
    """The same paths, with the decisions that change nothing left out."""
    merged = _merge([(path.guards, path) for path in paths])
    for guards, path in merged:
        path.guards = guards
    return [path for _, path in merged]


def _merge(rests: list[_Rest]) -> list[_Rest]:
    if len(rests) < 2 or any(not guards for guards, _ in rests):
        return rests
    guard = rests[0][0][0]
    cond = guard[0]
    yes = [(guards[1:], path) for guards, path in rests if guards[0][0] == cond]
    no = [(guards[1:], path) for guards, path in rests if guards[0][0] == ~cond]
    if len(yes) + len(no) < len(rests):  # not decided by the sizes alone
        return rests
    other = next((guards[0] for guards, _ in rests if guards[0][0] != cond), guard)
    yes, no = _merge(yes), _merge(no)
    if _are_same(yes, no):
        return yes
    return [([guard, *guards], path) for guards, path in yes] + [
        ([other, *guards], path) for guards, path in no
    ]


def _are_same(some: list[_Rest], others: list[_Rest]) -> bool:
    if len(some) != len(others):
        return False
    return all(
        [c for c, _ in one] == [c for c, _ in two] and path.does_as(other)
        for (one, path), (two, other) in zip(some, others, strict=True)
    )
