"""The tile simulator: a kernel as Triton's own frontend reads it, on numpy, all programs at once, every access judged."""

from gemmproof.reference.simulator.fake_cuda import TARGETS, pretended
from gemmproof.reference.simulator.observation import (
    CompileError,
    Fault,
    KernelError,
    Launch,
    LimitExceeded,
    SimulatorError,
    Run,
    Unsupported,
    Where,
)
from gemmproof.reference.simulator.call import run, simulate

__all__ = [
    "TARGETS",
    "CompileError",
    "Fault",
    "KernelError",
    "Launch",
    "LimitExceeded",
    "SimulatorError",
    "Run",
    "Unsupported",
    "Where",
    "pretended",
    "run",
    "simulate",
]
