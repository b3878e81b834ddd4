"""Products fused with the operations that follow them in the same kernel."""

from .matmul_fused import matmul_fused

__all__ = ["matmul_fused"]
