"""What a case shows of a kernel, in two words: the bits it gives, the elements it touches."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from gemmproof.properties.observation import Observation


def digest(observation: Observation) -> tuple[str, str]:
    """Of the results of every call, and of the accesses of the first, launch by launch.

    The observation is a traced one. A lane that a mask leaves out touches nothing.
    """
    bits = hashlib.sha256(repr(observation.raised).encode())
    for call in observation.calls:
        for result in call.results:
            bits.update(b"none" if result is None else np.ascontiguousarray(result).tobytes())
    touched = hashlib.sha256()
    for kernel, grid, accesses in observation.trace or ():
        touched.update(f"{kernel} {grid}".encode())
        for access in accesses:
            _add(touched, access)
    return bits.hexdigest()[:16], touched.hexdigest()[:16]


def _add(touched: Any, access: Any) -> None:
    offsets, mask = access.offsets, access.mask
    touched.update(f"{access.kind} {access.operand.name} {offsets.shape}".encode())
    touched.update(np.ascontiguousarray(access.programs).tobytes())
    if mask is not None:
        offsets = np.where(mask, offsets, np.iinfo(np.int64).min)
    touched.update(np.ascontiguousarray(offsets).tobytes())
