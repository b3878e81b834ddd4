"""A kernel run for every program of its grid, or a region for every lane."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmproof.reference.observation import Exhausted, SimulatorError, Unsupported
from gemmproof.reference.simulator import context as contexts
from gemmproof.reference.simulator.context import Context
from gemmproof.reference.simulator.program import Program
from gemmproof.reference.simulator.sampled import pick_programs
from gemmproof.reference.simulator.scheduler import (
    MOST_WIDTH,
    Group,
    Scheduler,
    merge_slots,
)
from gemmproof.reference.work import METER

# The first group is narrow, to see how large the kernel's values are; then groups grow.
FIRST_WIDTH = 256


def run_grid(program: Program, context: Context, args: list[Any]) -> None:
    """Run a kernel for every program of the context's grid, x fastest, in ascending order.

    Of a sampled call some of them run. Raises Unsupported, LimitExceeded for what never ends,
    Exhausted where time or memory ran out.
    """
    x, y, z = context.grid
    chosen = pick_programs(context.grid) if context.session.sampled else None
    total, begin, width = x * y * z if chosen is None else len(chosen), 0, FIRST_WIDTH
    scheduler = Scheduler(program, context)
    before = contexts.enter(context)
    try:
        with np.errstate(all="ignore"):
            while begin < total or scheduler.waiting:
                if begin >= total:
                    scheduler.wake()
                    continue
                name = f"{context.kernel}, at program {begin:,} of {total:,},"
                context.session.progress.check(name, None)
                end = min(total, begin + min(width, scheduler.limit))
                METER.programs += end - begin
                programs = np.arange(begin, end, dtype=np.int64)
                programs = programs if chosen is None else chosen[programs]
                scheduler.run(Group(programs, program.enter(args)))
                scheduler.done.clear()
                begin, width = end, min(2 * width, MOST_WIDTH)
    except SimulatorError:
        raise
    except MemoryError:
        words = "this machine has no memory left to simulate this line"
        raise Exhausted(f"{context.kernel}: {words}", context.where) from None
    except Exception as error:
        words = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise Unsupported(
            f"the tile simulator failed here, please report it: {words[:300]}", context.where
        ) from error
    finally:
        contexts.enter(before)
    # where programs wait or use atomics, a branch on loaded data may order them; whether it does is
    # not proved
    if context.ordered and (context.awaited or context.atomics):
        context.sightings = [s for s in context.sightings if s.kind != "race"]


def run_region(program: Program, values: list[Any], rows: int, lanes: int) -> list[Any]:
    """Run a region over `lanes` lanes at once, each as a program of its own.

    They are those of `rows` programs in turn, or of every program where that is 1.
    """
    context = contexts.current()
    programs, where, seen = context.programs, context.where, len(context.sightings)
    owners = np.repeat(programs[:rows], lanes // rows)
    scheduler = Scheduler(program, context, owners)
    scheduler.limit = lanes
    try:
        scheduler.run(Group(np.arange(lanes, dtype=np.int64), program.enter(values)))
        while scheduler.waiting:
            scheduler.wake()
    finally:
        context.programs, context.where = programs, where
    if rows == 1:
        for sighting in context.sightings[seen:]:
            sighting.programs = programs
    groups = scheduler.done
    sizes = [len(g.programs) for g in groups]
    order = np.argsort(np.concatenate([g.programs for g in groups]))
    end = program.blocks[groups[0].block].end
    return [merge_slots([g.env[s] for g in groups], sizes, order) for s in end.uses]
