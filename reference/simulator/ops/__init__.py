"""The operations of TTIR, one file a family; importing this package registers them all."""

from gemmproof.reference.simulator.ops import (  # noqa: F401  # noqa: F401
    dots,
    floats,
    hints,
    integers,
    load_store,
    shapes,
    tensor_descriptors,
)
from gemmproof.reference.simulator.ops.registry import OPERATIONS, refusal

__all__ = ["OPERATIONS", "refusal"]
