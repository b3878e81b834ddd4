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

from gemmproof.lowering.captured_output import ENOUGH, hear
from gemmproof.lowering.ptx import UNKNOWN_PLACE, read_ptx
from gemmproof.reference.dot.triton_dot import get_version
from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.provenance import calling_line
from gemmproof.reference.simulation import NOWHERE, CompileError, Where
from gemmproof.reference.simulator.launch import Kernel
from gemmproof.reference.triton_frontend import make_ttir
from gemmproof.reference.triton_hooks import TunedLaunch, intercept, without_assembler

# -- capture -------------------------------------------------------------------------------------
DIVISIBILITY = "tt.divisibility"  # an attribute of arguments known to be divisible by 16
_SPECIALISED = re.compile(r"\*.*|[iu]\d+|constexpr")


@dataclass(frozen=True)
class CapturedLaunch:
    """A kernel as Triton was asked to compile it: types, constants and options of a real call.

    `tuned` is the configuration that its tuner gave it, the `index`-th of `configurations`; `grids`
    are those that it was launched on, one for each launch that compiles to the same. `where` is the
    wrapper's line that launches it.
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
        """The kernel's name."""
        return str(self.source.fn.__name__)

    @property
    def constants(self) -> dict[str, Any]:
        """The constants, by the kernel's names for them."""
        names = self.source.fn.arg_names
        return {names[path[0]]: x for path, x in self.source.constants.items() if len(path) == 1}

    @property
    def configuration(self) -> dict[str, Any]:
        """The tuned constants, or without a tuner those that are numbers or strings."""
        if self.tuned:
            kept = {name: x for name, x in self.tuned.items() if name in self.constants}
        else:
            declared = {p.name for p in self.source.fn.params if p.is_constexpr}
            kept = {name: x for name, x in self.constants.items() if name in declared}
        plain = {name: getattr(x, "value", x) for name, x in kept.items()}
        return {name: x for name, x in plain.items() if isinstance(x, bool | int | float | str)}

    @property
    def specialised(self) -> dict[str, str]:
        """The specialisation of each pointer and integer that is no constant of the source."""
        specialised, constants = {}, self.constants
        divisible = {
            path[0]
            for path, attributes in self.source.attrs.items()
            if len(path) == 1 and any(name == DIVISIBILITY for name, _ in attributes)
        }
        for i, parameter in enumerate(self.source.fn.params):
            kind = self.source.signature.get(parameter.name, "")
            if not parameter.is_constexpr and _SPECIALISED.fullmatch(kind):
                is_one = parameter.name in constants and constants[parameter.name] == 1
                specialised[parameter.name] = "1" if is_one else "16" if i in divisible else ""
        return specialised

    @property
    def descriptors(self) -> list[str]:
        """The types of the arguments that are descriptors."""
        return [x for x in self.source.signature.values() if x.startswith("tensordesc")]

    @property
    def key(self) -> tuple[str, str]:
        """The key of a launch, equal for launches that compile to the same code."""
        return self.source.hash(), self.options.hash()


class _Launched(Kernel):
    """A stand-in for a compiled kernel: launching it records the grid."""

    launch: CapturedLaunch

    def run(self, x: Any, y: Any, z: Any, *others: Any, **named: Any) -> None:
        """Record the grid, in place of Triton's launcher."""
        self.launch.grids.append((int(x), int(y), int(z)))


@contextmanager
def capture_launches(gpu: str, every: bool = True) -> Iterator[list[CapturedLaunch]]:
    """Simulate this GPU for wrappers in the context; yield the list of their launches.

    A tuned kernel is launched in `every` configuration that its own pruning leaves, or only in the
    first of them.
    """
    launches: list[CapturedLaunch] = []
    tuned: dict[str, Any] = {"config": {}, "of": 1, "index": 0}

    def record(
        original: Any, kernel: Any, key: Any, signature: Any, device: Any, constexprs: Any,
        options: Any, attrs: Any, warmup: Any,
    ) -> Any:  # fmt: skip
        source = kernel.ASTSource(kernel, signature, constexprs, attrs)
        target = kernel.device_caches[device][2]
        chosen = (tuned["config"], tuned["of"], tuned["index"])
        launch = CapturedLaunch(gpu, source, target, options, *chosen, calling_line())
        launches.append(launch)
        stand_in = _Launched(source, target, options, SimpleNamespace(text=""))  # type: ignore[arg-type]
        stand_in.launch = launch
        return stand_in

    def tune(launch: TunedLaunch) -> Any:
        configs = launch.prune()
        result = None
        before = dict(tuned)
        try:
            for index, config in enumerate(configs if every else configs[:1]):
                tuned.update({"config": config.all_kwargs(), "of": len(configs), "index": index})
                result = launch.run(config)
        finally:
            tuned.update(before)
        return result

    with fake_gpu(gpu), intercept(compile=record, tune=tune, device=f"captured {gpu}"):
        yield launches


