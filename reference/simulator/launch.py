"""Launches on the simulator: Triton's own launch path, up to the compiler and the driver.

The binder, specialisation, heuristics, hooks and the autotuner's pruning are Triton's. In place of
the compiler stands the frontend alone, in place of the launcher the scheduler.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from triton import knobs
from triton.compiler.compiler import make_backend
from triton.runtime import _allocation, driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gemmproof.reference.simulator.context import Context
from gemmproof.reference.simulator.dtypes import Type
from gemmproof.reference.simulator.fake_cuda.tensors import changed
from gemmproof.reference.simulator.frontend import compile_program
from gemmproof.reference.simulator.interpreted import (
    interpreted_class,
    jitted,
    language_patches,
)
from gemmproof.reference.simulator.observation import (
    CompileError,
    KernelError,
    Launch,
    SimulatorError,
)
from gemmproof.reference.simulator.ops.blocks import describe
from gemmproof.reference.simulator.program import Program
from gemmproof.reference.simulator.provenance import calling_line
from gemmproof.reference.simulator.scheduler import run_grid
from gemmproof.reference.simulator.session import Session
from gemmproof.reference.simulator.value import Value

# CUDA's limits on the sizes of a grid.
GRID_LIMITS = (2**31 - 1, 65535, 65535)

_session: Session | None = None


class _Device(int):
    """A device number under which Triton keeps what it compiles for the simulator apart."""

    key: str

    def __new__(cls, key: str) -> _Device:
        made = super().__new__(cls, 0)
        made.key = key
        return made

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Device) and self.key == other.key


class Kernel:
    """What stands for a compiled kernel: its program, and the figures that a wrapper may ask.

    Nothing is compiled to a binary, so it spills nothing and shares no memory; wrappers that size
    their grid by occupancy then use the device's own limits.
    """

    n_regs = 32
    n_spills = 0
    n_max_threads = 1024
    module = None
    function = 0
    packed_metadata = None
    kernel = b""

    def __init__(self, src: Any, target: Any, options: Any, program: Program) -> None:
        self.src = src
        self.program = program
        self.name = src.fn.__name__
        self.hash = src.hash()
        self.asm = {"ttir": program.text, "source": program.text}
        facts = {
            "name": self.name,
            "shared": 0,
            "tmem_size": 0,
            "target": target,
            "hash": self.hash,
        }
        facts |= {
            "global_scratch_size": 0,
            "profile_scratch_size": 0,
            "warp_size": target.warp_size,
        }
        self.metadata = types.SimpleNamespace(**{**options.__dict__, **facts})
        # from Hopper on descriptors are made in global memory; elsewhere they become pointers
        describes = "tt.make_tensor_descriptor" in program.text
        self.needs_scratch = describes and target.backend == "cuda" and target.arch >= 90

    def _init_handles(self) -> None:
        return None

    def result(self) -> Kernel:
        return self

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        """What Triton's hooks are given: the kernel's name, and what it says of a launch."""
        if knobs.runtime.launch_enter_hook is None and knobs.runtime.launch_exit_hook is None:
            return None
        facts = {"name": self.name, "function": 0, "stream": stream}
        if self.src.fn.launch_metadata is not None:
            named = dict(zip(self.src.fn.arg_names, args, strict=False))
            facts |= self.src.fn.launch_metadata(grid, self.metadata, named)
        return types.SimpleNamespace(get=lambda: facts)

    def run(
        self, x: Any, y: Any, z: Any, stream: Any, function: Any, packed: Any,
        metadata: Any, enter: Any, exit: Any, *args: Any,
    ) -> None:  # fmt: skip
        """Triton's launcher: runs the grid."""
        assert _session is not None
        for hook in (enter,):
            if hook is not None:
                hook(metadata)
        _launch(_session, self, (x, y, z), args)
        if exit is not None:
            exit(metadata)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        sizes = (*grid, 1, 1)[:3]

        def launch(*args: Any, stream: Any = None) -> None:
            self.run(*sizes, stream, 0, None, None, None, None, *args)

        return launch


