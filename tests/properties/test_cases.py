"""Contracts, cases and the choice of cases: strict, orderly, and never wider than declared."""

import json
import math
import random
import re

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from tests.support.wide import wide

from gemmproof.properties.cases import generate
from gemmproof.properties.cases.case import FILLS, FLOAT_FILLS, Case
from gemmproof.properties.cases.corners import corners
from gemmproof.properties.cases.generate import MAX_VOLUME, Survey, draw_case, is_admitted
from gemmproof.properties.cases.strategies import cases
from gemmproof.properties.codec import dump, encode, parse
from gemmproof.properties.contract import Contract, Sizes, multiple_of
from gemmproof.properties.finding import Finding
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import FORMATS, OPERANDS
from gemmproof.report.record import SCHEMA, PropertyResult, Report

SURVEY = Survey((((32, 64, 16),), ((128, 256, 64), (16, 16, 16))), splits=(4,))
CONTRACTS = {
    "any": wide(OPERANDS),
    "contiguous": wide(layouts="contiguous"),
    "batched": wide(batched=True),
    "column b": wide(layouts=("row", "column")),
    "multiples": wide(M="16..", N="16..:16", K="64..:64"),
    "related": wide(where="K % 32 == 0 and M <= N"),
    "square": Contract(where=lambda M, N, K: M == N),
    "column": Contract(N=1, K=multiple_of(16), layouts="any"),
    "large": wide(M="200..300", N="200..300", K="200..300"),
}


@pytest.mark.parametrize(
    ("fields", "message"),
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
        ({"M": "9..8"}, "contract M: got 9..8, expected sizes from 0 to 65536, low before high"),
        ({"N": "x"}, "contract N: got 'x', expected a number, LOW..HIGH, or LOW..HIGH:STEP"),
        ({"K": 0.5}, "contract K: got 0.5, expected a number, a range, text or multiple_of(n)"),
        ({"M": "1..8:16"}, "contract M: got 1..8:16, which is no size at all"),
        ({"M": range(3, 1)}, "contract M: got range(3, 1), expected a number, a range"),
        ({"M": 65537}, "contract M: got 65537, expected sizes from 0 to 65536"),
        ({"batch": 1025}, "contract batch: got 1025, expected at most 1024"),
        ({"where": "K > 70000"}, "contract where: got 'K > 70000', which no size that was tried"),
        ({"where": "K.real"}, "contract where: got 'K.real', expected a condition on M, N, K"),
        ({"where": "K ="}, "contract where: got 'K =', expected a condition on M, N, K and batch"),
        ({"where": lambda M: M}, "contract where: "),
        ({"where": True}, "contract where: got True, expected a condition, a function or None"),
        ({"out": "fp24"}, "contract out: got 'fp24', expected one of fp16"),
    ],
)
def test_a_contract_refuses_what_it_cannot_mean(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        wide(**fields)
    assert "\n" not in str(error.value)


def test_a_kernel_under_test_needs_a_name_and_a_function():
    with pytest.raises(ValueError, match="got launch=3, expected a function"):
        KernelUnderTest("matmul", 3)
    with pytest.raises(ValueError, match="kernel name: got ''"):
        KernelUnderTest("", len)
    with pytest.raises(ValueError, match="expected a Contract"):
        KernelUnderTest("matmul", len, "fp16")


@pytest.mark.parametrize(
    ("text", "message"),
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
        ('{"M":65536,"N":65536,"K":999}', "elements of a and b, expected at most 67108864"),
        ('{"M":65536,"N":65536,"K":1,"batch":2}', "8589934592 elements of c, expected at most"),
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
def test_a_case_is_refused_in_one_clear_line(text, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        Case.from_json(text)
    assert len(str(error.value)) < 250
    assert "\n" not in str(error.value)


@given(
    st.one_of(
        *(cases(wide(OPERANDS), SURVEY, name) for name in OPERANDS),
        cases(wide(batched=True), SURVEY, "fp16"),
    )
)
def test_a_case_survives_json_repr_and_a_shell(case):
    text = case.to_json()
    assert Case.from_json(text) == case
    assert "'" not in text, "the reproduce line quotes it with single quotes"
    assert " " not in text
    assert eval(repr(case)) == case
    assert str(case).startswith(("M=", "batch="))


def test_a_case_shows_only_what_differs_from_the_default(texts):
    assert Case(1, 2, 3).to_json() == '{"M":1,"N":2,"K":3,"dtype":"fp16"}'
    texts("a case with a layout", str(Case(1, 2, 3, "bf16", layouts=(("a", "padded"),))))
    long = Case(1, 2, 3, batch=2, fill="normal", seed=4, config=5, calls=3)
    texts("a case with everything", str(long))


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
        cases = [
            generate.smallest(contract, dtype),
            *corners(contract, SURVEY, dtype),
            *(draw_case(choose, contract, SURVEY, dtype) for _ in range(200)),
        ]
        for case in cases:
            assert is_admitted(case, contract), case
            assert all(n in contract.sizes(axis) for axis, n in case.sides.items())
            assert case.dtype == dtype
            assert case.config < SURVEY.configs
            least = math.prod(contract.sizes(axis).fit(0) for axis in "MNK") * 3
            volume = case.M * case.N * case.K * (case.batch or 1) * case.calls
            assert case.is_sampled or volume <= max(MAX_VOLUME, least)
        if 0 in contract.sizes("M"):
            assert any(0 in (c.M, c.N, c.K) for c in cases)
        assert {c.config for c in cases} == {0, 1}
        fills = set(FILLS) if FORMATS[dtype].kind == "float" else set(FILLS) - set(FLOAT_FILLS)
        assert {c.fill for c in cases} == fills
        assert {c.compare for c in cases} == {None, *generate.list_relations(contract)}
        assert (
            {c.layout("a") for c in cases}
            == {c.layout("b") for c in cases}
            == set(contract.layout_names)
        )
        assert {c.calls for c in cases} == {1, 3}


def test_any_layout_means_narrow_views_too_and_contiguous_never_does():
    case = Case(3, 1, 1, layouts=(("a", "narrow"),))
    assert is_admitted(case, wide())
    assert not is_admitted(case, wide(layouts="contiguous"))
    drawn = {c.layout("a") for c in corners(wide(), SURVEY, "fp16")}
    assert {"narrow", "narrow_transposed"} <= drawn
    assert {c.layout("a") for c in corners(wide(layouts="contiguous"), SURVEY, "fp16")} == {"row"}
    far = [
        c for c in corners(wide(batched=True), SURVEY, "fp16") if c.layout("b") == "narrow_batch"
    ]
    assert [c.batch for c in far] == [3, 3]


def test_sides_come_on_and_around_the_tiles():
    choose = random.Random(0).choice
    survey = Survey((((32, 64, 16),),), splits=(4,))
    drawn = [draw_case(choose, wide(), survey, "fp16") for _ in range(2000)]
    for block, sides in ((32, {c.M for c in drawn}), (64, {c.N for c in drawn})):
        assert {0, 1, block - 1, block, block + 1, 2 * block + 1, 3 * block} <= sides
    assert {0, 1, 15, 16, 17, 32, 48, 64, 65, 80} <= {c.K for c in drawn}


def test_the_same_seed_draws_the_same_cases():
    first, second = (
        [draw_case(random.Random(7).choice, wide(), SURVEY, "fp16") for _ in range(20)]
        for _ in range(2)
    )
    assert first == second


def test_the_strategy_shrinks_to_the_boundary():
    case = find(
        cases(wide(), Survey(), "fp16"),
        lambda case: case.K >= 17 and case.M >= 1,
        settings=settings(phases=(Phase.generate, Phase.shrink), database=None),
        random=random.Random(1),
    )
    assert (case.M, case.N, case.K, case.layouts, case.fill) == (1, 1, 17, (), "index")


@given(st.data())
def test_reports_and_findings_survive_json(data):
    case = data.draw(cases(wide(), SURVEY, "fp16"))
    finding = Finding("stays_in_bounds", "out_of_bounds", "load of a: got x", case, "a", "K")
    report = Report(
        schema=SCHEMA,
        target="kernels.py:matmul",
        properties=(PropertyResult("stays_in_bounds", "A claim.", "fail", 3, 0.5),),
        findings=(finding, finding.caused_by("stays_in_bounds")),
        seconds=0.5,
        versions={"triton": "3.9.0"},
    )
    assert parse(Report, dump(report), "report") == report
    assert next(iter(encode(report))) == "schema"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "broken JSON"),
        ("[]", "got \\[\\], expected an object"),
        ('{"schema": 9}', "report.schema: got 9, expected 3"),
    ],
)
def test_a_report_of_another_kind_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse(Report, text, "report")


