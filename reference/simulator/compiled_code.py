"""The code that Triton compiles a kernel's specialisation to, in a child process."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import re
import tempfile
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Pipe
from typing import Any

import triton
from triton import knobs

from gemmproof.reference.provenance import Heartbeat, calling_line
from gemmproof.reference.simulation import Unsupported

TICK = 0.2  # seconds between two heartbeats while the child compiles
_MOST_KEPT = 64


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """Compiled code: `asm` by the name of each form, `metadata` as Triton gives it.

    A thread has `registers`, of 32 bits, and keeps `spills` of them in memory.
    """

    asm: dict[str, Any]
    metadata: dict[str, Any]
    registers: int
    spills: int


_compiled: dict[str, CompiledCode] = {}


def compile_code(src: Any, target: Any, options: Any) -> CompiledCode:
    """Compile a specialisation. Raises Unsupported if Triton's compiler gives no code.

    Those that differ only in what Triton knows of their integers share the code of the first: each
    takes seconds, and a check makes dozens.
    """
    key = f"{src.fn.cache_key} {target} {options.hash()} {_list_kinds(src)}"
    if key not in _compiled:
        _compiled[key] = _ask_child(src, target, options)
        if len(_compiled) > _MOST_KEPT:
            _compiled.pop(next(iter(_compiled)))
    return _compiled[key]


def _list_kinds(src: Any) -> list[str]:
    """List the constants of a specialisation that its source declares, and its other types."""
    kinds = []
    for i, parameter in enumerate(src.fn.params):
        kind = str(src.signature[parameter.name])
        if parameter.is_constexpr:
            kinds.append(repr(src.constants.get((i,))))
        else:  # an integer that is known to be 1 is a constant
            kinds.append("int" if kind.startswith(("constexpr", "i", "u")) else kind)
    return kinds


def _ask_child(src: Any, target: Any, options: Any) -> CompiledCode:
    """Compile in a child: LLVM may end its process."""
    receiver, sender = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            sender.send(_compile(src, target, options))
        except Exception as error:
            sender.send(" ".join(str(error).split())[:200] or type(error).__name__)
        finally:
            os._exit(0)
    sender.close()
    answer: CompiledCode | str
    try:
        while not receiver.poll(TICK):
            Heartbeat.give()
        answer = receiver.recv()
    except (EOFError, OSError):
        answer = "its process died"
    finally:
        receiver.close()
        os.waitpid(child, 0)
    if isinstance(answer, str):
        reason = f"{src.fn.__name__} cannot be compiled for {target.arch} here: {answer}"
        raise Unsupported(reason, calling_line())
    return answer


_REGISTERS = re.compile(r"Used (\d+) registers|\.vgpr_count: +(\d+)")
_SPILLS = re.compile(r"(\d+) bytes spill stores|\.vgpr_spill_count: +(\d+)")


def _compile(src: Any, target: Any, options: Any) -> CompiledCode:
    with (
        tempfile.TemporaryDirectory(prefix="gemmproof-") as folder,
        knobs.cache.scope(),
        knobs.nvidia.scope(),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        knobs.cache.dir = folder
        knobs.nvidia.dump_ptxas_log = True
        compiled = triton.compile(src, target=target, options=dict(options.__dict__))
        asm = {name: compiled.asm[name] for name in list(compiled.asm)}
        log = printed.getvalue() + str(asm.get("amdgcn", ""))
        registers, spilled = _read(_REGISTERS, log), _read(_SPILLS, log)
        is_amd = target.backend == "hip"
        metadata = compiled.metadata._asdict()
        return CompiledCode(asm, metadata, registers, spilled if is_amd else spilled // 4)


def _read(pattern: re.Pattern[str], text: str) -> int:
    match = pattern.search(text)
    return int(match[1] or match[2]) if match else 0
