"""GEMM kernels in Triton behind one interface, c = a @ b."""

from .matmul import matmul
from .matmul_fused import matmul_fused
from .matmul_grouped import matmul_grouped
from .matmul_persistent import matmul_persistent
from .matmul_splitk import matmul_splitk
from .matmul_swizzled import matmul_swizzled
from .matmul_tma import matmul_tma

__all__ = [
    "matmul",
    "matmul_fused",
    "matmul_grouped",
    "matmul_persistent",
    "matmul_splitk",
    "matmul_swizzled",
    "matmul_tma",
]
