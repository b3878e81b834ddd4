"""A property counts the cases that would show its violation, and says if there was none."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.corpora.families import calling_forms, epilogues, grouped_gemm, residuals
from tests.corpora.partly_judged import kernels
from tests.properties import alone_kernels
from tests.support.cli_project import project_folder  # noqa: F401
from tests.support.fake_simulator import check_with, fake_run, right
from tests.support.pytest_project import ROOT
from tests.support.wide import wide

from gemmproof import kernels as ours
from gemmproof.backends.simulate import Simulator
from gemmproof.cli import main
from gemmproof.commands.output import write_junit
from gemmproof.engine.draw import ROUNDED_FILLS, ROUNDING, list_cases
from gemmproof.engine.kernel_check import check
from gemmproof.engine.observe import judge, observe_case
from gemmproof.engine.proofs import NOTHING
from gemmproof.engine.sections import tally
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.corners import exercises
from gemmproof.properties.cases.generate import Survey
from gemmproof.properties.codec import dump, parse
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest, OneOf
from gemmproof.properties.property_table import BY_NAME, PROPERTIES
from gemmproof.reference.mirrors import MIRRORS
from gemmproof.report.record import Report
from gemmproof.report.text import lines, list_gaps

# -- each property -------------------------------------------------------------------------------
PLAIN = KernelUnderTest("plain", alone_kernels.launch, Contract(M="0..", N="0..", K="0.."))
HINTED = KernelUnderTest("hinted", alone_kernels.flawed("assumes_what_is_so"))
ALIKE = KernelUnderTest("alike", alone_kernels.launch, Contract(batch_invariant=True))
FIXED = KernelUnderTest("fixed", alone_kernels.launch, Contract(M=16, N=16, K=16))
MIRRORED = KernelUnderTest("mirrored", ours.KERNELS["matmul"], mirror=MIRRORS.get("matmul"))
ONE, EMPTY, TILES = Case(1, 1, 1), Case(0, 16, 16), Case(33, 17, 20)
ROUNDS, BLOCK = replace(TILES, fill="normal"), Case(16, 16, 16)

# property or part -> kernel, a case that exercises it, and cases that do not
EXERCISED = {
    "compiles": (PLAIN, TILES, [EMPTY]),
    "stays_in_bounds": (PLAIN, TILES, [EMPTY]),
    "offsets_fit": (PLAIN, TILES, [EMPTY]),
    "every_hint_holds": (HINTED, TILES, []),
    "no_races": (PLAIN, TILES, [ONE, EMPTY]),
    "stores_each_element_once": (PLAIN, TILES, [EMPTY]),
    "undefined_lanes_never_stored": (PLAIN, TILES, [EMPTY]),
    "leaves_inputs_untouched": (PLAIN, TILES, [EMPTY]),
    "computed_by_kernels": (PLAIN, TILES, [EMPTY]),
    "exact_on_integers": (PLAIN, TILES, [replace(TILES, K=0), ROUNDS, EMPTY]),
    "within_bound": (PLAIN, ROUNDS, [TILES, replace(ROUNDS, K=0), replace(TILES, fill="special")]),
    "same_bits_on_dirty_outputs": (PLAIN, replace(TILES, calls=3), [TILES]),
    "special_values": (
        PLAIN,
        replace(TILES, fill="special"),
        [TILES, replace(TILES, K=0, fill="special"), replace(EMPTY, fill="special")],
    ),
    "symmetries negated": (PLAIN, replace(ROUNDS, compare="negated"), [ROUNDS]),
    "symmetries scaled": (
        PLAIN, replace(TILES, compare="scaled"), [replace(ROUNDS, compare="scaled")]
    ),
    "symmetries permuted_rows": (
        PLAIN, replace(ROUNDS, compare="permuted_rows"), [replace(ONE, compare="permuted_rows")]
    ),
    "symmetries permuted_columns": (
        PLAIN, replace(ROUNDS, compare="permuted_columns"),
        [replace(ONE, compare="permuted_columns")],
    ),
    "symmetries padded_k": (
        PLAIN, replace(ROUNDS, compare="padded_k"), [replace(TILES, K=0, compare="padded_k")]
    ),
    "symmetries transposed": (
        PLAIN, replace(ROUNDS, compare="transposed"), [replace(EMPTY, compare="transposed")]
    ),
    "call_order": (PLAIN, replace(TILES, compare="order"), [TILES]),
    "row_bits_at_any_m": (ALIKE, replace(ROUNDS, compare="rows"), [ROUNDS]),
}  # fmt: skip


def exercised_by(kernel, case):
    judged = judge(observe_case(kernel, case, Simulator()))
    assert judged.findings == ()
    return {f"{name} {part}".rstrip() for name, part in judged.exercised}, judged


@pytest.mark.parametrize("label", EXERCISED)
def test_only_a_case_that_would_show_a_violation_exercises_a_property(label):
    kernel, case, idle = EXERCISED[label]
    labels, judged = exercised_by(kernel, case)
    assert label in labels
    assert tally("simulator", [judged]).examples[label.partition(" ")[0]] == 1
    for other in idle:
        labels, judged = exercised_by(kernel, other)
        assert label not in labels, other


@pytest.mark.parametrize("case", [TILES, EMPTY], ids=str)
def test_every_call_exercises_that_it_ends(case):
    assert "runs_to_completion" in exercised_by(PLAIN, case)[0]


def test_every_property_of_a_case_is_in_the_table_and_has_a_sentence():
    simulated = {p.name for p in PROPERTIES if p.simulated}
    missing = simulated - {label.partition(" ")[0] for label in EXERCISED}
    assert missing == {"runs_to_completion", "mirror_equals_source"}
    sentences = {p.name: p.exercises for p in PROPERTIES}
    assert all(sentences.values())
    parts = BY_NAME["symmetries"].exercise.parts(PLAIN)
    assert {f"symmetries {part}" for part in parts} == {x for x in EXERCISED if " " in x}


def test_a_launch_exercises_its_mirror():
    assert MIRRORED.mirror is not None
    assert "mirror_equals_source" in exercised_by(MIRRORED, TILES)[0]


@pytest.mark.parametrize(
    ("kernel", "case", "name", "reason"),
    [
        (PLAIN, ONE, "every_hint_holds", "no launched kernel has a hint"),
        (
            FIXED,
            replace(BLOCK, compare="order"),
            "call_order",
            "the contract admits no other shape",
        ),
        (FIXED, BLOCK, "no_races", "the largest problem has one program"),
    ],
)
def test_what_no_case_can_exercise_is_barred_with_the_reason(kernel, case, name, reason):
    assert exercised_by(kernel, case)[1].barred[name, ""] == reason


def test_an_order_of_calls_meets_a_condition_on_sizes():
    """Multiples meet it where the next size does not."""
    contract = Contract(where="K % 16 == 0 and N % 16 == 0 and M % 16 == 0")
    kernel = KernelUnderTest("matmul", PLAIN.launch, contract)
    case = Case(M=16, N=32, K=64, compare="order")
    labels, judged = exercised_by(kernel, case)
    assert "call_order" in labels
    assert ("call_order", "") not in judged.barred


def finish(a, b):
    return np.tanh(a @ b)


def rectify(a, b):
    return np.maximum(np.tanh(a @ b), 0)  # 0 is exact


def round_up(a, b):
    return np.rint(np.tanh(a @ b))


def raise_product(a, b, power):
    return (a @ b) * 2**power


def choose(a, b, activation):
    return np.tanh(a @ b) if activation else a @ b


@pytest.mark.parametrize(
    ("spec", "values", "is_barred"),
    [
        (finish, None, True),
        (rectify, None, False),
        (round_up, None, False),
        (choose, ("tanh",), True),
        (choose, ("tanh", None), False),
        (choose, (None, "tanh"), False),
    ],
)
def test_a_formula_of_approximated_functions_alone_has_no_exact_element(spec, values, is_barred):
    options = {} if values is None else {"activation": OneOf(*values)}

    def launch(a, b, activation=None):
        return alone_kernels.launch(a, b)

    kernel = KernelUnderTest("formula", launch, Contract(), operands=options, spec=spec)
    judged = judge(observe_case(kernel, TILES, Simulator()))
    why = "every element of the formula rests on an approximated function"
    assert judged.barred.get(("exact_on_integers", "")) == (why if is_barred else None)


def test_integers_beyond_32_bits_are_judged_by_no_bound_and_called_no_approximation():
    contract, case = Contract(formats=("int8",)), replace(TILES, dtype="int8")
    for power, is_judged in ((2, True), (50, False)):
        spec = partial(raise_product, power=power)
        kernel = KernelUnderTest("formula", ours.matmul_swizzled, contract, spec=spec)
        judged = judge(observe_case(kernel, case, Simulator()))
        assert ("within_bound" in judged.applied) == is_judged
        assert ("exact_on_integers" in judged.applied) == is_judged
        assert ("exact_on_integers", "") not in judged.barred


def test_a_relation_that_the_contract_does_not_admit_is_barred():
    barred = exercised_by(FIXED, replace(BLOCK, compare="padded_k"))[1].barred
    assert barred["symmetries", "padded_k"] == "the contract admits no such call"


def test_a_prediction_is_exercised_by_elements():
    exercise = BY_NAME["equals_prediction"].exercise
    observations = (observe_case(PLAIN, case, Simulator()) for case in (TILES, EMPTY))
    assert [exercise.shows(x) for x in observations] == [True, False]


# -- the report ----------------------------------------------------------------------------------
FEW = partial(check, KernelUnderTest("matmul", kernels.off_for_fractions), max_examples=3)


def test_a_property_that_no_case_exercised_is_in_every_report(tmp_path):
    report = FEW()
    result = next(p for p in report.properties if p.name == "within_bound")
    assert (report.verdict, result.status, result.examples) == ("pass", "not exercised", 0)
    why = "no case had an exact result that the output or the accumulator must round"
    assert result.why == why
    assert parse(Report, dump(report), "report") == report
    shown = [text for text, _ in lines(report, str)]
    assert any(x.split() == f"within_bound not exercised: {why}".split() for x in shown)
    write_junit(tmp_path / "report.xml", [report], {"matmul": str})
    cases = ElementTree.parse(tmp_path / "report.xml").iter("testcase")
    skipped = {case.get("name"): case.find("skipped") for case in cases}
    assert skipped["within_bound"].get("message") == f"not exercised: {why}"
    assert skipped["every_hint_holds"].get("message").startswith("does not apply: ")


def test_branches_that_never_ran_stand_beside_properties_that_were_not_exercised():
    report, _ = check_with(fake_run(), max_examples=60)
    assert list_gaps(report) == []
    line, *others = (f"bigsize.py:{n} needs M * N >= 1048577" for n in (30, 31, 32, 33))
    report = replace(report, unvisited=(line, others[0]))
    assert list_gaps(report) == [f"2 branches never ran: {line}, {others[0]}"]
    *above, verdict = (text for text, _ in lines(report, str))
    assert verdict.startswith(f"matmul: pass; 2 branches never ran: {line}, {others[0]}; ")
    assert not any("bigsize.py" in text for text in above)
    assert parse(Report, dump(report), "report") == report


def test_the_verdict_line_has_two_branches_and_the_lines_above_have_all():
    report, _ = check_with(fake_run(), max_examples=60)
    branches = tuple(f"bigsize.py:{n} was never true" for n in range(4))
    report = replace(report, unvisited=branches)
    shown = f"4 branches never ran: {branches[0]}, {branches[1]} and 2 more; "
    *above, verdict = (text for text, _ in lines(report, str))
    assert verdict.startswith(f"matmul: pass; {shown}")
    listed = ["branches that never ran:", *(f"  {branch}" for branch in branches)]
    assert above[-5:] == listed
    stopped = replace(report, unvisited=branches[:1]).with_note("it was stopped", "incomplete")
    assert [text for text, _ in lines(stopped, str)][-3:-1] == listed[:2]


def test_a_format_without_an_exercising_case_is_named():
    contract = wide(("fp16", "bf16"))
    report, _ = check_with(fake_run(), contract=contract, max_examples=40)
    assert list_gaps(report) == []
    counted, kernel = tally("simulator", []), KernelUnderTest("matmul", right, contract)
    result = next(p for p in report.properties if p.name == "within_bound")
    counted.parts["fp16", ("within_bound", "")] = 4
    concluded = counted.conclude(result, kernel)
    assert (concluded.status, concluded.missing) == ("not exercised", ("bf16",))
    assert concluded.why.startswith("bf16: no case had ")
    symmetric = next(p for p in report.properties if p.name == "symmetries")
    for fmt in ("fp16", "bf16"):
        for part in BY_NAME["symmetries"].exercise.parts(kernel):
            if part != "transposed" and (fmt, part) != ("bf16", "scaled"):
                counted.parts[fmt, ("symmetries", part)] = 1
    missing = counted.conclude(symmetric, kernel).missing
    assert missing == ("transposed", "scaled in bf16")


def test_a_case_that_is_replayed_leaves_no_gap():
    report = FEW(case=ROUNDS.with_sides({"K": 0}))
    assert list_gaps(report) == []
    assert {p.status for p in report.properties} == {"pass", "not run"}


def test_strict_fails_on_a_gap_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    target = f"{Path(kernels.__file__)}:right"
    usual = ["check", target, "--no-saved-cases", "--no-proof", "--quiet"]
    assert main([*usual, "--max-examples", "3"]) == 0
    assert "right: pass; not exercised: within_bound" in capsys.readouterr().out
    options = ["--strict", "--json", "report.json", "--junit", "report.xml"]
    assert main([*usual, "--max-examples", "3", *options]) == 1
    assert "right: fail; not exercised: within_bound" in capsys.readouterr().out
    report = json.loads(Path("report.json").read_text())
    assert (report["verdict"], report["findings"]) == ("fail", [])
    failed = [
        case.get("name")
        for case in ElementTree.parse("report.xml").iter("testcase")
        if case.find("failure") is not None
    ]
    assert "within_bound" in failed
    assert main([*usual, "--max-examples", "30", "--strict"]) == 0


# -- the cases -----------------------------------------------------------------------------------
def draw(contract, count, dtype="fp16"):
    """Return the first distinct cases of a check."""
    kernel, judged = KernelUnderTest("matmul", right, contract), {}
    backend = Simulator(None, fake_run())
    drawn = list_cases(kernel, judged, NOTHING, dtype, random.Random("0 fp16"), count)
    for case in drawn:
        if case not in judged:
            judged[case] = judge(observe_case(kernel, case, backend))
        if len(judged) == count:
            return list(judged)


CONTRACTS = [Contract(), Contract(symmetric=False), wide(), wide(symmetric=False, K="32..:32")]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_one_case_in_four_rounds_from_the_first_on(contract):
    drawn = draw(contract, 40)
    kinds = "".join("R" if case.fill in ROUNDED_FILLS else "-" for case in drawn)
    # a case that is compared with another call or has a purpose keeps its data, and a later rounds
    assert max(map(len, kinds.split("R"))) < 2 * ROUNDING, kinds
    assert kinds.count("R") >= len(drawn) // ROUNDING
    assert drawn == draw(contract, 40)


def test_each_relation_comes_among_the_first_twenty_cases():
    drawn = draw(Contract(), 20)
    compared = {case.compare for case in drawn} - {None}
    parts = BY_NAME["symmetries"].exercise.parts(KernelUnderTest("matmul", right))
    assert compared == {*parts, "order"}
    assert any(case.fill == "special" for case in drawn)


def test_a_grouped_product_that_is_off_for_fractions_is_found_among_twenty_cases():
    right_one = grouped_gemm.FAMILY.right
    wrong = replace(right_one, launch=grouped_gemm.fractions_are_five_percent_off)
    assert check(right_one, max_examples=20).verdict == "pass"
    report = check(wrong, max_examples=20)
    assert report.verdict == "fail"
    assert "within_bound" in {finding.property for finding in report.findings}


WRONG_WITH_A_VALUE = [
    calling_forms.gemm_that_always_reads_c,
    calling_forms.gemm_without_alpha,
    calling_forms.beta_applied_to_the_product,
    calling_forms.c_added_though_beta_is_forgotten,
    calling_forms.alpha_applied_to_c_too,
    epilogues.nothing_applied_without_a_bias,
    residuals.residual_read_with_beta_of_0,
]


@pytest.mark.parametrize("proof", [False, pytest.param(True, marks=pytest.mark.lane("full"))])
@pytest.mark.parametrize("wrong", WRONG_WITH_A_VALUE)
def test_a_value_of_an_argument_that_gives_a_wrong_result_is_found_among_twelve_cases(wrong, proof):
    (family,) = (x for x in (calling_forms, epilogues, residuals) if wrong in vars(x).values())
    kernel = replace(family.FAMILY.right, launch=wrong)
    assert check(kernel, max_examples=12, proof=proof).verdict == "fail"


@pytest.mark.parametrize("family", [calling_forms, residuals])
def test_values_of_arguments_come_first_and_one_case_in_four_rounds(family):
    kernel, judged = family.FAMILY.right, {}
    dtype, backend = kernel.contract.formats[0], Simulator()
    for case in list_cases(kernel, judged, NOTHING, dtype, random.Random("0"), 40):
        if case not in judged:
            judged[case] = judge(observe_case(kernel, case, backend))
        if len(judged) == 40:
            break
    kinds = "".join("R" if case.fill in ROUNDED_FILLS else "-" for case in judged)
    assert max(map(len, kinds.split("R"))) < 2 * ROUNDING, kinds
    assert kinds.count("R") >= len(judged) // ROUNDING
    early = list(judged)[:12]
    values = {pair for case in early for pair in case.arguments}
    assert values >= {(n, x) for n in ("alpha", "beta") for x in kernel.list_options()[n][1:]}
    assert any(case.compare == "order" for case in early)
    assert any(case.fill == "special" for case in early)


def test_an_argument_of_one_value_or_of_layouts_alone_changes_no_order():
    contract, survey = Contract(), Survey()
    usual = list(exercises(contract, survey, "fp16"))
    for options in (("scale", ("1.0",)), ("bias", ("row", "column"))):
        other = replace(survey, arguments=(options,))
        assert list(exercises(contract, other, "fp16")) == usual


# -- the documentation ---------------------------------------------------------------------------
def test_the_page_has_the_sentence_of_each_property():
    page = Path(__file__).parents[3] / "docs/reference/properties/README.md"
    table = page.read_text().partition("| property | exercised by |\n|---|---|\n")[2]
    rows = table.partition("\n\n")[0].splitlines()
    assert rows == [f"| {p.name} | {p.exercises} |" for p in PROPERTIES]
