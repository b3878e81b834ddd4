"""The operations of TTIR that the simulator knows, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmproof.reference.simulator.reader import Op

# From an operation as it is written, made once, to what computes its results from its operands.
Build = Callable[[Op], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """How an operation is built. `pure`: it may be computed once, earlier, or not at all.

    `constant`: with constant operands it is computed when the kernel is prepared.
    """

    build: Build
    pure: bool = False
    constant: bool = False


OPERATIONS: dict[str, Operation] = {}

# What the simulator refuses on purpose, and why.
REFUSED: dict[str, str] = {}


def operation(
    *names: str, pure: bool = True, constant: bool | None = None
) -> Callable[[Build], Build]:
    """Register a builder under TTIR's names."""

    def register(build: Build) -> Build:
        for name in names:
            OPERATIONS[name] = Operation(build, pure, pure if constant is None else constant)
        return build

    return register
