"""The tile simulator: runs the TTIR of Triton's own frontend on numpy, all programs at once."""

from gemmproof.reference.simulation import SimulatorError
from gemmproof.reference.simulator.call import run, simulate

__all__ = ["SimulatorError", "run", "simulate"]
