"""The stand-in for a compiled kernel, and one launch of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NoReturn

from triton import knobs
from triton.compiler.compiler import make_backend
from triton.runtime import _allocation

from gemmproof.reference.fake_cuda.tensors import note_change
from gemmproof.reference.fake_cuda.unknown import Facts, Table, make_unknown_name
from gemmproof.reference.observation import (
    KernelError,
    Launch,
    Unseen,
    Unsupported,
    Where,
)
from gemmproof.reference.provenance import calling_line
from gemmproof.reference.simulator.arguments import check_grid, flatten, scalar_of
from gemmproof.reference.simulator.context import Context
from gemmproof.reference.simulator.grid import run_grid
from gemmproof.reference.simulator.prepare.lower import lower
from gemmproof.reference.simulator.program import Program
from gemmproof.reference.simulator.session import Session
from gemmproof.reference.ttir.frontend import identify, make_ttir, name_of
from gemmproof.reference.ttir.module import ReadError
from gemmproof.reference.ttir.reader import read_module

# Programs cached, the latest used last: a search over many kernels must not fill the memory.
_MOST_PROGRAMS = 256
_programs: OrderedDict[str, Program] = OrderedDict()


class Kernel:
    """The stand-in for a compiled kernel: its program, and the figures that a wrapper may query.

    Nothing is compiled to a binary, so it spills nothing and shares no memory; wrappers that size
    their grid by occupancy then use the device's own limits. `session` is that of the running call.
    """

    session: Session
    n_regs = 32
    n_spills = 0
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
        self.asm = Table(f"{self.name}.asm", {"ttir": program.text, "source": program.text})
        sizes = ("shared", "tmem_size", "global_scratch_size", "profile_scratch_size")
        facts = {"name": self.name, "hash": self.hash, "target": target}
        facts |= {"warp_size": target.warp_size, **dict.fromkeys(sizes, 0)}
        self.metadata = Facts(f"{self.name}.metadata", **{**options.__dict__, **facts})
        # from Hopper on descriptors are made in global memory; elsewhere they become pointers
        describes = "tt.make_tensor_descriptor" in program.text
        self.needs_scratch = describes and target.backend == "cuda" and target.arch >= 90

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise make_unknown_name(f"a compiled kernel's {name}")

    def _init_handles(self) -> None:
        return None

    def result(self) -> Kernel:
        return self

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> Any:
        """What Triton passes to launch hooks: the kernel's name, and its own launch metadata."""
        if knobs.runtime.launch_enter_hook is None and knobs.runtime.launch_exit_hook is None:
            return None
        facts = {"name": self.name, "function": 0, "stream": stream}
        describe = self.src.fn.launch_metadata

        def get() -> dict[str, Any]:  # called by a hook, as Triton's is
            if describe is None:
                return facts
            named = dict(zip(self.src.fn.arg_names, args, strict=False))
            return facts | describe(grid, self.metadata, named)

        return Facts("launch_metadata", get=get)

    def run(
        self, x: Any, y: Any, z: Any, stream: Any, function: Any, packed: Any,
        metadata: Any, enter: Any, exit: Any, *args: Any,
    ) -> None:  # fmt: skip
        """Triton's launcher: runs the grid."""
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
    src: Any, target: Any, options: Any, dots: str | None, sampled: bool = False
) -> Program:
    """The program of one specialisation of a kernel; `dots` is the target whose dots are imitated.

    Raises CompileError where Triton refuses the kernel, Unsupported for what cannot be read.
    """
    key = f"{identify(src)} {target} {options} {dots} {sampled}"
    program = _programs.get(key)
    if program is None:
        text = make_ttir(src, target, options)
        if src.fn.is_gluon():
            words = "is written in Gluon, of which the simulator sees nothing; judge it on a GPU"
            raise Unseen(f"{name_of(src)} {words}: --device cuda")
        try:
            program = _programs[key] = lower(read_module(text), dots, text, sampled)
        except ReadError as error:
            words = f"{name_of(src)}: TTIR that the simulator cannot read: {error}"
            raise Unsupported(words) from None
        if len(_programs) > _MOST_PROGRAMS:
            _programs.popitem(last=False)
    _programs.move_to_end(key)
    return program


def compile_kernel(src: Any, target: Any = None, options: Any = None, **_: Any) -> Kernel:
    """What Triton calls to compile a specialisation."""
    backend = make_backend(target)
    # asserts are always judged; overflow is checked here, not by code that Triton inserts
    wanted = {**dict(options or {}), "debug": True, "sanitize_overflow": False}
    parsed = backend.parse_options(wanted)
    session = Kernel.session
    program = compile_program(src, target, parsed, session.target, session.sampled)
    return Kernel(src, target, backend.parse_options(dict(options or {})), program)


def _launch(session: Session, kernel: Kernel, grid: tuple[Any, ...], args: tuple[Any, ...]) -> None:
    where = calling_line()
    sizes = check_grid(kernel.name, grid)
    if kernel.needs_scratch and isinstance(_allocation._allocator.get(), _allocation.NullAllocator):
        words = "needs memory for the tensor descriptors that it makes"
        raise KernelError(f"{kernel.name} {words}, but nothing called triton.set_allocator", where)
    src, program = kernel.src, kernel.program
    names = src.fn.arg_names
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
    try:
        run_grid(program, context, values)
    except BaseException:
        if session.sampled:  # it ends in the middle of a launch, and keeps what was seen
            _record(session, kernel, context, where, args)
        raise
    _record(session, kernel, context, where, args)


def _record(
    session: Session, kernel: Kernel, context: Context, where: Where, args: tuple[Any, ...]
) -> None:
    """Keep what a launch showed."""
    src, sizes = kernel.src, context.grid
    session.sightings += [(kernel.name, sighting) for sighting in context.sightings]
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
            session.config % session.configs,
            session.configs,
            tuple(sorted(context.tiles)),
            context.atomics,
            where,
            tuple(sorted(context.rounds | ({"fma"} if kernel.program.may_contract else set()))),
            {name: x for name, x in zip(src.fn.arg_names, args, strict=True) if type(x) is int},
            session.written,
            frozenset(context.dots),
            kernel.specialisation,
        )
    )