@pytest.mark.parametrize(
    ("declared", "shown", "members", "others"),
    [
        ("0..", "0..", (0, 1, 65536), (-1, 65537)),
        ("..300", "1..300", (1, 300), (0, 301)),
        ("16..4096:16", "16..4096:16", (16, 4096), (0, 8, 4112)),
        (":16", "16..:16", (16, 65536), (0, 1, 8)),
        ("7", "7", (7,), (6, 8)),
        (7, "7", (7,), (6, 8)),
        (range(16, 65, 16), "16..64:16", (16, 64), (17, 80)),
        (multiple_of(8), "8..:8", (8, 16), (0, 12)),
        ("1..1024", "1..1024", (1, 1024), (0, 1025)),
    ],
)
def test_sizes_are_stated_in_many_ways(declared, shown, members, others):
    sizes = Sizes.of(declared)
    assert str(sizes) == shown
    assert Sizes.of(shown) == sizes
    assert all(n in sizes for n in members)
    assert not any(n in sizes for n in others)


@pytest.mark.parametrize("name", [name for name in CONTRACTS if name != "square"])
def test_a_contract_is_written_and_read_again(name):
    data = json.loads(json.dumps(CONTRACTS[name].to_dict()))
    assert Contract.from_dict(data) == CONTRACTS[name]


def test_a_condition_that_divides_by_zero_admits_no_such_size():
    contract = wide(where=lambda M, N, K: M % N == 0)
    drawn = [draw_case(random.Random(i).choice, contract, SURVEY, "fp16") for i in range(50)]
    assert all(case.N > 0 and case.M % case.N == 0 for case in drawn)


def test_the_default_is_what_authors_mean():
    for case in corners(Contract(), SURVEY, "fp16"):
        assert min(case.M, case.N, case.K) >= 1
        assert case.layouts == ()
    usual, huge = (Contract(layouts="any", huge=x).layout_names for x in (False, True))
    assert {"narrow", "narrow_transposed"} == set(huge) - set(usual)
