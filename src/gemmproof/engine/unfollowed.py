"""The sides of branches that no case of a check took."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gemmproof.engine.observe import CaseResult
from gemmproof.properties.cases.case import Case
from gemmproof.properties.proof import Proofs
from gemmproof.reference.simulation import Where


def list_unfollowed(proofs: Proofs, judged: Mapping[Case, CaseResult]) -> Iterator[str]:
    """Yield a line for each side of a branch that no case took and that a case may take."""
    cases = [case for case, result in judged.items() if result.applied]
    for side in proofs.sides:
        if not any(map(side.may_take, cases)):
            yield side.text
    yield from _list_branches(proofs.ruled_out, judged.values())


def _list_branches(
    ruled_out: Collection[tuple[str, int, bool]], judged: Collection[CaseResult]
) -> Iterator[str]:
    """Yield the lines of kernels at which a side was not taken by any program of any case."""
    taken: dict[tuple[str, int], tuple[Where, list[bool]]] = {}
    for result in judged:
        for where, sides in result.branches.items():
            _, known = taken.setdefault((where.file, where.line), (where, [False] * 3))
            known[:] = [x or y for x, y in zip(known, sides, strict=True)]
    for (file, line), (where, (was_true, was_false, is_loop)) in taken.items():
        if not was_true and (file, line, True) not in ruled_out:
            yield f"{where} never ran a turn" if is_loop else f"{where} was never true"
        if not was_false and (file, line, False) not in ruled_out:
            yield f"{where} was never false"
