"""A proof in addition to the search: its results are shown, and its cases are tried."""

import os
import signal
import time
from dataclasses import replace

import pytest
from tests.support.fake_simulator import cases_in, check_with, fake_run, right, stray_load
from tests.support.wide import wide

from gemmproof.engine.findings import label_missing
from gemmproof.engine.proofs import PROVABLE
from gemmproof.properties import property_table as table
from gemmproof.properties.address_map import explain_access
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import smallest
from gemmproof.properties.codec import decode, dump, encode, parse
from gemmproof.properties.finding import Finding
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import Proof, Proofs, prove
from gemmproof.properties.proof.prove import ProofLedger
from gemmproof.reference.simulation import Fault, Where
from gemmproof.reference.symbolic.obligations.indices import REFUTED as FAILS
from gemmproof.reference.symbolic.obligations.indices import Verdict
from gemmproof.report.record import SCHEMA, ProofResult, PropertyResult, Report
from gemmproof.report.text import lines, proof_text
from gemmproof.report.text import table as make_table
from gemmproof.worker.protocol import PartialReport, ProofEnded, ProofStarted, Started

BOUNDS = memory_use.BOUNDS
AT = Case(3, 2, 1)
EVERYWHERE = Proof(BOUNDS, "proved", scope="every M, N, K, any strides")


def refuted(case=AT, name=BOUNDS, why="load of a, row < M is lacking"):
    return Proof(name, "refuted", why=why, case=case if case is None else case.to_json())


def judged_with(*verdicts, run=None, cases=(), **options):
    """Return a report and its events, if a prover returns these verdicts."""
    proofs = Proofs(verdicts, tuple(cases))
    return check_with(run or fake_run(), _prove=lambda *asked: proofs, **options)


def result_of(report, name=BOUNDS):
    return next(p for p in report.properties if p.name == name)


def strays_at(*shapes, axis="K", kind=stray_load):
    """Return a runner with an out-of-bounds load for each a of these shapes."""
    return fake_run(lambda a, b, config: [kind()] if tuple(a.shape) in shapes else [])


def test_what_is_proved_is_told_beside_the_cases_of_its_property():
    report, events = judged_with(EVERYWHERE)
    assert report.verdict == "pass"
    assert result_of(report).proof == ProofResult("proved", EVERYWHERE.scope)
    assert result_of(report).examples == 100
    assert {p.name for p in report.properties if p.proof} == {BOUNDS}
    assert list(map(type, events[:4])) == [PartialReport, ProofStarted, ProofEnded, Started]
    assert set(PROVABLE) <= set(table.BY_NAME)


def test_the_prover_is_told_the_kernel_its_target_and_its_time():
    calls = []

    def prove(*asked):
        calls.append(asked)
        return Proofs()

    check_with(fake_run(), max_examples=1, target="sm_90", proof_seconds=3, _prove=prove)
    ((kernel, target, seconds),) = calls
    assert (kernel.name, target, seconds) == ("matmul", "sm_90", 3)
    check_with(fake_run(), max_examples=1, proof=False, _prove=prove)
    check_with(fake_run(), case=AT, _prove=prove)
    assert len(calls) == 1


def test_a_refutation_that_the_simulator_shows_is_an_ordinary_finding():
    report, events = judged_with(refuted(), run=strays_at((3, 1)), max_examples=5)
    assert cases_in(events, "draw")[:2] == [smallest(wide(), "fp16"), AT]
    assert (report.verdict, report.note) == ("fail", None)
    (finding,) = report.findings
    assert (finding.property, finding.cause, finding.case.M) == (BOUNDS, None, 3)
    assert finding.case.rank <= AT.rank
    assert result_of(report).status == "fail"
    assert result_of(report).proof.status == "refuted"


def test_a_refutation_is_tried_even_where_one_case_was_asked_for():
    report, events = judged_with(refuted(), run=strays_at((3, 1)), max_examples=1)
    assert cases_in(events, "draw") == [Case(1, 1, 1), AT]
    assert report.verdict == "fail"


