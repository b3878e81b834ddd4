"""Launches captured and compiled without a GPU, each compiler in a process of its own."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
from triton import knobs

from gemmproof.compiled.facts import read_facts
from gemmproof.compiled.ptx import read_ptx
from gemmproof.compiled.record import RESULT, UNKNOWN_PLACE, Failure, LoweredLaunch, Result
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import operands
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.fake_cuda import fake_gpu
from gemmproof.reference.provenance import calling_line, format_error
from gemmproof.reference.simulation import NOWHERE, CompileError, Where
from gemmproof.reference.simulator.launch import Kernel
from gemmproof.reference.triton_frontend import FailedStaticAssert, find_def_line, make_ttir
from gemmproof.reference.triton_hooks import TunedLaunch, intercept, without_assembler
from gemmproof.target import display_path
from gemmproof.worker.forked import Ending, run_forked
from gemmproof.worker.processes import available_memory, format_signal
from gemmproof.worker.protocol import CaseStarted, Listener, PartialResult, WorkerContext

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
    tuned: Mapping[str, object] = field(default_factory=dict)
    configurations: int = 1
    index: int = 0
    where: Where = NOWHERE
    grids: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return str(self.source.fn.__name__)

    @property
    def constants(self) -> dict[str, object]:
        """The constants, by the kernel's names for them."""
        names = self.source.fn.arg_names
        return {names[path[0]]: x for path, x in self.source.constants.items() if len(path) == 1}

    @property
    def configuration(self) -> dict[str, bool | int | float | str]:
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
            kind = str(self.source.signature.get(parameter.name, ""))  # or a tuple of kinds
            if not parameter.is_constexpr and _SPECIALISED.fullmatch(kind):
                is_one = parameter.name in constants and constants[parameter.name] == 1
                specialised[parameter.name] = "1" if is_one else "16" if i in divisible else ""
        return specialised

    @property
    def descriptors(self) -> list[str]:
        """The types of the arguments that are descriptors."""
        kinds = map(str, self.source.signature.values())
        return [x for x in kinds if x.startswith("tensordesc")]

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
    tuned: tuple[Mapping[str, object], int, int] = ({}, 1, 0)  # configuration, count, index

    def record(
        original: Any, kernel: Any, key: Any, signature: Any, device: Any, constexprs: Any,
        options: Any, attrs: Any, warmup: Any,
    ) -> Any:  # fmt: skip
        source = kernel.ASTSource(kernel, signature, constexprs, attrs)
        target = kernel.device_caches[device][2]
        launch = CapturedLaunch(gpu, source, target, options, *tuned, calling_line())
        if launch.configurations > 1:
            _require_asserts(launch)
        launches.append(launch)
        stand_in = _Launched(source, target, options, SimpleNamespace(text=""))  # type: ignore[arg-type]
        stand_in.launch = launch
        return stand_in

    def tune(launch: TunedLaunch) -> Any:
        nonlocal tuned
        configs = launch.prune()
        result = None
        before = tuned
        try:
            for index, config in enumerate(configs if every else configs[:1]):
                tuned = (config.all_kwargs(), len(configs), index)
                with contextlib.suppress(FailedStaticAssert):  # Triton's tuner drops it
                    result = launch.run(config)
        finally:
            tuned = before
        return result

    with fake_gpu(gpu), intercept(compile=record, tune=tune, device=f"captured {gpu}"):
        yield launches


# by the key of a launch: the static_assert that fails in it, or None
_failed_asserts: dict[tuple[str, str], FailedStaticAssert | None] = {}


def _require_asserts(launch: CapturedLaunch) -> None:
    """Raise FailedStaticAssert if a static_assert excludes the launch's configuration."""
    if launch.key not in _failed_asserts:
        _failed_asserts[launch.key] = None
        try:
            make_ttir(launch.source, launch.target, launch.options)
        except FailedStaticAssert as error:
            _failed_asserts[launch.key] = error
        except CompileError:  # compiling it reports the error
            pass
    failed = _failed_asserts[launch.key]
    if failed is not None:
        raise failed


def join_launches(launches: list[CapturedLaunch]) -> list[CapturedLaunch]:
    """Join launches that compile to the same code, with all of their grids."""
    joined: dict[tuple[str, str], CapturedLaunch] = {}
    for launch in launches:
        first = joined.setdefault(launch.key, launch)
        if first is not launch:
            first.grids.extend(launch.grids)
    return list(joined.values())


def capture_case(
    kernel: KernelUnderTest, case: Case, gpu: str, every: bool = True
) -> list[CapturedLaunch]:
    """Capture the launches of a wrapper's call with a case. Raises what the wrapper raises."""
    tensors = {name: x.tensor for name, x in operands(case, kernel).items()}
    with capture_launches(gpu, every) as launches, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel.call(case, tensors)
    return launches


