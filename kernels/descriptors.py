"""Requirements of Hopper's copy engine (TMA) on matrices, and descriptors of suitable ones."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

#: Of addresses, of the distance from one row to the next and of where a block begins in a row, in
#: bytes. So many are stored at once: rows end at a multiple, or what is behind them is overwritten.
ALIGNMENT = 16
#: Bytes of shared memory that a program may have on Hopper, for which tiles and stages are chosen.
SHARED_MEMORY = 227 * 1024
NO_ENGINE = "expected a GPU with a copy engine and 227 KB of shared memory"


def has_engine(device: torch.device) -> bool:
    """Return whether a device has the copy engine and enough memory: consumer cards have not.

    The engine is there from compute capability 9.0 on.
    """
    if device.type != "cuda":
        return True
    facts = torch.cuda.get_device_properties(device)
    # a field that torch for AMD's GPUs does not have
    limit = getattr(facts, "shared_memory_per_block_optin", 0)
    return facts.major >= 9 and limit >= SHARED_MEMORY


def find_layouts(x: torch.Tensor, is_stored: bool = False) -> tuple[bool, bool]:
    """Return whether a descriptor can address a matrix, and its transpose; likewise for batches.

    The rows of a described matrix are dense, and begin at multiples of 16 bytes; if they are stored
    and the memory behind them must not be written, they end so too. No "and" joins the conditions:
    for a tracer of sizes, each would be a separate decision.
    """
    size, (*batch, rows, columns) = x.element_size(), x.stride()
    is_aligned = x.data_ptr() % ALIGNMENT == 0
    for step in batch:
        is_aligned &= step * size % ALIGNMENT == 0
    height, width = x.shape[-2:] if is_stored else (0, 0)
    of_itself, of_transpose = (
        is_aligned
        & (unit == 1)
        & (pitch > 0)
        & (pitch * size % ALIGNMENT == 0)
        & (length * size % ALIGNMENT == 0)
        for pitch, unit, length in ((rows, columns, width), (columns, rows, height))
    )
    return of_itself, of_transpose


def find_product(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, has_spare_rows: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool, bool] | None:
    """Return the operands for descriptors: (a, b, c), or (b^T, a^T, c^T) if c has dense columns.

    With them, whether the first and the second are described by their transposes. None if
    descriptors cannot address a, b or c, and for an empty K. Likewise for batches of them.
    has_spare_rows: the memory between the rows of c may be overwritten.
    """
    (a_rows, a_columns), (b_rows, b_columns) = map(find_layouts, (a, b))
    c_rows, c_columns = find_layouts(c, is_stored=not has_spare_rows)
    fits = (a_rows | a_columns) & (b_rows | b_columns) & (c_rows | c_columns)
    if a.element_size() == 1:  # whose instruction takes k by k
        fits = a_rows & b_columns & (c_rows | c_columns)
    if not (has_engine(a.device) and fits & (a.shape[-1] > 0)):
        return None
    if c_rows:
        return a, b, c, not a_rows, not b_rows
    return b.mT, a.mT, c.mT, not b_columns, not a_columns


def find_product_or_warn(
    where: str,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    input_precision: str,
    stacklevel: int = 4,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool, bool] | None:
    """As `find_product`, with a warning of why where it finds none.

    None without a warning for fp32 in full precision, which no tensor core takes. stacklevel counts
    to the caller of a wrapper; 4 where the wrapper leaves its launch to a function.
    """
    if a.dtype == torch.float32 and input_precision == "ieee":
        return None
    product = find_product(a, b, c)
    if product is None:
        warnings.warn(f"{where}: {explain(a, b=b, c=c)}; pointers are used", stacklevel=stacklevel)
    return product


def explain(a: torch.Tensor, expected: str = "", **others: torch.Tensor) -> str:
    """Explain in one line why there are no descriptors of a and of others; `expected` replaces the
    usual text."""
    if not has_engine(a.device):
        return f"got {torch.cuda.get_device_name(a.device)}, {NO_ENGINE}"
    if a.shape[-1] == 0:
        return "got K=0, expected 1 or more"
    given = ", ".join(describe_layout(name, x) for name, x in (("a", a), *others.items()))
    dense = "k by k" if a.element_size() == 1 else "rows or columns"
    usual = f"dense {dense}, each after a multiple of {ALIGNMENT} bytes, and those of a result"
    return f"got {given}, expected {expected or f'{usual} of such a length'}"


def describe_layout(name: str, x: torch.Tensor) -> str:
    """Describe the layout that decides whether a descriptor can address a matrix."""
    address = f"at {x.data_ptr() % ALIGNMENT} modulo {ALIGNMENT} bytes"
    return f"{name} {tuple(x.shape)} with strides {tuple(x.stride())} {address}"


def describe(
    x: torch.Tensor, transposed: bool, block: Sequence[int] | None = None
) -> TensorDescriptor:
    """A descriptor of a matrix or of its transpose; without `block` a tuner sets its blocks.

    A batch that shares a matrix is described as a batch of one. The copy engine takes no distance
    of 0 to the next: that of the rows stands for it, and no coordinate makes use of it.
    """
    x = x.mT if transposed else x
    shape, strides = list(x.shape), list(x.stride())
    if strides[0] == 0:
        shape[0], strides[0] = 1, strides[1]
    return TensorDescriptor(x, shape, strides, list(block or [1] * x.dim()))
