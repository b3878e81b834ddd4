"""The launches that were predicted, each compiled once and compared with its prediction."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmproof.lowering.capture import CapturedLaunch
from gemmproof.lowering.premise.apart import Apart, Compiler, NotCompiled, compile_dots
from gemmproof.lowering.premise.compare import AGREED, CONTRADICTED, NOT_KNOWN, compare
from gemmproof.lowering.premise.compiled import CompiledDot
from gemmproof.lowering.premise.predicted import join_predicted
from gemmproof.lowering.premise.record import Premises
from gemmproof.reference.simulation import Launch, PredictedDot

Key = tuple[str, str, str]
Tell = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class PremiseCheck:
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

    def check(self, target: str, launches: Iterable[Launch]) -> Premises:
        """What becomes of these launches; each is compiled that no earlier call has compiled."""
        keys = self.note(target, launches)
        self._compile_all(keys)
        return self._conclude(keys)

    def check_noted(self) -> None:
        """Compile every launch that was taken in."""
        self._compile_all(self._launches)

    def conclude(self) -> Premises | None:
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

            apart = Apart(Path(room), self.seconds, self.memory, begin, advance, self.compiler)
            made = apart.compile([self._launches[key] for key in new])
        self._compiled.update(zip(new, made, strict=True))
        self.spent += time.perf_counter() - began

    def _conclude(self, keys: Iterable[Key]) -> Premises:
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
        return Premises(
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
