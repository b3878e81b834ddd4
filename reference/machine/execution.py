"""The part of a grid that is running now: its programs, its decisions, its way back.

A kernel's body runs once for a part of the grid. Where the programs of a part decide differently,
or a value grows too wide, the part is rolled back and run again in smaller parts (grid.py), so
the body's own code needs no change and sees one decision for all its programs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmproof.reference.machine.observation import KernelError, LimitExceeded, Unsupported, Where

if TYPE_CHECKING:
    from gemmproof.reference.machine.session import Session

# Memory: no single array of a part may be larger; wider parts are cut in two.
VALUE_BYTES = 1 << 27
KERNEL_MARK = "__gemmproof_kernel__"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where undefined lanes come from: what happened, on which line, to which operand and axis.

    `kind` is the fault it makes when such a lane reaches a result: "undefined_stored", or
    "false_hint" for lanes that a hint misdescribes (they are computed, but may be anything).
    """

    what: str
    where: Where | None
    operand: Any
    axis: int | None
    kind: str


class Diverged(BaseException):
    """The programs of the part decide differently; `labels` groups them, one label a program."""

    def __init__(self, labels: np.ndarray) -> None:
        self.labels = labels


class TooWide(BaseException):
    """The part has too many programs for its values to stay within VALUE_BYTES."""


class Waiting(BaseException):
    """The part spins on memory that only another program can change."""


@dataclass(slots=True)
class Part:
    """The running part: linear program ids, undo log of stores, and the events seen."""

    session: Session
    kernel: str
    programs: np.ndarray
    grid: tuple[int, int, int]
    num_warps: int = 4
    undo: list[Callable[[], None]] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    touches: list[Any] = field(default_factory=list)
    tiles: set[tuple[int, int, int]] = field(default_factory=set)
    atomics: bool = False
    rounds: set[str] = field(default_factory=set)
    ordered: bool = False
    spins: int = 0
    patience: int = 0


_part: Part | None = None


def current() -> Part:
    """The running part. Raises Unsupported outside of a simulated launch."""
    if _part is None:
        raise Unsupported("a tl operation was used outside of a kernel launch")
    return _part


def running() -> bool:
    return _part is not None


def rounds(operation: str) -> None:
    """Note a float operation that rounds besides the dots: what a GPU may do in another way."""
    if _part is not None:
        _part.rounds.add(operation)


def enter(part: Part | None) -> Part | None:
    """Make `part` the running one; returns the one before."""
    global _part
    before, _part = _part, part
    return before


_vocabulary: Any = None


def vocabulary() -> Any:
    """The vocabulary module, looked up late because it is built on values."""
    global _vocabulary
    if _vocabulary is None:
        _vocabulary = import_module("gemmproof.reference.machine.vocabulary")
    return _vocabulary


# -- where a kernel is -------------------------------------------------------------------------
def where() -> Where | None:
    """The innermost line of the user's kernel that is running, None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get(KERNEL_MARK) is True:
            code = frame.f_code
            return Where(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


def kernel_error(message: str) -> KernelError:
    """The error for what Triton would refuse to compile, with the kernel's line."""
    return KernelError(message, where())


def unsupported(operation: str) -> Unsupported:
    """The error for an operation that the machine does not know, with the kernel's line."""
    return Unsupported(f"{operation} is not known to the tile machine", where())


# -- limits and decisions ------------------------------------------------------------------------
def too_wide(data: np.ndarray) -> None:
    """Ask for a smaller part; raises LimitExceeded when one program alone is too wide."""
    if _part is None or len(_part.programs) == 1:
        raise LimitExceeded(
            f"a value of {data.nbytes:,} bytes in one program, the limit is {VALUE_BYTES:,}",
            where(),
        )
    raise TooWide


def check_time() -> None:
    """Called on every loop turn and decision: raises LimitExceeded past the session's deadline."""
    session = current().session
    if time.monotonic() > session.deadline:
        raise LimitExceeded(
            f"{current().kernel} still runs after {session.seconds:g} s on the tile machine",
            where(),
        )


def decide(value: Any) -> bool:
    """The truth of a scalar, one for all programs of the part.

    Raises Diverged where the programs differ and KernelError for a block of several elements.
    """
    if value.numel != 1:
        raise kernel_error(f"a branch needs a scalar, got a block {value!r}")
    check_time()
    part = current()
    part.spins += 1
    part.ordered |= value.loaded > 0
    if part.spins > part.patience:
        raise Waiting
    used_undefined(value, "a branch")
    truth = value.data.reshape(value.data.shape[0]) != 0
    if truth.all():
        return True
    if not truth.any():
        return False
    raise Diverged(truth)


def source(
    what: str, operand: Any = None, axis: int | None = None, kind: str = "undefined_stored"
) -> np.uint8:
    """The poison bit of what happened on this line; origins past the seventh share the last."""
    return bit_of(Origin(what, where(), operand, axis, kind))


def bit_of(origin: Origin) -> np.uint8:
    """The poison bit of an origin of undefined lanes."""
    sources = current().session.sources
    for i, known in enumerate(sources):
        if known == origin:
            return np.uint8(1 << min(i, 7))
    sources.append(origin)
    return np.uint8(1 << min(len(sources) - 1, 7))


def hinted() -> np.uint8:
    """The poison bits of lanes that only a false hint makes doubtful."""
    bits = 0
    for i, origin in enumerate(current().session.sources[:7]):
        if origin.kind == "false_hint":
            bits |= 1 << i
    return np.uint8(bits)


def used_undefined(value: Any, what: str) -> None:
    """Record that a lane nothing defined decides `what`."""
    if value.poison is not None and (value.poison & ~hinted()).any():
        from gemmproof.reference.machine.judging import note_undefined

        note_undefined(value, what)
