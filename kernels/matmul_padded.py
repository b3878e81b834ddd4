"""matmul_tma on copies: for large operands in memory that the copy engine cannot address."""

from __future__ import annotations

import torch

from .arguments import prepare
from .descriptors import ALIGNMENT, find_layouts, find_product, has_engine
from .matmul_persistent import launch_persistent
from .matmul_tma import launch_described


def matmul_padded(
    a: torch.Tensor,
    b: torch.Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    input_precision: str = "ieee",
) -> torch.Tensor:
    """As `matmul_tma`: the same arguments, formats, result and errors, without its warning.

    What it cannot address is copied into rows of padded length first, and out of them after. That
    takes the memory of the copies, and time that is small next to a product of large sides. Without
    a copy engine nothing is copied, and pointers are used.
    """
    a, b, c = prepare("matmul_padded", a, b, out_dtype, out, input_precision)
    launch_padded(a, b, c, input_precision)
    return c


@torch.no_grad()  # a copy would be recorded, and one into a leaf refused
def launch_padded(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, input_precision: str) -> None:
    """Copy and launch for operands and a result that were checked."""
    if c.numel() == 0:
        return
    is_exact = a.dtype == torch.float32 and input_precision == "ieee"  # no tensor core takes it
    if a.shape[1] == 0 or is_exact or not has_engine(a.device):
        launch_persistent(a, b, c, input_precision)
        return
    is_byte = a.element_size() == 1  # whose instruction takes k by k
    rows_a, columns_b = find_layouts(a)[0], find_layouts(b)[1]
    a = a if (rows_a if is_byte else any(find_layouts(a))) else copy_to_rows(a)
    b = b if (columns_b if is_byte else any(find_layouts(b))) else copy_to_rows(b.T).T
    product = find_product(a, b, c)
    if product is not None:
        launch_described(*product, input_precision)
        return
    padded = make_rows(c)
    product = find_product(a, b, padded, has_spare_rows=True)
    assert product is not None  # the copies are made for it
    launch_described(*product, input_precision)
    c.copy_(padded)


def make_rows(x: torch.Tensor) -> torch.Tensor:
    """Memory for a matrix like x, whose rows the copy engine can address."""
    rows, columns = x.shape
    step = ALIGNMENT // x.element_size()
    return x.new_empty(rows, -(-columns // step) * step)[:, :columns]


def copy_to_rows(x: torch.Tensor) -> torch.Tensor:
    """The same matrix in such memory."""
    copied = make_rows(x)
    if x.element_size() == 1:  # few operations take fp8
        copied.view(torch.uint8).copy_(x.view(torch.uint8))
    else:
        copied.copy_(x)
    return copied
