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
from gemmproof.worker.processes import Clock, die_with_parent, group_of, memory_of_group

# -- separate process ----------------------------------------------------------------------------
TICK = 0.01  # seconds between two polls of a child
BEAT = 0.5  # and between two heartbeats

Compiler = Callable[[CapturedLaunch, Path], list[CompiledDot]]


class NotCompiled(Exception):
    """A launch that could not be compiled, with the reason as text."""


def compile_dots(launch: CapturedLaunch, workdir: Path) -> list[CompiledDot]:
    """Compile a launch's dots in this process."""
    return list_compiled(compile_launch(launch, workdir, assemble=False))


@dataclass(slots=True)
class ForkedCompiler:
    """The settings of compilations in a child process: each may take `seconds` and `memory`.

    `began` is called with the number of each before it is compiled, `advanced` from time to time.
    """

    workdir: Path
    seconds: float
    memory: int
    began: Callable[[int], None]
    advanced: Callable[[], None]
    compiler: Compiler = compile_dots

    def compile(self, launches: Sequence[CapturedLaunch]) -> list[list[CompiledDot] | NotCompiled]:
        """Compile each launch; after one that killed its process a new child does the others."""
        results: list[list[CompiledDot] | NotCompiled] = []
        while len(results) < len(launches):
            rest, first = launches[len(results) :], len(results)
            answers, end = self._run_child(rest, first)
            results += answers
            if len(answers) < len(rest):
                output = find_last_words(self.workdir, rest[len(answers)].gpu)
                reason = f"{end or 'a process that ended'}{output and f' ({output})'}"
                results.append(NotCompiled(reason))
        return results

    def _run_child(
        self, launches: Sequence[CapturedLaunch], first: int
    ) -> tuple[list[list[CompiledDot] | NotCompiled], str]:
        """Return the answers of a child, and how it ended; "" for a normal exit."""
        answers = self.workdir / "answers.jsonl"
        answers.write_text("")
        child = os.fork()
        if child == 0:
            try:
                with suppress(OSError):
                    os.setpgid(0, 0)
                die_with_parent()
                for launch in launches:
                    answer = json.dumps(_answer(launch, self.workdir, self.compiler))
                    with answers.open("a") as file:
                        file.write(f"{answer}\n")
            finally:
                os._exit(0)
        with suppress(OSError):  # whichever process is first
            os.setpgid(child, child)
        try:
            end = self._follow(child, answers, first, len(launches))
        finally:
            _kill(child)  # with its children, such as an assembler
        lines = answers.read_text().split("\n")[:-1]
        return [_read(json.loads(line)) for line in lines], end

    def _follow(self, child: int, answers: Path, first: int, count: int) -> str:
        """Wait for a child; return "" if it exited, else how it ended."""
        clock, last_beat, done, spent = Clock(lambda: group_of(child)), time.monotonic(), 0, 0.0
        self.began(first)
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                if not os.WIFSIGNALED(status):
                    return ""
                names, number = {s.value: s.name for s in signal.Signals}, os.WTERMSIG(status)
                return f"a process that died of {names.get(number, f'signal {number}')}"
            if (answered := answers.read_bytes().count(b"\n")) > done:
                done, spent = answered, 0.0
                if done < count:
                    self.began(first + done)
            spent += clock.advance()
            used = memory_of_group(child)
            if spent > self.seconds or used > self.memory:
                _kill(child)
                os.waitpid(child, 0)
                allowed = f"{self.memory / 2**30:.3g} allowed"
                excess = f"{used / 2**30:.1f} GiB of memory in use ({allowed})"
                return f"no end after {self.seconds:g} s" if spent > self.seconds else excess
            if time.monotonic() - last_beat > BEAT:
                last_beat = time.monotonic()
                self.advanced()
            time.sleep(TICK)


def _answer(launch: CapturedLaunch, workdir: Path, compiler: Compiler) -> dict[str, Any]:
    try:
        return {"dots": to_dicts(compiler(launch, workdir))}
    except CompileError as error:
        location = error.where and f"{display_path(error.where.file)}:{error.where.line}"
        return {"error": f"{location}: {error.message}" if location else error.message}
    except BaseException as error:
        return {"error": format_error(error)}


