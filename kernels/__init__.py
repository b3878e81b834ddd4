"""GEMM kernels in Triton behind one interface, c = a @ b; some take further operands."""

from .matmul import matmul
from .matmul_grouped import matmul_grouped
from .matmul_persistent import matmul_persistent
from .matmul_splitk import matmul_splitk
from .matmul_swizzled import matmul_swizzled
from .matmul_tma import matmul_tma
from .quantized import matmul_block_scaled, matmul_scaled

__all__ = [
    "matmul",
    "matmul_block_scaled",
    "matmul_grouped",
    "matmul_persistent",
    "matmul_scaled",
    "matmul_splitk",
    "matmul_swizzled",
    "matmul_tma",
]

#: Those that take a and b alone, as `matmul` does.
PLAIN = (
    "matmul",
    "matmul_grouped",
    "matmul_persistent",
    "matmul_splitk",
    "matmul_swizzled",
    "matmul_tma",
)
