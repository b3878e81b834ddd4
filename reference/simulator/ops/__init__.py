"""The operations of TTIR, one file a family; importing this package registers them all."""

from gemmproof.reference.simulator.ops import (  # noqa: F401
    arithmetic,
    assembly,
    atomics,
    blocks,
    cast,
    dot,
    dot_scaled,
    hints,
    load_store,
    math,
    reduce,
    shape,
)
from gemmproof.reference.simulator.ops.registry import OPERATIONS, refusal

__all__ = ["OPERATIONS", "refusal"]
