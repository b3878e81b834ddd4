"""One call of a wrapper on the tile simulator: `run` returns all observations, `simulate` c."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from gemmproof.reference.fake_cuda import explain_lack, fake_gpu
from gemmproof.reference.gpus import DEFAULT, GPUS
from gemmproof.reference.simulation import Run, Unsupported
from gemmproof.reference.simulator.checks.faults import conclude
from gemmproof.reference.simulator.launch import intercept_launches
from gemmproof.reference.simulator.memory import element_dtype, uninitialised_value, view_of
from gemmproof.reference.simulator.scheduler import HostReads, perform
from gemmproof.reference.simulator.session import Enough, Session

_NEW = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_")
EMPTY = {f"aten::{name}" for name in _NEW}


class _Allocations(TorchDispatchMode):
    """Fills memory from torch.empty with a pattern; it is undefined until it is written."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler (2 s) to switch it off

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        if self.session.sampled:
            result = perform(self.session, func, args, kwargs)
            for tensor in _tensors(result):
                self._claim(tensor)
            return result
        doubtful = None if schema.name in EMPTY else self._trace_undefined(func, args, kwargs)
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            self._claim(tensor)
        if doubtful is not None:
            self._inherit(result, *doubtful)
        if schema.name in EMPTY and isinstance(result, torch.Tensor):
            self._fill_uninitialised(result)
        elif schema.is_mutable:
            given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
            written = (a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write)
            for tensor in _tensors([given.get(name) for name in written]):
                self._define(tensor)
        return result

    def _trace_undefined(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, list[Any]] | None:
        """Return a torch operator's result with NaN for undefined elements, and those inputs.

        NaN propagates through copies, casts, sums and products as an undefined value would.
        Returns None if every operand is defined, or if the operator writes or returns a view.
        """
        undefined = self.session.memory.undefined_in
        sources = [x for x in _tensors((args, kwargs)) if undefined(x) is not None]
        schema = func._schema
        if not sources or schema.is_mutable or any(r.alias_info for r in schema.returns):
            return None

        def mark(x: Any) -> Any:
            if not isinstance(x, torch.Tensor) or not x.is_floating_point():
                return x
            flags = undefined(x)
            if flags is None:
                return x
            wide = torch.ones(x.shape, dtype=torch.float32)
            wide[torch.from_numpy(np.ascontiguousarray(flags))] = torch.nan
            return wide.to(x.dtype)

        return func(*tree_map(mark, args), **tree_map(mark, kwargs)), sources

    def _inherit(self, result: Any, doubt: Any, sources: list[torch.Tensor]) -> None:
        """Mark the elements of a result that depend on undefined ones, and record their sources."""
        for tensor, mark in zip(_tensors(result), _tensors(doubt), strict=True):
            storage = self.session.memory.storage_of(tensor)
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            flags = torch.isnan(mark).numpy()
            if storage.undefined is None:
                storage.undefined = np.zeros(storage.data.size, np.bool_)
            storage.elements_of(storage.undefined, view_of(tensor))[flags] = True
            storage.sources += sources

    def _claim(self, tensor: torch.Tensor) -> None:
        """Mark memory that is first seen while the wrapper runs as allocated by the wrapper."""
        storage = self.session.memory.storage_of(tensor)
        if not storage.views:
            storage.private = True

    def _fill_uninitialised(self, tensor: torch.Tensor) -> None:
        storage = self.session.memory.storage_of(tensor)
        storage.undefined = np.ones(storage.data.size, np.bool_)
        try:
            dtype = element_dtype(tensor)
        except TypeError:  # a type that no kernel accepts
            return
        pattern = uninitialised_value(dtype, self.session.fill)
        storage.typed(pattern.dtype)[...] = pattern

    def _define(self, tensor: torch.Tensor) -> None:
        if tensor.numel():
            storage = self.session.memory.at(tensor.untyped_storage().data_ptr())
            if storage is not None and storage.undefined is not None:
                storage.elements_of(storage.undefined, view_of(tensor))[...] = False


def _undefine(session: Session, tensor: torch.Tensor) -> None:
    """Fill a tensor's elements, and nothing around them, as uninitialised memory."""
    storage, view = session.memory.storage_of(tensor), view_of(tensor)
    storage.undefined = np.zeros(storage.data.size, np.bool_)
    storage.elements_of(storage.undefined, view)[...] = True
    pattern = uninitialised_value(element_dtype(tensor), session.fill)
    storage.elements_of(storage.data, view)[...] = np.frombuffer(pattern.tobytes(), np.uint8)


def _tensors(x: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(x) if isinstance(t, torch.Tensor)]


def run(
    function: Callable[..., Any],
    *tensors: torch.Tensor,
    target: str | None = None,
    config: int = 0,
    fill: str = "nan",
    operands: dict[str, torch.Tensor] | None = None,
    trace: list[Any] | None = None,
    kwargs: Mapping[str, object] | None = None,
    seconds: float = 60.0,
    tries: bool = False,
    labels: dict[str, str] | None = None,
    written: Sequence[str] = (),
    results: Sequence[str] = ("c",),
    axes: dict[str, tuple[str, ...]] | None = None,
    sampled: bool = False,
) -> Run:
    """Call `function(*tensors, **kwargs)` with its Triton launches on the tile simulator.

    The tensors are on the CPU; the wrapper sees CUDA tensors. `operands` gives them the names that
    faults use (default: a, b, ...), `labels` their names in messages, `axes` the names of the
    dimensions of those other than a and b (default: numbers). `config` picks the autotune
    configuration. `fill` is the content of undefined memory: "nan", "ones", "zero" or "large";
    `seconds` are allowed, counted as in work.py. The operands that are to be `written` are
    undefined until then; `results` are the names of the function's results.
    With `tries` a kernel that has several configurations makes a trial run before it is launched,
    as when it is tuned. `sampled`: some programs of each launch run, over memory that is never
    committed (scheduler.py); the result then has a shape and no elements, and is None if the call
    ended before. Raises what the wrapper raises, and KernelError, Unsupported,
    LimitExceeded or Exhausted for the kernel.
    """
    if operands is None:
        operands = dict(zip("abdefghij", tensors, strict=False))
    session = Session(operands, fill, target, config, seconds, trace, tries, sampled)
    session.labels, session.axes = labels or {}, axes or {}
    reads = HostReads(session) if sampled else nullcontext()
    result = None
    try:
        for name in () if sampled else written:
            _undefine(session, operands[name])
        with fake_gpu(target), intercept_launches(session), _Allocations(session), reads:
            result = function(*tensors, **(kwargs or {}))
    except Enough:
        pass
    except Exception as error:
        # it may depend on values that programs which did not run had to store
        if session.partial and not isinstance(error, Unsupported):
            return _end(session, None, results)
        lack = explain_lack(error, GPUS[target or DEFAULT])
        if lack is None:
            raise
        raise lack from error
    return _end(session, result, results)


def _end(session: Session, result: Any, results: Sequence[str]) -> Run:
    session.run.result = result
    conclude(session, result, results)
    return session.run


def simulate(
    function: Callable[..., Any], *tensors: torch.Tensor, target: str | None = None
) -> Any:
    """Return `function(*tensors)`, with its Triton launches on the tile simulator.

    Accesses out of bounds, and undefined lanes, do not stop it: use `run` for
    the faults. Raises what the wrapper raises, and SimulatorError.
    """
    return run(function, *tensors, target=target).result
