"""The operations of TTIR that the simulator knows, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmproof.reference.simulator import session
from gemmproof.reference.simulator.value import Value, loaded_width, union
from gemmproof.reference.ttir import Dtype, Op

# From an operation of the text to the function that computes its results from its operands.
Build = Callable[[Op], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """The builder of an operation. `pure`: it may run once, earlier, or not at all.

    `constant`: with constant operands it is computed when the kernel is prepared.
    """

    build: Build
    pure: bool = False
    constant: bool = False


OPERATIONS: dict[str, Operation] = {}

# Reasons to refuse the operations of a dialect that the simulator does not know.
_REFUSED = {
    # operations of Gluon, and of later steps of the compiler
    ("ttg.", "ttng.", "amdg.", "nvws.", "nvvm.", "rocdl.", "gpu.", "llvm.", "nvg."):
        "it works on threads and layouts, below the tiles",
    ("arith.", "math.", "scf.", "cf.", "ub."): "Triton's own frontend makes no such operation",
}  # fmt: skip


def refusal(name: str) -> str:
    """Return one line that names an operation and the reason not to run it."""
    reason = next(
        (f": {reason}" for dialects, reason in _REFUSED.items() if name.startswith(dialects)), ""
    )
    return f"{name} is not known to the tile simulator{reason}"


def operation(
    *names: str, pure: bool = True, constant: bool | None = None
) -> Callable[[Build], Build]:
    """Register a builder under TTIR's names."""

    def register(build: Build) -> Build:
        for name in names:
            OPERATIONS[name] = Operation(build, pure, pure if constant is None else constant)
        return build

    return register


def elementwise(
    function: Callable[..., np.ndarray], dtype: Dtype, rounds: str = ""
) -> Callable[..., Value]:
    """Return `function` lane by lane, cast to `dtype`; a lane is undefined if an operand's is.

    `rounds` names the operation if a GPU may round it in another way.
    """

    def compute(*values: Value) -> Value:
        if rounds:
            session.note_rounding(rounds)
        data = function(*[v.data for v in values])
        if data.dtype != dtype.numpy:
            data = data.astype(dtype.numpy)
        return Value(data, dtype, union(*[v.poison for v in values]), loaded=loaded_width(*values))

    return compute