def _compile(src: Any, target: Any = None, options: Any = None, **_: Any) -> Kernel:
    """What Triton calls to compile a specialisation."""
    assert _session is not None
    backend = make_backend(target)
    # asserts are judged whether or not the launch asks for them; the checks of overflow are ours
    wanted = {**dict(options or {}), "debug": True, "sanitize_overflow": False}
    parsed = backend.parse_options(wanted)
    program = compile_program(src, target, parsed, _session.target)
    return Kernel(src, target, backend.parse_options(dict(options or {})), program)


@contextmanager
def intercepted(session: Session) -> Iterator[None]:
    """Within it every launch of a Triton kernel runs on the simulator, for `session`."""
    global _session
    tuned: dict[int, int] = {}
    original_run, original_compile = JITFunction.run, JITFunction._do_compile

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        session.configs = tuned.pop(id(self), 1)
        try:
            return original_run(self, *args, **kwargs)
        except SimulatorError as error:
            if error.where is None:
                error.locate(calling_line())
            raise
        except (TypeError, LookupError, ValueError, AssertionError) as error:
            if not _raised_by_triton(error):
                raise
            words = str(error.args[0]) if error.args else type(error).__name__
            raise KernelError(f"{self.fn.__name__}: {words}", calling_line()) from error

    def compile_with_frontend(self: Any, *args: Any, **kwargs: Any) -> Any:
        before, self.compile = self.compile, _compile
        try:
            return original_compile(self, *args, **kwargs)
        finally:
            self.compile = before

    def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
        configs = _prune(self, args, kwargs)
        config = configs[session.config % len(configs)]
        tuned[id(_innermost(self))] = len(configs)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        try:
            result = self.fn.run(*args, **kwargs, **config.all_kwargs())
        except CompileError as error:
            if len(configs) == 1:
                raise
            shown = " ".join(f"{k}={v}" for k, v in config.kwargs.items())
            raise CompileError(f"{error.message} with [{shown}]", error.where) from error
        self.nargs = None
        return result

    active = driver.active
    device = _Device(f"gemmproof {session.target or 'ieee'}")
    interpreted = interpreted_class()

    def run_interpreted(self: Any, *args: Any, **kwargs: Any) -> Any:
        return run(jitted(self), *args, **kwargs)

    patches: list[tuple[Any, str, Any]] = [
        (JITFunction, "run", run),
        *([(interpreted, "run", run_interpreted)] if interpreted is not None else []),
        *language_patches(),
        (JITFunction, "_do_compile", compile_with_frontend),
        (Autotuner, "run", tune),
        (active, "get_current_device", lambda: device),
    ]
    before = [(where, name, vars(where).get(name)) for where, name, _ in patches]
    outer, _session = _session, session
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION")
        for where, name, made in patches:
            setattr(where, name, made)
        try:
            yield
        finally:
            _session = outer
            for where, name, original in before:
                if original is None:
                    delattr(where, name)
                else:
                    setattr(where, name, original)


