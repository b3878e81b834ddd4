"""Contracts, cases and the choice of cases: strict, orderly, and never wider than promised."""

import json
import random
import re

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import (
    cases,
    corners,
    draw_case,
    is_admitted,
    list_fills,
    list_relations,
    smallest,
)
from gemmproof.properties.cases.survey import MAX_VOLUME, Survey
from gemmproof.properties.contract import Contract, KernelUnderTest
from gemmproof.properties.finding import Finding
from gemmproof.reference.formats import OPERANDS
from gemmproof.report.report import SCHEMA, PropertyResult, Report

SURVEY = Survey((((32, 64, 16),), ((128, 256, 64), (16, 16, 16))), splits=(4,))
CONTRACTS = {
    "any": Contract(OPERANDS),
    "contiguous": Contract(layouts="contiguous"),
    "batched": Contract(batched=True),
    "column b": Contract(layouts=("row", "column")),
    "multiples": Contract(multiples=(1, 16, 64), min_side=16),
    "large": Contract(min_side=200, max_side=300),
}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"formats": ()}, "contract formats: got (), expected a non-empty tuple"),
        ({"formats": "fp16"}, "contract formats: got 'fp16', expected a non-empty tuple"),
        ({"formats": ("half",)}, "contract format: got 'half', expected one of fp16 bf16"),
        ({"layouts": "dense"}, "contract layouts: got 'dense', expected 'any'"),
        ({"layouts": ("any",)}, "contract layouts: got ('any',)"),
        ({"layouts": ("shared",)}, "expected batched=True"),
        ({"accumulator": "fp24"}, "contract accumulator: got 'fp24', expected one of fp32 fp16"),
        ({"formats": ("bf16",), "accumulator": "fp16"}, "got 'fp16' for bf16, expected fp32"),
        ({"batched": 1}, "contract batched: got 1, expected True or False"),
        ({"batch_invariant": True, "deterministic": False}, "expected deterministic"),
        ({"min_side": 9, "max_side": 8}, "got min_side=9 max_side=8"),
        ({"multiples": (1, 1)}, "expected three positive integers"),
        ({"min_side": 1, "max_side": 8, "multiples": (16, 1, 1)}, "got no multiple of 16"),
    ],
)
def test_a_contract_refuses_what_it_cannot_mean(fields, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        Contract(**fields)
    assert "\n" not in str(error.value)


def test_a_kernel_under_test_needs_a_name_and_a_function():
    with pytest.raises(ValueError, match="got launch=3, expected a function"):
        KernelUnderTest("matmul", 3)
    with pytest.raises(ValueError, match="kernel name: got ''"):
        KernelUnderTest("", len)
    with pytest.raises(ValueError, match="expected a Contract"):
        KernelUnderTest("matmul", len, "fp16")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "broken JSON"),
        ('{"M":1,', "broken JSON"),
        ("[" * 100_000, "nested without end"),
        ("[1]", "got [1], expected an object"),
        ('"M"', 'got "M", expected an object'),
        ('{"M":1,"N":1}', "got no K, expected M, N and K"),
        ('{"M":1,"N":1,"K":1,"k":1}', 'got unknown field "k", expected fields of M N K'),
        ('{"M":1,"M":2,"N":1,"K":1}', 'got field "M" twice'),
        ('{"M":-1,"N":1,"K":1}', "case M: got -1, expected an integer 0..65536"),
        ('{"M":1.0,"N":1,"K":1}', "case M: got 1.0, expected an integer"),
        ('{"M":true,"N":1,"K":1}', "case M: got true, expected an integer"),
        ('{"M":NaN,"N":1,"K":1}', "case M: got NaN, expected an integer"),
        ('{"M":1e999,"N":1,"K":1}', "case M: got Infinity, expected an integer"),
        ('{"M":1000000000000,"N":1,"K":1}', "case M: got 1000000000000, expected"),
        ('{"M":' + "9" * 5000 + ',"N":1,"K":1}', "an integer of 5000 digits"),
        ('{"M":65536,"N":65536,"K":1}', "elements of a, b and c, expected at most"),
        ('{"M":1,"N":1,"K":1,"batch":0.5}', "case batch: got 0.5"),
        ('{"M":1,"N":1,"K":1,"dtype":"half"}', 'case dtype: got "half", expected one of fp16'),
        ('{"M":1,"N":1,"K":1,"a":["row"]}', 'case a: got ["row"], expected one of row'),
        ('{"M":1,"N":1,"K":1,"a":"shared"}', 'case a: got "shared"'),
        ('{"M":1,"N":1,"K":1,"fill":null}', "case fill: got null, expected one of index"),
        ('{"M":1,"N":1,"K":1,"calls":2}', "case calls: got 2, expected 1 or 3"),
        ('{"M":1,"N":1,"K":1,"config":-1}', "case config: got -1"),
        ('{"M":1,"N":1,"K":1,"seed":"x"}', 'case seed: got "x"'),
        ('{"M":1,"N":1,"K":1,"a":"' + "x" * 999 + '"}', "..., expected one of"),
    ],
)
def test_a_case_is_refused_in_one_clear_line(text, words):
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        Case.from_json(text)
    assert len(str(error.value)) < 250
    assert "\n" not in str(error.value)


@given(cases(Contract(OPERANDS), SURVEY) | cases(Contract(batched=True), SURVEY))
def test_a_case_survives_json_repr_and_a_shell(case):
    text = case.to_json()
    assert Case.from_json(text) == case
    assert "'" not in text, "the reproduce line quotes it with single quotes"
    assert " " not in text
    assert eval(repr(case)) == case
    assert str(case).startswith(("M=", "batch="))