def _read(answer: dict[str, Any]) -> list[CompiledDot] | NotCompiled:
    if "error" in answer:
        return NotCompiled(answer["error"])
    return [CompiledDot.from_dict(x) for x in answer["dots"]]


def _kill(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


# -- check ---------------------------------------------------------------------------------------
Key = tuple[str, str, str]
Tell = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class AssumptionCheck:
    """The predictions of each launch, and their comparison with compiled dots.

    A compilation may take `seconds` and `memory`, and keeps its files in a folder of `workdir`
    (None: the default for temporary ones) until it ends. `tell` gets an event before and after
    each, and heartbeats. `every`: all launches are to be compiled, not only those in doubt.
    """

    tell: Tell
    seconds: float = 30.0
    memory: int = 4 << 30
    every: bool = False
    compiler: Compiler = compile_dots
    workdir: str | None = None
    spent: float = 0.0
    _launches: dict[Key, CapturedLaunch] = field(default_factory=dict)
    _dots: dict[Key, set[PredictedDot]] = field(default_factory=dict)
    _compiled: dict[Key, list[CompiledDot] | NotCompiled] = field(default_factory=dict)

    def note(self, target: str | None, launches: Iterable[Launch]) -> list[Key]:
        """Add launches that were predicted for a target; return the keys of those to compile."""
        noted: dict[Key, None] = {}
        for launch in launches:
            if target is not None and launch.dots and launch.compiled is not None:
                captured = CapturedLaunch(target, *launch.compiled)
                key = (target, *captured.key)
                self._launches.setdefault(key, captured)
                self._dots.setdefault(key, set()).update(launch.dots)
                noted[key] = None
        return list(noted)

    def check(self, target: str, launches: Iterable[Launch]) -> ModelCheck:
        """Check these launches; each is compiled unless an earlier call compiled it."""
        keys = self.note(target, launches)
        self._compile_all(keys)
        return self._conclude(keys)

    def check_noted(self) -> None:
        """Compile every launch that was noted."""
        self._compile_all(self._launches)

    def conclude(self) -> ModelCheck | None:
        """Return the result for all launches that were compiled, or None if none was to be."""
        keys = [key for key in self._launches if key in self._compiled]
        return self._conclude(keys) if keys or self.every else None

    def _compile_all(self, keys: Iterable[Key]) -> None:
        new = [key for key in keys if key not in self._compiled]
        if not new:
            return
        began = time.perf_counter()
        with tempfile.TemporaryDirectory(
            prefix="gemmproof-", dir=self.workdir, ignore_cleanup_errors=True
        ) as workdir:

            def begin(number: int) -> None:
                shown = _show(self._launches[new[number]])
                event = {"event": "premise", "launch": shown, "number": number + 1, "of": len(new)}
                self.tell({**event, "done": False})

            def advance() -> None:
                self.tell({"event": "advanced"})

            forked = ForkedCompiler(
                Path(workdir), self.seconds, self.memory, begin, advance, self.compiler
            )
            results = forked.compile([self._launches[key] for key in new])
        self._compiled.update(zip(new, results, strict=True))
        self.spent += time.perf_counter() - began

    def _conclude(self, keys: Iterable[Key]) -> ModelCheck:
        lines: dict[str, dict[str, None]] = {NOT_KNOWN: {}, CONTRADICTED: {}}
        counts: Counter[str] = Counter()
        undecided: Counter[str] = Counter()
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
            for comparison in compare(predicted, compiled):
                counts[comparison.status] += 1
                undecided.update(comparison.open)
                if comparison.status != AGREED:
                    lines[comparison.status][comparison.line] = None
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
            dict(undecided),
        )


def _show(launch: CapturedLaunch) -> str:
    constants = " ".join(f"{name}={x}" for name, x in launch.configuration.items())
    return f"{launch.kernel} {constants}".strip()
