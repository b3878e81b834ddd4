"""Launches intercepted: a wrapper's `kernel[grid](...)` runs on the machine."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gemmproof.reference.machine import blocks, rebind
from gemmproof.reference.machine import grid as grids
from gemmproof.reference.machine.observation import KernelError, Launch, Where
from gemmproof.reference.machine.session import Session
from gemmproof.reference.machine.types import type_of_number
from gemmproof.reference.machine.value import Value, is_number, scalar

# What a launch may be given besides the kernel's own parameters.
_OPTIONS = {
    "num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "waves_per_eu",
    "matrix_instr_nonkdim", "kpack", "launch_cooperative_grid", "launch_pdl", "debug",
    "sanitize_overflow", "extern_libs", "allow_fp8e4nv", "cluster_dims", "device_type", "stream",
    "device", "enable_warp_specialization", "num_buffers_warp_spec", "num_consumer_groups",
    "reg_dec_producer", "reg_inc_consumer", "ir_override", "instrumentation_mode", "llvm_fn_attrs",
    "minRegAutoWS", "maxRegAutoWS", "pingpongAutoWS", "early_tma_store_lowering", "ctas_per_cga",
}  # fmt: skip


class Compiled:
    """What a launch returns: a stand-in for the compiled kernel, with the fewest figures.

    Nothing is compiled, so it spills nothing and shares no memory; wrappers that size their grid
    by occupancy then use the device's own limits.
    """

    n_regs = 32
    n_spills = 0
    n_max_threads = 1024

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name = name
        self.asm: dict[str, str] = {}
        self.metadata = types.SimpleNamespace(
            name=name,
            shared=0,
            num_warps=options.get("num_warps", 4),
            num_stages=options.get("num_stages", 3),
            num_ctas=options.get("num_ctas", 1),
        )

    def _init_handles(self) -> None:
        return None


@contextmanager
def intercepted(session: Session) -> Iterator[None]:
    """Within it every launch of a Triton kernel runs on the machine, for `session`."""
    tuned: dict[int, int] = {}

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        if not warmup:
            _launch(session, self, args, kwargs, grid, tuned.pop(id(self), 1))
        return Compiled(self.fn.__name__, kwargs)

    def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
        configs = _configs(self, args, kwargs)
        config = configs[session.config % len(configs)]
        tuned[id(_inner(self))] = len(configs)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        self.nargs = None
        return result

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return rebind.call(self, *args, **kwargs)

    kept = [(JITFunction, "run"), (JITFunction, "__call__"), (Autotuner, "run")]
    before = [(cls, name, getattr(cls, name)) for cls, name in kept]
    for (cls, name), function in zip(kept, (run, call, tune), strict=True):
        setattr(cls, name, function)
    try:
        yield
    finally:
        for cls, name, function in before:
            setattr(cls, name, function)


def _inner(tuner: Any) -> Any:
    function = tuner
    while not isinstance(function, JITFunction):
        function = function.fn
    return function


def _configs(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The configurations that the kernel's own pruning leaves for these arguments."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    pruned = list(tuner.prune_configs(kwargs))
    if not pruned:
        raise KernelError(f"{_inner(tuner).__name__}: autotune leaves no configuration")
    return pruned


def _caller() -> Where:
    """The line of the wrapper that launches."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    return Where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _is_machinery(file: str) -> bool:
    return "/triton/runtime/" in file or file.endswith("machine/launch.py")


def _launch(
    session: Session,
    kernel: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    grid: Any,
    configs: int,
) -> None:
    where = _caller()
    name = kernel.fn.__name__
    bound = _bind(kernel, args, kwargs, where)
    sizes = _grid(name, grid, bound, where)
    constants = {p.name for p in kernel.params if p.is_constexpr}
    try:
        values = {
            key: _constant(x) if key in constants else _argument(session, kernel, key, x)
            for key, x in bound.items()
        }
    except TypeError as error:
        raise KernelError(f"{name}: {error}", where) from None
    for hook in getattr(kernel, "pre_run_hooks", ()):
        hook(*args, **kwargs)
    function = rebind.rebound(rebind.body(kernel))
    session.memory.new_launch()
    warps = int(kwargs.get("num_warps", 4))
    seen = grids.run_grid(session, name, sizes, warps, lambda: function(**values))
    session.events += [(name, event) for event in seen.events]
    if session.trace is not None:
        session.trace.append((name, sizes, seen.touches))
    shown = {k: values[k] for k in constants if is_number(values[k]) or isinstance(values[k], str)}
    session.run.launches.append(
        Launch(
            name, sizes, shown, session.config % configs, configs,
            tuple(sorted(seen.tiles)), seen.atomics, where, tuple(sorted(seen.rounds)),
        )
    )  # fmt: skip


