"""Launches of a kernel under the simulator: its arguments, its TTIR, its interception."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from traceback import walk_tb
from typing import Any, NoReturn

import numpy as np
import torch
from triton import knobs
from triton.compiler.compiler import make_backend
from triton.runtime import _allocation

from gemmproof.reference.fake_cuda.tensors import Facts, make_unknown_name, note_change
from gemmproof.reference.provenance import calling_line
from gemmproof.reference.simulation import (
    CompileError,
    KernelError,
    Launch,
    NotSimulated,
    SimulatorError,
    Unsupported,
    Where,
)
from gemmproof.reference.simulator.compiled_code import CompiledCode, compile_code
from gemmproof.reference.simulator.memory import element_dtype
from gemmproof.reference.simulator.ops.tensor_descriptors import describe
from gemmproof.reference.simulator.program import Program
from gemmproof.reference.simulator.scheduler import run_grid
from gemmproof.reference.simulator.session import Context, Session
from gemmproof.reference.simulator.translate import lower
from gemmproof.reference.simulator.value import Value
from gemmproof.reference.simulator.wrapper_lines import without_recording
from gemmproof.reference.triton_frontend import (
    FailedStaticAssert,
    get_name,
    identify,
    make_ttir,
)
from gemmproof.reference.triton_hooks import TunedLaunch, compile_with, intercept, swap
from gemmproof.reference.ttir import ReadError, Type, pointer_to, read_module

# -- arguments -----------------------------------------------------------------------------------
# CUDA's limits on the sizes of a grid.
GRID_LIMITS = (2**31 - 1, 65535, 65535)


def check_grid(name: str, grid: tuple[Any, ...]) -> tuple[int, int, int]:
    """Return the launch grid as three sizes. Raises KernelError for one that CUDA refuses."""
    for n in grid:
        if not isinstance(n, int | np.integer):
            raise KernelError(f"{name}: grid {grid} with a {type(n).__name__} for an integer")
    sizes = tuple(int(n) for n in grid)
    if min(sizes) < 0:
        raise KernelError(f"{name}: grid {sizes} with a size below 0")
    for axis, limit in enumerate(GRID_LIMITS):
        if sizes[axis] > limit:
            raise KernelError(f"{name}: grid {sizes}, where CUDA admits {limit} along axis {axis}")
    return sizes[0], sizes[1], sizes[2]


def flatten(session: Session, name: str, value: Any, signature: Any) -> Iterator[Any]:
    """Yield the values that the kernel's function takes for one parameter: none or several."""
    if signature == "constexpr":
        return
    if isinstance(signature, tuple):
        for item, inner in zip(value, signature, strict=True):
            yield from flatten(session, name, item, inner)
    elif str(signature).startswith("tensordesc"):
        base = _pointer(session, name, value.base)
        padding = getattr(value, "padding", None)
        yield describe(base, value.shape, value.strides, value.block_shape, padding)
        yield from map(int, (*value.shape, *value.strides))
    elif str(signature).startswith("*"):
        yield _pointer(session, name, value)
    else:
        yield value


def list_divisible(signature: Any, attributes: Any, path: tuple[int, ...]) -> Iterator[bool]:
    """Yield for each value that `flatten` yields whether Triton knows 16 as a divisor of it."""
    if signature == "constexpr":
        return
    if isinstance(signature, tuple):
        for i, inner in enumerate(signature):
            yield from list_divisible(inner, attributes, (*path, i))
    elif str(signature).startswith("tensordesc"):
        block = re.search(r"\[([^]]*)\]", str(signature))
        rank = block[1].count(",") + 1 if block else 1
        yield from [False] * (1 + 2 * rank)
    else:
        known = attributes.get(path) or ()
        yield any(attribute[0] == "tt.divisibility" for attribute in known)


def _pointer(session: Session, name: str, value: Any) -> Any:
    """Return an operand's first address."""
    tensor = value if isinstance(value, torch.Tensor) else getattr(value, "base", None)
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"argument {name} has type {type(value).__name__}, expected a tensor")
    operand = session.operand(name, tensor, element_dtype(value))  # of a triton.reinterpret
    address = np.array([operand.view.start], np.int64)
    return Value(address, pointer_to(operand.dtype), base=operand)


