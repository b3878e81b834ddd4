"""Launches captured and compiled without a GPU."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
from triton import knobs
from triton.compiler.compiler import make_backend
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from gemmproof.lowering.captured_output import ENOUGH, hear
from gemmproof.lowering.ptx import UNKNOWN_PLACE, read_ptx
from gemmproof.reference.dot.triton_dot import get_version
from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.fake_cuda.driver import swap
from gemmproof.reference.provenance import calling_line
from gemmproof.reference.simulation import NOWHERE, CompileError, KernelError, Where
from gemmproof.reference.simulator.launch import Kernel
from gemmproof.reference.triton_frontend import make_ttir

# -- capture -------------------------------------------------------------------------------------
DIVISIBILITY = "tt.divisibility"  # an attribute of arguments that 16 is known to divide
_SPECIALISED = re.compile(r"\*.*|[iu]\d+|constexpr")


@dataclass(frozen=True)
class CapturedLaunch:
    """A kernel as Triton was asked to compile it: types, constants and options of a real call.

    `tuned` is the configuration that its tuner gave it, the `index`-th of `configurations`; `grids`
    are those that it was launched on, one for each launch that only compiles the same. `where` is
    the wrapper's line that launches it.
    """

    gpu: str
    source: Any
    target: Any
    options: Any
    tuned: Mapping[str, Any] = field(default_factory=dict)
    configurations: int = 1
    index: int = 0
    where: Where = NOWHERE
    grids: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def kernel(self) -> str:
        """Its name."""
        return str(self.source.fn.__name__)

    @property
    def constants(self) -> dict[str, Any]:
        """By the kernel's names for them."""
        names = self.source.fn.arg_names
        return {names[path[0]]: x for path, x in self.source.constants.items() if len(path) == 1}

    @property
    def configuration(self) -> dict[str, Any]:
        """The tuned constants, or of a kernel without a tuner those that are numbers and words."""
        if self.tuned:
            kept = {name: x for name, x in self.tuned.items() if name in self.constants}
        else:
            declared = {p.name for p in self.source.fn.params if p.is_constexpr}
            kept = {name: x for name, x in self.constants.items() if name in declared}
        plain = {name: getattr(x, "value", x) for name, x in kept.items()}
        return {name: x for name, x in plain.items() if isinstance(x, bool | int | float | str)}

    @property
    def specialised(self) -> dict[str, str]:
        """What Triton knows of each pointer and each integer that is no constant of the source."""
        known, constants = {}, self.constants
        divisible = {
            path[0]
            for path, given in self.source.attrs.items()
            if len(path) == 1 and any(name == DIVISIBILITY for name, _ in given)
        }
        for i, parameter in enumerate(self.source.fn.params):
            kind = self.source.signature.get(parameter.name, "")
            if not parameter.is_constexpr and _SPECIALISED.fullmatch(kind):
                is_one = parameter.name in constants and constants[parameter.name] == 1
                known[parameter.name] = "1" if is_one else "16" if i in divisible else ""
        return known

    @property
    def descriptors(self) -> list[str]:
        """The types of the arguments that are descriptors."""
        return [x for x in self.source.signature.values() if x.startswith("tensordesc")]

    @property
    def key(self) -> tuple[str, str]:
        """The same of launches that compile to the same."""
        return self.source.hash(), self.options.hash()


class _Launched(Kernel):
    """What a wrapper is given for a compiled kernel: launching it notes the grid."""

    launch: CapturedLaunch

    def run(self, x: Any, y: Any, z: Any, *others: Any, **named: Any) -> None:
        """Triton's launcher."""
        self.launch.grids.append((int(x), int(y), int(z)))


@contextmanager
def capture_launches(gpu: str, every: bool = True) -> Iterator[list[CapturedLaunch]]:
    """Within it wrappers find this GPU; what they launch is put on the list that it yields.

    A tuned kernel is launched in `every` configuration that its own pruning leaves, or in the
    first of them.
    """
    made: list[CapturedLaunch] = []
    tuned: dict[str, Any] = {"config": {}, "of": 1, "index": 0}

    def record(
        self: Any, key: Any, signature: Any, device: Any, constexprs: Any, options: Any, attrs: Any,
        warmup: Any,
    ) -> Any:  # fmt: skip
        source = self.ASTSource(self, signature, constexprs, attrs)
        target = self.device_caches[device][2]
        chosen = (tuned["config"], tuned["of"], tuned["index"])
        launch = CapturedLaunch(gpu, source, target, options, *chosen, calling_line())
        made.append(launch)
        stand_in = _Launched(source, target, options, SimpleNamespace(text=""))  # type: ignore[arg-type]
        stand_in.launch = launch
        return stand_in

    def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configs = list(self.prune_configs(kwargs))
        if not configs:
            raise KernelError(f"{self.base_fn.__name__}: autotune leaves no configuration")
        result = None
        before = dict(tuned)
        try:
            for index, config in enumerate(configs if every else configs[:1]):
                given = config.all_kwargs()
                tuned.update({"config": given, "of": len(configs), "index": index})
                if config.pre_hook is not None:
                    config.pre_hook({**self.nargs, **kwargs, **given})
                result = self.fn.run(*args, **kwargs, **given)
        finally:
            tuned.update(before)
            self.nargs = None
        return result

    with fake_gpu(gpu):
        changes = (
            # by it Triton keeps what it knows of a device
            (driver.active, "get_current_device", lambda: f"captured {gpu}"),
            (JITFunction, "_do_compile", record),
            (Autotuner, "run", tune),
        )
        with swap(changes):
            yield made


