"""Each other property on results made by hand: what it must and must not find."""

import re
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.properties.results_by_hand import HERE, names, outcome_of, product

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.observe import judge, observe
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.data import as_tensor
from gemmproof.properties.cases.operands import copy_elements
from gemmproof.properties.judges import determinism, exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.property_table import BY_NAME, PROPERTIES
from gemmproof.reference.mirrored_launch import launch_of
from gemmproof.reference.mirrors import MIRRORS
from gemmproof.reference.simulation import Fault, KernelError, Launch, Run, Where

RESULTS = {
    "nothing": (lambda a, b: None, "wrong_type", "got None, expected a tensor"),
    "a tuple": (lambda a, b: (a @ b,), "wrong_type", "got a tuple, expected a tensor"),
    "transposed": (lambda a, b: (a @ b).t(), "wrong_shape", "got shape (4, 3), expected (3, 4)"),
    "integers": (lambda a, b: (a @ b).int(), "wrong_dtype", "got torch.int32, expected a float"),
    "complex": (lambda a, b: (a @ b).cfloat(), "wrong_dtype", "got torch.complex64"),
    "its input": (lambda a, b: a[:, :4], "returned_input", "got a view of a, expected memory"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_of_the_wrong_kind_is_one_clear_line(name):
    launch, fault, message = RESULTS[name]
    findings = [f for f in judge(outcome_of(Case(3, 4, 5), launch)).findings if f.fault == fault]
    assert len(findings) == 1
    assert message in findings[0].message
    assert "\n" not in findings[0].message


def test_an_empty_result_shares_no_memory():
    outcome = outcome_of(Case(0, 4, 5), lambda a, b: a[:, :4])
    assert names(outcome) == []


def _raises(error):
    def launch(a, b):
        raise error

    return launch


@pytest.mark.parametrize(
    ("error", "fault", "message"),
    [
        (ValueError("no\nsuch   shape"), "raised", "got ValueError: no such shape"),
        (AssertionError(), "raised", "got AssertionError, expected a result"),
        (SystemExit(3), "raised", "got SystemExit: 3"),
        (KeyboardInterrupt(), "raised", "got KeyboardInterrupt, expected a result"),
        (ValueError("x" * 10_000), "raised", "..."),
        (KernelError("no such type", HERE), "kernel_error", "at kernels.py:31: got no such type"),
    ],
)
def test_what_a_wrapper_raises_is_a_finding_with_its_line(error, fault, message):
    (finding,) = judge(outcome_of(Case(1, 1, 1), _raises(error))).findings
    assert (finding.property, finding.fault) == (memory_use.ENDS, fault)
    assert message in finding.message
    assert finding.where.startswith("kernels.py:31" if fault != "raised" else "test_properties.py:")
    assert len(finding.message) < 400
    assert "\n" not in finding.message


def test_an_interrupt_is_the_users_not_the_kernels():
    with pytest.raises(KeyboardInterrupt):
        outcome_of(Case(1, 1, 1), lambda a, b: signal.raise_signal(signal.SIGINT))


def test_changed_operands_are_found_and_the_result_judged_by_what_was_given(texts):
    def launch(a, b):
        c = product(a, b)
        a[1, 2] += 1
        torch.as_strided(b, (1,), (1,), b.storage_offset() - 1).fill_(0)
        return c

    outcome = outcome_of(Case(3, 4, 5), launch)
    findings = list(memory_use.judge_inputs(outcome))
    assert [(f.fault, f.operand) for f in findings] == [
        ("element_changed", "a"),
        ("guard_changed", "b"),
    ]
    texts("an operand that was changed", findings[0].message)
    assert names(outcome) == [memory_use.INPUTS]


def test_bits_that_depend_on_the_call_are_found_down_to_the_nan(texts):
    state = []

    def launch(a, b):
        state.append(1)
        return product(a, b, "fp32", lambda c: c + (c == c.max()) * (len(state) == 3))

    outcome = outcome_of(Case(3, 4, 5, calls=3), launch)
    (finding,) = determinism.judge_same(outcome)
    message = re.sub(r"\S+ \(0x\w+\)", "<value>", finding.message)
    texts("bits that depend on the call", message)
    codes = iter((0x7E00, 0x7E00, 0xFFFF))

    def nans(a, b):
        return as_tensor(np.full((1, 1), next(codes), np.uint16).view(np.float16), "fp16")

    (finding,) = determinism.judge_same(outcome_of(Case(1, 1, 1, calls=3), nans))
    texts("bits of a nan that depend on the call", finding.message)


def _fault(kind, access="load", operand="a", follows=""):
    texts = ("rows 1..15 of a", "rows 0..0")
    return Fault(kind, "k", access, operand, "M", HERE, *texts, 1, 15, follows)


def test_a_fault_of_the_simulator_is_a_finding_with_operand_axis_and_line(texts):
    outcome = outcome_of(Case(1, 1, 1), product, faults=[_fault("out_of_bounds")])
    (finding,) = judge(outcome).findings
    assert finding.property == "stays_in_bounds"
    assert (finding.operand, finding.axis, finding.where) == ("a", "M", "kernels.py:31")
    texts("a load out of bounds", finding.message)
    nameless = Fault("undefined_used", "k", "mask", "", None, Where("", 0, ""), "x", "y", 1, 1)
    assert memory_use._from_fault("p", nameless, outcome).message == "mask: got x, expected y"


def test_every_fault_that_the_simulator_reports_has_a_property():
    from gemmproof.reference.simulation import KINDS

    for kind in set(KINDS) - {"false_hint"}:
        assert names(outcome_of(Case(1, 1, 1), product, faults=[_fault(kind)])), kind


@pytest.mark.parametrize(
    ("faults", "causes"),
    [
        (
            [_fault("out_of_bounds"), _fault("undefined_stored", follows="out_of_bounds")],
            {"undefined_lanes_never_stored": "stays_in_bounds"},
        ),
        ([_fault("undefined_stored")], {"undefined_lanes_never_stored": None}),
        (
            [_fault("out_of_bounds"), _fault("never_stored", "store", "c")],
            {"stores_each_element_once": None},
        ),
        (
            [_fault("out_of_bounds", "store", "c"), _fault("never_stored", "store", "c")],
            {"stores_each_element_once": "stays_in_bounds"},
        ),
    ],
)
def test_a_consequence_names_its_cause_and_a_stray_load_moves_no_store(faults, causes):
    findings = judge(outcome_of(Case(1, 1, 1), product, faults=faults)).findings
    assert {f.property: f.cause for f in findings if f.property != "stays_in_bounds"} == causes


def test_a_wrong_value_beside_a_harmless_stray_load_is_a_fault_of_its_own():
    off = outcome_of(
        Case(1, 1, 1),
        lambda a, b: product(a, b, None, lambda c: c + 1),
        faults=[_fault("out_of_bounds")],
    )
    causes = {f.property: f.cause for f in judge(off).findings}
    assert causes == {
        "stays_in_bounds": None,
        exact_values.EXACT: None,
        exact_values.BOUND: exact_values.EXACT,
    }


def _all_programs(touch):
    """A touch as the simulator keeps it: with an axis over programs."""
    x, y, _ = touch.pid
    return SimpleNamespace(
        kind=touch.kind,
        operand=SimpleNamespace(name=touch.operand),
        offsets=touch.offsets[None],
        mask=None if touch.mask is None else touch.mask[None],
        other=touch.other,
        programs=np.array([x + 2 * y]),
    )


def test_the_mirror_property_compares_access_by_access():
    case = Case(20, 18, 17)
    constants = {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}
    kernel = MIRRORS["matmul"]

    def outcome_with(change):
        def run(launch, a, b, trace=None, **options):
            c = launch(a, b)
            described = launch_of(
                (tuple(a.shape), a.stride()),
                (tuple(b.shape), b.stride()),
                (tuple(c.shape), c.stride()),
                constants,
            )
            (specified,) = kernel.state(described)
            touches = [touch for pid in specified.pids() for touch in specified.touches(pid)]
            trace.append(("k", (2, 2, 1), [_all_programs(t) for t in change(touches)]))
            launched = Launch("k", (2, 2, 1), constants, 0, 1, ((16, 16, 16),), False, HERE)
            return Run(result=c, launches=[launched])

        backend = Simulator(None, run)
        return observe(KernelUnderTest("k", product, mirror=kernel), case, backend)

    assert list(memory_use.judge(outcome_with(lambda t: t))) == []
    assert memory_use.NAME in judge(outcome_with(lambda t: t)).applied
    for change in (lambda t: t[:-1], lambda t: [*t, t[0]], lambda t: [t[1], t[0], *t[2:]]):
        (finding,) = memory_use.judge(outcome_with(change))
        assert finding.message.startswith("pid (")
    assert memory_use.NAME not in judge(outcome_of(case, product)).applied


def test_claims_are_sentences_and_names_are_their_own():
    assert len(BY_NAME) == len(PROPERTIES)
    for each in PROPERTIES:
        assert each.claim[0] == each.claim[0].lower() or each.claim.startswith("|")
        assert not each.claim.endswith(".")
        assert all(name in BY_NAME for name in each.follows)


def test_stored_elements_are_those_given_even_after_a_call_changed_them():
    outcome = outcome_of(Case(2, 2, 2), lambda a, b: a.zero_() @ b)
    fresh = outcome_of(Case(2, 2, 2), product)
    assert np.array_equal(copy_elements(outcome.operands["a"]), copy_elements(fresh.operands["a"]))
