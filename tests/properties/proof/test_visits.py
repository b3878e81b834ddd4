"""A case for each side of every guard and branch; branches that no case takes are named."""

from dataclasses import replace

import pytest
from tests.corpora import misleading_hints
from tests.corpora.tiled import plain
from tests.properties.proof import branching_wrappers as wrappers
from tests.support.lanes import first_of_each
from tests.support.wide import wide

from gemmproof import Contract, KernelUnderTest, OneOf, check
from gemmproof.engine.unvisited import _list_both_ran
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.operands import tensors_of
from gemmproof.properties.codec import dump, parse
from gemmproof.properties.judges import memory_use
from gemmproof.properties.proof import NOT_DECIDED, PROVED, REFUTED, TIME
from gemmproof.properties.proof import prove as prove_module
from gemmproof.properties.proof.cases_of_paths import BranchCoverage
from gemmproof.properties.proof.prove import ABOUT, ProofLedger, _conclude, prove
from gemmproof.properties.proof.sides import is_condition
from gemmproof.reference.provenance import calling_expression
from gemmproof.reference.simulator.wrapper_lines import Lines, record_lines
from gemmproof.reference.symbolic import tracing
from gemmproof.reference.symbolic.solver import OutOfTime
from gemmproof.reference.symbolic.tracing import symbolic_shapes
from gemmproof.report.record import Report
from gemmproof.worker.protocol import CaseStarted, Event

MISALIGNED = ("row", "misaligned")
SECONDS = 60.0  # more than a loaded machine takes


def kernel(wrapper, contract=None):
    return KernelUnderTest("matmul", wrapper, contract or wide())


def visit(wrapper, contract=None):
    under_test = kernel(wrapper, contract)
    proofs = prove(under_test, None, SECONDS)
    return under_test, [Case.from_json(case) for case in proofs.cases], proofs


def list_open(proofs, cases):
    """Return the sides that none of these cases takes."""
    return [side.text for side in proofs.sides if not any(map(side.may_take, cases))]


def take(decide, cases):
    """Return the decisions of a wrapper in these cases."""
    tensors = (tensors_of(case) for case in cases)
    return {decide(x["a"], x["b"]) for x in tensors}


@pytest.mark.parametrize(
    ("name", "decide", "decisions"),
    [
        ("by_strides", wrappers.decide_by_strides, {"columns", "strided", "dense"}),
        ("by_both_strides", wrappers.decide_by_both_strides, {"both", "neither"}),
        ("to_the_same_end", wrappers.decide_nothing, {"long", "short"}),
    ],
)
def test_each_side_of_a_guard_has_a_case(name, decide, decisions):
    _, cases, proofs = visit(getattr(wrappers, name))
    assert take(decide, cases) == decisions
    assert list_open(proofs, cases) == []


def test_strides_that_no_layout_has_and_sizes_that_no_case_has_are_named(texts):
    _, cases, proofs = visit(wrappers.stride_of_seven, Contract(layouts="any"))
    assert take(wrappers.decide_by_seven, cases) == {"other"}
    (line,) = list_open(proofs, cases)
    where, _, needs = line.partition(" ")
    assert where.startswith("branching_wrappers.py:")
    texts("strides that no layout has", needs)
    _, cases, proofs = visit(wrappers.beyond_the_largest_case, Contract())
    (line,) = list_open(proofs, cases)
    texts("sizes that no case has", line.partition(" ")[2])


@pytest.mark.parametrize("name", ["longer_than_200", "never_returns_early"])
def test_each_side_of_a_kernels_branch_has_a_case(name):
    """A branch that no program takes is not missed."""
    _, cases, proofs = visit(getattr(wrappers, name), Contract())
    assert {case.K > 200 for case in cases} == {True, False}
    assert {is_true for *_, is_true in proofs.ruled_out} == (
        {True} if name == "never_returns_early" else set()
    )
    if name == "longer_than_200":
        text = {text.partition(": ")[2] for text, _ in proofs.paths if text}
        assert text == {"this branch taken", "this branch left out"}