def test_a_refutation_that_it_does_not_show_is_an_error_with_its_data():
    report, _ = judged_with(refuted(), max_examples=5)
    assert (report.verdict, report.findings) == ("error", ())
    proof = "the proof says load of a, row < M is lacking at M=3 N=2 K=1 fp16, a row, b row"
    message = f"gemmproof contradicts itself: {proof}, the simulation does not; please report it"
    assert report.note == message
    assert result_of(report).is_disputed
    assert (result_of(report).status, result_of(report).examples) == ("pass", 6)


def test_what_follows_from_another_property_is_not_decided():
    wraps = Fault("wrapped_offset", "k", "load", "a", "K", stray_load().where, "g", "e", 1, 1)
    kinds = memory_use.BOUNDS, memory_use.FIT
    assert table.BY_NAME[kinds[0]].follows == (kinds[1],)
    report, _ = judged_with(refuted(), run=strays_at((3, 1), kind=lambda: wraps), max_examples=5)
    assert [f.property for f in report.findings] == [memory_use.FIT]
    assert (report.verdict, report.note) == ("fail", None)
    proof = result_of(report).proof
    assert (proof.status, proof.why) == ("not decided", f"{memory_use.FIT} does not hold, at {AT}")


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (None, "shown by no case"),
        (replace(AT, dtype="bf16"), "shown by a case that the contract does not admit"),
    ],
)
def test_a_refutation_without_an_admitted_case_decides_nothing(case, why):
    report, events = judged_with(refuted(case), max_examples=5)
    why = f"load of a, row < M is lacking: {why}"
    assert (report.verdict, result_of(report).proof) == (
        "pass",
        ProofResult("not decided", why=why),
    )
    assert len(cases_in(events)) == 5


def without_room_for(is_too_large):
    """Return a runner that lacks memory for operands a of some shapes."""

    def run(function, *tensors, **options):
        if is_too_large(tuple(tensors[0].shape)):
            raise MemoryError
        return fake_run()(function, *tensors, **options)

    return run


def test_a_refutation_whose_case_is_too_much_to_run_decides_nothing_and_costs_nothing(texts):
    run = without_room_for(lambda shape: shape == (3, 1))
    report, events = judged_with(refuted(), run=run, max_examples=5)
    assert (report.verdict, report.note) == ("pass", None)
    texts("a refutation whose case is too large", result_of(report).proof.why, case=str(AT))
    assert len(cases_in(events, "draw")) == 6
    # the search continues after any number of them
    names = (BOUNDS, memory_use.FIT, memory_use.HINTS, memory_use.LANES)
    asked = [refuted(Case(1001 + i, 2, 1), name) for i, name in enumerate(names)]
    run = without_room_for(lambda shape: shape[0] > 1000)
    report, _ = judged_with(*asked, run=run, max_examples=5)
    assert (report.verdict, result_of(report).examples) == ("pass", 5)


def test_a_refutation_at_a_case_that_its_property_does_not_judge_decides_nothing(texts):
    case = replace(AT, fill="normal", seed=1)
    report, _ = judged_with(refuted(case, exact_values.EXACT), max_examples=5)
    assert report.verdict == "pass"
    why = result_of(report, exact_values.EXACT).proof.why
    texts("a refutation at a case that is not judged", why, case=str(case))


def suspected(case=AT, name=BOUNDS):
    return Proof(name, "not decided", why="no time", case=case.to_json(), cut="time")


def test_what_is_suspected_is_refuted_once_the_simulator_shows_it():
    report, _ = judged_with(suspected(), run=strays_at((3, 1)), max_examples=1)
    (finding,) = report.findings
    refutation = ProofResult("refuted", why=finding.message)
    assert (report.verdict, result_of(report).proof) == ("fail", refutation)


def test_what_is_suspected_in_vain_stays_as_it_was_and_is_no_error():
    report, _ = judged_with(suspected(), max_examples=5)
    assert (report.verdict, report.note) == ("pass", None)
    assert result_of(report).proof == ProofResult("not decided", why="no time", cut="time")
    # a case that the contract excludes is not run
    report, _ = judged_with(suspected(replace(AT, dtype="bf16")), max_examples=5)
    assert (report.verdict, result_of(report).examples) == ("pass", 5)


