"""What a wrapper's own Python sees of symbolic sizes and tensors: integers, on a GPU."""

from __future__ import annotations

import builtins
import sys
from functools import reduce
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from triton.tools.tensor_descriptor import TensorDescriptor

from gemmproof.reference.fake_cuda.answers import Change
from gemmproof.reference.fake_cuda.tensors import CPU, CUDA, is_host
from gemmproof.reference.provenance import owner

_isinstance, _max, _min = isinstance, max, min


def as_concrete() -> tuple[Change, ...]:
    """What is replaced while a wrapper is traced; code of torch and Triton sees no difference.

    Python's own max and min would compare, and each order of the sizes would be a path.
    """
    actual = vars(FakeTensor)["device"]
    check = TensorDescriptor.__post_init__

    def device(self: Any) -> Any:
        if not _asked_by_user():
            return actual.__get__(self)
        return CPU if is_host(self) else CUDA

    def post_init(self: Any) -> None:
        if _isinstance(self.base, FakeTensor):  # which Triton excuses
            assert self.base.data_ptr() % 16 == 0, "base must be 16-byte aligned"
        check(self)

    return (
        (FakeTensor, "device", property(device, actual.fset)),
        (TensorDescriptor, "__post_init__", post_init),
        (builtins, "isinstance", _is_instance),
        (builtins, "max", _symbolic(_max, torch.sym_max)),
        (builtins, "min", _symbolic(_min, torch.sym_min)),
    )


def as_before() -> tuple[Change, ...]:
    """Python's own functions again, which are faster."""
    return tuple((builtins, own.__name__, own) for own in (_isinstance, _max, _min))


def _asked_by_user() -> bool:
    """Whether the caller of the function that asks is no library's."""
    return owner(sys._getframe(2).f_code.co_filename) != "library"


def _is_instance(x: Any, kind: Any) -> bool:
    if _isinstance(x, kind):
        return True
    return type(x) in _PLAIN and _asked_by_user() and _isinstance(_PLAIN[type(x)], kind)


_PLAIN: dict[type, Any] = {torch.SymInt: 2, torch.SymBool: True, torch.SymFloat: 0.5}


def _symbolic(original: Any, fold: Any) -> Any:
    def extreme(*args: Any, **kwargs: Any) -> Any:
        items = list(args[0]) if len(args) == 1 and type(args[0]) in (tuple, list) else args
        if not kwargs and len(items) > 1 and any(type(x) is torch.SymInt for x in items):
            plain = all(type(x) in (int, torch.SymInt) for x in items)
            if plain and _asked_by_user():
                return reduce(fold, items)
        return original(*args, **kwargs)

    return extreme
