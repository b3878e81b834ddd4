"""The device that a wrapper sees: CUDA on the CPU, with the answers of the target."""

from gemmproof.reference.fake_cuda.driver import fake_gpu
from gemmproof.reference.fake_cuda.tensors import explain_lack

__all__ = ["explain_lack", "fake_gpu"]
