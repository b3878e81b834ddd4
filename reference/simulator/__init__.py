"""The tile simulator: runs the TTIR of Triton's own frontend on numpy, all programs at once."""

from gemmproof.reference.simulation import (
    CompileError,
    Exhausted,
    KernelError,
    LimitExceeded,
    SimulatorError,
    Unsupported,
)
from gemmproof.reference.simulator.call import run, simulate

__all__ = [
    "CompileError",
    "Exhausted",
    "KernelError",
    "LimitExceeded",
    "SimulatorError",
    "Unsupported",
    "run",
    "simulate",
]
