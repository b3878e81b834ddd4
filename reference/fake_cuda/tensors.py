"""Tensors under the fake device: all are on the CPU, each reports where it would be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from gemmproof.reference.fake_cuda.unknown import make_unknown

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
_HOST = "_gemmproof_host"


def is_host(tensor: torch.Tensor) -> bool:
    """Whether a wrapper made the tensor on the host; False where that is not known."""
    return _HOST in tensor.__dict__


def mark_result_host(function: Any) -> Any:
    """`function`, whose calls torch hides from modes, with its result marked as a host tensor."""

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = function(*args, **kwargs)
        _mark(tensor, True)
        return tensor

    return made


class OnCpu(TorchFunctionMode):
    """Every tensor is on the CPU; all but those made on the host say they are on CUDA device 0."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        body = _custom_op(func)
        if body is not None:
            with self:
                return body(*args, **kwargs)
        name = getattr(func, "__name__", "")
        own = isinstance(args[0], torch.Tensor) if args else False
        if name == "__get__":
            attribute = getattr(getattr(func, "__self__", None), "__name__", "")
            if attribute in _ATTRIBUTES:
                return _ATTRIBUTES[attribute](args[0])
            if getattr(func, "__self__", None) is _INTERFACE:
                raise make_unknown("Tensor.__cuda_array_interface__")
        elif func is torch.device and args and isinstance(args[0], int):
            return torch.device("cuda", args[0])
        elif own and name in _METHODS:
            return _METHODS[name](*args, **kwargs)
        elif name == "type" and own and len(args) == 1 and not kwargs:
            words = str(func(*args))
            return words if is_host(args[0]) else words.replace("torch.", "torch.cuda.")
        elif _writes(name, kwargs):
            note_change()
        args, place = _on_cpu(func, name, args, kwargs)
        result = func(*args, **kwargs)
        if name == "__set__" and getattr(func.__self__, "__name__", "") == "data":
            _mark(args[0], is_host(args[1]))
        if isinstance(result, torch.Tensor | tuple | list):
            _mark_place(result, place, args, kwargs)
        return result


def _cpu(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if is_host(tensor):
        return tensor
    copy = tensor.clone()
    _mark(copy, True)
    return copy


def _cuda(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.clone() if is_host(tensor) else tensor


_INTERFACE = vars(torch.Tensor).get("__cuda_array_interface__")
_ATTRIBUTES: dict[str, Any] = {
    "is_cuda": lambda x: not is_host(x),
    "is_cpu": is_host,
    "device": lambda x: CPU if is_host(x) else CUDA,
}
_METHODS: dict[str, Any] = {
    "cpu": _cpu,
    "cuda": _cuda,
    "get_device": lambda x: -1 if is_host(x) else 0,
    "pin_memory": lambda x, *args, **kwargs: x,
    "is_pinned": lambda x, *args, **kwargs: is_host(x),
}


class _Changes:
    count = 0


def note_change() -> None:
    """Note a write to existing memory."""
    _Changes.count += 1


def count_changes() -> int:
    """How often `note_change` was called: if it has not grown, nothing was written."""
    return _Changes.count


def _writes(name: str, kwargs: dict[str, Any]) -> bool:
    return (
        name in ("__setitem__", "__set__")
        or (name.endswith("_") and not name.endswith("__"))
        or (name.startswith("__i") and name.endswith("__"))
        or kwargs.get("out") is not None
    )


def _custom_op(func: Any) -> Any:
    """The Python body of an operator made with torch.library (custom_op, triton_op), else None.

    It is called directly, so that what it allocates and launches is seen.
    """
    if not isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return None
    from torch._library.custom_ops import OPDEFS

    name = func._qualified_op_name if hasattr(func, "_qualified_op_name") else func.name()
    known = OPDEFS.get(name.split(".")[0])
    return None if known is None else known._init_fn


def _on_cpu(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], str | None]:
    """The arguments with the CPU for any CUDA device, and the place that they name, if any."""
    place = _place_of(kwargs.get("device"))
    if place == "cuda":
        kwargs["device"] = "cpu"
    elif _default_is_cuda() and kwargs.get("device") is None and func in _constructors():
        kwargs["device"], place = "cpu", "cuda"
    if kwargs.get("pin_memory"):
        kwargs["pin_memory"] = False  # torch has no pinned memory without a device
    if name not in ("to", "type") or not args or not isinstance(args[0], torch.Tensor):
        return args, place
    first = kwargs.get("other", args[1] if len(args) > 1 else kwargs.get("dtype"))
    if isinstance(first, torch.Tensor):
        place = "cpu" if is_host(first) else "cuda"
    elif name == "type" and isinstance(first, str) and len(args) > 1:
        place = "cuda" if first.startswith("torch.cuda.") else "cpu"
        args = (args[0], first.replace("torch.cuda.", "torch."), *args[2:])
    elif place is None:
        place = _place_of(first)
        args = tuple("cpu" if i and _place_of(x) == "cuda" else x for i, x in enumerate(args))
    here = "cpu" if is_host(args[0]) else "cuda"
    if name == "to" and place not in (None, here) and len(args) < 5:
        kwargs["copy"] = True  # as between two devices
    return args, place


def _place_of(x: Any) -> str | None:
    """ "cuda" or "cpu" for what names a device, None for anything else."""
    if isinstance(x, bool):
        return None
    if isinstance(x, int):
        return "cuda"
    kind = x.type if isinstance(x, torch.device) else x
    if not isinstance(kind, str):
        return None
    kind = kind.partition(":")[0]
    return kind if kind in ("cuda", "cpu") else None


def _mark_place(result: Any, place: str | None, args: Any, kwargs: dict[str, Any]) -> None:
    """Mark what a call of torch made with its place: the one named, else that of the operands."""
    made = [result] if isinstance(result, torch.Tensor) else result
    made = [x for x in made if isinstance(x, torch.Tensor)]
    if not made:
        return
    operands = list(_tensors((*args, *kwargs.values())))
    # without operands: torch's own default, the CPU
    host = all(map(is_host, operands)) if place is None else place == "cpu"
    for tensor in made:
        if tensor.is_cuda:  # a real one, by a path that is not intercepted here
            raise make_unknown("a tensor that torch makes on CUDA here")
        if not any(tensor is x for x in operands):
            _mark(tensor, host)


def _mark(tensor: torch.Tensor, host: bool) -> None:
    if host:
        tensor.__dict__[_HOST] = True
    else:
        tensor.__dict__.pop(_HOST, None)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _constructors() -> Any:
    return _device._device_constructors()


def _default_is_cuda() -> bool:
    device = _device.CURRENT_DEVICE
    return device is not None and device.type == "cuda"


class _Default:
    device: torch.device | None = None


@contextmanager
def default_device() -> Iterator[None]:
    """A default device that is set within it is restored on the next entry, and only there.

    A module may set one when it is imported; tensors of others are not affected.
    """
    before = _device.CURRENT_DEVICE
    if _Default.device is not None:
        torch.set_default_device(_Default.device)
    try:
        yield
    finally:
        _Default.device = None
        if _device.CURRENT_DEVICE != before:
            _Default.device = _device.CURRENT_DEVICE
            torch.set_default_device(before)
