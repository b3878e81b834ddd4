"""The operations of TTIR that the simulator knows, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemmproof.reference.simulator.ttir import Op

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

_UNMADE = "Triton's own frontend makes no such operation"

# What the simulator refuses on purpose, and why.
REFUSED: dict[str, str] = dict.fromkeys(
    (
        *("arith.addui_extended", "arith.subui_extended", "arith.mulsi_extended"),
        *("arith.mului_extended", "arith.ceildivsi", "arith.ceildivui", "arith.floordivsi"),
        *("arith.convertf", "arith.scaling_extf", "arith.scaling_truncf"),
        *("arith.flush_denormals", "cf.assert", "cf.switch", "math.clampf", "math.fpowi"),
        *("math.ipowi", "math.isfinite", "math.isinf", "math.isnan", "math.isnormal"),
        *("math.sincos", "scf.execute_region", "scf.forall", "scf.forall.in_parallel"),
        *("scf.index_switch", "scf.parallel", "scf.reduce", "scf.reduce.return"),
        "ub.unreachable",
    ),
    _UNMADE,
)

# Dialects below TTIR: what Gluon writes, and what later steps of the compiler make.
_LOWER = ("ttg.", "ttng.", "amdg.", "nvws.", "nvvm.", "rocdl.", "gpu.", "llvm.", "nvg.")


def refusal(name: str) -> str:
    """Why an operation is not run, in one line that names it."""
    why = REFUSED.get(name)
    if why is None and name.startswith(_LOWER):
        why = "it works on threads and layouts, below the tiles"
    return f"{name} is not known to the tile simulator" + (f": {why}" if why else "")


def operation(
    *names: str, pure: bool = True, constant: bool | None = None
) -> Callable[[Build], Build]:
    """Register a builder under TTIR's names."""

    def register(build: Build) -> Build:
        for name in names:
            OPERATIONS[name] = Operation(build, pure, pure if constant is None else constant)
        return build

    return register
