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
    """How an operation is built. `pure`: it may be computed once, earlier, or not at all.

    `constant`: with constant operands it is computed when the kernel is prepared.
    """

    build: Build
    pure: bool = False
    constant: bool = False


OPERATIONS: dict[str, Operation] = {}

# Why the simulator refuses the operations of a dialect that it does not know.
_REFUSED = {
    # what Gluon writes, and what later steps of the compiler make
    ("ttg.", "ttng.", "amdg.", "nvws.", "nvvm.", "rocdl.", "gpu.", "llvm.", "nvg."):
        "it works on threads and layouts, below the tiles",
    ("arith.", "math.", "scf.", "cf.", "ub."): "Triton's own frontend makes no such operation",
}  # fmt: skip


def refusal(name: str) -> str:
    """Why an operation is not run, in one line that names it."""
    why = next((f": {why}" for dialects, why in _REFUSED.items() if name.startswith(dialects)), "")
    return f"{name} is not known to the tile simulator{why}"


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
    """`function` lane by lane, then cast to `dtype`; a lane is undefined where an operand's is.

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
