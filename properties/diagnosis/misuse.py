"""What a kernel with a formula of its own did with an operand instead: tried, one after another.

Each way is claimed only if the formula, given the operand so, explains every element of c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gemmproof.properties import values
from gemmproof.properties.cases.operands import stored_elements
from gemmproof.properties.diagnosis.readings import list_readings
from gemmproof.properties.finding import Finding
from gemmproof.properties.observation import Observation
from gemmproof.reference.arithmetic.conversions import Array, widen
from gemmproof.reference.bound import Accumulated, bound_rounding
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.spec import Rules, evaluate


def name_misuse(finding: Finding, observation: Observation) -> Finding:
    """The finding with the operand that was misread and how; as it is where no way explains it."""
    for name in [*observation.kernel.operands, "a", "b"]:
        for fault, words, used in _list_uses(observation, name):
            if _explains(observation, name, used):
                message = f"{finding.message}: as if {name} {words}"
                return replace(finding, fault=fault, operand=name, message=message)
    return finding


def _list_uses(observation: Observation, name: str) -> Iterator[tuple[str, str, Array]]:
    """(class, words, elements): what a kernel may have used in an operand's place."""
    placed = observation.operands[name]
    own = stored_elements(placed)
    if name in observation.kernel.operands:
        for value in (1, 0):
            yield "operand_forgotten", f"were {value}", np.full_like(own, value)
        with np.errstate(over="ignore"):
            twice = (widen(own) * widen(own)).astype(own.dtype)
        yield "operand_applied_twice", "were applied twice", twice
    for words, other in list_readings(placed):
        yield "operand_strides", f"were read with {words}", other
    if own.ndim >= 2 and own.shape[-1] == own.shape[-2]:
        yield "operand_transposed", "were transposed", np.swapaxes(own, -1, -2)
    for axis in range(own.ndim):
        if own.shape[axis] > 1:
            index = [slice(None)] * own.ndim
            index[axis] = slice(0, 1)
            first = np.broadcast_to(own[tuple(index)], own.shape)
            yield "operand_broadcast", f"had its first entry all along axis {axis}", first
            for step in (1, -1):
                words = f"were {'one ahead' if step < 0 else 'one behind'} along axis {axis}"
                yield "operand_shifted", words, np.roll(own, step, axis)


def _explains(observation: Observation, name: str, used: Array) -> bool:
    """Whether the formula gives every element of c with these elements in the operand's place."""
    kernel, given = observation.kernel, observation.operands
    if np.array_equal(widen(used), widen(stored_elements(given[name]))):
        return False
    operands = {other: (stored_elements(x), x.dtype) for other, x in given.items()}
    operands[name] = (np.ascontiguousarray(used), given[name].dtype)
    assert kernel.spec is not None
    rules = Rules(observation.target, kernel.contract.accumulator)
    try:
        (c,) = evaluate(kernel.spec, operands, rules)
    except (TypeError, ValueError):  # an index that is none any more, say
        return False
    held = Accumulated(c.value, c.bound)
    allowed = bound_rounding(held, observation.out, FORMATS["fp32"]).error
    with np.errstate(invalid="ignore"):
        near = np.abs(widen(observation.result) - c.value) <= allowed
    return bool(near.all() and np.isfinite(allowed).all()) and values.exact(observation).size > 0