def describe_launch(launch: CapturedLaunch, dtype: str = "", case: str = "") -> LoweredLaunch:
    """Return the record of a launch before it is compiled; the case is JSON."""
    code = getattr(launch.source.fn.fn, "__code__", None)
    defined = Where(code.co_filename, find_def_line(launch.source.fn), "") if code else NOWHERE
    return LoweredLaunch(
        target=launch.gpu,
        kernel=launch.kernel,
        dtype=dtype,
        configuration=launch.configuration,
        configurations=launch.configurations,
        grid=launch.grids[0] if launch.grids else None,
        launches=len(launch.grids),
        specialised=launch.specialised,
        warps=int(launch.options.num_warps),
        stages=int(launch.options.num_stages),
        index=launch.index,
        case=case,
        launched_at=format_line(launch.where),
        defined_at=format_line(defined),
    )


def format_line(where: Where | None) -> str:
    """Format a line of the source for a report; "" if it is not known."""
    return f"{display_path(where.file)}:{where.line}" if where is not None and where.line else ""


# -- compile -------------------------------------------------------------------------------------
_DIAGNOSTIC = re.compile(r'^(?:loc\()?"?([^"\n]+?)"?:(\d+):\d+\)?: error: (.*)$', re.MULTILINE)
_PTXAS = re.compile(
    r"^ptxas\S*(?: [^;\n]*, line (\d+);)? +(?:error|fatal)\s*:\s*(.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class CompiledLaunch:
    """Triton's output for a launch: `asm` by the name of each form, text but for the binary.

    "ptxas" among them is the output of ptxas -v. `seconds` is the CPU time that it took.
    """

    asm: Mapping[str, Any]
    metadata: Any
    seconds: float


def compile_launch(launch: CapturedLaunch, workdir: Path, assemble: bool = True) -> CompiledLaunch:
    """Compile a launch without a cache; files are left only in `workdir`.

    Without `assemble` PTX is the last of its forms, and the binary is empty. Raises CompileError
    with the compiler's own message and line.
    """
    folder = Path(tempfile.mkdtemp(dir=workdir))
    with (
        _private_cache(folder),
        contextlib.nullcontext() if assemble else without_assembler(launch.target),
        _redirect_output(workdir, launch.gpu) as read_output,
        contextlib.redirect_stdout(io.StringIO()) as printed,
        warnings.catch_warnings(),
        knobs.nvidia.scope(),
    ):
        warnings.simplefilter("ignore")
        knobs.nvidia.dump_ptxas_log = True
        started = _count_seconds()
        try:
            compiled = triton.compile(
                launch.source, target=launch.target, options=dict(launch.options.__dict__)
            )
            seconds = _count_seconds() - started
            # they are files of the cache, read on access
            asm = {name: compiled.asm[name] for name in list(compiled.asm)}
            asm["ptxas"] = printed.getvalue()
        except MemoryError:
            raise
        except Exception as error:
            output = read_output() + printed.getvalue()
            raise _explain(launch, error, output, folder) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return CompiledLaunch(asm, compiled.metadata, seconds)


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
    message = message[:MOST_SHOWN]
    return CompileError(f"compiling {launch.kernel} for {launch.gpu}: {message}", where)


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


_MISSING = ("Cannot find", "No such file", "not found", ".version", "ISA version")
# a failure of ptxas itself: for a faulty program the message has a code (C7602) or lines
_TOOL = re.compile(r"ptxas\S*(?: [^;\n]*;)? +fatal\s*:(?!\s*(?:Ptx assembly aborted|\(C\d+\)))")


def _is_of_tools(error: CompileError) -> bool:
    """Return whether a compilation failed because a tool is missing or does not know the GPU."""
    cause = error.__cause__
    text = str(cause)
    if isinstance(cause, OSError | ImportError) or any(phrase in text for phrase in _MISSING):
        return True
    # a tool that died, or was killed, judged nothing
    died = "raised SIGSEGV" in text or re.search(r"failed with error code -\d+", text)
    return bool(_TOOL.search(text) or died)


@dataclass(frozen=True, slots=True)
class PlannedLaunch:
    """A launch to be compiled: its label for progress, its record so far, and what was captured."""

    label: str
    record: LoweredLaunch
    captured: CapturedLaunch


def lower_launch(planned: PlannedLaunch, workdir: Path, assemble: bool = True) -> LoweredLaunch:
    """Compile a launch in this process: return its record with the facts, or the refusal."""
    try:
        compiled = compile_launch(planned.captured, workdir, assemble)
    except CompileError as error:
        where, failed = format_line(error.where), _is_of_tools(error)
        return replace(planned.record, error=error.message, where=where, tools_failed=failed)
    lowered = read_facts(planned.record, compiled.asm, compiled.metadata)
    return replace(lowered, seconds=round(compiled.seconds, 3))


# -- output --------------------------------------------------------------------------------------
MOST_SHOWN = 300  # characters of a message
_OUTPUT = ".output"
_FATAL = re.compile(r"^(?:LLVM ERROR|fatal error|error): (.*)$", re.MULTILINE)


@contextmanager
def _redirect_output(workdir: Path, gpu: str) -> Iterator[Callable[[], str]]:
    """Redirect the output of compilers, such as MLIR and LLVM, to a file; yield its reader.

    The file has a name, so that the output survives a compiler that kills the process.
    """
    file = workdir / f"{gpu}{_OUTPUT}"

    def flush() -> None:
        sys.stdout.flush()
        sys.stderr.flush()

    def read() -> str:
        flush()
        return file.read_text(errors="replace")

    flush()
    with file.open("wb") as output:
        before = [os.dup(1), os.dup(2)]
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        try:
            yield read
        finally:
            flush()
            for number, copy in enumerate(before, 1):
                os.dup2(copy, number)
                os.close(copy)


def _find_last_error(workdir: Path, gpu: str) -> str:
    """Return the last error of a compiler that killed its process, "" if there is none."""
    file = workdir / f"{gpu}{_OUTPUT}"
    errors = _FATAL.findall(file.read_text(errors="replace")) if file.is_file() else []
    return " ".join(errors[-1].split())[:MOST_SHOWN] if errors else ""


# -- processes -----------------------------------------------------------------------------------
def _ignore(*reported: object) -> None:
    pass


@dataclass(slots=True)
class Compiler:
    """The limits of compilations in child processes: each may take `seconds` and `memory`.

    `begin` is called with the number of each launch before it is compiled, `finish` with it and the
    result. `lower` compiles one, in the child.
    """

    workdir: Path
    seconds: float = float("inf")
    memory: int = sys.maxsize
    begin: Callable[[int], None] = _ignore
    finish: Callable[[int, Result], None] = _ignore
    lower: Callable[[PlannedLaunch, Path], LoweredLaunch] = lower_launch

    def compile(self, launches: Sequence[PlannedLaunch]) -> list[Result]:
        """Compile each launch; after one that ended its process a new child does the others.

        Each GPU has its own child: Triton 3.6 converts fp8 in the same way for every GPU, as the
        first one of the process needs it.
        """
        results: list[Result] = []
        end = 0

        def add(result: Result) -> None:
            results.append(result)
            self.finish(len(results) - 1, result)
            if len(results) < end:
                self.begin(len(results))

        for gpu, same in groupby(launches, key=lambda x: x.captured.gpu):
            end += len(list(same))
            self.begin(len(results))
            while len(results) < end:
                rest = launches[len(results) : end]
                task = partial(self._compile_all, rest)
                ending = run_forked(task, add, self.seconds, self.memory)
                if len(results) < end:
                    output = _find_last_error(self.workdir, gpu)
                    how = f"{self._explain(ending)}{output and f' ({output})'}"
                    add(Failure(launches[len(results)].label, how))
        return results

    def _compile_all(
        self, launches: Sequence[PlannedLaunch], send: Callable[[Result], None]
    ) -> None:
        """Compile launches in the child."""
        for planned in launches:
            result: Result
            try:
                result = self.lower(planned, self.workdir)
            except MemoryError:
                result = Failure(planned.label, "this machine has no memory left")
            except BaseException as error:
                traceback.print_exc()
                reason = f"gemmproof itself failed, please report it: {format_error(error)}"
                result = Failure(planned.label, reason, internal=True)
            send(result)

    def _explain(self, ending: Ending) -> str:
        if ending.kind == "hang":
            return f"it timed out after {self.seconds:g} s; a larger --time-limit allows more"
        if ending.kind == "memory":
            allowed = f"{self.memory / 2**30:.3g} allowed"
            return f"it used {ending.used / 2**30:.1f} GiB of memory ({allowed})"
        died = f"died of {format_signal(-ending.code)}" if ending.code < 0 else "ended"
        return f"the compiler's process {died}"


def compile_for(
    context: WorkerContext, launches: Sequence[PlannedLaunch], first: int = 0, of: int = 0
) -> list[Result]:
    """Compile launches within the limits of a worker, and send each result by its number.

    They are `first` and later ones, of `of` or of all that are given.
    """

    def begin(number: int) -> None:
        label, index = launches[number].label, first + number
        context.emit(CaseStarted(label, "compile", index, of or len(launches)))

    def finish(number: int, result: Result) -> None:
        send_result(context.emit, first + number, result)

    memory = min(context.memory, int(0.8 * available_memory()))
    compiler = Compiler(context.folder, context.seconds, memory, begin, finish)
    return compiler.compile(launches)


def send_result(emit: Listener, number: int, result: Result) -> None:
    """Send the result of a launch, by its number, to the parent process."""
    emit(PartialResult(RESULT, (number, result)))
