"""Drawn cases: they differ, the contract admits them, and every kernel can run them."""

import runpy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.support.wide import wide

from gemmproof import Case, Contract, multiple_of, observe
from gemmproof.properties.cases.generate import is_admitted
from gemmproof.properties.cases.strategies import LEVELS, _rise
from gemmproof.properties.contract import Sizes
from gemmproof.reference.formats import OPERANDS
from gemmproof.strategies import cases

ROOT = Path(__file__).parents[2]
CONTRACTS = {
    "usual": Contract(),
    "any": wide(OPERANDS),
    "batched": wide(batched=True),
    "multiples": wide(M="16..", N="16..:16", K="64..:64"),
    "related": wide(where="K % 32 == 0 and M <= N"),
    "column": Contract(N=1, K=multiple_of(16), layouts="any"),
}


def draw(strategy, count):
    """Return as many cases as Hypothesis draws in a test of so many examples."""
    drawn = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(case):
        drawn.append(case)

    collect()
    return drawn


@pytest.mark.parametrize("name", CONTRACTS)
def test_nearly_all_drawn_cases_differ_and_the_contract_admits_all(name):
    contract = CONTRACTS[name]
    drawn = draw(cases(contract, tile=(64, 32, 16)), 100)
    assert all(is_admitted(case, contract) for case in drawn)
    assert len({*drawn}) >= 95


@pytest.mark.parametrize("most", [1, 64, 65536])
def test_a_side_that_rises_to_a_large_one_is_never_empty(most):
    """Without K, no volume would limit a result of millions of elements,"""
    rising = [_rise(level, most, Sizes.of("0..")) for level in range(LEVELS)]
    assert rising == sorted(rising)
    assert (rising[0], rising[-1]) == (1, most)


@pytest.mark.filterwarnings("ignore:.*pointers are used")
def test_a_case_has_a_configuration_in_each_kernel_that_a_wrapper_may_launch():
    """By pointers, grouped_gemm has fewer configurations than by descriptors."""
    registered = runpy.run_path(str(ROOT / "conftest.py"))["pytest_gemm_kernels"]()
    kernel = next(x for x in registered if x.name == "grouped_gemm_fp16")
    for layout, name in (("row", "grouped_gemm_tma_kernel"), ("padded", "grouped_gemm_kernel")):
        case = Case(16, 32, 48, config=3).with_layout("a", layout)
        seen = observe(kernel, case)
        assert ([x.kernel for x in seen.launches], seen.findings) == ([name], ())
