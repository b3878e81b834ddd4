"""The tile simulator: a kernel as Triton itself reads it, on numpy, all programs at once."""

from gemmproof.reference.simulator.call import run, simulate
from gemmproof.reference.simulator.fake_cuda import TARGETS, pretended
from gemmproof.reference.simulator.observation import (
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

__all__ = [
    "TARGETS",
    "CompileError",
    "Fault",
    "KernelError",
    "Launch",
    "LimitExceeded",
    "Run",
    "SimulatorError",
    "Unsupported",
    "Where",
    "pretended",
    "run",
    "simulate",
]
