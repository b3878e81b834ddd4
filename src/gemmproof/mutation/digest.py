"""What a case shows of a kernel, in two words: the bits it gives, the elements it touches."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

import numpy as np

from gemmproof.properties.observation import Observation


def digest(observation: Observation) -> tuple[str, str]:
    """Of the results of every call, and of the elements of its operands that the first touches.

    The observation is a traced one. Which program touches an element, how often and by what tile
    is not looked at, nor what a wrapper keeps in memory of its own: that is how a kernel works, not
    what it does. Zeros have no sign: no property asks for it (properties/judges/exact_values.py). A
    case of which few programs run shows nothing: another order runs others.
    """
    if observation.case.is_sampled:
        return "", ""
    bits = hashlib.sha256(repr(observation.raised).encode())
    for call in observation.calls:
        for result in call.results:
            bits.update(b"none" if result is None else _drop_signs(result).tobytes())
    found: dict[str, list[Any]] = defaultdict(list)
    for _, _, accesses in observation.trace or ():
        for access in accesses:
            if not access.operand.storage.private:
                found[f"{access.kind} {access.operand.name}"].append(_list_elements(access))
    touched = hashlib.sha256()
    for words in sorted(found):
        elements = np.unique(np.concatenate(found[words]))
        if elements.size:
            touched.update(words.encode() + elements.tobytes())
    return bits.hexdigest()[:16], touched.hexdigest()[:16]


def _drop_signs(result: Any) -> Any:
    """The result with 0 for -0."""
    return np.ascontiguousarray(np.where(result == 0, np.zeros((), result.dtype), result))


def _list_elements(access: Any) -> Any:
    """The elements that unmasked lanes of any program address, from the storage's first."""
    offsets, mask = access.offsets, access.mask
    view, start = access.operand.view, access.operand.storage.start
    if mask is not None:
        offsets, mask = np.broadcast_arrays(offsets, mask)
        offsets = offsets[mask]
    return np.unique(offsets) + (view.start - start) // view.itemsize
