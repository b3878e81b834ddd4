"""The operations of TTIR, one file a family; importing this package registers them all."""

from gemmproof.reference.simulator.ops import (  # noqa: F401
    assembly,
    atomics,
    cast,
    comparison,
    descriptors,
    dot,
    dot_scaled,
    floats,
    hints,
    integers,
    load,
    math,
    reduce,
    shape,
    store,
    windows,
)
from gemmproof.reference.simulator.ops.registry import OPERATIONS, refusal

__all__ = ["OPERATIONS", "refusal"]