def test_a_case_shows_only_what_differs_from_the_default():
    assert Case(1, 2, 3).to_json() == '{"M":1,"N":2,"K":3,"dtype":"fp16"}'
    assert (
        str(Case(1, 2, 3, "bf16", layouts=(("a", "padded"),)))
        == "M=1 N=2 K=3 bf16, a padded, b row"
    )
    long = Case(1, 2, 3, batch=2, fill="normal", seed=4, config=5, calls=3)
    assert str(long) == (
        "batch=2 M=1 N=2 K=3 fp16, a row, b row, fill normal seed 4, config 5, 3 calls"
    )


def test_rank_orders_every_two_cases_and_prefers_the_simpler():
    simple = Case(1, 1, 1)
    for other in (
        Case(2, 1, 1),
        Case(1, 1, 1, layouts=(("a", "padded"),)),
        Case(1, 1, 1, fill="normal"),
        Case(1, 1, 1, seed=1),
        Case(1, 1, 1, calls=3),
        Case(1, 1, 1, config=1),
        Case(1, 1, 1, "bf16"),
        Case(1, 1, 1, batch=0),
    ):
        assert simple.rank < other.rank
    choose = random.Random(0).choice
    drawn = {draw_case(choose, CONTRACTS["any"], SURVEY, "fp16") for _ in range(300)}
    assert len({case.rank for case in drawn}) == len(drawn)


@pytest.mark.parametrize("name", CONTRACTS)
def test_no_case_is_wider_than_its_contract(name):
    contract = CONTRACTS[name]
    choose = random.Random(name).choice
    for dtype in contract.formats:
        made = [
            smallest(contract, dtype),
            *corners(contract, SURVEY, dtype),
            *(draw_case(choose, contract, SURVEY, dtype) for _ in range(200)),
        ]
        for case in made:
            assert is_admitted(case, contract), case
            for side, step in zip((case.M, case.N, case.K), contract.multiples, strict=True):
                assert contract.min_side <= side <= contract.max_side
                assert side % step == 0
            assert case.dtype == dtype
            assert case.config < SURVEY.configs
            least = contract.min_side**3 * 3
            volume = case.M * case.N * case.K * (case.batch or 1) * case.calls
            assert volume <= max(MAX_VOLUME, least)
        if contract.min_side == 0:
            assert any(0 in (c.M, c.N, c.K) for c in made)
        assert {c.config for c in made} == {0, 1}
        assert {c.fill for c in made} == set(list_fills(dtype))
        assert {c.compare for c in made} == {None, *list_relations(contract)}
        assert (
            {c.layout("a") for c in made}
            == {c.layout("b") for c in made}
            == set(contract.layout_names)
        )
        assert {c.calls for c in made} == {1, 3}


def test_any_layout_means_narrow_views_too_and_contiguous_never_does():
    case = Case(3, 1, 1, layouts=(("a", "narrow"),))
    assert is_admitted(case, Contract())
    assert not is_admitted(case, Contract(layouts="contiguous"))
    drawn = {c.layout("a") for c in corners(Contract(), SURVEY, "fp16")}
    assert {"narrow", "narrow_transposed"} <= drawn
    assert {c.layout("a") for c in corners(Contract(layouts="contiguous"), SURVEY, "fp16")} == {
        "row"
    }
    far = [
        c
        for c in corners(Contract(batched=True), SURVEY, "fp16")
        if c.layout("b") == "narrow_batch"
    ]
    assert [c.batch for c in far] == [3]


def test_sides_come_on_and_around_the_tiles():
    choose = random.Random(0).choice
    survey = Survey((((32, 64, 16),),), splits=(4,))
    drawn = [draw_case(choose, Contract(), survey, "fp16") for _ in range(2000)]
    for block, sides in ((32, {c.M for c in drawn}), (64, {c.N for c in drawn})):
        assert {0, 1, block - 1, block, block + 1, 2 * block + 1, 3 * block} <= sides
    assert {0, 1, 15, 16, 17, 32, 48, 64, 65, 80} <= {c.K for c in drawn}


def test_the_same_seed_draws_the_same_cases():
    first, second = (
        [draw_case(random.Random(7).choice, Contract(), SURVEY, "fp16") for _ in range(20)]
        for _ in range(2)
    )
    assert first == second


def test_the_strategy_shrinks_to_the_boundary():
    case = find(
        cases(Contract(), Survey()),
        lambda case: case.K >= 17 and case.M >= 1,
        settings=settings(phases=(Phase.generate, Phase.shrink), database=None),
        random=random.Random(1),
    )
    assert (case.M, case.N, case.K, case.layouts, case.fill) == (1, 0, 17, (), "index")


@given(st.data())
def test_reports_and_findings_survive_json(data):
    case = data.draw(cases(Contract(), SURVEY))
    finding = Finding("stays_in_bounds", "out_of_bounds", "load of a: got x", case, "a", "K")
    report = Report(
        schema=SCHEMA,
        target="kernels.py:matmul",
        verdict="fail",
        properties=(PropertyResult("stays_in_bounds", "A claim.", "fail", 3, 0.5),),
        findings=(finding, finding.caused_by("stays_in_bounds")),
        seconds=0.5,
        versions={"triton": "3.9.0"},
    )
    assert Report.from_json(report.to_json()) == report
    assert next(iter(json.loads(report.to_json()))) == "schema"


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "broken JSON"), ("[]", "report schema"), ('{"schema": 9}', "got 9, expected 2")],
)
def test_a_report_of_another_kind_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        Report.from_json(text)
