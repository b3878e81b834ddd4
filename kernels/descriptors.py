"""What Hopper's copy engine (TMA) asks of matrices, and descriptors of what it can address."""

from __future__ import annotations

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

#: Of addresses, and of the distance from one row to the next, in bytes.
ALIGNMENT = 16


def has_engine(device: torch.device) -> bool:
    """Whether a device has the copy engine: from compute capability 9.0 on."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)


def find_layouts(x: torch.Tensor) -> tuple[bool, bool]:
    """Whether a descriptor can be of a matrix, and whether of its transpose; so of a batch of them.

    The rows of what is described are dense, and begin every so many times 16 bytes. No "and"
    joins the conditions: for who follows the sizes, each would be a decision of its own.
    """
    *batch, rows, columns = x.stride()
    is_aligned = x.data_ptr() % ALIGNMENT == 0
    for step in batch:
        is_aligned &= step * x.element_size() % ALIGNMENT == 0
    of_itself, of_transpose = (
        is_aligned & (unit == 1) & (pitch > 0) & (pitch * x.element_size() % ALIGNMENT == 0)
        for pitch, unit in ((rows, columns), (columns, rows))
    )
    return of_itself, of_transpose


def describe(x: torch.Tensor, transposed: bool) -> TensorDescriptor:
    """A descriptor of a matrix or of its transpose; its blocks are the configuration's to set.

    A batch that shares a matrix is described as a batch of one. The copy engine takes no distance
    of 0 to the next: that of the rows stands for it, and no coordinate makes use of it.
    """
    x = x.mT if transposed else x
    shape, strides = list(x.shape), list(x.stride())
    if strides[0] == 0:
        shape[0], strides[0] = 1, strides[1]
    return TensorDescriptor(x, shape, strides, [1] * x.dim())
