"""Programs that await each other, and waiting that never ends."""

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import (
    LimitExceeded,
    run,
)


@triton.jit
def chain(o, flags, n):
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
    def wrapper(x):
        o = torch.zeros(12, dtype=torch.int32)
        flags = torch.zeros(12, dtype=torch.int32)
        chain[(12,)](o, flags, 12)
        return o

    seen = run(wrapper, torch.zeros(1))
    assert seen.faults == []
    assert seen.result.tolist() == list(range(12, 0, -1))


@triton.jit
def barrier(o, count, n):
    """Everybody waits until everybody has come (a grid barrier)."""
    pid = tl.program_id(0)
    tl.store(o + pid, pid)
    tl.atomic_add(count, 1)
    while tl.atomic_add(count, 0) < n:
        pass
    tl.store(o + 16 + pid, tl.load(o + (pid + 1) % n))


@triton.jit
def await_nobody(o, flags):
    while tl.load(flags) == 0:
        pass
    tl.store(o, 1)


def test_waiting_for_nobody_ends_with_one_line():
    def wrapper(x):
        o = torch.zeros(4)
        await_nobody[(3,)](o, torch.zeros(1, dtype=torch.int32))
        return o

    with pytest.raises(LimitExceeded, match=r"await_nobody") as raised:
        run(wrapper, torch.zeros(1), seconds=3)
    assert "\n" not in str(raised.value)


@triton.jit
def spin_lock(o, lock, n):
    pid = tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o, tl.load(o) * 2 + 1)
    tl.store(o + 1 + pid, tl.load(o))
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_a_spin_lock_lets_one_in_at_a_time():
    def wrapper(x):
        o = torch.zeros(16, dtype=torch.int32)
        spin_lock[(10,)](o, torch.zeros(1, dtype=torch.int32), 10)
        return o

    seen = run(wrapper, torch.zeros(1))
    assert seen.faults == []
    assert seen.result[0] == 2**10 - 1
    assert sorted(seen.result[1:11].tolist()) == [2**k - 1 for k in range(1, 11)]
