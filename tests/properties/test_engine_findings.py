"""The engine on a fake simulator: smallest cases, causes and consequences, and its own errors."""

import numpy as np
import pytest
import torch
from tests.support.fake_simulator import HERE, cases_in, check_with, fake_run, right, stray_load

from gemmproof import Contract, KernelUnderTest, check
from gemmproof.properties import property_table as table
from gemmproof.properties.cases.case import Case
from gemmproof.reference import simulation
from gemmproof.reference.arithmetic import round_to
from gemmproof.reference.simulation import Exhausted, Launch, Run, Unsupported, Where

FAULTS = {
    # when the fault shows -> the smallest case that it shows in
    "always": (lambda a, b, config: True, Case(1, 1, 1)),
    "ragged k": (lambda a, b, config: a.shape[1] % 16 > 0, Case(1, 1, 1)),
    "long k": (lambda a, b, config: a.shape[1] > 16, Case(1, 1, 17)),
    "second tile": (lambda a, b, config: a.shape[0] > 16 and b.shape[1] > 32, Case(17, 33, 1)),
    "no k": (lambda a, b, config: a.shape[1] == 0, Case(1, 1, 0)),
    "steps": (lambda a, b, config: b.stride(1) > 1 and b.stride(0) > 1 and b.shape[1] > 1, None),
    "padding": (lambda a, b, config: a.stride(0) > a.shape[1] > 0 and a.shape[0] > 1, None),
    "configuration": (lambda a, b, config: config == 3, Case(1, 1, 1, config=3)),
    "repetition": (lambda a, b, config: a.stride(0) == 0 and a.shape[0] > 1, None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shrinks_to_its_boundary(name):
    shows, expected = FAULTS[name]
    run = fake_run(lambda a, b, config: [stray_load()] if shows(a, b, config) else [], configs=4)
    report, events = check_with(run)
    assert report.verdict == "fail"
    (finding,) = report.findings
    assert finding.property == "stays_in_bounds"
    assert finding.case == expected or expected is None
    simple = {"fill": "index", "seed": 0, "calls": 1}
    assert {key: getattr(finding.case, key) for key in simple} == simple
    if name == "steps":
        assert (finding.case.layout("a"), finding.case.layout("b")) == ("row", "sliced")
        assert (finding.case.M, finding.case.N, finding.case.K) == (1, 2, 1)
    if name == "padding":
        assert (finding.case.layout("a"), finding.case.layout("b")) == ("padded", "row")
    if name == "repetition":
        assert (finding.case.layout("a"), finding.case.M) == ("expanded", 2)
    assert len(cases_in(events, "shrink")) <= 60
    replayed = check_with(run, case=finding.case)[0]
    assert [f.key for f in replayed.findings] == [finding.key]
    assert replayed.findings[0].case == finding.case


def test_faults_that_differ_in_operand_axis_or_line_are_each_reported():
    other = Where("/somewhere/kernels.py", 40, "matmul_kernel")

    def wrong(a, b, config):
        always = [stray_load("a"), stray_load("b", "K", other)]
        return always + [stray_load("b", "N")] * (b.shape[1] > 4)

    report, _ = check_with(fake_run(wrong))
    assert {(f.operand, f.axis, f.where, f.case.N) for f in report.findings} == {
        ("a", "K", "kernels.py:31", 1),
        ("b", "K", "kernels.py:40", 1),
        ("b", "N", "kernels.py:31", 5),
    }


def test_a_consequence_is_listed_after_causes_unless_it_also_comes_alone():
    def wrong(a, b, config):
        lanes = simulation.Fault(
            "undefined_stored", "k", "load", "a", "K", HERE, "g", "e", 1, 1, "out_of_bounds"
        )
        return [lanes, stray_load()]

    def nan(a, b):
        return torch.full((a.shape[0], b.shape[1]), torch.nan)

    report, _ = check_with(fake_run(wrong), nan)
    causes = [(f.property, f.cause) for f in report.findings]
    assert causes[0] == ("stays_in_bounds", None)
    assert ("undefined_lanes_never_stored", "stays_in_bounds") in causes
    assert ("exact_on_integers", "undefined_lanes_never_stored") in causes
    assert all(cause is not None for _, cause in causes[1:])

    def sometimes(a, b, config):
        return wrong(a, b, config) if a.shape[0] > 20 else []

    def mostly(a, b, config):
        return [] if a.shape[0] > 20 else wrong(a, b, config)

    for shows in (sometimes, mostly):
        report, _ = check_with(fake_run(shows), nan)
        alone = {f.property: f.cause for f in report.findings}
        assert alone["exact_on_integers"] is None


def test_a_value_beyond_the_bound_is_laid_to_integers_that_are_wrong_too():
    def launch(a, b):
        return right(a, b) + (1000 if a.shape[0] == 7 else 0)  # the corners of the fills

    report, _ = check_with(fake_run(), launch)
    causes = {f.property: f.cause for f in report.findings}
    assert causes == {"exact_on_integers": None, "within_bound": "exact_on_integers"}


def test_an_unknown_operation_ends_the_check_with_its_line(texts):
    def run(function, *tensors, **options):
        raise simulation.Unsupported("tl.nonsense is not known", HERE)

    report, events = check_with(run)
    assert report.verdict == "error"
    texts("an unknown operation", report.note)
    assert len(cases_in(events)) == 1
    assert all(p.status == "not run" and p.examples == 0 for p in report.properties)


def test_an_unknown_operation_on_some_path_keeps_what_was_found_before():
    def run(function, *tensors, **options):
        if tensors[0].shape[0] > 16:
            raise simulation.Unsupported("tl.nonsense is not known", HERE)
        return fake_run(lambda a, b, config: [stray_load()])(function, *tensors, **options)

    report, _ = check_with(run)
    assert report.verdict == "fail"
    before = report.note.partition("judged before: ")[2].split(", ")
    assert before[:3] == ["compiles", "runs_to_completion", "stays_in_bounds"]


def test_our_own_mistake_accuses_no_kernel(texts):
    report, _ = check_with(lambda *tensors, **options: table.BY_NAME["no such property"])
    assert report.verdict == "fail", "an error raised here is a wrapper's as far as frames tell"

    def broken(function, *tensors, **options):
        function(*tensors)
        raise_in_ours()

    report, _ = check_with(broken)
    assert report.verdict == "error"
    texts("a failure of gemmproof itself", report.note.partition(": ")[0])
    assert report.findings == ()


def raise_in_ours():
    round_to(np.zeros(1), "no such format")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ValueError("M must be a multiple of 64"), "raised"),
        (SystemExit(0), "raised"),
        (simulation.KernelError("shapes differ", HERE), "kernel_error"),
        (simulation.LimitExceeded("a loop without end", HERE), "limit"),
    ],
)
def test_what_a_call_raises_is_a_finding_with_the_smallest_case(error, fault):
    def run(function, *tensors, **options):
        if tensors[0].shape[0] > 16:
            raise error
        return fake_run()(function, *tensors, **options)

    report, _ = check_with(run)
    (finding,) = report.findings
    assert (finding.property, finding.fault) == ("runs_to_completion", fault)
    assert finding.case == Case(17, 1, 1)