def test_a_check_tries_the_cases_and_names_the_branches_that_it_did_not(texts):
    under_test, events = kernel(wrappers.to_the_same_end, Contract()), list[Event]()
    report = check(under_test, max_examples=16, proof=True, listener=events.append)
    drawn = [Case.from_json(e.case) for e in events if isinstance(e, CaseStarted)]
    assert take(wrappers.decide_nothing, drawn) == {"long", "short"}
    assert report.unvisited == ()
    few = check(under_test, max_examples=2, proof=True)
    assert parse(Report, dump(few), "report") == few
    (line,) = few.unvisited
    assert line.startswith("branching_wrappers.py:")
    texts("a branch that two cases do not take", line.partition(" ")[2])


@pytest.mark.lane("full")
@pytest.mark.parametrize(("layouts", "verdict"), [("contiguous", "pass"), (MISALIGNED, "fail")])
def test_a_refutation_is_of_a_case_that_takes_the_path(layouts, verdict):
    """Chosen by sizes alone, the case would take another path, which has no fault."""
    under_test = kernel(wrappers.unmasked_where_misaligned, Contract(layouts=layouts, M="5..:16"))
    report = check(under_test, max_examples=12, proof=True)
    assert (report.verdict, report.note) == (verdict, None)
    proof = next(x.proof for x in report.properties if x.name == "stays_in_bounds")
    assert proof.status == {"pass": "not decided", "fail": "refuted"}[verdict]


# -- sides of decisions, and the cases that took them ----------------------------------------------
def test_a_case_without_an_argument_takes_the_sides_of_the_first_value():
    contract, options = Contract(), {"wide": OneOf(False, True)}
    under_test = KernelUnderTest(
        "matmul", wrappers.by_rows_and_an_option, contract, operands=options,
        spec=lambda a, b, wide: a @ b,
    )  # fmt: skip
    sides = prove(under_test, None, SECONDS).sides
    shown = [side.text for side in sides if side.may_take(Case(65, 16, 16))]
    assert len(sides) == 2
    assert [text.partition(" needs ")[2] for text in shown] == ["M >= 65"]


def test_no_case_decides_which_operand_has_the_lower_address():
    sides = prove(kernel(wrappers.by_the_lower_address), None, SECONDS).sides
    assert len(sides) == 2
    assert all(side.may_take(Case(16, 16, 16)) for side in sides)


def test_what_a_library_decides_is_no_condition_of_a_line():
    number = None
    beside = (calling_expression(), number or 1)[0]
    within = calling_expression() or number
    assert (is_condition(beside), is_condition(within)) == (False, True)
    assert is_condition(replace(beside, span=None))  # no more than the line is known


def test_lines_tell_that_both_sides_of_one_condition_ran():
    lines: Lines = {}
    for rows in (70, 1):
        with record_lines(lines):
            wrappers.decide_by_rows(rows)
            wrappers.decide_by_both(rows)
    first = wrappers.decide_by_rows.__code__.co_firstlineno
    # of the other one either condition may never have been false
    assert _list_both_ran(lines) == {f"branching_wrappers.py:{first + 1}"}
    assert _list_both_ran({code: own - {first + 3} for code, own in lines.items()}) == set()


# -- a proof that ran out of time is marked as such ------------------------------------------------
GUARDED = wrappers.beyond_the_largest_case


@pytest.mark.parametrize(
    ("wrapper", "seconds", "clock", "why"),
    [
        (plain, 0.0, None, "0 s were not enough"),
        (GUARDED, 10.0, symbolic_shapes, "out of time"),
        (GUARDED, 10.0, tracing, "a path that was not run: out of time"),
    ],
)
def test_a_prover_without_time_says_so(wrapper, seconds, clock, why, monkeypatch):
    if clock is not None:
        monkeypatch.setattr(clock, "counted_seconds", lambda: float("inf"))
    proofs = prove(KernelUnderTest("mine", wrapper), None, seconds)
    assert {proof.cut for proof in proofs.verdicts} == {TIME}
    assert any(why in proof.why for proof in proofs.verdicts)


def test_a_property_that_takes_too_long_by_itself_says_so(monkeypatch, texts):
    def give_up(*asked):
        raise OutOfTime

    monkeypatch.setattr("gemmproof.properties.proof.prove._keep", give_up)
    proofs = prove(KernelUnderTest("mine", plain), None, 10.0)
    ((why, cut),) = {(x.why, x.cut) for x in proofs.verdicts}
    assert cut == TIME
    texts("a property whose proof takes too long", why)


