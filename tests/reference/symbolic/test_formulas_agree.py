"""Formulas have the accesses of the simulator, lane by lane, at sizes drawn at random.

GEMMPROOF_DRAWS=10 draws more for each kernel.
"""

import os

import pytest
from tests.corpora.families.table import RIGHT
from tests.corpora.mutants.table import MUTANTS
from tests.corpora.no_false_alarm.table import KERNELS
from tests.reference.symbolic.agreement import compare
from tests.reference.symbolic.wrong import unsound_kernels
from tests.support.lanes import first_of_each
from tests.support.wide import wide

from gemmproof import kernels
from gemmproof.properties.kernel import KernelUnderTest

DRAWS = int(os.environ.get("GEMMPROOF_DRAWS", "2"))
OWN = [
    KernelUnderTest(name, getattr(kernels, name), wide())
    for name in ("matmul", "matmul_grouped", "matmul_swizzled", "matmul_persistent")
]
CORPORA = (OWN, KERNELS[::4], RIGHT[::9], [m.kernel for m in MUTANTS[::24]])
# without formulas: addresses from memory, and wrappers that cannot be traced
LEFT = ("unknown:", "not followed:", "not traced:", "no paths:", "behind a while loop", "the call",
        "rows stored")  # fmt: skip


@pytest.mark.parametrize(
    "kernel", [x for some in CORPORA for x in first_of_each(some)], ids=lambda k: k.name
)
def test_formulas_touch_what_the_simulator_does(kernel):
    agreement = compare(kernel, DRAWS, seconds=6.0, most=24)
    assert agreement.differences == []
    others = [
        reason
        for reason in agreement.left
        if not reason.startswith(LEFT) and "paths of" not in reason
    ]
    assert others == []


@pytest.mark.parametrize("name", ["every_lane_stores_one_column", "odd_strips_alone"])
def test_formulas_of_wrong_kernels(name):
    kernel = KernelUnderTest(name, getattr(unsound_kernels, name), wide())
    agreement = compare(kernel, DRAWS, most=24)
    assert agreement.differences == []
    assert agreement.calls == DRAWS
