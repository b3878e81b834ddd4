"""One call of a wrapper on the tile machine: `run` gives all that was seen, `simulate` c."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gemmproof.reference.machine.conclude import conclude, elements_of
from gemmproof.reference.machine.device import pretended
from gemmproof.reference.machine.launch import intercepted
from gemmproof.reference.machine.memory import dirt, triton_type, view_of
from gemmproof.reference.machine.observation import Run
from gemmproof.reference.machine.session import Session

_EMPTY = {
    "aten::empty",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
}


class _Allocations(TorchDispatchMode):
    """Memory from torch.empty is dirty and undefined until something is written to it."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler (2 s) to switch it off

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        schema = func._schema
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self._made(tensor)
        if schema.name in _EMPTY and isinstance(result, torch.Tensor):
            self._soil(result)
        elif schema.is_mutable:
            for argument, value in zip(schema.arguments, args, strict=False):
                self._written(argument, value)
            for argument in schema.arguments:
                self._written(argument, (kwargs or {}).get(argument.name))
        return result

    def _made(self, tensor: torch.Tensor) -> None:
        """Memory that appears while the wrapper runs is the wrapper's own."""
        storage = self.session.memory.storage_of(tensor)
        if not storage.views:
            storage.private = True

    def _soil(self, tensor: torch.Tensor) -> None:
        storage = self.session.memory.storage_of(tensor)
        storage.undefined = np.ones(storage.data.size, np.bool_)
        try:
            dtype = triton_type(tensor)
        except TypeError:  # a type that no kernel can be given
            return
        pattern = dirt(dtype, self.session.dirt)
        storage.typed(pattern.dtype)[...] = pattern

    def _written(self, argument: Any, value: Any) -> None:
        if argument.alias_info is None or not argument.alias_info.is_write:
            return
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if isinstance(tensor, torch.Tensor) and tensor.numel():
                storage = self.session.memory.at(tensor.untyped_storage().data_ptr())
                if storage is not None and storage.undefined is not None:
                    elements_of(storage.undefined, storage, view_of(tensor))[...] = False


def run(
    function: Callable[..., Any],
    *tensors: torch.Tensor,
    target: str | None = None,
    config: int = 0,
    dirt: str = "nan",
    operands: dict[str, torch.Tensor] | None = None,
    trace: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
    seconds: float = 60.0,
) -> Run:
    """Call `function(*tensors, **kwargs)` with its Triton launches on the tile machine.

    The tensors are on the CPU; the wrapper sees CUDA tensors. `operands` gives them the names
    that faults use (default: a, b, ...). `config` picks the autotune configuration. `dirt` is what
    undefined memory holds: "nan", "ones", "zero" or "large". Raises what the wrapper raises, and
    KernelError, Unsupported or LimitExceeded for the kernel.
    """
    if operands is None:
        operands = dict(zip("abdefghij", tensors, strict=False))
    session = Session(operands, dirt, target, config, seconds, trace)
    with pretended(target), intercepted(session), _Allocations(session):
        result = function(*tensors, **(kwargs or {}))
    session.run.result = result
    conclude(session, result)
    return session.run


def simulate(
    function: Callable[..., Any], *tensors: torch.Tensor, target: str | None = None
) -> Any:
    """What `function(*tensors)` returns when its Triton launches run on the tile machine.

    Accesses that leave an operand, and lanes that nothing defined, do not stop it: use `run` for
    the faults. Raises what the wrapper raises, and MachineError.
    """
    return run(function, *tensors, target=target).result
