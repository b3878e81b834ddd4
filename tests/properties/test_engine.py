"""The engine on a fake simulator: which cases it runs, which events it sends, how it shrinks."""

from types import SimpleNamespace

import pytest
import torch
from tests.support.fake_simulator import cases_in, check_with, fake_run, right, stray_load
from tests.support.wide import wide

from gemmproof.engine.kernel_check import MORE, check
from gemmproof.properties import property_table as table
from gemmproof.properties.cases import generate as strategies
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.generate import WHOLE, smallest
from gemmproof.properties.cases.shrink import shrink
from gemmproof.properties.codec import decode, dump, parse
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.report.record import Report
from gemmproof.worker.protocol import (
    CaseStarted,
    PartialReport,
    Started,
    read_event,
    write_event,
)


def test_a_right_kernel_passes_every_property_that_applies():
    report, events = check_with(fake_run())
    assert report.verdict == "pass"
    assert report.findings == ()
    assert report.note is None
    names = [p.name for p in report.properties]
    absent = ("mirror_equals_source", "row_bits_at_any_m")  # nobody wrote or declared it
    assert names == [p.name for p in table.PROPERTIES if p.simulated and p.name not in absent]
    hints = next(p for p in report.properties if p.name == "every_hint_holds")
    assert (hints.status, hints.why) == ("does not apply", "no launched kernel has a hint")
    others = [p for p in report.properties if p is not hints]
    assert all(p.status == "pass" and p.examples > 0 for p in others)
    assert {p.name: p.examples for p in report.properties}["stays_in_bounds"] == 100
    assert 0 < {p.name: p.ratio for p in report.properties}["within_bound"] <= 1
    assert parse(Report, dump(report), "report") == report
    assert [p.name for p in events[0].report.properties] == names
    assert events[1] == Started(100)


def test_every_case_is_run_once_and_announced_before_it_runs():
    order = []

    def run(function, *tensors, **options):
        order.append("run")
        return fake_run()(function, *tensors, **options)

    kernel = KernelUnderTest("matmul", right)
    check(kernel, max_examples=60, listener=lambda e: order.append(type(e)), _run=run)
    sent = [step for step in order if step != "run"]
    assert sent == [PartialReport, Started, *[CaseStarted, PartialReport] * 60]
    at = order.index(CaseStarted)
    assert order[at : at + 3] == [CaseStarted, "run", PartialReport]


@pytest.mark.lane("full")
def test_the_same_seed_draws_the_same_cases_and_no_case_twice():
    first, second, other = (cases_in(check_with(fake_run(), seed=seed)[1]) for seed in (0, 0, 1))
    assert first == second
    assert first != other
    assert len(set(first)) == len(first) == 100


def test_events_survive_json():
    _, events = check_with(fake_run(lambda a, b, config: [stray_load()]), max_examples=5)
    for event in events:
        received, held = read_event(write_event(event, 7))
        if isinstance(event, PartialReport):
            received = PartialReport(decode(Report, received.report, "report"), received.judged)
        assert (received, held) == (event, 7)
    assert set(map(type, events)) == {PartialReport, Started, CaseStarted}


def test_every_configuration_and_every_format_is_run():
    contract = wide(("fp16", "fp8e4m3", "int8"))
    report, events = check_with(fake_run(configs=5), contract=contract, max_examples=40)
    assert report.verdict == "pass"
    assert len(cases_in(events)) == 120
    for dtype in contract.formats:
        assert {c.config for c in cases_in(events) if c.dtype == dtype} == set(range(5))


@pytest.mark.parametrize("by_sizes", [False, True])
def test_whole_tiles_are_probed_in_every_configuration_of_another_kernel(by_sizes):
    """One case is enough where the wrapper launches the same kernel for them."""
    name = (lambda a: "aligned" if a.shape[0] % 128 == 0 else "any") if by_sizes else lambda a: "k"
    _, events = check_with(fake_run(configs=5, name=name), max_examples=40)
    first = cases_in(events)[:12]
    whole = [case.config for case in first if (case.M, case.N, case.K) == WHOLE]
    assert whole == ([0, 1, 2, 3, 4] if by_sizes else [0])


@pytest.mark.parametrize("asks", [False, True])
def test_whole_tiles_are_probed_with_one_multiprocessor_where_they_count(asks, monkeypatch):
    """The wrapper may choose another tile then."""
    facts = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: facts)

    def launch(a, b):
        if asks:
            assert torch.cuda.get_device_properties(0).multi_processor_count > 0
        return right(a, b)

    _, events = check_with(fake_run(), launch, max_examples=12)
    whole = [case.sms for case in cases_in(events) if (case.M, case.N, case.K) == WHOLE]
    assert whole[:2] == ([None, 1] if asks else [None])


@pytest.mark.lane("full")
def test_a_tiny_contract_ends_when_its_cases_are_used_up(monkeypatch):
    monkeypatch.setattr(strategies, "SEEDS", range(1, 3))
    contract = wide(layouts="contiguous", M=1, N=1, K=1)
    report, events = check_with(fake_run(), contract=contract, max_examples=100_000)
    assert report.verdict == "pass"
    assert 10 < len(cases_in(events)) < 200


def test_after_a_finding_a_few_more_cases_are_drawn():
    _, events = check_with(fake_run(lambda a, b, config: [stray_load()]))
    assert len(cases_in(events, "draw")) == 1 + MORE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_examples": 0}, "check: got max_examples=0, expected a positive integer"),
        ({"max_examples": True}, "expected a positive integer"),
        ({"seed": "x"}, "check: got seed='x', expected an integer"),
        ({"case": Case(1, 1, 1, batch=1)}, "check case: got a batch, expected none for matmul"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message.replace("=", "\\=")):
        check_with(fake_run(), **options)


def test_a_case_replays_whatever_the_contract_says():
    case = Case(3, 4, 5, "bf16", layouts=(("a", "narrow"),), calls=3)
    report, events = check_with(fake_run(), case=case, contract=wide(layouts="contiguous"))
    assert report.verdict == "pass"
    assert cases_in(events) == [case]


def test_shrinking_never_leaves_the_contract():
    contract = wide(M="3..", N="16..:16", K="4..:4", layouts=("column", "padded"))
    tried = []

    def fails(case):
        tried.append(case)
        return case.K >= 20

    start = Case(
        70, 64, 40, layouts=(("a", "padded"), ("b", "padded")), fill="wide", seed=9, calls=3
    )
    assert shrink(start, contract, fails) == Case(
        3, 16, 20, layouts=(("a", "column"), ("b", "column"))
    )
    assert all(c.M >= 3 and c.N % 16 == 0 and c.K % 4 == 0 for c in tried)


def test_shrinking_stops_where_a_case_has_no_answer():
    start = Case(70, 64, 40)
    assert shrink(start, wide(), lambda case: None) == start


def test_the_smallest_case_is_one_by_one_by_one_where_that_is_admitted():
    assert smallest(wide(), "fp16") == Case(1, 1, 1)
    assert smallest(wide(N="16..:16", K="64..:64"), "fp16") == Case(1, 16, 64)


def test_a_related_call_that_would_be_too_large_is_left_out():
    report, _ = check_with(fake_run(), case=Case(40000, 1, 1, compare="order"))
    assert (report.verdict, report.findings) == ("pass", ())