def _bind(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], where: Where) -> Any:
    """Arguments by parameter name. Raises KernelError as Triton would for a wrong call."""
    signature = inspect.signature(kernel.fn)
    known = set(signature.parameters)
    options = {k for k in kwargs if k not in known}
    foreign = sorted(options - _OPTIONS)
    if foreign:
        raise KernelError(f"{kernel.fn.__name__} takes no argument {foreign[0]!r}", where)
    try:
        bound = signature.bind(*args, **{k: v for k, v in kwargs.items() if k in known})
    except TypeError as error:
        raise KernelError(f"{kernel.fn.__name__}: {error}", where) from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _grid(name: str, grid: Any, bound: dict[str, Any], where: Where) -> tuple[int, int, int]:
    """The launch grid as three sizes. Raises KernelError for one that CUDA refuses."""
    if callable(grid):
        grid = grid(bound)
    sizes = [grid] if is_number(grid) else list(grid)
    sizes = [int(x) for x in sizes]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
        raise KernelError(f"{name}: got grid {tuple(sizes)}, expected 1 to 3 sizes >= 0", where)
    sizes += [1] * (3 - len(sizes))
    for axis, limit in ((0, 2**31 - 1), (1, 65535), (2, 65535)):
        if sizes[axis] > limit:
            raise KernelError(
                f"{name}: got grid {tuple(sizes)}, expected at most {limit} along axis {axis}",
                where,
            )
    return sizes[0], sizes[1], sizes[2]


def _constant(x: Any) -> Any:
    if isinstance(x, tl.constexpr):
        return x.value
    return rebind.replace(x)


def _argument(session: Session, kernel: Any, name: str, x: Any) -> Any:
    """A launch argument as the kernel's body sees it; an integer 1 is a constant, as in Triton."""
    if isinstance(x, tl.constexpr):
        return x.value
    if x is None or isinstance(x, str | tl.dtype) or rebind.is_jit(x):
        return rebind.replace(x)
    if is_number(x):
        if isinstance(x, float):
            return scalar(x, tl.float32)
        if x == 1 and not isinstance(x, bool) and not _unspecialised(kernel, name):
            return 1
        return scalar(x, _argument_type(x))
    if isinstance(x, tuple | list):
        items = [_argument(session, kernel, name, item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
    if isinstance(x, torch.Tensor):
        operand = session.operand(name, x)
        pointer = tl.pointer_type(operand.dtype)
        return Value(_address(operand.view.start), pointer, base=operand)
    if type(x).__name__ == "TensorDescriptor":
        base = _argument(session, kernel, name, x.base)
        padding = getattr(x, "padding", None)
        return blocks.from_host(base, x.shape, x.strides, x.block_shape, padding)
    if hasattr(x, "base") and hasattr(x, "dtype") and isinstance(x.base, torch.Tensor):
        return _argument(session, kernel, name, x.base.view(x.dtype))  # triton.reinterpret
    raise TypeError(f"argument {name} has type {type(x).__name__}")


def _argument_type(x: Any) -> tl.dtype:
    """int32 where it fits, else int64, uint64 from 2**63 on; a bool is int1."""
    dtype = type_of_number(x)
    return tl.int64 if dtype == tl.uint32 else dtype


def _address(start: int) -> Any:
    import numpy as np

    return np.array([start], dtype=np.int64)


def _unspecialised(kernel: Any, name: str) -> bool:
    return any(p.name == name and p.do_not_specialize for p in kernel.params)
