"""More origins of undefined lanes than a block has bits: none is taken for another kind."""

import torch
import triton
import triton.language as tl
from simulator_lanes import launcher

from gemmproof.reference.simulator import run


@triton.jit
def hinted_often(x_ptr, c_ptr, n, S: tl.constexpr):
    """Ten hints that are false in lanes beyond n only, which are not stored."""
    i = tl.arange(0, S)
    near = tl.where(i < n, i, 0)
    total = tl.zeros((S,), tl.float32)
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 0), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 1), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 2), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 3), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 4), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 5), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 6), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 7), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 8), S))
    total += tl.load(x_ptr + tl.max_contiguous(near + 0 * (n + 9), S))
    tl.store(c_ptr + i, total, mask=i < n)


def test_false_hints_in_lanes_that_are_not_stored_are_no_findings_however_many_there_are():
    how = {"shape": (5,), "dtype": torch.float32, "make": torch.empty}
    x = torch.arange(5, dtype=torch.float32)
    seen = run(launcher(hinted_often, (1,), 5, 16, **how), x)
    assert seen.faults == []
    assert torch.equal(seen.result, 10 * x)
