"""A call that exceeds its time: endless calls are distinguished from slow ones."""

import time
from functools import partial
from itertools import count

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher

from gemmproof.reference.dot.tensor_core import fma_chain
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.provenance import BEAT, Heartbeat
from gemmproof.reference.simulation import Exhausted, LimitExceeded
from gemmproof.reference.simulator import run, session
from gemmproof.reference.work import METER


@triton.jit
def overshoots(a, o, K, B: tl.constexpr):
    k = 0
    acc = tl.zeros((B,), tl.float32)
    while k != K:  # never equal where K is no multiple of B
        x = k + tl.arange(0, B)
        acc += tl.load(a + x, x < K, 0.0)
        k += B
    tl.store(o + tl.arange(0, B), acc)


@triton.jit
def forgets(a, o, tiles, B: tl.constexpr):
    tile = tl.program_id(0)
    while tile < tiles:  # the same tile again and again
        x = tile * B + tl.arange(0, B)
        tl.store(o + x, tl.load(a + x))
        tile += 0 * tiles


@triton.jit
def queues(a, counter, o, tiles, B: tl.constexpr):
    tile = tl.atomic_add(counter, 1)
    while tile != tiles:  # program 1 gets tiles + 1
        x = tile * B + tl.arange(0, B)
        tl.store(o + x, tl.load(a + x, x < tiles * B, 0.0), x < tiles * B)
        tile = tl.atomic_add(counter, 1)


ENDLESS = [
    (overshoots, (33, 16), [torch.ones(640)], "while k != K"),
    (forgets, (33, 16), [torch.ones(640)], "while tile < tiles"),
    # a queue that is drawn from for ever
    (queues, (4, 16), [torch.ones(64), torch.zeros(1, dtype=torch.int32)], "while tile != tiles"),
]


@pytest.mark.lane("full")
@pytest.mark.parametrize(("kernel", "args", "tensors", "text"), ENDLESS)
def test_a_loop_that_touches_nothing_new_never_ends(kernel, args, tensors, text):
    with pytest.raises(LimitExceeded, match="a loop without end") as raised:
        run(launcher(kernel, (2,), *args, shape=(640,)), *tensors, seconds=1)
    assert _line(raised.value) == _line_of(text)


@triton.jit
def persists(a, o, tiles, B: tl.constexpr):
    """Right: one program takes tile after tile."""
    tile = tl.program_id(0)
    while tile < tiles:
        x = tile * B + tl.arange(0, B)
        tl.store(o + x, tl.load(a + x))
        tile += tl.num_programs(0)


@triton.jit
def counts(o, n):
    """Right: as many turns as the largest integer, seconds on a GPU."""
    x = n
    for i in range(2**31 - 1):
        x += i
    tl.store(o, x)


@triton.jit
def idles(o, n):
    tl.store(o, n)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("kernel", "grid", "args"),
    [(persists, (1,), (1 << 20, 4)), (counts, (2,), (3,)), (idles, (2**31 - 1,), (3,))],
)
def test_what_is_slow_is_not_called_endless(kernel, grid, args):
    tensors = (torch.ones(1 << 22),) if kernel is persists else ()
    with pytest.raises(Exhausted, match="still advancing after 1 s of counted work"):
        run(launcher(kernel, grid, *args, shape=(1 << 22,)), *tensors, seconds=1)


def test_launches_in_a_while_never_end_in_a_for_they_are_slow(monkeypatch):
    def converge(a):
        o = torch.empty(1)
        while o.item() != 4:
            idles[(1,)](o, 3)
        return o

    def repeat(a):
        o = torch.empty(1)
        for _ in range(10**6):
            idles[(1,)](o, 3)
        return o

    # each look at the count is a hundredth of a second: what Triton's frontend takes is not
    monkeypatch.setattr(session, "counted_seconds", partial(next, count(0.0, 0.01)))
    with pytest.raises(LimitExceeded, match="a loop without end") as raised:
        run(converge, torch.ones(1), seconds=1)
    assert _line(raised.value) == _line_of("while o.item() != 4") + 1
    with pytest.raises(Exhausted):
        run(repeat, torch.ones(1), seconds=1)


def test_a_call_ends_after_the_same_work_at_any_load(monkeypatch):
    """No clock is looked at: a call that runs out of time does so at the same turn of its loop."""

    def count_turns():
        before = METER.values
        with pytest.raises(Exhausted):
            run(launcher(counts, (2,), 3), seconds=0.2)
        return METER.values - before

    turns = [count_turns() for _ in range(3)]
    monkeypatch.setattr(Heartbeat, "_given", 0.0)
    monkeypatch.setattr(time, "monotonic", partial(next, count(0.0, 1.0)))  # a busy machine's
    assert turns[1:] == [count_turns()] * 2  # the first translates the kernel


def test_what_advances_gives_signs_of_life(monkeypatch):
    """One for each BEAT, however often it looks at the clock."""
    looks, signs = count(1), []
    monkeypatch.setattr(Heartbeat, "_given", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: 0.6 * BEAT * next(looks))
    monkeypatch.setattr(Heartbeat, "send", lambda *activity: signs.append(True))
    with pytest.raises(Exhausted):
        run(launcher(counts, (2,), 3), seconds=0.2)
    assert len(signs) == (next(looks) - 1) // 2 > 1


def test_a_wide_product_gives_signs_of_life(monkeypatch):
    given = []
    monkeypatch.setattr("gemmproof.reference.provenance.BEAT", -1.0)
    monkeypatch.setattr(Heartbeat, "send", lambda *activity: given.append(1))
    ones, fmt = np.ones((300, 16, 16), np.float32), FORMATS["fp32"]
    fma_chain(ones, ones, ones, fmt, fmt, fmt)
    assert len(given) >= 3


def _line(error):
    return int(str(error).partition(":")[2].partition(":")[0])


def _line_of(text):
    with open(__file__) as lines:
        return next(i for i, line in enumerate(lines, 1) if line.strip().startswith(text))
