"""The running launch: its programs, the operation that they are at, and what was recorded.

Operations reach it through `current()`. One launch runs at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gemmproof.reference.gpus import GPUS
from gemmproof.reference.observation import (
    Exhausted,
    KernelError,
    PredictedDot,
    Unsupported,
    Where,
)

if TYPE_CHECKING:
    from gemmproof.reference.simulator.session import Session

# Memory: no single array may be larger; a wider group of programs is cut in two.
VALUE_BYTES = 1 << 27


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


class TooWide(Exception):
    """The group has too many programs for its values to stay within VALUE_BYTES."""


@dataclass(slots=True)
class Context:
    """One launch: `programs` are the linear ids of the group that runs, `where` its operation.

    `changes` counts the stores that changed memory, `ticks` is the simulated clock. `ordered`: a
    branch depended on loaded data. `shared` remembers which programs load the same blocks, `box`
    is the block pointer or descriptor that the running access goes through.
    """

    session: Session
    kernel: str
    grid: tuple[int, int, int]
    num_warps: int = 4
    programs: np.ndarray = field(default_factory=lambda: np.zeros(1, np.int64))
    where: Where | None = None
    sightings: list[Any] = field(default_factory=list)
    touches: list[Any] = field(default_factory=list)
    tiles: set[tuple[int, int, int]] = field(default_factory=set)
    dots: set[PredictedDot] = field(default_factory=set)
    atomics: bool = False
    rounds: set[str] = field(default_factory=set)
    ordered: bool = False
    awaited: bool = False  # whether a loop depends on what it loaded
    changes: int = 0
    ticks: int = 0
    shared: dict[Any, Any] = field(default_factory=dict)
    box: Any = None


_context: Context | None = None


def current() -> Context:
    """The running launch. Raises Unsupported outside of one."""
    if _context is None:
        raise Unsupported("an operation was used outside of a kernel launch")
    return _context


def enter(context: Context | None) -> Context | None:
    """Make `context` the running one; returns the one before."""
    global _context
    before, _context = _context, context
    return before


def note_rounding(operation: str) -> None:
    """Record a rounding float operation other than a dot: a GPU may round it differently."""
    if _context is not None:
        _context.rounds.add(operation)


def runs_on_nvidia() -> bool:
    """Whether a launch runs, and not on an AMD GPU."""
    target = None if _context is None else _context.session.target
    return _context is not None and not (target and GPUS[target].is_amd)


def has_copy_engine() -> bool:
    """Whether descriptors are the copy engine's: on NVIDIA from Hopper on, and without a target."""
    target = None if _context is None else _context.session.target
    return target is None or (not GPUS[target].is_amd and GPUS[target].capability >= (9, 0))


def where() -> Where | None:
    """The line of the user's kernel that is running, None if there is none."""
    return None if _context is None else _context.where


def kernel_error(message: str) -> KernelError:
    """The error for what cannot run, with the kernel's line."""
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
    """Called on every loop iteration. Raises LimitExceeded or Exhausted when the time is over."""
    launch = current()
    launch.session.progress.check(launch.kernel, launch.where)


# The bits that origins share, of a block's eight.
SHARED_HINT, SHARED = 6, 7


# -- undefined lanes -----------------------------------------------------------------------------
def poison_bit(
    what: str, operand: Any = None, axis: int | None = None, kind: str = "undefined_stored"
) -> np.uint8:
    """The poison bit of what happened on this line."""
    return origin_bit(Origin(what, where(), operand, axis, kind))


def origin_bit(origin: Origin) -> np.uint8:
    """The poison bit of an origin: from the seventh on, false hints share one bit, others one."""
    origins = current().session.origins
    if origin not in origins:
        origins.append(origin)
    return np.uint8(1 << _index_of(origin, origins.index(origin)))


def _index_of(origin: Origin, position: int) -> int:
    shared = SHARED_HINT if origin.kind == "false_hint" else SHARED
    return position if position < SHARED_HINT else shared


def origins_by_bit(session: Session) -> dict[int, Origin]:
    """The first origin of each poison bit, by the bit's number."""
    found: dict[int, Origin] = {}
    for position, origin in enumerate(session.origins):
        found.setdefault(_index_of(origin, position), origin)
    return found


def hint_bits() -> np.uint8:
    """The poison bits whose origin is a false hint."""
    found = origins_by_bit(current().session)
    return np.uint8(sum(1 << i for i, origin in found.items() if origin.kind == "false_hint"))