def scalar_of(value: Any, kind: Type) -> Value:
    """Convert a number as the kernel receives it: integers by their bits, floats rounded."""
    dtype = kind.dtype
    if dtype.is_float:
        return Value(np.array([float(value)]).astype(dtype.numpy), dtype)
    whole = int(value)
    if dtype.bits == 1:  # the lowest bit alone is read
        whole %= 2
    else:
        half = 1 << (dtype.bits - 1)
        whole = (whole + half) % (2 * half) - half
    return Value(np.array([whole]).astype(dtype.numpy), dtype)


# -- kernels -------------------------------------------------------------------------------------
# Programs cached, the latest used last: a search over many kernels must not fill the memory.
_MOST_PROGRAMS = 256
_programs: OrderedDict[str, Program] = OrderedDict()


class CompiledFacts(Facts):
    """The metadata of a kernel: its options, and what compiling it adds."""

    def __init__(self, _of: str, _compile: Callable[[], CompiledCode], **known: Any) -> None:
        super().__init__(_of, **known)
        self.__dict__["_compile"] = _compile

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name in (code := self.__dict__["_compile"]()).metadata:
            return code.metadata[name]
        return super().__getattr__(name)


class Kernel:
    """The stand-in for a compiled kernel: its program, and the figures that a wrapper may query.

    It is compiled for the target when a wrapper queries its code, its registers or its shared
    memory. `session` is that of the running call.
    """

    session: Session
    n_max_threads = 1024
    module = None
    function = 0
    packed_metadata = None
    kernel = b""

    def __init__(self, src: Any, target: Any, options: Any, program: Program) -> None:
        self.src = src
        self.specialisation = (src, target, options)
        self.program = program
        self.name = src.fn.__name__
        self.hash = src.hash()
        facts = {"name": self.name, "hash": self.hash, "target": target}
        facts |= {"warp_size": target.warp_size}
        known = {**options.__dict__, **facts}
        self.metadata = CompiledFacts(f"{self.name}.metadata", lambda: self.compiled, **known)
        # from Hopper on descriptors are created in global memory; elsewhere they become pointers
        describes = "tt.make_tensor_descriptor" in program.text
        self.needs_scratch = describes and target.backend == "cuda" and target.arch >= 90

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise make_unknown_name(f"a compiled kernel's {name}")

    @property
    def compiled(self) -> CompiledCode:
        """The kernel's code for the target."""
        return compile_code(*self.specialisation)

    @property
    def asm(self) -> dict[str, Any]:
        """The forms of the kernel's code, by name."""
        return {"source": self.program.text, **self.compiled.asm}

    @property
    def n_regs(self) -> int:
        """The number of registers of a thread."""
        return self.compiled.registers

    @property
    def n_spills(self) -> int:
        """The number of registers that a thread keeps in memory."""
        return self.compiled.spills

    @property
    def shared(self) -> int:
        """The bytes of shared memory of a block."""
        return int(self.metadata.shared)

    def _init_handles(self) -> None:
        return None

    def result(self) -> Kernel:
        return self

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        """Return the metadata for launch hooks: the kernel's name, and its own launch metadata."""
        if knobs.runtime.launch_enter_hook is None and knobs.runtime.launch_exit_hook is None:
            return None
        facts = {"name": self.name, "function": 0, "stream": stream}
        describe = self.src.fn.launch_metadata

        def get() -> dict[str, object]:  # called by a hook, as Triton's is
            if describe is None:
                return facts
            named = dict(zip(self.src.fn.arg_names, args, strict=False))
            return facts | describe(grid, self.metadata, named)

        return Facts("launch_metadata", get=get)

    def run(
        self, x: Any, y: Any, z: Any, stream: Any, function: Any, packed: Any,
        metadata: Any, enter: Any, exit: Any, *args: Any,
    ) -> None:  # fmt: skip
        """Run the grid, as Triton's launcher does."""
        if enter is not None:
            enter(metadata)
        _launch(self.session, self, (x, y, z), args)
        if exit is not None:
            exit(metadata)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        sizes = (*grid, 1, 1)[:3]

        def launch(*args: Any, stream: Any = None) -> None:
            self.run(*sizes, stream, 0, None, None, None, None, *args)

        return launch


