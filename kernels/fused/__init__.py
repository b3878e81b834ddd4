"""Products with what follows them in the same kernel."""

from .matmul_fused import matmul_fused

__all__ = ["matmul_fused"]