def test_what_rests_on_what_is_cut_short_is_so_too():
    book = ProofLedger(KernelUnderTest("mine", plain), BranchCoverage(0.0))
    book.leave_open(memory_use.FIT, "it takes too much of the time", late=True)
    proofs = {name: _conclude(book, name, "every M") for name in ABOUT}
    assert {proof.cut for proof in proofs.values()} == {TIME}
    assert proofs[memory_use.BOUNDS].why == f"it rests on {memory_use.FIT}"
    book = ProofLedger(KernelUnderTest("mine", plain), BranchCoverage(0.0))
    book.leave_open(memory_use.FIT, "a sum")
    book.leave_open(memory_use.FIT, "no time either", late=True)  # the first reason is reported
    book.leave_open(memory_use.ONCE, "no time", late=True)
    proofs = {name: _conclude(book, name, "every M") for name in ABOUT}
    assert [name for name, proof in proofs.items() if proof.cut] == [memory_use.ONCE]


# -- a hint is proved if it holds in all lanes that reach memory or a result -----------------------
HELD = ["carried", "clamped", "wrapped"]
# with sizes at which the simulator shows it; a mask computed from such a lane hides it
NOT_HELD = {
    "rotated": (2, 1, 1),
    "carried_but_not_held": (1, 1, 17),
    "begun_before": (17, 1, 1),
    "wider": (17, 1, 1),
    "wider_in_a_branch": (17, 1, 17),
    "step_of_pointers": (1, 1, 17),
    "as_numbers": None,
    "in_the_mask": None,
}


def make(name, layouts="any"):
    return KernelUnderTest(name, getattr(misleading_hints, name), wide(layouts=layouts))


@pytest.mark.parametrize("name", HELD)
def test_a_hint_that_holds_where_it_matters_is_proved(name):
    proof = prove(make(name, "contiguous"), seconds=20.0).find(memory_use.HINTS)
    assert proof.status == PROVED, proof


# columns that begin at multiples of 16 elements are loaded in vectors, by the hint
IN_COLUMNS = Case(11, 1, 1, layouts=(("a", "transposed"),))


@pytest.mark.parametrize(("name", "status"), [("clamped", PROVED), ("wrapped", NOT_DECIDED)])
def test_vectors_that_a_hint_gives_are_proved_to_be_aligned(name, status, monkeypatch):
    """Rows that are set to 0 begin a vector at its multiple, wrapped rows begin inside one."""
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})
    kernel = make(name)
    assert prove(kernel, seconds=8.0).find(memory_use.HINTS).status == status
    violated = {x.property for x in check(kernel, case=IN_COLUMNS, proof=False).findings}
    assert violated == ({memory_use.HINTS} if name == "wrapped" else set())


@pytest.mark.parametrize("name", first_of_each(NOT_HELD, lambda name: NOT_HELD[name] is None))
def test_a_false_hint_is_not_proved(name, monkeypatch):
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})
    kernel = make(name)
    assert prove(kernel, seconds=4.0).find(memory_use.HINTS).status == NOT_DECIDED
    if NOT_HELD[name] is not None:
        report = check(kernel, case=Case(*NOT_HELD[name]), proof=False)
        assert memory_use.HINTS in {x.property for x in report.findings}, report


def test_a_lane_of_a_false_hint_that_another_launch_reads_is_not_proved(monkeypatch):
    """The simulator reports the lane as undefined."""
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})
    kernel = make("wider_before_a_copy")
    proofs = prove(kernel, seconds=4.0)
    assert (
        proofs.find(memory_use.HINTS).status == proofs.find(memory_use.LANES).status == NOT_DECIDED
    )
    report = check(kernel, case=Case(17, 1, 1), proof=False)
    assert memory_use.LANES in {x.property for x in report.findings}, report


@pytest.mark.lane("full")
def test_beside_hints_that_harm_no_one_other_faults_are_found():
    proofs = prove(make("last_row_left_out", "contiguous"), seconds=8.0)
    assert proofs.find(memory_use.HINTS).status == PROVED
    assert proofs.find(memory_use.ONCE).status == REFUTED
