"""Launches compiled in a forked child: what hangs, dies or fills the memory costs one launch.

The child has the very sources, types and options that were predicted, which no other process could
be given. One compiles all of them: it is the first that costs most.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmproof.lowering.capture import CapturedLaunch
from gemmproof.lowering.compile import compile_launch
from gemmproof.lowering.premise.compiled import CompiledDot, list_compiled, to_dicts
from gemmproof.lowering.said import find_last_words
from gemmproof.reference.provenance import tell_error
from gemmproof.reference.simulation import CompileError
from gemmproof.target import display_path
from gemmproof.worker.clock import Clock
from gemmproof.worker.processes import die_with_parent, group_of, memory_of_group

TICK = 0.01  # seconds between two looks at a child
BEAT = 0.5  # and between two signs of life

Compiler = Callable[[CapturedLaunch, Path], list[CompiledDot]]


class NotCompiled(Exception):
    """A launch of which nothing is known, and why, in words."""


def compile_dots(launch: CapturedLaunch, room: Path) -> list[CompiledDot]:
    """What the compiler makes of a launch's dots, in this process."""
    return list_compiled(compile_launch(launch, room, assemble=False))


@dataclass(slots=True)
class Apart:
    """How launches are compiled apart: each may take `seconds` and `memory`.

    `began` is called with the number of each before it is compiled, `advanced` now and then.
    """

    room: Path
    seconds: float
    memory: int
    began: Callable[[int], None]
    advanced: Callable[[], None]
    compiler: Compiler = compile_dots

    def compile(self, launches: Sequence[CapturedLaunch]) -> list[list[CompiledDot] | NotCompiled]:
        """What became of each launch; a child goes on with those after one that took it down."""
        found: list[list[CompiledDot] | NotCompiled] = []
        while len(found) < len(launches):
            rest, first = launches[len(found) :], len(found)
            made, end = self._run_child(rest, first)
            found += made
            if len(made) < len(rest):
                said = find_last_words(self.room, rest[len(made)].gpu)
                how = f"{end or 'a process that ended'}{said and f' ({said})'}"
                found.append(NotCompiled(how))
        return found

    def _run_child(
        self, launches: Sequence[CapturedLaunch], first: int
    ) -> tuple[list[list[CompiledDot] | NotCompiled], str]:
        """What a child told, one answer after the other, and how it ended; "" for its own end."""
        answers = self.room / "answers.jsonl"
        answers.write_text("")
        child = os.fork()
        if child == 0:
            try:
                with suppress(OSError):
                    os.setpgid(0, 0)
                die_with_parent()
                for launch in launches:
                    told = json.dumps(_answer(launch, self.room, self.compiler))
                    with answers.open("a") as file:
                        file.write(f"{told}\n")
            finally:
                os._exit(0)
        with suppress(OSError):  # whichever of the two comes first
            os.setpgid(child, child)
        try:
            end = self._follow(child, answers, first, len(launches))
        finally:
            _kill(child)  # with what it started, such as an assembler
        lines = answers.read_text().split("\n")[:-1]
        return [_read(json.loads(line)) for line in lines], end

    def _follow(self, child: int, answers: Path, first: int, count: int) -> str:
        """Wait for a child; "" if it ended by itself, else what it did."""
        clock, told, done, spent = Clock(lambda: group_of(child)), time.monotonic(), 0, 0.0
        self.began(first)
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                if not os.WIFSIGNALED(status):
                    return ""
                names, number = {s.value: s.name for s in signal.Signals}, os.WTERMSIG(status)
                return f"a process that died of {names.get(number, f'signal {number}')}"
            if (by_now := answers.read_bytes().count(b"\n")) > done:
                done, spent = by_now, 0.0
                if done < count:
                    self.began(first + done)
            spent += clock.advance()
            used = memory_of_group(child)
            if spent > self.seconds or used > self.memory:
                _kill(child)
                os.waitpid(child, 0)
                allowed = f"{self.memory / 2**30:.3g} allowed"
                took = f"{used / 2**30:.1f} GiB of memory in use ({allowed})"
                return f"no end after {self.seconds:g} s" if spent > self.seconds else took
            if time.monotonic() - told > BEAT:
                told = time.monotonic()
                self.advanced()
            time.sleep(TICK)


def _answer(launch: CapturedLaunch, room: Path, compiler: Compiler) -> dict[str, Any]:
    try:
        return {"dots": to_dicts(compiler(launch, room))}
    except CompileError as error:
        place = error.where and f"{display_path(error.where.file)}:{error.where.line}"
        return {"error": f"{place}: {error.message}" if place else error.message}
    except BaseException as error:
        return {"error": tell_error(error)}


def _read(told: dict[str, Any]) -> list[CompiledDot] | NotCompiled:
    if "error" in told:
        return NotCompiled(told["error"])
    return [CompiledDot.from_dict(x) for x in told["dots"]]


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
