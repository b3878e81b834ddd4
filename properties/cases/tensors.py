"""Torch tensors as numpy storage arrays and back, sharing memory and keeping every bit."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import torch

from gemmproof.reference.arithmetic import Array
from gemmproof.reference.formats import FORMATS, Format

TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {f.name: getattr(torch, f.dtype) for f in FORMATS.values()}
)
_RESULTS = {TORCH_DTYPES[f.name]: f for f in FORMATS.values() if f.result}


def format_of_tensor(tensor: torch.Tensor) -> Format | None:
    """The format of a tensor's elements, None for a dtype that no GEMM result has."""
    return _RESULTS.get(tensor.dtype)


def share_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors have one storage."""
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() != 0


def overwrite(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Give a tensor the elements of another one of its shape and strides, in place."""
    # along an expanded axis all elements are one, and torch does not write to all of them
    own = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
    tensor[own].copy_(other[own])


def as_tensor(storage: Array, dtype: str) -> torch.Tensor:
    """A tensor of format `dtype` on the memory of a contiguous storage array."""
    return torch.from_numpy(storage.view(f"i{storage.itemsize}")).view(TORCH_DTYPES[dtype])


def as_array(tensor: torch.Tensor) -> Array:
    """A contiguous copy of a CPU tensor's elements, as a storage array of its format.

    Raises ValueError for a dtype without a format.
    """
    fmt = format_of_tensor(tensor)
    if fmt is None:
        known = " ".join(f.name for f in _RESULTS.values())
        raise ValueError(f"tensor dtype: got {tensor.dtype}, expected one of {known}")
    carrier = tensor.detach().clone(memory_format=torch.contiguous_format)
    return carrier.view(getattr(torch, f"int{8 * fmt.itemsize}")).numpy().view(fmt.storage)
