"""The simulator's trace, kept for all programs at once, as one list of touches per program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from gemmproof.reference.mirrors.access import Pid, Touch


def touches_by_program(
    trace: Sequence[tuple[str, tuple[int, int, int], Any]],
) -> dict[Pid, list[Touch]]:
    """Accesses of every program, in order, from (kernel, grid, accesses of its programs).

    An access holds offsets and mask with a leading axis over `programs`, of length 1 where they
    are the same for all; programs are numbered with the grid's first axis innermost.
    """
    found: dict[Pid, list[Touch]] = defaultdict(list)
    for _, (x, y, _), accesses in trace:
        for access in accesses:
            for row, program in enumerate(access.programs.tolist()):
                pid = (program % x, program // x % y, program // (x * y))
                offsets = access.offsets[row if len(access.offsets) > 1 else 0]
                mask = access.mask
                if mask is not None:
                    mask = mask[row if len(mask) > 1 else 0]
                touch = Touch(access.kind, access.operand.name, offsets, mask, access.other, pid)
                found[pid].append(touch)
    return dict(found)