def compile_program(
    src: Any,
    target: Any,
    options: Any,
    dots: str | None,
    sampled: bool = False,
    reads_terms: bool = False,
) -> Program:
    """Compile one specialisation of a kernel; `dots` is the target whose dots are imitated.

    Raises CompileError if Triton refuses the kernel, Unsupported if its TTIR cannot be read.
    """
    key = f"{identify(src)} {target} {options} {dots} {sampled} {reads_terms}"
    program = _programs.get(key)
    if program is None:
        text = make_ttir(src, target, options)
        if src.fn.is_gluon():
            reason = "is written in Gluon, of which the simulator sees nothing; judge it on a GPU"
            raise NotSimulated(f"{get_name(src)} {reason}: --device cuda")
        try:
            program = _programs[key] = lower(read_module(text), dots, text, sampled, reads_terms)
        except ReadError as error:
            reason = f"{get_name(src)}: TTIR that the simulator cannot read: {error}"
            raise Unsupported(reason) from None
        if len(_programs) > _MOST_PROGRAMS:
            _programs.popitem(last=False)
    _programs.move_to_end(key)
    return program


def compile_kernel(src: Any, target: Any = None, options: Any = None, **_: Any) -> Kernel:
    """Compile a specialisation, as Triton's compile function does."""
    backend = make_backend(target)
    # asserts are always checked; overflow is checked here, not by code that Triton inserts
    settings = {**dict(options or {}), "debug": True, "sanitize_overflow": False}
    parsed = backend.parse_options(settings)
    session = Kernel.session
    reads_terms = session.terms is not None
    program = compile_program(src, target, parsed, session.target, session.sampled, reads_terms)
    return Kernel(src, target, backend.parse_options(dict(options or {})), program)


