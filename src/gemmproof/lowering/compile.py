"""One captured launch, compiled by Triton for its target: the texts, the binary, the seconds."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.compiler.compiler import make_backend

from gemmproof.lowering.binary.ptx import NOWHERE, read_ptx
from gemmproof.lowering.capture import CapturedLaunch
from gemmproof.lowering.said import ENOUGH, hear
from gemmproof.reference.dot.triton_dot import get_version
from gemmproof.reference.fake_cuda.driver import swap
from gemmproof.reference.simulation import CompileError, Where
from gemmproof.reference.triton_frontend import make_ttir

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
    file, number, _ = statements[-1].place if statements else NOWHERE
    return Where(file, number, kernel) if file else None