def join_launches(made: list[CapturedLaunch]) -> list[CapturedLaunch]:
    """Each that compiles to something of its own once, with the grids of all that are the same."""
    found: dict[tuple[str, str], CapturedLaunch] = {}
    for launch in made:
        first = found.setdefault(launch.key, launch)
        if first is not launch:
            first.grids.extend(launch.grids)
    return list(found.values())


# -- compile -------------------------------------------------------------------------------------
_DIAGNOSTIC = re.compile(r'^(?:loc\()?"?([^"\n]+?)"?:(\d+):\d+\)?: error: (.*)$', re.MULTILINE)
_PTXAS = re.compile(
    r"^ptxas\S*(?: [^;\n]*, line (\d+);)? +(?:error|fatal)\s*:\s*(.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class CompiledLaunch:
    """What Triton made of a launch: `asm` by the name of each form, text but for the binary.

    `seconds` of CPU time went into it.
    """

    launch: CapturedLaunch
    asm: Mapping[str, Any]
    metadata: Any
    seconds: float


_gpu_of_fp8: str | None = None  # the first GPU that this process compiled conversions of fp8 for


def can_compile_here(launch: CapturedLaunch) -> bool:
    """Return whether this process compiles a launch as a new process would.

    Triton 3.6 converts fp8 in the same way for every GPU: as the first one of the process needs it.
    Another GPU may not have those instructions, so that a right kernel would be refused.
    """
    global _gpu_of_fp8
    if get_version() >= (3, 7):
        return True
    try:
        text = make_ttir(launch.source, launch.target, launch.options)
    except CompileError:
        return True
    if "f8E" not in text:
        return True
    _gpu_of_fp8 = _gpu_of_fp8 or launch.gpu
    return launch.gpu == _gpu_of_fp8


def compile_launch(launch: CapturedLaunch, room: Path, assemble: bool = True) -> CompiledLaunch:
    """Compile a launch; nothing is taken from a cache, and nothing left but in `room`.

    Without `assemble` PTX is the last of its forms, and the binary is empty.
    Raises CompileError with the compiler's own message and line.
    """
    folder = Path(tempfile.mkdtemp(dir=room))
    backend = type(make_backend(launch.target))
    skips = not assemble and hasattr(backend, "make_cubin")
    skipped = ((backend, "make_cubin", lambda *args, **kwargs: b""),) if skips else ()
    with (
        _own_cache(folder),
        swap(skipped),
        hear(room, launch.gpu) as said,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        started = _count_seconds()
        try:
            made = triton.compile(
                launch.source, target=launch.target, options=dict(launch.options.__dict__)
            )
            seconds = _count_seconds() - started
            # they are files of the cache, and read when they are asked for
            asm = {name: made.asm[name] for name in list(made.asm)}
        except MemoryError:
            raise
        except Exception as error:
            raise _explain(launch, error, said(), folder) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return CompiledLaunch(launch, asm, made.metadata, seconds)


def _count_seconds() -> float:
    """CPU seconds of this process and of those that it waited for, such as ptxas."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@contextlib.contextmanager
def _own_cache(folder: Path) -> Iterator[None]:
    """Within it Triton's cache is this folder, and so are temporary files."""
    place = tempfile.tempdir
    with knobs.cache.scope():
        knobs.cache.dir = tempfile.tempdir = str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = place


def _explain(launch: CapturedLaunch, error: Exception, said: str, folder: Path) -> CompileError:
    """The compiler's own words, and the source's line where it names one.

    Those of the frontend are in what it raised, those of what is below it in what it printed.
    """
    try:
        make_ttir(launch.source, launch.target, launch.options)
    except CompileError as refusal:
        return refusal
    except Exception:  # the error below is the one to tell
        pass
    told = str(error).partition("Repro command:")[0].replace("`ptxas` stderr:", "")
    words, where = " ".join(told.split()) or type(error).__name__, None
    if found := _DIAGNOSTIC.search(said):
        where, words = Where(found[1], int(found[2]), launch.kernel), " ".join(found[3].split())
    elif found := _PTXAS.search(f"{said}\n{error}"):
        words = f"ptxas: {' '.join(found[2].split())}"
        where = _find_source(folder, int(found[1] or 0), launch.kernel)
    return CompileError(f"compiling {launch.kernel} for {launch.gpu}: {words[:ENOUGH]}", where)


def _find_source(folder: Path, line: int, kernel: str) -> Where | None:
    """The source of a line of the PTX that Triton leaves where ptxas refused it."""
    left = next(folder.glob("*.ptx"), None)
    if left is None or not line:
        return None
    text = left.read_text(errors="replace")
    above = "\n".join(text.splitlines()[:line])
    files = "\n".join(x for x in text.splitlines() if x.lstrip().startswith(".file"))
    statements = read_ptx(f"{above};\n{files}").statements
    file, number, _ = statements[-1].place if statements else UNKNOWN_PLACE
    return Where(file, number, kernel) if file else None