def test_a_case_that_fails_where_it_is_proved_is_found_and_is_our_error(texts):
    report, _ = judged_with(EVERYWHERE, run=strays_at((1, 1)), max_examples=5)
    assert report.verdict == "error"
    (finding,) = report.findings
    places = {"case": str(finding.case), "finding": finding.message}
    texts("a case that fails where it is proved", report.note, **places)
    assert not result_of(report).is_proved
    assert encode(report)["findings"][0]["property"] == BOUNDS


def test_a_proof_that_rests_on_another_property_is_not_contradicted():
    proof = replace(EVERYWHERE, property=memory_use.ONCE)
    store = Fault("out_of_bounds", "k", "store", "c", "M", stray_load().where, "g", "e", 1, 1)
    lost = Fault("never_stored", "k", "store", "c", None, stray_load().where, "g", "e", 1, 1)
    run = fake_run(lambda a, b, config: [store, lost])
    report, _ = judged_with(proof, run=run, max_examples=2)
    causes = {f.property: f.cause for f in report.findings}
    assert (causes[memory_use.ONCE], report.note) == (BOUNDS, None)


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (KeyError("x\ny"), "the proof raised KeyError: 'x\\ny'"),
        (ValueError("one\ntwo"), "the proof raised ValueError: one two"),
        (RecursionError(), "the proof raised RecursionError"),
        (SystemExit(3), "the proof raised SystemExit: 3"),
        (ModuleNotFoundError("No module named 'z3'", name="z3"), "z3-solver is not installed"),
    ],
)
def test_whatever_the_prover_raises_the_check_goes_on(raised, why):
    def prove(*asked):
        raise raised

    report, _ = check_with(fake_run(), max_examples=5, _prove=prove)
    assert (report.verdict, report.note) == ("pass", None)
    assert {p.name for p in report.properties if p.proof} == set(PROVABLE)
    assert {p.proof for p in report.properties if p.proof} == {ProofResult("not decided", why=why)}


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(9)


def test_an_interrupt_of_the_user_s_ends_a_proof_and_one_that_a_wrapper_raises_does_not():
    def is_interrupted(*asked):
        interrupt()

    def raises(*asked):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_with(fake_run(), max_examples=1, _prove=is_interrupted)
    report, _ = check_with(fake_run(), max_examples=1, _prove=raises)
    assert result_of(report).proof.why == "the proof raised KeyboardInterrupt"


def test_an_interrupt_ends_the_search_for_a_missing_condition_too(monkeypatch):
    finding = Finding(BOUNDS, "out_of_bounds", "beyond a", AT, where="targets.py:3")
    kernel = KernelUnderTest("matmul", right)
    monkeypatch.setattr(explain_access, "find_missing", lambda *asked: interrupt())
    with pytest.raises(KeyboardInterrupt):
        label_missing([finding], kernel, None, lambda: None)


@pytest.mark.parametrize(
    "proofs", [Proofs((replace(EVERYWHERE, property="stays"),)), Proofs(cases=("{",))]
)
def test_a_property_or_a_case_that_is_none_is_the_prover_s_mistake(proofs):
    report, _ = check_with(fake_run(), max_examples=5, _prove=lambda *asked: proofs)
    assert report.verdict == "pass"
    assert result_of(report).proof.why.startswith("the proof raised ")


def test_cases_on_both_sides_of_a_guard_are_tried_between_those_that_exercise_properties():
    asked = [Case(n, 16, 16) for n in range(20, 40)]
    others = [Case(5, 5, 5, "bf16"), Case(5, 5, 5, batch=2), Case(5, 5, 5, arguments=(("x", "1"),))]
    large = [Case(8000, 8000, 16), Case(4, 4, 4, config=7)]
    proof_cases = [case.to_json() for case in (*others, *large, *asked)]
    _, events = judged_with(cases=proof_cases, max_examples=20)
    drawn = cases_in(events, "draw")
    assert drawn[0] == Case(1, 1, 1)
    # after two of a middle size, two of four turns, each with two others; after the first one, its
    # size with data that round, of two kinds, as no case before launched its kernel with such data
    assert [drawn[i] for i in (3, 8, 17)] == asked[:3]
    assert drawn[4:6] == [replace(asked[0], fill=fill) for fill in ("normal", "positive")]
    assert len(drawn) == 20
    _, events = judged_with(cases=proof_cases, max_examples=40)
    assert sum(case in asked for case in cases_in(events, "draw")) <= 20


