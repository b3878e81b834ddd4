"""The state of one simulated call: its launches, its program, its progress."""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from traceback import walk_stack
from typing import Any

import numpy as np

from gemmproof.reference.gpus import GPUS
from gemmproof.reference.provenance import MOST_FILLED, Heartbeat, calling_line, owner
from gemmproof.reference.simulation import (
    Exhausted,
    KernelError,
    LimitExceeded,
    PredictedDot,
    Run,
    SimulatorError,
    Unsupported,
    Where,
)
from gemmproof.reference.simulator.axis_analysis import Vectors
from gemmproof.reference.simulator.element_terms import ElementTerms
from gemmproof.reference.simulator.host_work import Writers
from gemmproof.reference.simulator.memory import (
    AddressSpace,
    Argument,
    Storage,
    StridedView,
    view_of,
)
from gemmproof.reference.triton_hooks import Choices
from gemmproof.reference.ttir import Dtype
from gemmproof.reference.work import METER, counted_seconds

# -- progress ------------------------------------------------------------------------------------
SAMPLED_SECONDS = 0.3  # counted, for the launches of a call that is sampled
_CALLS_WRAPPERS = "simulator.call.run"  # the function of ours below the wrapper


class Enough(BaseException):
    """Raised when a sampled call can show no more.

    Not an Exception, because a wrapper that catches those would go on without its value.
    """


class Progress:
    """The progress of one call of a wrapper within its `seconds`, which are counted.

    `turned` is the time and line of the last turn of a `while` in a kernel, `launched` those of the
    last launch in a `while` of the wrapper. `moved` is the last time that an element was accessed
    for the first time since half-time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began = counted_seconds()
        self.turned: tuple[float, Where | None] = 0.0, None
        self.launched: tuple[float, Where | None] = 0.0, None
        self.moved = 0.0
        self._seen: dict[Any, np.ndarray] | None = None

    @property
    def notes(self) -> bool:
        """True if accesses are recorded: those of a long call, from half-time on."""
        return self._seen is not None

    def check(self, kernel: str, where: Where | None) -> None:
        """Check the time at every turn of every loop and between programs. Raises `end`'s error."""
        now = counted_seconds()
        Heartbeat.give()
        if self._seen is None and now - self.began > self.seconds / 2:
            self._seen = {}
        if now - self.began > self.seconds:
            raise self.end(kernel, where)

    def turn(self, where: Where | None) -> None:
        """Record a turn of a `while` in a kernel."""
        self.turned = counted_seconds(), where

    def launch(self) -> None:
        """Record a launch by the wrapper."""
        METER.launches += 1
        if self.notes and _launches_in_while():
            self.launched = counted_seconds(), calling_line()

    def touch(self, kind: str, storage: Any, first: np.ndarray) -> None:
        """Record accesses of elements of a storage, by the offset of their first byte."""
        assert self._seen is not None
        inside = first[(first >= 0) & (first < storage.data.size)]
        key = (kind == "load", storage)
        if key not in self._seen:
            self._seen[key] = np.zeros(storage.data.size, np.bool_)
        seen = self._seen[key]
        if not seen[inside].all():
            seen[inside] = True
            self.moved = counted_seconds()

    def end(self, kernel: str, where: Where | None) -> SimulatorError:
        """Return the error for a call whose time is over."""
        last_quarter = self.began + self.seconds * 0.75
        allowed = f"after {self.seconds:.3g} s of counted work"
        loops = (at for turned, at in (self.launched, self.turned) if turned >= last_quarter)
        if self.moved < last_quarter and (loop := next(loops, None)):
            text = f"{kernel}: a loop without end: {allowed} it touched no element that it had not"
            return LimitExceeded(f"{text} touched before", loop)
        text = f"{kernel} was still advancing {allowed} on the tile simulator"
        return Exhausted(f"{text}, which is slower than a GPU", where)


class Brief(Progress):
    """The time limit of a sampled call: what its launches did not show by then stays unknown."""

    def check(self, kernel: str, where: Where | None) -> None:
        """Check the time, at every turn of every loop and between programs. Raises Enough."""
        now = counted_seconds()
        self.seconds -= now - self.began
        self.began = now
        if self.seconds < 0:
            raise Enough

    def turn(self, where: Where | None) -> None:
        """Do nothing: a sampled call does not check that loops end."""

    def launch(self) -> None:
        """Restart the clock: Triton's frontend may have run since the last launch."""
        self.began = counted_seconds()


def _launches_in_while() -> bool:
    """Return whether the wrapper is executing a line within a `while` statement."""
    for frame, line in walk_stack(sys._getframe(1)):
        name = frame.f_code.co_filename
        function = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"
        if function.endswith(_CALLS_WRAPPERS):
            return False
        if owner(name) != "library" and _is_in_while(name, line):
            return True
    return False


