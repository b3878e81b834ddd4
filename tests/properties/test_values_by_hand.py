"""Values of results made by hand: what is right in every format, and what is beyond its bound."""

from itertools import product as product_of

import numpy as np
import pytest
import torch
from tests.properties.results_by_hand import names, outcome_of, product
from tests.support.lanes import first_of_each
from tests.support.wide import wide

from gemmproof.engine.observe import judge
from gemmproof.properties.cases.case import FILLS, Case
from gemmproof.properties.cases.data import as_array, as_tensor
from gemmproof.properties.diagnosis.diagnose import diagnose
from gemmproof.properties.judges import exact_values
from gemmproof.reference.arithmetic import round_to, widen
from gemmproof.reference.bounds import exact_product
from gemmproof.reference.dot import dot_model
from gemmproof.reference.formats import FLOAT_OPERANDS, OPERANDS
from gemmproof.reference.formats import FORMATS as KNOWN


@pytest.mark.parametrize(
    ("dtype", "fill"),
    first_of_each(product_of(OPERANDS, FILLS), lambda row: row[row[0] == OPERANDS[0]]),
)
def test_the_exact_product_rounded_once_is_right_in_every_output_format(dtype, fill):
    outputs = (
        ["int32", "int64", "fp32", "fp16"]
        if dtype == "int8"
        else ["fp16", "bf16", "fp32", "fp64", "fp8e4m3", "fp8e5m2"]
    )
    for out in outputs:
        for K in (0, 1, 5, 64, 300):
            case = Case(6, 5, K, dtype, fill=fill, seed=K)
            outcome = outcome_of(case, lambda a, b, out=out: product(a, b, out))
            assert names(outcome) == [], (out, K)
            numbers = dtype != "int8" and fill != "special"
            assert (exact_values.BOUND in judge(outcome).applied) == numbers


@pytest.mark.parametrize("dtype", FLOAT_OPERANDS)
@pytest.mark.parametrize("fill", [name for name in FILLS if name != "special"])
def test_every_fp32_chain_is_within_the_bound_and_exact_on_integers(dtype, fill):
    model = dot_model(None, dtype)

    def chain(a, b):
        acc = model.dot(as_array(a).astype(KNOWN[dtype].storage), as_array(b))
        return as_tensor(round_to(acc, KNOWN["fp32"]), "fp32")

    for K in (1, 2, 17, 400):
        outcome = outcome_of(Case(9, 7, K, dtype, fill=fill, seed=3), chain)
        assert names(outcome) == []
        assert 0 <= judge(outcome).ratios[exact_values.BOUND] <= 1


def test_overflow_of_the_output_may_saturate_or_be_infinite_but_not_wrong():
    case = Case(4, 4, 8, "fp32", fill="positive", seed=1)
    # a kernel that returns fp8e4m3, whose largest value is 448, for sums of about 2000

    def scaled(top):
        def launch(a, b):
            c = exact_product(as_array(a), as_array(b))[0] * 2000
            return as_tensor(round_to(np.where(c > 448, top, c), KNOWN["fp8e4m3"]), "fp8e4m3")

        return launch

    outcome = outcome_of(case, scaled(448.0))
    exact = exact_values.exact(outcome) * 2000
    outcome.memo["exact"] = exact
    for top, wrong in ((448.0, False), (np.nan, False), (416.0, True), (-448.0, True)):
        other = outcome_of(case, scaled(top))
        other.memo["exact"] = exact
        assert exact_values.not_exact(other).any() == wrong, top


def test_an_integer_output_saturates_or_is_wrong():
    case = Case(3, 3, 4, "int8")
    clip = outcome_of(case, lambda a, b: product(a, b, "int8", lambda c: np.clip(c, -128, 127)))
    assert names(clip) == []
    wrapped = outcome_of(case, lambda a, b: product(a, b, "int8"))
    assert names(wrapped) == [exact_values.EXACT]
    (finding,) = exact_values.judge_exact(wrapped)
    assert diagnose(finding, wrapped, [wrapped]).fault == "wrapped"


def test_minus_zero_is_zero():
    outcome = outcome_of(Case(3, 3, 0), lambda a, b: -torch.zeros(3, 3, dtype=torch.float16))
    assert names(outcome) == []


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "int8"])
def test_one_wrong_unit_in_one_element_is_found(dtype):
    def off(c):
        c[2, 1] += 1
        return c

    outcome = outcome_of(Case(3, 4, 5, dtype), lambda a, b: product(a, b, None, off))
    finding = next(f for f in judge(outcome).findings if f.property == exact_values.EXACT)
    assert finding.message.startswith("c[2, 1]: got ")
    assert finding.message.endswith("1 of 12 elements wrong")


def test_nan_is_wrong_and_its_ratio_is_no_number_in_the_report():
    outcome = outcome_of(Case(2, 2, 2), lambda a, b: torch.full((2, 2), torch.nan).half())
    assert names(outcome) == [exact_values.EXACT, exact_values.BOUND]
    assert exact_values.BOUND not in judge(outcome).ratios


def narrow_sums(name):
    """A kernel whose sums are kept in a narrow format, one rounding a step."""

    def launch(a, b):
        x, y = widen(as_array(a)), widen(as_array(b))
        acc = np.zeros((x.shape[0], y.shape[1]))
        for k in range(x.shape[1]):
            acc = widen(round_to(acc + x[:, k, None] * y[None, k], KNOWN[name]))
        return as_tensor(round_to(acc, KNOWN["fp32"]), "fp32")

    return launch


@pytest.mark.parametrize(("name", "K"), [("fp16", 64), ("bf16", 3)])
def test_a_narrow_accumulator_is_beyond_the_bound_and_called_rounding(name, K):
    case = Case(8, 8, K, "fp16", fill="positive", seed=1)
    outcome = outcome_of(case, narrow_sums(name))
    (finding,) = exact_values.judge_bound(outcome)
    diagnosis = diagnose(finding, outcome, [outcome])
    assert diagnosis.fault == "rounding"
    assert f"sums kept in {name}" in diagnosis.message


def test_a_contract_that_declares_an_fp16_accumulator_allows_it():
    case = Case(8, 8, 3, "fp16", fill="positive", seed=1)
    contract = wide(accumulator="fp16")
    assert names(outcome_of(case, narrow_sums("fp16"), contract=contract)) == []
    assert names(outcome_of(case, narrow_sums("bf16"), contract=contract)) == [exact_values.BOUND]


@pytest.mark.parametrize(("more", "expected"), [(0, []), (1, ["exact_on_integers"])])
def test_integers_beyond_those_of_float64_are_compared(more, expected):
    """Some are no float64, which the bound compares with."""
    case = Case(6, 5, 64, "int8", seed=3)

    def shifted(a, b):
        return (product(a, b, "int64") << 45) + more

    outcome = outcome_of(case, shifted, spec=lambda a, b: (a @ b) * 2.0**45)
    assert names(outcome) == expected
    assert exact_values.BOUND in judge(outcome).applied
