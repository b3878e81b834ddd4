"""Programs that await each other, and waiting that never ends."""

import pytest
import torch
import triton
import triton.language as tl
from simulator_lanes import launcher, result_of

from gemmproof.reference.simulator import LimitExceeded, run


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