@lru_cache
def _is_in_while(filename: str, line: int) -> bool:
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return False
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.While))
    return any(loop.lineno <= line <= (loop.end_lineno or line) for loop in loops)


# -- session -------------------------------------------------------------------------------------
@dataclass(slots=True)
class Session:
    """One call of a wrapper. `names` are the tensors by the names that faults use ("a", "b"),
    `labels` their names in messages, if different, `axes` the problem's names for the dimensions of
    tensors other than a, b and c.

    `fill` is the content of uninitialised memory, `config` the number that selects a configuration
    of each tuner (`choices`), `trace` a list that collects every access, or None. `seconds` is the
    time limit (counted, see Progress), `target` the GPU whose dots are imitated, None for exact
    IEEE dots, `configs` the number of configurations of the running kernel that its tuner left of
    those `written`, `chosen` the number of its choice and the index of its configuration, `tries`
    True if tuners make trial runs first. `sampled`: some programs of each launch run
    (scheduler.py), and `partial`: the results of stores or of torch's operators are unknown.
    `terms` collects the terms of elements while a formula is read.
    """

    names: Mapping[str, object]
    fill: str = "nan"
    target: str | None = None
    config: int = 0
    seconds: float = 60.0
    trace: list[Any] | None = None
    tries: bool = False
    sampled: bool = False
    partial: bool = False
    memory: AddressSpace = field(default_factory=AddressSpace)
    run: Run = field(default_factory=Run)
    violations: list[Any] = field(default_factory=list)
    operands: list[Argument] = field(default_factory=list)
    origins: list[Any] = field(default_factory=list)
    configs: int = 1
    written: int = 1
    chosen: tuple[int, int] = (0, 0)
    choices: Choices = field(init=False)
    progress: Progress = field(init=False)
    writers: Writers = field(init=False)
    terms: ElementTerms | None = None
    labels: dict[str, str] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _known: dict[Storage, tuple[str, StridedView]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.choices = Choices(self.config)
        self.writers = Writers(self.memory)
        self.progress = Brief(SAMPLED_SECONDS) if self.sampled else Progress(self.seconds)
        for name, tensor in self.names.items():
            storage, view = self.memory.storage_of(tensor), view_of(tensor)
            storage.views.append(view)
            self.writers.add_operand(name, storage)
            self._known.setdefault(storage, (name, view))

    def operand(self, parameter: str, tensor: Any, dtype: Dtype) -> Argument:
        """Return a kernel's argument, read as this type, by the caller's name for it."""
        storage, view = self.memory.storage_of(tensor), view_of(tensor)
        name, known = self._known.get(storage, (parameter, view))
        own = name if storage in self._known else ""
        axes = match_axes(view, known, self.axes.get(own) or axes_of(own, len(known.shape)))
        word = self.labels.get(name, "") if storage in self._known else ""
        operand = Argument(name, dtype, view, storage, axes, word)
        self.operands.append(operand)
        return operand

    def follow_terms(self) -> None:
        """Let `terms` know the caller's tensors."""
        assert self.terms is not None
        self.terms.known = self._known

    def knows(self, storage: Storage) -> bool:
        """Return whether memory is as in a whole call: always, unless only some programs run."""
        return not self.sampled or (storage in self._known and storage.data.size <= MOST_FILLED)

    def storage_name(self, storage: Storage) -> str | None:
        """Return the caller's name for the tensor in a storage, or None if it has none."""
        return self._known[storage][0] if storage in self._known else None


def match_axes(view: StridedView, known: StridedView, axes: tuple[str, ...]) -> tuple[str, ...]:
    """Name a view's dimensions as the problem does, by length and stride of a known view.

    `axes` are those of the known view. Returns numbers if the match is ambiguous.
    """
    dims, own = (list(zip(v.shape, v.strides, strict=True)) for v in (view, known))
    if dims == own:
        return axes
    if sorted(dims) == sorted(own) and len(set(own)) == len(own):
        return tuple(axes[own.index(d)] for d in dims)
    return axes_of("", len(dims))


def axes_of(name: str, ndim: int) -> tuple[str, ...]:
    """Return the problem's names for the dimensions of a, b and c; numbers for other tensors."""
    names = {"a": ("M", "K"), "b": ("K", "N"), "c": ("M", "N")}.get(name)
    if names is None or ndim not in (2, 3):
        return tuple(map(str, range(ndim)))
    return names if ndim == 2 else ("batch", *names)


# -- context of a program ------------------------------------------------------------------------
# Memory: no single array may be larger; a wider group of programs is cut in two.
VALUE_BYTES = 1 << 27


@dataclass(frozen=True, slots=True)
class Origin:
    """An origin of undefined lanes: what happened, on which line, to which operand and axis.

    `kind` is the fault that is reported if such a lane reaches a result: "undefined_stored", or
    "false_hint" for lanes that a hint misdescribes (they are computed, but may be anything).
    """

    what: str
    where: Where | None
    operand: Any
    axis: int | None
    kind: str


class TooWide(Exception):
    """The group has too many programs for its values to stay within VALUE_BYTES."""


@dataclass(slots=True)
class Context:
    """One launch: `programs` are the linear ids of the group that runs, `where` its operation.

    `changes` counts the stores that changed memory, `ticks` is the simulated clock. `ordered`: a
    branch depended on loaded data. `shared` remembers which programs load the same blocks, `box`
    is the block pointer or descriptor that the running access goes through. `vectors` are those
    that hints grant to accesses, by their TTIR. `uses_hints`: a value with a hint was computed.
    `sides` are those of branches that programs took, each by its block.
    """

    session: Session
    kernel: str
    grid: tuple[int, int, int]
    num_warps: int = 4
    programs: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    where: Where | None = None
    violations: list[Any] = field(default_factory=list)
    touches: list[Any] = field(default_factory=list)
    tiles: set[tuple[int, int, int]] = field(default_factory=set)
    dots: set[PredictedDot] = field(default_factory=set)
    atomics: bool = False
    rounds: set[str] = field(default_factory=set)
    ordered: bool = False
    awaited: bool = False  # a loop depends on what it loaded
    changes: int = 0
    ticks: int = 0
    shared: dict[Any, Any] = field(default_factory=dict)
    box: Any = None
    vectors: Mapping[str, Vectors] = field(default_factory=dict)
    reorders: set[tuple[str, Where | None]] = field(default_factory=set)
    uses_hints: bool = False
    sides: set[tuple[int, bool]] = field(default_factory=set)


_context: Context | None = None


def current() -> Context:
    """Return the running launch. Raises Unsupported outside of one."""
    if _context is None:
        raise Unsupported("an operation was used outside of a kernel launch")
    return _context


def enter(context: Context | None) -> Context | None:
    """Make `context` the running one; return the previous one."""
    global _context
    before, _context = _context, context
    return before


def note_rounding(operation: str) -> None:
    """Record a rounding float operation other than a dot: a GPU may round it differently."""
    if _context is not None:
        _context.rounds.add(operation)


def runs_on_nvidia() -> bool:
    """Return whether a launch runs, and not on an AMD GPU."""
    target = None if _context is None else _context.session.target
    return _context is not None and not (target and GPUS[target].is_amd)


def has_copy_engine() -> bool:
    """Return whether descriptors are the copy engine's: NVIDIA from Hopper on, or no target."""
    target = None if _context is None else _context.session.target
    return target is None or (not GPUS[target].is_amd and GPUS[target].capability >= (9, 0))


def where() -> Where | None:
    """Return the line of the user's kernel that is running, or None if there is none."""
    return None if _context is None else _context.where


def kernel_error(message: str) -> KernelError:
    """Return an error of the kernel, with its line."""
    return KernelError(message, where())


# -- limits --------------------------------------------------------------------------------------
def check_width(nbytes: int) -> None:
    """Raise TooWide for a value beyond VALUE_BYTES, or Exhausted if one program needs it."""
    if nbytes <= VALUE_BYTES:
        return
    if _context is None or len(_context.programs) == 1:
        raise Exhausted(
            f"a value of {nbytes:,} bytes in one program, the limit is {VALUE_BYTES:,}", where()
        )
    raise TooWide


def check_time() -> None:
    """Check the time, on every loop iteration. Raises LimitExceeded or Exhausted."""
    launch = current()
    launch.session.progress.check(launch.kernel, launch.where)


# The bits that origins share, of a block's eight.
SHARED_HINT, SHARED = 6, 7


# -- undefined lanes -----------------------------------------------------------------------------
def poison_bit(
    what: str, operand: Any = None, axis: int | None = None, kind: str = "undefined_stored"
) -> np.uint8:
    """Return the poison bit of an event on this line."""
    return origin_bit(Origin(what, where(), operand, axis, kind))


def origin_bit(origin: Origin) -> np.uint8:
    """Return an origin's poison bit: from the seventh on, false hints share one, others one."""
    origins = current().session.origins
    if origin not in origins:
        origins.append(origin)
    return np.uint8(1 << _index_of(origin, origins.index(origin)))


def _index_of(origin: Origin, position: int) -> int:
    shared = SHARED_HINT if origin.kind == "false_hint" else SHARED
    return position if position < SHARED_HINT else shared


def origins_by_bit(session: Session) -> dict[int, Origin]:
    """Return the first origin of each poison bit, by the bit's number."""
    origins: dict[int, Origin] = {}
    for position, origin in enumerate(session.origins):
        origins.setdefault(_index_of(origin, position), origin)
    return origins


def hint_bits() -> np.uint8:
    """Return the poison bits whose origin is a false hint."""
    origins = origins_by_bit(current().session)
    return np.uint8(sum(1 << i for i, origin in origins.items() if origin.kind == "false_hint"))
