"""Programs of one launch that meet on an element with no order between them."""

import pytest
import torch
import triton
import triton.language as tl

from gemmproof.reference.simulator import run


@triton.jit
def racing_kernel(c, WHICH: tl.constexpr):
    pid, i = tl.program_id(0), tl.arange(0, 16)
    if WHICH == "neighbour":
        tl.store(c + pid * 16 + i, pid)
        x = tl.load(c + (pid + 1) % 4 * 16 + i)
        tl.store(c + 64 + pid * 16 + i, x)
    else:
        if pid == 0:
            tl.store(c + i, 0.0)
        tl.atomic_add(c + i, 1.0)


@pytest.mark.parametrize(("which", "size"), [("neighbour", 128), ("initialised", 16)])
def test_programs_that_race(which, size):
    """One reads what another stores; one initialises what the others add to."""

    def wrapper(a):
        c = torch.empty(size, device=a.device)
        racing_kernel[(4,)](c, which)
        return c

    kinds = {f.kind for f in run(wrapper, torch.zeros(1)).faults}
    assert kinds & {"race", "stored_twice"}