def test_a_wrapper_that_never_launches_is_found_and_one_that_sometimes_does_not_is_right():
    def without(function, *tensors, **options):
        return Run(result=function(*tensors))

    report, _ = check_with(without, max_examples=20)
    (finding,) = report.findings
    assert (finding.property, finding.fault) == ("runs_to_completion", "no_launch")
    assert "got no kernel launch in" in finding.message

    def small(function, *tensors, **options):
        run = fake_run() if tensors[0].shape[0] > 8 else without
        return run(function, *tensors, **options)

    assert check_with(small, max_examples=40)[0].verdict == "pass"


# -- a call that says nothing about the kernel, wherever in a case it is made, is no finding ---
KERNEL_LINE = Where("kernel.py", 3, "kernel")
COMPARED = Case(1, 1, 1, compare="negated")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Exhausted("body was still advancing", KERNEL_LINE), "incomplete"),
        (MemoryError("Unable to allocate 1 TiB"), "incomplete"),
        (Unsupported("an operation", KERNEL_LINE), "error"),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_call_of_which_nothing_is_known_is_no_finding(error, verdict, number):
    """The case's own call, and one that it is compared with."""
    calls = []

    def run(launch, a, b, **options):
        calls.append(options)
        if len(calls) == number:
            raise error
        launched = Launch("body", (1, 1, 1), {}, 0, 1, (), False, KERNEL_LINE)
        return Run(torch.matmul(a.float(), b.float()).to(a.dtype), [launched])

    kernel = KernelUnderTest("mm", torch.matmul, Contract())
    report = check(kernel, case=COMPARED, _run=run)
    assert len(calls) == number
    assert (report.verdict, report.findings) == (verdict, ())
    assert str(error) in report.note
