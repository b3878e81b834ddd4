"""The functions in C of torch's CUDA build, which would reach a real device: refused."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import torch

from gemmproof.reference.fake_cuda.unknown import make_unknown, name_call, no_device

_DEFAULT = "_set_default_tensor_type"
_KIND = "_accelerator_getAccelerator"  # asks which kind torch was built for


def refuse_bindings(answered: set[str]) -> Iterator[tuple[Any, str, Any]]:
    """Yield each function of torch._C with its refusal, except those that have an answer.

    The CPU build has hardly any of them, so what calls one is refused with either build. No two
    share a refusal: torch._dynamo knows each by its object, and refuses one twice.
    """
    yield torch._C, _DEFAULT, _refuse_cuda_type(torch._C._set_default_tensor_type)
    for name, value in vars(torch._C).items():
        if name in (*answered, _KIND) or not isinstance(value, types.BuiltinFunctionType):
            continue
        if name.startswith(("_cuda_", "_accelerator_")):
            yield torch._C, name, lambda *args, **kwargs: no_device()


def _refuse_cuda_type(original: Any) -> Any:
    """Return torch._C._set_default_tensor_type with types of CUDA tensors refused.

    The CUDA build of torch accepts them for the whole process: every tensor that is made later,
    also outside the fake device, would be made on CUDA.
    """

    def set_default(kind: Any) -> None:
        if getattr(kind, "__module__", "").startswith("torch.cuda"):
            raise make_unknown(name_call())
        original(kind)

    return set_default
