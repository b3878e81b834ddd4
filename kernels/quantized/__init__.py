"""Products of operands of 8 bits whose scales the kernel applies."""

from .matmul_scaled import matmul_scaled

__all__ = ["matmul_scaled"]