def _launch(session: Session, kernel: Kernel, grid: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    where = calling_line()
    sizes = check_grid(kernel.name, grid)
    if kernel.needs_scratch and isinstance(_allocation._allocator.get(), _allocation.NullAllocator):
        reason = "needs memory for the tensor descriptors that it makes"
        raise KernelError(f"{kernel.name} {reason}, but nothing called triton.set_allocator", where)
    src, program = kernel.src, kernel.program
    names = src.fn.arg_names
    first = len(session.operands)
    try:
        leaves = [
            leaf
            for name, value in zip(names, args, strict=True)
            for leaf in flatten(session, name, value, src.signature[name])
        ]
        values = [
            leaf if callable(getattr(leaf, "select", None)) else scalar_of(leaf, kind)
            for leaf, kind in zip(leaves, program.arg_types, strict=True)
        ]
    except (TypeError, OverflowError) as error:
        raise KernelError(f"{kernel.name}: {error}", where) from None
    session.memory.new_launch()
    session.progress.launch()
    note_change()
    session.partial = session.sampled
    context = Context(session, kernel.name, sizes, int(kernel.metadata.num_warps))
    if program.hinted:
        paths = enumerate(names)
        parts = (list_divisible(src.signature[name], src.attrs, (i,)) for i, name in paths)
        kinds = tuple(16 if known else 3 for part in parts for known in part)
        context.vectors = program.find_widened(kinds, context.num_warps)
    session.writers.begin_launch(session.operands[first:])
    try:
        run_grid(program, context, values)
    except BaseException:
        if session.sampled:  # it ends in the middle of a launch, and keeps the observations
            _record(session, kernel, context, where, args)
        raise
    finally:
        session.writers.end_launch(len(context.tiles) > 0 or "reduce" in context.rounds)
    _record(session, kernel, context, where, args)


def _record(
    session: Session, kernel: Kernel, context: Context, where: Where, args: tuple[Any, ...]
) -> None:
    """Record a launch, with its violations and accesses."""
    src, sizes = kernel.src, context.grid
    session.violations += [(kernel.name, violation) for violation in context.violations]
    if session.trace is not None:
        session.trace.append((kernel.name, sizes, context.touches))
    declared = {(i,): p.name for i, p in enumerate(src.fn.params) if p.is_constexpr}
    given = ((declared[k], x) for k, x in src.constants.items() if k in declared)
    shown = {name: getattr(x, "value", x) for name, x in given}
    session.run.launches.append(
        Launch(
            kernel.name,
            sizes,
            {k: x for k, x in shown.items() if isinstance(x, bool | int | float | str)},
            session.chosen[1],
            session.configs,
            tuple(sorted(context.tiles)),
            context.atomics,
            where,
            tuple(sorted(context.rounds | ({"fma"} if kernel.program.may_contract else set()))),
            {name: x for name, x in zip(src.fn.arg_names, args, strict=True) if type(x) is int},
            session.written,
            frozenset(context.dots),
            kernel.specialisation,
            tuple(sorted(context.reorders, key=str)),
            session.chosen[0],
            kernel.program.has_hints or context.uses_hints,
            context.uses_hints,
            kernel.program.list_sides(context.sides),
        )
    )


MOST_TRIED = 3  # configurations other than the chosen one


# -- launch --------------------------------------------------------------------------------------
@contextmanager
def intercept_launches(session: Session, compiler: Any = compile_kernel) -> Iterator[None]:
    """Run every launch of a Triton kernel on the simulator, for `session`, within the context.

    `compiler` compiles the kernels, the simulator's unless another is given.
    """
    tuned: dict[int, tuple[int, int, tuple[int, int]]] = {}

    def run(original: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        choice = tuned.pop(id(kernel), (1, 1, (0, 0)))
        session.configs, session.written, session.chosen = choice
        try:
            with without_recording():
                return original(kernel, *args, **kwargs)
        except SimulatorError as error:
            error.where = error.where or calling_line()
            raise
        except (TypeError, LookupError, ValueError, AssertionError) as error:
            if not _raised_by_triton(error):
                raise
            reason = str(error.args[0]) if error.args else type(error).__name__
            # an option of another backend, or of another version of Triton
            kind = Unsupported if reason.endswith("specified but unrecognised") else KernelError
            raise kind(f"{kernel.fn.__name__}: {reason}", calling_line()) from error

    def tune(launch: TunedLaunch) -> Any:
        """Launch in the selected configuration, or in the next without a failing static_assert."""
        configs = launch.prune()
        number, selected = session.choices.pick(launch.tuner, launch.named, len(configs))
        order = [(selected + i) % len(configs) for i in range(len(configs))]
        dropped = session.choices.dropped
        refusals: list[tuple[CompileError, Any]] = []
        for index in [i for i in order if (number, i) not in dropped] or order:
            config = configs[index]
            try:
                if session.tries and len(configs) > 1:
                    others = [configs[(index + i) % len(configs)] for i in range(1, len(configs))]
                    _try_out(session, launch, [*others[:MOST_TRIED], config])
                tuned[id(launch.kernel)] = len(configs), len(launch.tuner.configs), (number, index)
                return launch.run(config)
            except FailedStaticAssert as error:
                dropped.add((number, index))
                refusals.append((error, config))
            except CompileError as error:
                refusals = [(error, config)]
                break
        refusal, config = refusals[0]
        if len(configs) > 1:
            shown = " ".join(f"{k}={v}" for k, v in config.kwargs.items())
            refusal.message += f" with [{shown}]"
        raise refusal

    kind = " sampled" * session.sampled + " terms" * (session.terms is not None)
    device = f"gemmproof {session.target or 'ieee'}{kind}"
    hooks = intercept(launch=run, compile=compile_with(compiler), tune=tune, device=device)
    with hooks, swap([(Kernel, "session", session)]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*TRITON_DEFAULT_FP_FUSION")
        yield


def _try_out(session: Session, launch: TunedLaunch, configs: list[Any]) -> None:
    """Make trial runs as a tuner does, the last in the configuration that it chooses.

    The launches and accesses are not recorded; what they change in memory remains. Faults of the
    other configurations, and that some do not compile, are those of their own cases.
    """
    trace, launches, violations = session.trace, list(session.run.launches), session.violations
    session.trace = None
    for config in configs:
        if config is configs[-1]:
            launch.try_out(config)
            break
        session.violations = []
        with suppress(SimulatorError):
            launch.try_out(config)
        session.violations = violations
    session.trace, session.run.launches = trace, launches


def _raised_by_triton(error: BaseException) -> bool:
    """Return whether Triton's own launch path raised: the call is wrong, not the callee."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    file = frame.f_code.co_filename
    return "/triton/" in file or file.startswith("<") or "dynamic_func" in file
