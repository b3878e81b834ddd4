"""The tile machine: a kernel's own body on numpy, all programs at once, every access judged."""

from gemmproof.reference.machine.device import TARGETS, pretended
from gemmproof.reference.machine.observation import (
    Fault,
    KernelError,
    Launch,
    LimitExceeded,
    MachineError,
    Run,
    Unsupported,
    Where,
)
from gemmproof.reference.machine.simulate import run, simulate

__all__ = [
    "TARGETS",
    "Fault",
    "KernelError",
    "Launch",
    "LimitExceeded",
    "MachineError",
    "Run",
    "Unsupported",
    "Where",
    "pretended",
    "run",
    "simulate",
]