def _raised_by_triton(error: BaseException) -> bool:
    """Whether Triton's own launch path raised: a mistake of the call, not of what it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    file = "" if trace is None else trace.tb_frame.f_code.co_filename
    return "/triton/" in file or file.startswith("<") or "dynamic_func" in file


def _innermost(tuner: Any) -> Any:
    function = tuner
    while not isinstance(function, JITFunction):
        function = jitted(function) if type(function) is interpreted_class() else function.fn
    return function


def _prune(tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The configurations that the kernel's own pruning leaves for these arguments."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    pruned = list(tuner.prune_configs(kwargs))
    if not pruned:
        raise KernelError(f"{_innermost(tuner).__name__}: autotune leaves no configuration")
    return pruned


# -- one launch ----------------------------------------------------------------------------------
def _launch(session: Session, kernel: Kernel, grid: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    where = calling_line()
    sizes = _check_grid(kernel.name, grid)
    if kernel.needs_scratch and isinstance(_allocation._allocator.get(), _allocation.NullAllocator):
        words = "needs memory for the tensor descriptors that it makes"
        raise KernelError(f"{kernel.name} {words}, but nothing called triton.set_allocator", where)
    src, program = kernel.src, kernel.program
    names = src.fn.arg_names
    try:
        leaves = [
            leaf
            for name, value in zip(names, args, strict=True)
            for leaf in _flatten(session, name, value, src.signature[name])
        ]
        values = [
            leaf if callable(getattr(leaf, "select", None)) else _scalar(leaf, kind)
            for leaf, kind in zip(leaves, program.arg_types, strict=True)
        ]
    except (TypeError, OverflowError) as error:
        raise KernelError(f"{kernel.name}: {error}", where) from None
    session.memory.new_launch()
    changed()
    context = Context(session, kernel.name, sizes, int(kernel.metadata.num_warps))
    run_grid(program, context, values)
    session.events += [(kernel.name, event) for event in context.events]
    if session.trace is not None:
        session.trace.append((kernel.name, sizes, context.touches))
    constants = {names[path[0]]: x for path, x in src.constants.items() if len(path) == 1}
    declared = {p.name for p in src.fn.params if p.is_constexpr}
    shown = {k: getattr(x, "value", x) for k, x in constants.items() if k in declared}
    session.run.launches.append(
        Launch(
            kernel.name,
            sizes,
            {k: x for k, x in shown.items() if isinstance(x, bool | int | float | str)},
            session.config % session.configs,
            session.configs,
            tuple(sorted(context.tiles)),
            context.atomics,
            where,
            tuple(sorted(context.rounds)),
        )
    )


def _check_grid(name: str, grid: tuple[Any, ...]) -> tuple[int, int, int]:
    """The launch grid as three sizes. Raises KernelError for one that CUDA refuses."""
    if not all(isinstance(n, int | np.integer) for n in grid):
        got = next(n for n in grid if not isinstance(n, int | np.integer))
        raise KernelError(f"{name}: grid {grid} with a {type(got).__name__} for an integer")
    sizes = tuple(int(n) for n in grid)
    if min(sizes) < 0:
        raise KernelError(f"{name}: grid {sizes} with a size below 0")
    for axis, limit in enumerate(GRID_LIMITS):
        if sizes[axis] > limit:
            words = f"CUDA admits {limit} along axis {axis}"
            raise KernelError(f"{name}: grid {sizes}, where {words}")
    return sizes[0], sizes[1], sizes[2]


def _flatten(session: Session, name: str, value: Any, signature: Any) -> Iterator[Any]:
    """What the kernel's function takes for one parameter: nothing, one value, or several."""
    if signature == "constexpr":
        return
    if isinstance(signature, tuple):
        for item, inner in zip(value, signature, strict=True):
            yield from _flatten(session, name, item, inner)
    elif str(signature).startswith("tensordesc"):
        base = _pointer(session, name, value.base)
        padding = getattr(value, "padding", None)
        window = describe(base, value.shape, value.strides, value.block_shape, padding)
        yield window
        yield from (int(n) for n in value.shape)
        yield from (int(n) for n in value.strides)
    elif str(signature).startswith("*"):
        yield _pointer(session, name, value)
    else:
        yield value


def _pointer(session: Session, name: str, value: Any) -> Any:
    """An operand's first address."""
    from gemmproof.reference.simulator.dtypes import pointer_to

    if not isinstance(value, torch.Tensor):
        base = getattr(value, "base", None)
        if not isinstance(base, torch.Tensor):
            raise TypeError(f"argument {name} has type {type(value).__name__}, expected a tensor")
        value = base.view(value.dtype)  # triton.reinterpret
    operand = session.operand(name, value)
    address = np.array([operand.view.start], np.int64)
    return Value(address, pointer_to(operand.dtype), base=operand)


def _scalar(value: Any, kind: Type) -> Value:
    """A number as the kernel receives it: an integer by its bits, a float rounded to the type."""
    dtype = kind.dtype
    if dtype.is_float:
        return Value(np.array([float(value)]).astype(dtype.numpy), dtype)
    whole = int(value)
    if dtype.bits > 1:
        half = 1 << (dtype.bits - 1)
        whole = (whole + half) % (2 * half) - half
    return Value(np.array([whole]).astype(dtype.numpy), dtype)


__all__ = ["CompileError", "intercepted"]
