"""Torch tensors as numpy storage arrays and back, sharing memory and keeping every bit."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import torch

from gemmproof.reference.formats import FORMATS, Array, Format

_BY_NAME = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp8e4m3": torch.float8_e4m3fn,
    "fp8e5m2": torch.float8_e5m2,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
}
TORCH_DTYPES: Mapping[str, torch.dtype] = MappingProxyType({**_BY_NAME, "tf32": torch.float32})
_NAMES = {dtype: name for name, dtype in _BY_NAME.items()}
_CARRIERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def format_of_tensor(tensor: torch.Tensor) -> Format | None:
    """The format of a tensor's elements, None for a dtype that no GEMM result has."""
    name = _NAMES.get(tensor.dtype)
    return None if name is None else FORMATS[name]


def as_tensor(storage: Array, dtype: str) -> torch.Tensor:
    """A tensor of format `dtype` on the memory of a contiguous storage array."""
    carrier = torch.from_numpy(storage.view(_NUMPY_CARRIERS[storage.itemsize]))
    return carrier.view(TORCH_DTYPES[dtype])


def as_array(tensor: torch.Tensor) -> Array:
    """A contiguous copy of a CPU tensor's elements, as a storage array of its format.

    Raises ValueError for a dtype without a format.
    """
    fmt = format_of_tensor(tensor)
    if fmt is None:
        raise ValueError(f"tensor dtype: got {tensor.dtype}, expected one of {' '.join(_BY_NAME)}")
    carrier = tensor.detach().clone(memory_format=torch.contiguous_format)
    return carrier.view(_CARRIERS[fmt.itemsize]).numpy().view(fmt.storage)


_NUMPY_CARRIERS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
