"""Sums and saturated results are judged by what the contract declares of them."""

from functools import partial

import numpy as np
import pytest
from tests.corpora.mutants import precision
from tests.properties.results_by_hand import LAUNCH, names, outcome_of, product
from tests.support.lanes import first_of_each

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.kernel_check import check
from gemmproof.engine.observe import observe, observe_case
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract
from gemmproof.properties.judges import exact_values, metamorphic
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.gpus import TARGETS
from gemmproof.reference.simulation import Run

LONG = Case(1, 1, 4096, "fp8e4m3", fill="positive", seed=1)


def verdict(launch, case, accumulator="fp32", target=None):
    contract = Contract(formats=(case.dtype,), accumulator=accumulator)
    report = check(KernelUnderTest("k", launch, contract), case=case, target=target)
    assert report.verdict in ("pass", "fail")
    return report.verdict


@pytest.mark.lane("full")
@pytest.mark.parametrize("target", ["sm_89", "sm_90"])
def test_fp8_sums_that_never_leave_the_unit_are_e8m13_and_not_fp32(target):
    assert verdict(precision.fp8_never_promoted, LONG, "fp32", target) == "fail"
    assert verdict(precision.fp8_never_promoted, LONG, "e8m13", target) == "pass"
    assert verdict(precision.fp8_promoted, LONG, "fp32", target) == "pass"


def test_the_bound_of_fp32_is_the_same_for_every_tile():
    """Small tiles go to wider units; the declared sums do not change."""
    contract = Contract(formats=("fp8e4m3",))
    bounds = []
    for block in (32, 64):
        kernel = KernelUnderTest("k", partial(precision.fp8_never_promoted, BLOCK=block), contract)
        seen = observe(kernel, LONG, Simulator("sm_90"))
        bounds.append(exact_values.error_and_bound(seen)[1])
        assert exact_values.beyond_bound(seen).any() == (block == 64)
    assert np.array_equal(*bounds)


def test_e8m13_is_a_word_of_contracts_for_fp8_alone():
    Contract(formats=("fp8e4m3", "fp8e5m2"), accumulator="e8m13")
    with pytest.raises(ValueError, match="contract accumulator: got 'e8m13' for fp16"):
        Contract(formats=("fp8e4m3", "fp16"), accumulator="e8m13")
    # worse than 13 bits is a finding
    case = Case(4, 4, 64, "fp8e4m3", fill="positive", seed=1)
    contract = Contract(formats=("fp8e4m3",), accumulator="e8m13")

    def sums(a, b):
        return product(a, b, "fp32", lambda c: c * (1 + 2.0**-5))

    assert names(outcome_of(case, sums, contract=contract)) == [exact_values.BOUND]
    assert names(outcome_of(case, lambda a, b: product(a, b, "fp32"), contract=contract)) == []


def related_outcome(case, function):
    """An outcome of `function(a, b)`, with the related call of the case."""
    kernel = KernelUnderTest("matmul", function, Contract((case.dtype,)))

    def run(launch, *tensors, trace=None, **options):
        return Run(result=launch(*tensors), launches=[LAUNCH], faults=[])

    return observe_case(kernel, case, Simulator(None, run))


def clip_to(name):
    high = FORMATS[name].max
    low = -high - 1 if name.startswith("i") else 0
    return lambda a, b: product(a, b, name, lambda c: np.clip(c, low, high))


@pytest.mark.parametrize("name", ["int8", "int16", "uint8"])
@pytest.mark.parametrize("fill", ["index", "normal", "positive", "wide"])
def test_integers_that_saturate_are_not_accused_of_asymmetry(name, fill):
    for K in (1, 2, 40):
        case = Case(9, 8, K, "int8", fill=fill, seed=K, compare="negated")
        outcome = related_outcome(case, clip_to(name))
        assert names(outcome) == []
        a = outcome.operands["a"].data
        assert len(outcome.related) == (not (a == -128).any())


def test_the_lowest_integer_beside_the_highest():
    """-128 and 127 are each other's negatives where both are saturated, and nowhere else."""
    case = Case(1, 1, 2, "int8", fill="normal", seed=1, compare="negated")

    def fixed(first, second):
        answers = iter((first, second))
        return lambda a, b: product(a, b, "int8", lambda c: np.full_like(c, next(answers)))

    def is_accused(first, second):
        outcome = related_outcome(case, fixed(first, second))
        return any(True for _ in metamorphic.judge(outcome))

    innocent = [(-128, 127), (127, -128), (127, -127), (-127, 127), (5, -5), (0, 0)]
    assert [pair for pair in innocent if is_accused(*pair)] == []
    guilty = [(-128, 126), (127, -126), (127, 127), (-128, -128), (5, 5), (-128, 0)]
    assert [pair for pair in guilty if not is_accused(*pair)] == []


def test_fp8_that_saturates_is_symmetric_and_so_judged():
    case = Case(4, 4, 40, "fp8e4m3", fill="normal", seed=1, compare="negated")

    def saturated(a, b):
        return product(a, b, "fp8e4m3", lambda c: np.clip(c * 1e4, -448, 448))

    outcome = related_outcome(case, saturated)
    assert not list(metamorphic.judge(outcome))


def test_a_nan_clamped_to_one_end_is_not_asymmetric():
    case = Case(13, 11, 19, "fp8e4m3", fill="special", seed=1, compare="negated")

    def clamped(a, b):
        return product(
            a, b, "fp8e4m3", lambda c: np.where(np.isnan(c), -448, np.clip(c, -448, 448))
        )

    assert names(related_outcome(case, clamped)) == []


@pytest.mark.parametrize("target", first_of_each([None, *TARGETS], bool))
@pytest.mark.parametrize("fill", ["subnormal", "ties"])
def test_a_right_kernel_is_right_at_the_edges_on_every_target(target, fill):
    for dtype in ("fp16", "bf16", "fp32", "tf32", "fp8e4m3", "fp8e5m2"):
        if dtype == "fp8e4m3" and target in ("sm_70", "sm_75", "sm_80", "sm_86"):
            continue  # Triton compiles no e4m3 there
        for K in (1, 3, 40):
            case = Case(7, 5, K, dtype, fill=fill, seed=K)
            assert verdict(precision.right_at_the_edges, case, target=target) == "pass"


def test_sums_beside_ties_are_exact_only_where_14_bits_are_promised():
    case = Case(3, 3, 5, "fp16", fill="ties", seed=1)
    outcomes = [
        outcome_of(case, product, contract=Contract(accumulator=name)) for name in ("fp32", "fp16")
    ]
    assert [exact_values.exact_applies(outcome) for outcome in outcomes] == [True, False]
