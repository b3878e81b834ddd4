"""The tile simulator: a kernel as Triton itself reads it, on numpy, all programs at once."""

from gemmproof.reference.observation import (
    CompileError,
    Fault,
    KernelError,
    Launch,
    LimitExceeded,
    Run,
    SimulatorError,
    Unsupported,
    Where,
)
from gemmproof.reference.simulator.call import run, simulate

__all__ = [
    "CompileError",
    "Fault",
    "KernelError",
    "Launch",
    "LimitExceeded",
    "Run",
    "SimulatorError",
    "Unsupported",
    "Where",
    "run",
    "simulate",
]
