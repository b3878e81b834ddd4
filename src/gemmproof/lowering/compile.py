"""One captured launch, compiled by Triton for its target: the texts, the binary, the seconds."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton import knobs

from gemmproof.lowering.capture import CapturedLaunch
from gemmproof.reference.observation import CompileError
from gemmproof.reference.ttir.frontend import make_ttir

ROOM = "gemmproof-lowering-"
_DIAGNOSTIC = re.compile(r'^(?:loc\()?"?([^"\n]+?)"?:(\d+):\d+\)?: error: (.*)$', re.MULTILINE)
_PTXAS = re.compile(r"^ptxas (?:fatal|error)\s*:\s*(.*)$", re.MULTILINE | re.IGNORECASE)
_ENOUGH = 300  # characters of a message


@dataclass(frozen=True)
class CompiledLaunch:
    """What Triton made of a launch: `asm` by the name of each form, text but for the binary."""

    launch: CapturedLaunch
    asm: Mapping[str, Any]
    metadata: Any
    seconds: float


def compile_launch(launch: CapturedLaunch, room: Path) -> CompiledLaunch:
    """Compile a launch; nothing is taken from a cache, and nothing left but in `room`.

    Raises CompileError with the compiler's own message and line, and FileNotFoundError for a tool
    that Triton needs and does not find.
    """
    folder = tempfile.mkdtemp(dir=room)
    with _own_cache(folder), _hear_errors() as said, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        try:
            made = triton.compile(
                launch.source, target=launch.target, options=dict(launch.options.__dict__)
            )
            seconds = time.perf_counter() - started
            # they are files of the cache, and read when they are asked for
            asm = {name: made.asm[name] for name in list(made.asm)}
        except (FileNotFoundError, MemoryError):
            raise
        except Exception as error:
            raise _explain(launch, error, said()) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return CompiledLaunch(launch, asm, made.metadata, seconds)


@contextlib.contextmanager
def _own_cache(folder: str) -> Iterator[None]:
    """Within it Triton's cache is this folder, and so are temporary files."""
    place = tempfile.tempdir
    with knobs.cache.scope():
        knobs.cache.dir = tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = place


@contextlib.contextmanager
def _hear_errors() -> Iterator[Any]:
    """Within it what the compiler prints, as MLIR and LLVM do, is kept; yields what reads it."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        before = [os.dup(1), os.dup(2)]
        os.dup2(kept.fileno(), 1)
        os.dup2(kept.fileno(), 2)

        def read() -> str:
            sys.stdout.flush()
            sys.stderr.flush()
            kept.seek(0)
            return kept.read().decode(errors="replace")

        try:
            yield read
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in enumerate(before, 1):
                os.dup2(copy, number)
                os.close(copy)


def _explain(launch: CapturedLaunch, error: Exception, said: str) -> CompileError:
    """The compiler's own words: of the frontend with the line that it blames, of what is below it
    those that it printed."""
    from gemmproof.reference.observation import Where

    try:
        make_ttir(launch.source, launch.target, launch.options)
    except CompileError as refusal:
        return refusal
    except Exception:  # the error below is the one to tell
        pass
    words = " ".join(str(error).split()) or type(error).__name__
    where = None
    if found := _DIAGNOSTIC.search(said):
        where, words = Where(found[1], int(found[2]), launch.kernel), " ".join(found[3].split())
    elif found := _PTXAS.search(f"{said}\n{error}"):
        words = f"ptxas: {found[1]}"
    said_more = f"{words[:_ENOUGH]}"
    return CompileError(f"{launch.gpu} refuses {launch.kernel}: {said_more}", where)
