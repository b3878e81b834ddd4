"""What messages call an operand: by its name in the wrapper, a parameter of `f(x, weight)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from gemmproof.properties.contract import ROLES
from gemmproof.properties.observation import Observation, remember

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters_of(launch: Callable[..., Any]) -> dict[str, str]:
    """The wrapper's name of each operand, in the order in which it takes them.

    A name that already means something else in a message ("c", the other operand's letter), or one
    that cannot be known, stays the operand's own.
    """
    own = {name: name for name in ROLES}
    try:
        parameters = inspect.signature(launch).parameters.values()
    except (TypeError, ValueError):  # no signature: a builtin, or a callable that hides it
        return own
    taken = [p.name for p in parameters if p.kind in _POSITIONAL][: len(own)]
    clash = any(
        word in ("c", *own) and word != name for word, name in zip(taken, own, strict=False)
    )
    return own if clash or len(taken) < len(own) else dict(zip(own, taken, strict=True))


@remember
def words_of(observation: Observation) -> Mapping[str, str]:
    """The words for the operands of an observation, by their names."""
    return parameters_of(observation.kernel.launch)


def word(observation: Observation, name: str) -> str:
    """What the wrapper calls an operand; any other tensor by its own name."""
    return words_of(observation).get(name, name)


def introduce(observation: Observation, name: str) -> str:
    """The operand's word, and the letter that cases have for it where that is another."""
    shown = word(observation, name)
    return shown if shown == name else f"{shown} ({name})"


def axes_of(observation: Observation, name: str) -> tuple[str, ...]:
    """What the axes of an operand are called, such as "N" or "K // 128"; numbers where unknown."""
    stated = observation.kernel.tensors.get(name)
    if stated is None:
        return ("batch", *ROLES[name].axes)[3 - observation.operands[name].tensor.dim() :]
    axes = enumerate(map(str, stated.axes))
    return tuple(axis if axis_named(axis) else str(i) for i, axis in axes)


def axis_named(label: str | None) -> str | None:
    """The axis of the product that an expression is about, where it is about a single one."""
    names = set(re.findall(r"\b(?:M|N|K|batch)\b", label or ""))
    return names.pop() if len(names) == 1 else None
