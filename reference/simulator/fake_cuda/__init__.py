"""The device that a wrapper believes in: CUDA on the CPU, with the answers of the target."""

from gemmproof.reference.simulator.fake_cuda.driver import DEFAULT, TARGETS, pretended

__all__ = ["DEFAULT", "TARGETS", "pretended"]
