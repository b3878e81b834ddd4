"""The device that a wrapper believes in: CUDA on the CPU, with the answers of the target."""

from gemmproof.reference.fake_cuda.driver import TARGETS, pretended

__all__ = ["TARGETS", "pretended"]
