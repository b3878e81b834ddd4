"""Run a kernel's body over its whole grid, in parts whose programs decide alike."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmproof.reference.machine import execution
from gemmproof.reference.machine.execution import Diverged, Part, TooWide, Waiting
from gemmproof.reference.machine.observation import (
    KernelError,
    LimitExceeded,
    MachineError,
    Unsupported,
    Where,
)
from gemmproof.reference.machine.session import Session

# A first part this wide shows how large the values of the kernel are; parts then grow.
FIRST_PART, WIDEST_PART = 256, 1 << 16

# Decisions that a part may take while memory stands still before other parts go first: a loop that
# waits for another program is told from a long honest one only by trying again with more of them.
FIRST_PATIENCE = 64
MOST_PATIENCE = FIRST_PATIENCE * 8**5


@dataclass(slots=True)
class Seen:
    """What a launch left: events, accesses in the order of the parts, tile shapes of its dots."""

    events: list[Any] = field(default_factory=list)
    touches: list[Any] = field(default_factory=list)
    tiles: set[tuple[int, int, int]] = field(default_factory=set)
    atomics: bool = False
    rounds: set[str] = field(default_factory=set)
    ordered: bool = False


def run_grid(
    session: Session,
    kernel: str,
    grid: tuple[int, int, int],
    num_warps: int,
    body: Callable[[], Any],
) -> Seen:
    """Run `body` for every program of `grid`, x fastest, in ascending order as far as it can.

    Raises KernelError with the kernel's line for an exception of the body, Unsupported, and
    LimitExceeded when programs wait for each other for ever.
    """
    total = grid[0] * grid[1] * grid[2]
    seen = Seen()
    ready: deque[np.ndarray] = deque()
    waiting: deque[np.ndarray] = deque()
    begin, width = 0, FIRST_PART
    moved, patience = True, FIRST_PATIENCE
    while ready or waiting or begin < total:
        if not ready and begin < total:
            ready.append(np.arange(begin, min(total, begin + width), dtype=np.int64))
            begin += width
            width = min(2 * width, WIDEST_PART)
        elif not ready:
            if not moved:
                patience *= 8
                if patience > MOST_PATIENCE:
                    raise LimitExceeded(f"{kernel}: programs {_some(waiting)} wait for ever")
            ready, waiting, moved = waiting, deque(), False
        programs = ready.popleft()
        if time.monotonic() > session.deadline:
            raise LimitExceeded(
                f"{kernel}: got a grid of {total:,} programs, of which {int(programs[0]):,} ran in "
                f"{session.seconds:g} s on the tile machine"
            )
        part = Part(session, kernel, programs, grid, num_warps)
        part.patience = patience
        try:
            _run_part(part, body)
        except Diverged as split:
            labels = np.broadcast_to(split.labels, programs.shape)
            groups = [programs[labels == label] for label in np.unique(labels)]
            ready.extendleft(sorted(groups, key=lambda g: -int(g[0])))
        except TooWide:
            width = max(1, len(programs) // 2)
            ready.extendleft([programs[width:], programs[:width]])
        except Waiting:
            waiting.append(programs)
        else:
            moved = True
            seen.events += part.events
            seen.touches += part.touches
            seen.tiles |= part.tiles
            seen.atomics |= part.atomics
            seen.rounds |= part.rounds
            seen.ordered |= part.ordered
    if seen.ordered:  # a branch on what was loaded may order programs; that it does is not proved
        seen.events = [e for e in seen.events if e.kind != "race"]
    return seen


def _some(parts: deque[np.ndarray]) -> str:
    ids = [int(i) for p in parts for i in p]
    return ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")


def _run_part(part: Part, body: Callable[[], Any]) -> None:
    before = execution.enter(part)
    try:
        with np.errstate(all="ignore"):
            body()
    except (Diverged, TooWide, Waiting):
        for undo in reversed(part.undo):
            undo()
        raise
    except MachineError:
        raise
    except MemoryError:
        raise LimitExceeded(f"{part.kernel}: out of memory") from None
    except RecursionError:
        raise LimitExceeded(f"{part.kernel}: calls itself without end") from None
    except Exception as error:
        raise _blamed(error) from error
    finally:
        execution.enter(before)


def _blamed(error: Exception) -> MachineError:
    """An exception on a kernel's own line is the kernel's; one from inside the machine is ours."""
    where, inside = None, False
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        inside = frame.f_globals.get("__name__", "").partition(".")[0] in ("gemmproof", "numpy")
        if frame.f_globals.get(execution.KERNEL_MARK) is True:
            code = frame.f_code
            where = Where(code.co_filename, trace.tb_lineno, code.co_name)
        trace = trace.tb_next
    message = str(error).splitlines()[0] if str(error) else ""
    words = f"{type(error).__name__}: {message}"[:300]
    if inside:
        return Unsupported(f"the tile machine failed here, please report it: {words}", where)
    return KernelError(words, where)
