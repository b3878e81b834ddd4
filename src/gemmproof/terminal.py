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
from typing import NoReturn, TextIO

from gemmproof.report.text import clean
from gemmproof.worker.protocol import (
    Advanced,
    CaseStarted,
    Event,
    Listener,
    ModelCheckStarted,
    PartialReport,
    ProofEnded,
    ProofStarted,
    Ready,
    Started,
)


# -- streams -------------------------------------------------------------------------------------
def open_streams() -> None:
    """Open closed standard streams on /dev/null, and let each take any character.

    No other file may get their numbers: print would write to a report or a worker.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def write_all(stream: TextIO, text: str) -> str:
    """Write a text to the end; return why that failed, or "": a closed pipe is no failure."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        # The rest of the buffer would fail again when Python exits, with another message.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return "" if isinstance(error, BrokenPipeError) else str(error.strerror)
    return ""


def flush_streams() -> None:
    """Write the rest of the buffers, as far as possible."""
    for stream in (sys.stdout, sys.stderr):
        write_all(stream, "")


def say(line: str) -> None:
    """Print one line on stderr; a failure to write it is ignored."""
    write_all(sys.stderr, f"{clean(line)}\n")


# -- interrupts ----------------------------------------------------------------------------------
# Ctrl-C, a batch system or a person, a closed terminal.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal, `number`, asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def heed_signals() -> Iterator[None]:
    """Within this context the first ending signal raises Interrupted; later ones are ignored.

    Signals that were ignored before stay ignored: that is how nohup lets a command outlive a
    terminal.
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
            if signal.getsignal(number) is interrupt:  # else the process is about to exit
                signal.signal(number, handler)


# -- progress ------------------------------------------------------------------------------------

EVERY = 10.0  # seconds between two lines, and before the first
TICK = 0.2  # seconds between two updates of a terminal
# the minimum basis of an estimate of the time left
FEWEST_CASES, FEWEST_SHARE, FEWEST_SECONDS = 5, 0.1, 1.0


@dataclass(slots=True)
class _Part:
    """The progress of one worker: cases done of those `total`, or another activity, as text.

    `within` is the activity within a case. `share` is the finished fraction of the work if it is
    not counted in cases. Of `launches` to be compiled, `compiled` were. `began` and `moved` are
    when the first case or launch began and when the last one was done. `beyond` its cases, the
    total work left is unknown.
    """

    activity: str = "loading"
    within: str = ""
    total: int = 0
    done: int = 0
    share: float = 0.0
    launches: int = 0
    compiled: int = 0
    began: float = 0.0
    moved: float = 0.0
    drawing: bool = False
    beyond: bool = False

    def take(self, event: Event, now: float) -> None:
        """Record an event of the worker."""
        match event:
            case Ready():  # also of a worker that was restarted
                self.beyond = self.beyond or self.total > 0
                self.activity, self.total, self.done, self.share = "loading", 0, 0, 0.0
                self.drawing, self.launches, self.compiled = False, 0, 0
            case ProofStarted(_, seconds):
                self.activity = f"proving for every size (at most {seconds:g} s)"
            case ProofEnded():
                self.activity = "drawing cases"
            case ModelCheckStarted(launch, number, of):
                self.drawing, self.beyond = False, True
                position = self._count_launch(number - 1, of, now)
                self.activity = f"compiling predicted launches: {position}, {launch}"
            case Started(examples):
                self.total, self.beyond = examples, False
            case CaseStarted():
                self._take_case(event, now)
            case Advanced():
                self.within = event.activity
            case PartialReport() if self.drawing:
                self.done, self.moved = self.done + 1, now

    def _take_case(self, event: CaseStarted, now: float) -> None:
        phase = event.phase or ("draw" if self.total else "")
        self.within = ""
        self.drawing = phase == "draw"
        self.beyond = self.beyond and not self.drawing
        if self.launches and event.of is None:  # all of them are compiled
            self.launches, self.compiled, self.share = 0, 0, 0.0
        if (self.drawing and not self.done) or event.share == 0:
            self.began = now
        if phase == "shrink":
            self.activity = "looking for the smallest case that fails"
        elif phase == "limit":
            beyond = event.limit and event.limit[0]
            self.activity = f"beyond the contract: {beyond}" if beyond else "narrower contracts"
        elif phase == "launch":
            self.activity = f"on the GPU: {event.case}"
        elif event.of is not None:
            position = self._count_launch(event.index, event.of, now)
            self.activity = f"{position}: {event.case}"
        elif not self.drawing:
            self.activity = event.case
        if event.share is not None:
            self.share, self.moved = event.share, now

    def _count_launch(self, index: int, of: int, now: float) -> str:
        """Record that a launch is about to be compiled; return which one of how many, as text."""
        if index == 0:
            self.began = now
        self.compiled, self.launches, self.share, self.moved = index, of, index / of, now
        return f"launch {index + 1} of {of}"

    def tell(self) -> str:
        """Return its current activity as text."""
        counted = f"{min(self.done, self.total)} of {self.total} cases"
        text = counted if self.drawing and self.total > 1 else self.activity
        return f"{text}, {self.within}" if self.within else text

    @property
    def fraction(self) -> float:
        """The finished fraction of its current activity."""
        counted = self.total and not self.launches
        return min(1.0, self.done / self.total) if counted else self.share

    def estimate(self, now: float) -> float | None:
        """Return the seconds left of its activity, at the rate so far, or None without a basis."""
        counted = self.drawing and self.done >= FEWEST_CASES
        spent = self.moved - self.began
        if not (counted or self.share >= FEWEST_SHARE) or spent < FEWEST_SECONDS:
            return None
        left = spent * (1 - self.fraction) / self.fraction
        return max(0.0, left - (now - self.moved))


@dataclass(slots=True)
class Course:
    """The progress of a command: a listener of one worker, or of `parts` workers, called `noun`."""

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

    def __call__(self, event: Event) -> None:
        """Record an event of the only worker."""
        self._take("", event)

    @contextmanager
    def follow(self, name: str) -> Iterator[Listener]:
        """Yield a listener of one worker of several; on exit that part is done."""
        yield lambda event: self._take(name, event)
        with self.lock:
            self.running.pop(name, None)
            self.ended += 1

    def _take(self, name: str, event: Event) -> None:
        with self.lock:
            self.running.setdefault(name, _Part()).take(event, self.clock())

    def tell(self) -> str:
        """Return the current activity and the estimated time left, as one line."""
        with self.lock:
            now = self.clock()
            running = list(self.running.values())
            if self.parts == 1:
                (part,) = running or [_Part()]
                text, left = part.tell(), part.estimate(now)
            else:
                text, left = self._describe_parts(running), self._estimate(running, now)
            about = "" if left is None else f", about {format_seconds(left)} left"
            return clean(f"{self.title}: {text}{about}")

    def _describe_parts(self, running: list[_Part]) -> str:
        text = f"{self.ended} of {self.parts} {self.noun}"
        if len(running) == 1:
            return f"{text}; {running[0].tell()}"
        compiling = [part for part in running if part.launches]
        drawing = [part for part in running if not part.launches]
        counts = {
            "cases": [(min(part.done, part.total), part.total) for part in drawing],
            "launches": [(part.compiled, part.launches) for part in compiling],
        }
        sums = {noun: tuple(map(sum, zip(*of, strict=True))) for noun, of in counts.items() if of}
        totals = [f"{done} of {total} {noun}" for noun, (done, total) in sums.items() if total]
        return f"{text}; {' and '.join(totals)} of {len(running)} more" if totals else text

    def _estimate(self, running: list[_Part], now: float) -> float | None:
        """Estimate by the parts' rate so far: one must have ended, or each know its overall share.

        None while one is beyond its cases: its overall share is unknown.
        """
        spent, known = now - self.began, all(part.share >= FEWEST_SHARE for part in running)
        if not (self.ended or known) or spent < FEWEST_SECONDS or any(x.beyond for x in running):
            return None
        done = self.ended + sum(part.fraction for part in running)
        return spent * max(0.0, self.parts - done) / done


def format_seconds(seconds: float) -> str:
    """Format a time, rounded: 7 s, 25 s, 4 min."""
    if seconds < 10:
        return f"{max(1, math.ceil(seconds))} s"
    if seconds < 55:
        return f"{5 * math.ceil(seconds / 5)} s"
    return f"{max(1, round(seconds / 60))} min"


@contextmanager
def progress(title: str, quiet: bool = False, parts: int = 1, noun: str = "") -> Iterator[Course]:
    """Yield the listener of a command's workers, which shows their progress unless `quiet`."""
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
    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(1.0)  # a blocked stderr must not block the command
