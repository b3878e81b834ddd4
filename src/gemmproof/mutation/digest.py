"""What a case shows of a kernel, in two words: the bits it gives, the elements it touches."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from gemmproof.properties.observation import Observation

_NOWHERE = np.iinfo(np.int64).min  # the offset of a lane that is masked off
Pid = tuple[int, int, int]


def digest(observation: Observation) -> tuple[str, str]:
    """Of the results of every call, and of the accesses of the first, program by program.

    The observation is a traced one. A lane that a mask leaves out touches nothing, and neither
    does a program or a trip of a loop that has no other lanes.
    """
    bits = hashlib.sha256(repr(observation.raised).encode())
    for call in observation.calls:
        for result in call.results:
            bits.update(b"none" if result is None else np.ascontiguousarray(result).tobytes())
    touched = hashlib.sha256()
    for kernel, grid, accesses in observation.trace or ():
        programs: dict[Pid, Any] = {}
        for access in accesses:
            _add(programs, grid, access)
        touched.update(kernel.encode())
        for pid in sorted(programs):
            touched.update(f"{pid} {programs[pid].hexdigest()}".encode())
    return bits.hexdigest()[:16], touched.hexdigest()[:16]


def _add(programs: dict[Pid, Any], grid: Pid, access: Any) -> None:
    """Add what each program touches by an access; they are numbered along the first axis first."""
    x, y, _ = grid
    offsets, mask = access.offsets, access.mask
    words = f"{access.kind} {access.operand.name} {offsets.shape[1:]}".encode()
    for row, program in enumerate(access.programs.tolist()):
        own = offsets[row if len(offsets) > 1 else 0]
        if mask is not None:
            lanes = mask[row if len(mask) > 1 else 0]
            if not lanes.any():
                continue
            own = np.where(lanes, own, _NOWHERE)
        pid = (program % x, program // x % y, program // (x * y))
        programs.setdefault(pid, hashlib.sha256()).update(words)
        programs[pid].update(np.ascontiguousarray(own).tobytes())
