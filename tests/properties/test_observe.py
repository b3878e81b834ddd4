"""Arguments of observe and check that are of a wrong kind: one line each."""

import pytest

from gemmproof import Case, KernelUnderTest, check, observe

KERNEL = KernelUnderTest("matmul", lambda a, b: a @ b)


@pytest.mark.parametrize(
    ("case", "got"),
    [(KERNEL, "the kernel matmul"), (Case, "the class Case"), ("1x1x1", "'1x1x1'")],
)
def test_what_is_no_case_is_refused(case, got):
    with pytest.raises(TypeError, match=f"^observe: got {got}, expected a Case$"):
        observe(KERNEL, case)
    with pytest.raises(TypeError, match=f"^check: got {got}, expected a Case$"):
        check(KERNEL, case=case)


@pytest.mark.parametrize("target", ["sm_9", "", 90, []])
def test_an_unknown_target_is_refused(target):
    with pytest.raises(ValueError, match=r"^observe: got target .*, expected one of .*sm_90"):
        observe(KERNEL, Case(M=1, N=1, K=1), target=target)
