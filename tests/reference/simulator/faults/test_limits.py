"""Endless loops, recursion, and memory on large grids."""

import subprocess
import sys
import time

import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher, result_of

from gemmproof.reference.simulation import CompileError, Exhausted, LimitExceeded
from gemmproof.reference.simulator import run, session


@triton.jit
def endless(o, n):
    x = n
    while x > 0:
        x += 0
    tl.store(o, x)


@pytest.mark.timeout(60)
def test_an_endless_loop_hits_the_limit():
    """One line: the kernel's file and line, and its time limit or that it can never end."""
    started = time.monotonic()
    with pytest.raises(LimitExceeded) as raised:
        run(launcher(endless, (2,), 3), seconds=1.0)
    assert time.monotonic() - started < 10
    text = str(raised.value)
    assert "\n" not in text
    assert "test_limits.py:" in text
    assert "1 s" in text or "for ever" in text


@triton.jit
def calls_itself(x):
    return calls_itself(x + 1)


@triton.jit
def recursive(o):
    tl.store(o, calls_itself(1))


def test_endless_recursion():
    with pytest.raises(CompileError, match="recursive") as raised:
        run(launcher(recursive, (1,)))
    assert "\n" not in str(raised.value)


@triton.jit
def tiles(o, n, S: tl.constexpr):
    pid = tl.program_id(0)
    i = tl.arange(0, S)
    x = pid + i[:, None] * i[None, :]
    tl.store(o + pid, tl.sum(tl.sum(x, 1), 0))


def test_wide_groups_are_split_to_the_limit(monkeypatch):
    """The same answer with 64 KiB a value as with the default."""
    expected = result_of(tiles, (100,), 0, 32, shape=(100,))
    monkeypatch.setattr(session, "VALUE_BYTES", 1 << 16)
    assert (result_of(tiles, (100,), 0, 32, shape=(100,)) == expected).all()
    monkeypatch.setattr(session, "VALUE_BYTES", 1 << 10)
    with pytest.raises(Exhausted, match="one program"):
        run(launcher(tiles, (100,), 0, 32, shape=(100,)))


def test_the_trace_is_the_same_in_smaller_groups(monkeypatch):
    """Splitting groups changes neither the accesses nor which program made them."""

    def touches():
        trace = []
        run(launcher(tiles, (100,), 0, 32, shape=(100,)), trace=trace)
        ((_, _, accesses),) = trace
        return {
            int(p): int(t.offsets[row if len(t.offsets) > 1 else 0])
            for t in accesses
            for row, p in enumerate(t.programs)
        }

    whole = touches()
    monkeypatch.setattr(session, "VALUE_BYTES", 1 << 16)
    assert touches() == whole == {p: p for p in range(100)}


LARGE = """
import resource, sys
import torch, triton, triton.language as tl
from gemmproof.reference.simulator import session, run

session.VALUE_BYTES = int(sys.argv[1])

@triton.jit
def gemm(a, b, c, K, S: tl.constexpr):
    i = tl.arange(0, S)
    m = (tl.program_id(0) * S + i)[:, None]
    n = (tl.program_id(1) * S + i)[None, :]
    acc = tl.zeros((S, S), tl.float32)
    for k in range(0, K, S):
        acc = tl.dot(tl.load(a + m * K + k + i[None, :]), tl.load(b + k + i[:, None] + n * K), acc)
    tl.store(c + m * tl.num_programs(1) * S + n, acc)

def wrapper(a, b):
    c = torch.empty((a.shape[0], b.shape[0]))
    gemm[a.shape[0] // 32, b.shape[0] // 32](a, b, c, a.shape[1], 32)
    return c

a = torch.ones((2048, 32)).half()
b = torch.ones((2048, 32)).half()
run(wrapper, a[:32], b[:32])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
seen = run(wrapper, a, b, seconds=300)
assert seen.faults == [] and (seen.result == 32).all()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.lane("full")
def test_memory_stays_bounded_on_a_large_grid(tmp_path):
    """4,096 programs of 32 x 32 tiles with at most 4 MB a value; the output is 16 MB."""
    path = tmp_path / "large.py"
    path.write_text(LARGE)
    command = [sys.executable, path, str(1 << 22)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) < 150  # MB; more than 190 without the limit


# -- programs that await each other, and waiting that never ends ---------------------------------
@triton.jit
def chain(flags, o, n):
    """Program p awaits program p + 1: the last one begins."""
    pid = tl.program_id(0)
    if pid < n - 1:
        while tl.load(flags + pid + 1, volatile=True) == 0:
            pass
        tl.store(o + pid, tl.load(o + pid + 1) + 1)
    else:
        tl.store(o + pid, 1)
    tl.atomic_xchg(flags + pid, 1)


def test_programs_may_wait_for_later_ones():
    flags = torch.zeros(12, dtype=torch.int32)
    got = result_of(chain, (12,), 12, tensors=[flags], shape=(12,))
    assert got.tolist() == list(range(12, 0, -1))


@triton.jit
def barrier(count, o, n):
    pid = tl.program_id(0)
    tl.store(o + pid, pid)
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < n:
        pass
    tl.store(o + 16 + pid, tl.load(o + (pid + 1) % n))


def test_a_barrier_of_the_whole_grid_orders_what_is_on_its_two_sides():
    got = result_of(barrier, (8,), 8, tensors=[torch.zeros(1, dtype=torch.int32)])
    assert got[16:24].tolist() == [1, 2, 3, 4, 5, 6, 7, 0]


@triton.jit
def await_nobody(flags, o):
    while tl.load(flags) == 0:
        pass
    tl.store(o, 1)


def test_a_wait_that_nothing_ends_is_one_line():
    with pytest.raises(LimitExceeded, match=r"await_nobody") as raised:
        run(launcher(await_nobody, (3,)), torch.zeros(1, dtype=torch.int32), seconds=3)
    assert "\n" not in str(raised.value)


@triton.jit
def spin_lock(lock, o):
    pid = tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o, tl.load(o) * 2 + 1)
    tl.store(o + 1 + pid, tl.load(o))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_a_spin_lock_lets_one_in_at_a_time():
    got = result_of(spin_lock, (10,), tensors=[torch.zeros(1, dtype=torch.int32)])
    assert got[0] == 2**10 - 1
    assert sorted(got[1:11].tolist()) == [2**k - 1 for k in range(1, 11)]
