"""The terminal: streams, signals, and progress."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn, TextIO

from gemmproof.report.text import clean


# -- streams -------------------------------------------------------------------------------------
def open_streams() -> None:
    """Open those that were closed on /dev/null, and let each take any character.

    No other file may get their numbers: a report or a worker would be written to by print.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def write_all(stream: TextIO, text: str) -> str:
    """Write a text to the end; why that failed, or "": a reader that left has seen enough."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        # What is left in the buffer would fail again when Python ends, with words of its own.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return "" if isinstance(error, BrokenPipeError) else str(error.strerror)
    return ""


def flush_streams() -> None:
    """Write what is left in the buffers, as far as that can be."""
    for stream in (sys.stdout, sys.stderr):
        write_all(stream, "")


def say(line: str) -> None:
    """One line on stderr; where nobody hears it, that is no reason to end."""
    write_all(sys.stderr, f"{clean(line)}\n")


# -- interrupts ----------------------------------------------------------------------------------
# Ctrl-C, a batch system or a person, a terminal that was closed.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal, `number`, asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def heed_signals() -> Iterator[None]:
    """Within it the first signal to end raises Interrupted; later ones do not disturb the end.

    Those that were ignored before remain so: that is how nohup lets a command outlive a terminal.
    """
    heeded = [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        for each in heeded:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(number)

    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is interrupt:  # else the process is about to end
                signal.signal(number, handler)


# -- progress ------------------------------------------------------------------------------------
Listener = Callable[[dict[str, Any]], None]

EVERY = 10.0  # seconds between two lines, and before the first
TICK = 0.2  # seconds between two looks at a terminal
# what an estimate of the time left rests on, at least
FEWEST_CASES, FEWEST_SHARE, FEWEST_SECONDS = 5, 0.1, 1.0


@dataclass(slots=True)
class _Part:
    """One worker's way: cases done of those wanted, or another thing that it is at, in words.

    `share` is how much of the work is done where it is not counted in cases. Of `launches` that are
    to be compiled, `compiled` were. `began` and `moved` are when the first case or launch began and
    when the last one was done. `beyond` its cases nothing tells how much is left in all.
    """

    words: str = "loading"
    wanted: int = 0
    done: int = 0
    share: float = 0.0
    launches: int = 0
    compiled: int = 0
    began: float = 0.0
    moved: float = 0.0
    drawing: bool = False
    beyond: bool = False

    def take(self, event: dict[str, Any], now: float) -> None:
        """Take in an event of the worker."""
        name = event["event"]
        if name == "ready":  # of a worker that was started again, too
            self.beyond = self.beyond or self.wanted > 0
            self.words, self.wanted, self.done, self.share = "loading", 0, 0, 0.0
            self.drawing, self.launches, self.compiled = False, 0, 0
        elif name == "proof":
            most = f"proving it for every size, in {event['seconds']:g} s at most"
            self.words = "drawing cases" if event["done"] else most
        elif name == "premise":
            self.drawing, self.beyond = False, True
            said = self._count_launch(event["number"] - 1, event["of"], now)
            self.words = f"compiling what was predicted: {said}, {event['launch']}"
        elif name == "start":
            self.wanted, self.beyond = event["examples"], False
        elif name == "case":
            self._take_case(event, now)
        elif name == "judged" and self.drawing:
            self.done, self.moved = self.done + 1, now

    def _take_case(self, event: dict[str, Any], now: float) -> None:
        phase = event.get("phase", "draw" if self.wanted else "")
        self.drawing = phase == "draw"
        self.beyond = self.beyond and not self.drawing
        if self.launches and "of" not in event:  # all of them are compiled
            self.launches, self.compiled, self.share = 0, 0, 0.0
        if (self.drawing and not self.done) or event.get("share") == 0:
            self.began = now
        if phase == "shrink":
            self.words = "looking for the smallest case that fails"
        elif phase == "limit":
            name = event.get("limit", [""])[0]
            self.words = f"beyond the contract: {name}" if name else "narrower contracts"
        elif phase == "launch":
            self.words = f"on the GPU: {event['case']}"
        elif "of" in event:
            said = self._count_launch(event["index"], event["of"], now)
            self.words = f"{said}: {event['case']}"
        elif not self.drawing:
            self.words = event["case"]
        if "share" in event:
            self.share, self.moved = event["share"], now

    def _count_launch(self, index: int, of: int, now: float) -> str:
        """Take in that a launch is about to be compiled; which one of how many, in words."""
        if index == 0:
            self.began = now
        self.compiled, self.launches, self.share, self.moved = index, of, index / of, now
        return f"launch {index + 1} of {of}"

    def tell(self) -> str:
        """What it is at."""
        counted = f"{min(self.done, self.wanted)} of {self.wanted} cases"
        return counted if self.drawing and self.wanted > 1 else self.words

    @property
    def fraction(self) -> float:
        """How much of what it is at is done."""
        counted = self.wanted and not self.launches
        return min(1.0, self.done / self.wanted) if counted else self.share

    def estimate(self, now: float) -> float | None:
        """The seconds left of what it is at, as the same went so far; None without a basis."""
        counted = self.drawing and self.done >= FEWEST_CASES
        spent = self.moved - self.began
        if not (counted or self.share >= FEWEST_SHARE) or spent < FEWEST_SECONDS:
            return None
        left = spent * (1 - self.fraction) / self.fraction
        return max(0.0, left - (now - self.moved))


@dataclass(slots=True)
class Course:
    """What a command is at: a listener of one worker, or of `parts` of them, called `noun`."""

    title: str
    parts: int = 1
    noun: str = ""
    clock: Callable[[], float] = time.monotonic
    ended: int = 0
    began: float = field(init=False)
    running: dict[str, _Part] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def __call__(self, event: dict[str, Any]) -> None:
        """Take in an event of the only worker."""
        self._take("", event)

    @contextmanager
    def follow(self, name: str) -> Iterator[Listener]:
        """A listener of one worker of several; at the end of it that part is done."""
        yield lambda event: self._take(name, event)
        with self.lock:
            self.running.pop(name, None)
            self.ended += 1

    def _take(self, name: str, event: dict[str, Any]) -> None:
        with self.lock:
            self.running.setdefault(name, _Part()).take(event, self.clock())

    def tell(self) -> str:
        """What it is at and how long that may still take, in a line."""
        with self.lock:
            now = self.clock()
            running = list(self.running.values())
            if self.parts == 1:
                (one,) = running or [_Part()]
                said, left = one.tell(), one.estimate(now)
            else:
                said, left = self._describe_parts(running), self._estimate(running, now)
            about = "" if left is None else f", about {format_seconds(left)} left"
            return clean(f"{self.title}: {said}{about}")

    def _describe_parts(self, running: list[_Part]) -> str:
        said = f"{self.ended} of {self.parts} {self.noun}"
        if len(running) == 1:
            return f"{said}; {running[0].tell()}"
        compiling = [part for part in running if part.launches]
        drawing = [part for part in running if not part.launches]
        counts = {
            "cases": [(min(part.done, part.wanted), part.wanted) for part in drawing],
            "launches": [(part.compiled, part.launches) for part in compiling],
        }
        sums = {noun: tuple(map(sum, zip(*of, strict=True))) for noun, of in counts.items() if of}
        told = [f"{done} of {wanted} {noun}" for noun, (done, wanted) in sums.items() if wanted]
        return f"{said}; {' and '.join(told)} of {len(running)} more" if told else said

    def _estimate(self, running: list[_Part], now: float) -> float | None:
        """As the parts went so far: one must have ended, or each know its share of all its work.

        None while one is beyond its cases: how much of a part that is nothing tells.
        """
        spent, known = now - self.began, all(part.share >= FEWEST_SHARE for part in running)
        if not (self.ended or known) or spent < FEWEST_SECONDS or any(x.beyond for x in running):
            return None
        done = self.ended + sum(part.fraction for part in running)
        return spent * max(0.0, self.parts - done) / done


def format_seconds(seconds: float) -> str:
    """A time as a person would say it: 7 s, 25 s, 4 min."""
    if seconds < 10:
        return f"{max(1, math.ceil(seconds))} s"
    if seconds < 55:
        return f"{5 * math.ceil(seconds / 5)} s"
    return f"{max(1, round(seconds / 60))} min"


@contextmanager
def progress(title: str, quiet: bool = False, parts: int = 1, noun: str = "") -> Iterator[Course]:
    """What listens to the workers of a command, and shows how far they are unless `quiet`."""
    course = Course(title, parts, noun)
    if quiet:
        yield course
        return
    end = threading.Event()
    show = _show_live if sys.stderr.isatty() else _show_lines
    with show(course, end):
        yield course


@contextmanager
def _show_lines(course: Course, end: threading.Event) -> Iterator[None]:
    def tell() -> None:
        while not end.wait(EVERY):
            say(course.tell())

    with _run(tell, end):
        yield


@contextmanager
def _show_live(course: Course, end: threading.Event) -> Iterator[None]:
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(course.tell())) as status:

        def tell() -> None:
            while not end.wait(TICK):
                status.update(Text(course.tell()))

        with _run(tell, end):
            yield


@contextmanager
def _run(tell: Callable[[], None], end: threading.Event) -> Iterator[None]:
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        end.set()
        teller.join(1.0)  # nobody may read what it says
