"""The new kernel gives the same bits as the old one, and does not load more elements."""

from dataclasses import replace

import right
import torch
from hypothesis import given, settings
from persistent import matmul

from gemmproof import Contract, KernelUnderTest, observe
from gemmproof.strategies import cases

OLD = KernelUnderTest("old", right.matmul, Contract())
NEW = KernelUnderTest("new", matmul, Contract())


def count_loads(observation):
    return sum(x.mask.sum() for x in observation.accesses if x.kind == "load")


@settings(deadline=None)
@given(case=cases(NEW).map(lambda case: replace(case, fill="cancelling")))
def test_the_new_kernel_gives_the_same_bits(case):
    old, new = observe(OLD, case), observe(NEW, case)
    differs = old.result.view(torch.int16) != new.result.view(torch.int16)
    assert not differs.any(), f"{differs.sum()} of {differs.numel()} elements differ"
    assert count_loads(new) <= count_loads(old)
