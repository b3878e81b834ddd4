"""The device that a wrapper believes in: CUDA on the CPU, with the answers of the target."""

from gemmproof.reference.fake_cuda.driver import fake_gpu

__all__ = ["fake_gpu"]
