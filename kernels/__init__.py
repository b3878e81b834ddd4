"""GEMM kernels in Triton behind one interface, c = a @ b; some take further operands."""

from .bmm import bmm
from .fused import matmul_fused
from .gemm import KERNELS, KernelChoice, choose_kernel, gemm
from .grouped_gemm import grouped_gemm
from .matmul import matmul
from .matmul_grouped import matmul_grouped
from .matmul_padded import matmul_padded
from .matmul_persistent import matmul_persistent
from .matmul_splitk import matmul_splitk
from .matmul_streamk import matmul_streamk
from .matmul_swizzled import matmul_swizzled
from .matmul_tma import matmul_tma
from .quantized import matmul_block_scaled, matmul_scaled, matmul_w4, matmul_w8, pack_int4

__all__ = [
    "KERNELS",
    "KernelChoice",
    "bmm",
    "choose_kernel",
    "gemm",
    "grouped_gemm",
    "matmul",
    "matmul_block_scaled",
    "matmul_fused",
    "matmul_grouped",
    "matmul_padded",
    "matmul_persistent",
    "matmul_scaled",
    "matmul_splitk",
    "matmul_streamk",
    "matmul_swizzled",
    "matmul_tma",
    "matmul_w4",
    "matmul_w8",
    "pack_int4",
]
