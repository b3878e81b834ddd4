"""Products of operands of 8 bits whose scales the kernel applies."""

from .matmul_block_scaled import matmul_block_scaled
from .matmul_scaled import matmul_scaled

__all__ = ["matmul_block_scaled", "matmul_scaled"]
