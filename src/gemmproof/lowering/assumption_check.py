"""A check of assumptions, with a separate process for each compiler."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmproof.lowering.assumptions import (
    AGREED,
    CONTRADICTED,
    NOT_KNOWN,
    CompiledDot,
    compare,
    join_predicted,
    list_compiled,
    to_dicts,
)
from gemmproof.lowering.captured_output import find_last_words
from gemmproof.lowering.compile import CapturedLaunch, compile_launch
from gemmproof.reference.provenance import format_error
from gemmproof.reference.simulation import CompileError, Launch, PredictedDot
from gemmproof.report.record import ModelCheck
from gemmproof.target import display_path
from gemmproof.worker.processes import die_with_parent, group_of, memory_of_group
from gemmproof.worker.supervisor import Clock

# -- separate process ----------------------------------------------------------------------------
TICK = 0.01  # seconds between two looks at a child
BEAT = 0.5  # and between two signs of life

Compiler = Callable[[CapturedLaunch, Path], list[CompiledDot]]


class NotCompiled(Exception):
    """A launch of which nothing is known, and why, in words."""


def compile_dots(launch: CapturedLaunch, room: Path) -> list[CompiledDot]:
    """What the compiler makes of a launch's dots, in this process."""
    return list_compiled(compile_launch(launch, room, assemble=False))


@dataclass(slots=True)
class ForkedCompiler:
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
        return {"error": format_error(error)}


def _read(told: dict[str, Any]) -> list[CompiledDot] | NotCompiled:
    if "error" in told:
        return NotCompiled(told["error"])
    return [CompiledDot.from_dict(x) for x in told["dots"]]


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


# -- check ---------------------------------------------------------------------------------------
Key = tuple[str, str, str]
Tell = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class AssumptionCheck:
    """What was predicted, launch by launch, and what is known of it.

    A compilation may take `seconds` and `memory`, and leaves its files in a folder of `room` (None:
    where temporary ones lie) until it ends. `tell` gets an event before and after each, and
    signs of life. `every`: all launches are to be compiled, not only those that are in doubt.
    """

    tell: Tell
    seconds: float = 30.0
    memory: int = 4 << 30
    every: bool = False
    compiler: Compiler = compile_dots
    room: str | None = None
    spent: float = 0.0
    _launches: dict[Key, CapturedLaunch] = field(default_factory=dict)
    _dots: dict[Key, set[PredictedDot]] = field(default_factory=dict)
    _compiled: dict[Key, list[CompiledDot] | NotCompiled] = field(default_factory=dict)

    def note(self, target: str | None, launches: Iterable[Launch]) -> list[Key]:
        """Take in launches that were predicted for a target; the keys of those to be compiled."""
        found: dict[Key, None] = {}
        for launch in launches:
            if target is not None and launch.dots and launch.compiled is not None:
                captured = CapturedLaunch(target, *launch.compiled)
                key = (target, *captured.key)
                self._launches.setdefault(key, captured)
                self._dots.setdefault(key, set()).update(launch.dots)
                found[key] = None
        return list(found)

    def check(self, target: str, launches: Iterable[Launch]) -> ModelCheck:
        """What becomes of these launches; each is compiled that no earlier call has compiled."""
        keys = self.note(target, launches)
        self._compile_all(keys)
        return self._conclude(keys)

    def check_noted(self) -> None:
        """Compile every launch that was taken in."""
        self._compile_all(self._launches)

    def conclude(self) -> ModelCheck | None:
        """What became of all that were compiled; None where none was to be."""
        keys = [key for key in self._launches if key in self._compiled]
        return self._conclude(keys) if keys or self.every else None

    def _compile_all(self, keys: Iterable[Key]) -> None:
        new = [key for key in keys if key not in self._compiled]
        if not new:
            return
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(
            prefix="gemmproof-", dir=self.room, ignore_cleanup_errors=True
        ) as room:

            def begin(number: int) -> None:
                shown = _show(self._launches[new[number]])
                event = {"event": "premise", "launch": shown, "number": number + 1, "of": len(new)}
                self.tell({**event, "done": False})

            def advance() -> None:
                self.tell({"event": "advanced"})

            apart = ForkedCompiler(
                Path(room), self.seconds, self.memory, begin, advance, self.compiler
            )
            made = apart.compile([self._launches[key] for key in new])
        self._compiled.update(zip(new, made, strict=True))
        self.spent += time.perf_counter() - began

    def _conclude(self, keys: Iterable[Key]) -> ModelCheck:
        lines: dict[str, dict[str, None]] = {NOT_KNOWN: {}, CONTRADICTED: {}}
        counts: Counter[str] = Counter()
        untold: Counter[str] = Counter()
        failed: list[str] = []
        targets: Counter[str] = Counter()
        for key in keys:
            targets[key[0]] += 1
            compiled, predicted = self._compiled[key], join_predicted(self._dots[key])
            if isinstance(compiled, NotCompiled):
                shown = _show(self._launches[key])
                failed.append(f"{shown}: got {compiled}, expected a binary for {key[0]}")
                continue
            counts["dots"] += len(predicted)
            for one in compare(predicted, compiled):
                counts[one.status] += 1
                untold.update(one.open)
                if one.status != AGREED:
                    lines[one.status][one.line] = None
        return ModelCheck(
            " ".join(targets),
            sum(targets.values()),
            counts["dots"],
            counts[AGREED],
            counts[CONTRADICTED],
            round(self.spent, 2),
            tuple(lines[NOT_KNOWN]),
            tuple(lines[CONTRADICTED]),
            tuple(failed),
            dict(untold),
        )


def _show(launch: CapturedLaunch) -> str:
    told = " ".join(f"{name}={x}" for name, x in launch.configuration.items())
    return f"{launch.kernel} {told}".strip()
