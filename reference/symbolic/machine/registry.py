"""What operations mean over symbols, by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gemmproof.reference.observation import Where
from gemmproof.reference.ttir.module import Op

if TYPE_CHECKING:
    from gemmproof.reference.symbolic.machine.interpret import Machine


@dataclass(slots=True)
class Invocation:
    """The values of one function by their SSA names, and who called it."""

    function: str
    caller: Where | None
    values: dict[str, Any] = field(default_factory=dict)


# what tl.multiple_of, tl.max_contiguous and tl.max_constancy leave on an operation
HINTS = {
    "tt.divisibility": "multiple_of",
    "tt.contiguity": "max_contiguous",
    "tt.constancy": "max_constancy",
}

Rule = Callable[["Machine", Op, Sequence[Any]], Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register what operations mean over symbols."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


Control = Callable[["Machine", Op, Invocation], Any]
CONTROL: dict[str, Control] = {}


def control(*names: str) -> Callable[[Control], Control]:
    """Register what an operation with regions, or a call, means over symbols."""

    def register(function: Control) -> Control:
        CONTROL.update(dict.fromkeys(names, function))
        return function

    return register
