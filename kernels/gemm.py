"""One function for plain products: the kernel is the one that was measured to be the fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .arguments import check_product, prepare
from .descriptors import find_product, has_engine
from .matmul import launch_matmul, matmul
from .matmul_grouped import launch_grouped, matmul_grouped
from .matmul_padded import launch_padded, matmul_padded
from .matmul_persistent import launch_persistent, matmul_persistent
from .matmul_splitk import launch_splitk, matmul_splitk
from .matmul_streamk import launch_streamk, matmul_streamk
from .matmul_swizzled import launch_swizzled, matmul_swizzled
from .matmul_tma import launch_tma, matmul_tma
from .tables import FEW_ROWS, look_up

try:  # Gluon is experimental: a Triton may come without it, or with another one
    from .matmul_ws import launch_ws, matmul_ws
except ImportError:
    matmul_ws = None  # type: ignore[assignment]

Kernel = Callable[..., torch.Tensor]
KERNELS: dict[str, Kernel] = {
    "matmul": matmul,
    "matmul_grouped": matmul_grouped,
    "matmul_padded": matmul_padded,
    "matmul_persistent": matmul_persistent,
    "matmul_splitk": matmul_splitk,
    "matmul_streamk": matmul_streamk,
    "matmul_swizzled": matmul_swizzled,
    "matmul_tma": matmul_tma,
}
#: The same for arguments that were checked, with a result to be overwritten.
LAUNCHES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor, str], None]] = {
    "matmul": launch_matmul,
    "matmul_grouped": launch_grouped,
    "matmul_padded": launch_padded,
    "matmul_persistent": launch_persistent,
    "matmul_splitk": launch_splitk,
    "matmul_streamk": launch_streamk,
    "matmul_swizzled": launch_swizzled,
    "matmul_tma": launch_tma,
}
if matmul_ws is not None:
    KERNELS["matmul_ws"], LAUNCHES["matmul_ws"] = matmul_ws, launch_ws
#: Kernels that use pointers, with a warning, for operands that the copy engine cannot address.
BY_DESCRIPTORS = ("matmul_streamk", "matmul_tma", "matmul_ws")
#: Sides from which copies of a and b take little time compared with their product.
LARGE = 1024
FORMATS = {
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8e4m3",
    torch.float8_e5m2: "fp8e5m2",
    torch.int8: "int8",
}


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The name of a kernel, and in one line why it was chosen."""

    kernel: str
    why: str


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
    kernel: str | None = None,
) -> torch.Tensor:
    """As `matmul`, by the kernel that `choose_kernel` names, or by `kernel`, one of KERNELS.

    The same arguments, formats, result and errors; also ValueError for a kernel that is not there.
    """
    a, b, c = prepare("gemm", a, b, out_dtype, out, input_precision)
    if kernel is None:
        kernel = _choose(a, b, c, input_precision).kernel
    elif kernel not in KERNELS:
        raise ValueError(f"gemm: got kernel={kernel!r}, expected one of {' '.join(KERNELS)}")
    LAUNCHES[kernel](a, b, c, input_precision)
    return c


def choose_kernel(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> KernelChoice:
    """Return the kernel that `gemm` launches for these arguments, and why; launch nothing."""
    dtype = check_product("choose_kernel", a, b, out_dtype, out, input_precision)
    # without memory: only its strides matter
    c = torch.empty(a.shape[0], b.shape[1], dtype=dtype, device="meta") if out is None else out
    return _choose(a, b, c, input_precision)


def _choose(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str
) -> KernelChoice:
    (M, N), K = c.shape, a.shape[1]
    is_exact = a.dtype == torch.float32 and input_precision == "ieee"  # no tensor core takes it
    described = not is_exact and find_product(a, b, c) is not None
    fmt = "tf32" if a.dtype == torch.float32 and not is_exact else FORMATS[a.dtype]
    device = torch.cuda.get_device_name(a.device) if a.is_cuda else "no GPU"
    nearest = look_up(device, fmt, described, M, N, K)
    if nearest is not None:
        name = nearest.find_fastest(
            lambda name: name in KERNELS and (described or name not in BY_DESCRIPTORS)
        )
        if name is not None:
            sizes = f"{nearest.M}x{nearest.N}x{nearest.K}"
            return KernelChoice(name, f"the fastest at {sizes} in {nearest.format} on an {device}")
    where = f"nothing measured on {device}"
    if M <= FEW_ROWS:
        return KernelChoice("matmul_splitk", f"{where}, and few rows")
    if described:
        return KernelChoice("matmul_tma", f"{where}, and the copy engine can address a, b and c")
    where = f"{where}, and the copy engine cannot address a, b and c"
    if min(M, N, K) >= LARGE and not is_exact and has_engine(a.device):
        return KernelChoice("matmul_padded", f"{where}, of sides that are worth a copy")
    return KernelChoice("matmul_swizzled", where)