def test_cases_are_tried_in_their_format():
    asked = Case(5, 5, 5, "bf16")
    contract = wide(("fp16", "bf16"))
    _, events = judged_with(cases=[asked.to_json()], max_examples=6, contract=contract)
    drawn = cases_in(events)
    assert drawn.index(asked) == 9
    assert [c.dtype for c in drawn] == ["fp16"] * 6 + ["bf16"] * 6


def test_unvisited_paths_go_through_the_report_and_its_json():
    proofs = Proofs((EVERYWHERE,), unvisited=("K > 2**31",))
    report, _ = check_with(fake_run(), max_examples=2, _prove=lambda *asked: proofs)
    assert report.unvisited == ("K > 2**31",)
    assert parse(Report, dump(report), "report") == report


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proof": {"scope": ""}}, r"properties\[0\].proof: got no status, expected fields status"),
        ({"proof": 3}, r"properties\[0\].proof: got 3, expected an object or null"),
        ({"more": 1}, r"properties\[0\]: got field 'more', expected fields name claim"),
    ],
)
def test_a_property_with_other_fields_is_refused(change, message):
    report, _ = judged_with(EVERYWHERE, max_examples=2)
    data = encode(report)
    data["properties"][0] |= change
    with pytest.raises(ValueError, match=message):
        decode(Report, data, "report")


# -- the proof in the printed report ---------------------------------------------------------------
def report_of(*results, **changes):
    return Report(SCHEMA, "f.py:matmul", results, (), 1.0, {}, **changes)


def held(name, *proof, **changes):
    result = PropertyResult(name, "", "pass", 100, proof=ProofResult(*proof) if proof else None)
    return replace(result, **changes)


def say(report):
    return [text for text, _ in lines(report, lambda case: "again")]


def test_the_text_says_what_is_proved_and_each_reason_once(texts):
    open_ = [held(f"p{i}", "not decided", "", f"reason {i % 5}") for i in range(9)]
    shown = say(
        report_of(
            held("stays_in_bounds", "proved", "every M"),
            held("within_bound", "proved", "every M", ratio=0.5),
            held("exact", "proved"),
            held("unused", "proved", "every M", status="not run", examples=0),
            held("usual", "not decided"),
            *open_,
            unvisited=("M > 9", "N > 9"),
        )
    )
    texts("a report with proofs", "\n".join(shown))


def test_a_reason_takes_one_line_and_cannot_move_the_cursor():
    (line,) = say(report_of(held("p", "not decided", "", "x\x1b\n" * 200)))[1:2]
    assert len(line) < 500
    assert "\x1b" not in line
    assert "\n" not in line


def test_the_table_of_sign_off_marks_what_is_proved():
    rows = make_table([report_of(held("p", "proved"), held("q", "proved", ratio=0.25))], 90)
    first, second = (row.split() for row in rows[1:3])
    assert (first, second) == (["p", "proved", "100"], ["q", "0.250", "proved", "100"])
    (row,) = make_table([report_of(held("p", "not decided", "", "y"))], 90)[1:2]
    assert row.split() == ["p", "100"]


def test_a_proof_in_words():
    assert proof_text(held("p")) == ""
    assert proof_text(held("p", "proved", "every M")) == "proved for every M"
    assert proof_text(held("p", "not decided")) == "not decided"
    assert proof_text(held("p", "refuted", "", "why", status="fail")) == "refuted: why"


def test_a_refutation_without_a_case_is_left_open_with_its_reason(monkeypatch):
    monkeypatch.setattr(prove, "_make_case", lambda *_: None)
    ledger = ProofLedger(None, None)
    verdict = Verdict(FAILS, "offset of a", Where("k.py", 3, "load"), "its stride wraps")
    prove._refute(ledger, None, memory_use.FIT, verdict)
    reason = "offset of a: its stride wraps: fails only where no case can be"
    assert ledger.open == {memory_use.FIT: f"{verdict.where}: {reason}"}
