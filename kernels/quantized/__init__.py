"""Products of operands of few bits, with the scales that belong to them."""

from .matmul_block_scaled import matmul_block_scaled
from .matmul_scaled import matmul_scaled
from .weight_only import matmul_w4, matmul_w8
from .widening import pack_int4

__all__ = ["matmul_block_scaled", "matmul_scaled", "matmul_w4", "matmul_w8", "pack_int4"]
