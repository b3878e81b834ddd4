"""The sides of a kernel's branches that programs took, in the record of a launch."""

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import run


@triton.jit
def branching_kernel(c_ptr, n, LOOPS: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    x = pid * 2
    if n > 3:
        x += 1
    if LOOPS:
        for i in range(n - 2):
            x += i
    tl.store(c_ptr + pid, x)


def first_line():
    return branching_kernel.starting_line_number + 3  # of the first condition


def call(a, n, grid, loops=False):
    c = torch.empty(8, dtype=torch.int32, device=a.device)
    branching_kernel[(grid,)](c, n, LOOPS=loops)
    return c


@pytest.mark.parametrize(
    ("n", "grid", "loops", "expected"),
    [
        (2, 2, False, {0: (False, True, False), 3: (False, True, False)}),
        (4, 6, False, {0: (True, True, False), 3: (True, False, False)}),
        (2, 2, True, {0: (False, True, False), 3: (False, True, False), 6: (False, True, True)}),
        (5, 6, True, {0: (True, True, False), 3: (True, False, False), 6: (True, True, True)}),
    ],
)
def test_a_launch_has_the_sides_that_its_programs_took(n, grid, loops, expected):
    (launch,) = run(lambda a: call(a, n, grid, loops), torch.zeros(4, 4)).launches
    lines = {where.line - first_line(): sides for where, sides in launch.branches.items()}
    assert lines == expected
