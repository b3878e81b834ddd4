"""A call that says nothing about the kernel, wherever in a case it is made, is no finding."""

import pytest
import torch

from gemmproof import Contract, KernelUnderTest, check
from gemmproof.properties.cases.case import Case
from gemmproof.reference.observation import Exhausted, Launch, Run, Unsupported, Where

HERE = Where("kernel.py", 3, "kernel")
COMPARED = Case(1, 1, 1, compare="negated")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Exhausted("body was still advancing", HERE), "incomplete"),
        (MemoryError("Unable to allocate 1 TiB"), "incomplete"),
        (Unsupported("an operation", HERE), "error"),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_call_of_which_nothing_is_known_is_no_finding(error, verdict, number):
    """The case's own call, and one that it is compared with."""
    calls = []

    def run(launch, a, b, **options):
        calls.append(options)
        if len(calls) == number:
            raise error
        found = Launch("body", (1, 1, 1), {}, 0, 1, (), False, HERE)
        return Run(torch.matmul(a.float(), b.float()).to(a.dtype), [found])

    kernel = KernelUnderTest("mm", torch.matmul, Contract())
    report = check(kernel, case=COMPARED, _run=run)
    assert len(calls) == number
    assert (report.verdict, report.findings) == (verdict, ())
    assert str(error) in report.note
