"""Wrong kernels are not proved to be right, each wrong in what a prover might forget."""

from __future__ import annotations

import pytest
import torch
import unsound_kernels
from wide import wide

from gemmproof.engine.check import check
from gemmproof.properties import memory, values
from gemmproof.properties.cases.case import Case
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.prove import prove
from gemmproof.properties.proof.verdict import PROVED

SECONDS = 4.0
# the property that does not hold, the sizes at which it does not, and what the contract admits
WRONG = {
    "while_loop_ends_in_the_middle": (values.EXACT, (1, 1, 49), {}),
    "products_in_half": (values.EXACT, None, {"N": "1..1"}),
    "doubled_by_torch": (values.EXACT, (1, 1, 1), {}),
    "operand_doubled_by_torch": (values.EXACT, (1, 1, 1), {}),
    "operand_doubled_by_a_kernel": (values.EXACT, (1, 1, 1), {}),
    "returned_transposed": (values.EXACT, (2, 2, 1), {}),
    "returned_as_other_bits": (values.EXACT, None, {}),
    "read_as_pairs": (memory.BOUNDS, (1, 1, 1), {}),
    "half_of_it_zeroed": (values.EXACT, (2, 1, 1), {"deterministic": False}),
    "operands_exchanged_by_trips": (values.EXACT, (2, 3, 17), {}),
    "every_lane_stores_one_column": (memory.ONCE, (1, 1, 1), {"N": "1..1"}),
    "undefined_rows_decide_masks": (memory.LANES, (1, 1, 1), {}),
    "divided_by_no_strips": (memory.LANES, (1, 1, 1), {}),
    "odd_strips_alone": (memory.ONCE, (1, 1, 1), {}),
    "rows_counted_by_inner_loops": (memory.BOUNDS, None, {"M": "3..3"}),
    "summed_by_torch": (memory.ONCE, (1, 1, 1), {}),
    "copied_by_torch": (memory.LANES, (1, 1, 1), {}),
    "rounded_on_the_way": (values.EXACT, None, {}),
    "read_as_half": (values.EXACT, (1, 1, 1), {}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_not_proved(name):
    broken, sizes, words = WRONG[name]
    kernel = KernelUnderTest(name, getattr(unsound_kernels, name), wide(**words))
    found = prove(kernel, seconds=SECONDS).find(broken)
    assert found is None or found.status != PROVED
    if sizes is not None:
        report = check(kernel, case=Case(*sizes), proof=False)
        assert broken in {finding.property for finding in report.findings}, report


def test_a_second_result_that_nothing_stores_is_not_proved():
    def launch(a, b):
        c = unsound_kernels.plain(a, b)
        return c, torch.empty_like(c)

    kernel = KernelUnderTest("two", launch, wide(), spec=lambda a, b: (a @ b, a @ b))
    found = prove(kernel, seconds=10.0).find(memory.ONCE)
    assert (found.status, found.why) == (
        "not decided",
        "stored once: no store of a result was seen",
    )