def join_launches(launches: list[CapturedLaunch]) -> list[CapturedLaunch]:
    """Join launches that compile to the same code, with all of their grids."""
    joined: dict[tuple[str, str], CapturedLaunch] = {}
    for launch in launches:
        first = joined.setdefault(launch.key, launch)
        if first is not launch:
            first.grids.extend(launch.grids)
    return list(joined.values())


# -- compile -------------------------------------------------------------------------------------
_DIAGNOSTIC = re.compile(r'^(?:loc\()?"?([^"\n]+?)"?:(\d+):\d+\)?: error: (.*)$', re.MULTILINE)
_PTXAS = re.compile(
    r"^ptxas\S*(?: [^;\n]*, line (\d+);)? +(?:error|fatal)\s*:\s*(.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class CompiledLaunch:
    """Triton's output for a launch: `asm` by the name of each form, text but for the binary.

    `seconds` is the CPU time that it took.
    """

    launch: CapturedLaunch
    asm: Mapping[str, Any]
    metadata: Any
    seconds: float


_gpu_of_fp8: str | None = None  # the first GPU for which this process compiled fp8 conversions


def can_compile_here(launch: CapturedLaunch) -> bool:
    """Return whether this process compiles a launch as a new process would.

    Triton 3.6 converts fp8 in the same way for every GPU: as the first one of the process needs it.
    Another GPU may not have those instructions, so a correct kernel would be refused.
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


def compile_launch(launch: CapturedLaunch, workdir: Path, assemble: bool = True) -> CompiledLaunch:
    """Compile a launch without a cache; files are left only in `workdir`.

    Without `assemble` PTX is the last of its forms, and the binary is empty. Raises CompileError
    with the compiler's own message and line.
    """
    folder = Path(tempfile.mkdtemp(dir=workdir))
    with (
        _private_cache(folder),
        contextlib.nullcontext() if assemble else without_assembler(launch.target),
        hear(workdir, launch.gpu) as read_output,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        started = _count_seconds()
        try:
            compiled = triton.compile(
                launch.source, target=launch.target, options=dict(launch.options.__dict__)
            )
            seconds = _count_seconds() - started
            # they are files of the cache, read on access
            asm = {name: compiled.asm[name] for name in list(compiled.asm)}
        except MemoryError:
            raise
        except Exception as error:
            raise _explain(launch, error, read_output(), folder) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return CompiledLaunch(launch, asm, compiled.metadata, seconds)


def _count_seconds() -> float:
    """Return the CPU seconds of this process and of its finished children, such as ptxas."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@contextlib.contextmanager
def _private_cache(folder: Path) -> Iterator[None]:
    """Use the folder as Triton's cache and for temporary files in the context."""
    previous = tempfile.tempdir
    with knobs.cache.scope():
        knobs.cache.dir = tempfile.tempdir = str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = previous


def _explain(launch: CapturedLaunch, error: Exception, output: str, folder: Path) -> CompileError:
    """Make an error with the compiler's own message, and the source's line if it names one.

    The frontend's message is in the exception it raised, those of later passes in the output.
    """
    try:
        make_ttir(launch.source, launch.target, launch.options)
    except CompileError as refusal:
        return refusal
    except Exception:  # the error below is the one to report
        pass
    text = str(error).partition("Repro command:")[0].replace("`ptxas` stderr:", "")
    message, where = " ".join(text.split()) or type(error).__name__, None
    if match := _DIAGNOSTIC.search(output):
        where, message = Where(match[1], int(match[2]), launch.kernel), " ".join(match[3].split())
    elif match := _PTXAS.search(f"{output}\n{error}"):
        message = f"ptxas: {' '.join(match[2].split())}"
        where = _find_source(folder, int(match[1] or 0), launch.kernel)
    return CompileError(f"compiling {launch.kernel} for {launch.gpu}: {message[:ENOUGH]}", where)


def _find_source(folder: Path, line: int, kernel: str) -> Where | None:
    """Return the source of a line of the PTX that Triton leaves if ptxas refuses it."""
    path = next(folder.glob("*.ptx"), None)
    if path is None or not line:
        return None
    text = path.read_text(errors="replace")
    above = "\n".join(text.splitlines()[:line])
    files = "\n".join(x for x in text.splitlines() if x.lstrip().startswith(".file"))
    statements = read_ptx(f"{above};\n{files}").statements
    file, number, _ = statements[-1].location if statements else UNKNOWN_PLACE
    return Where(file, number, kernel) if file else None
