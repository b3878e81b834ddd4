"""The operations of TTIR, one file a family; importing this package registers them all."""

from gemmproof.reference.simulator.ops import (  # noqa: F401
    assembly,
    cast,
    comparison,
    floats,
    hints,
    integers,
    math,
    reduce,
    shape,
)
from gemmproof.reference.simulator.ops.access import (  # noqa: F401
    atomics,
    descriptors,
    load,
    store,
    windows,
)
from gemmproof.reference.simulator.ops.dots import dot, dot_scaled  # noqa: F401
from gemmproof.reference.simulator.ops.registry import OPERATIONS, refusal

__all__ = ["OPERATIONS", "refusal"]
