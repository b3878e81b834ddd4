"""Each property has a mutant that it alone kills, and right kernels that pass it."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.corpora.mutants import promises, scheduling, strides, tuning
from tests.properties import alone_kernels as kernels
from tests.support.fake_simulator import cases_in
from tests.support.lanes import first_of_each
from tests.support.wide import wide

from gemmproof.backends.simulate import Simulator
from gemmproof.engine.kernel_check import check
from gemmproof.engine.observe import judge, observe
from gemmproof.kernels import matmul_persistent
from gemmproof.properties.cases.case import Case
from gemmproof.properties.cases.corners import corners
from gemmproof.properties.cases.generate import Survey
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.wrapper_state import find_state
from gemmproof.reference.gpus import COUNTS
from gemmproof.reference.mirrors import MIRRORS
from gemmproof.reference.simulator import run

INVARIANT = wide(batch_invariant=True)
ANY = wide()


def check_launch(launch, contract=ANY, **options):
    return check(KernelUnderTest("matmul", launch, contract), **options)


# wrapper, contract, property, fault, operand, axis, a part of the message
FP32 = torch.float32
ALONE = [
    (kernels.flawed("doubles_in_a_loop"), ANY,
     "compiles", "compile_error", None, None, "from Triton's compiler, expected kernel to compile"),
    (kernels.flawed("products_in_tf32"), wide(formats=("fp32",)),
     "within_bound", "rounding", "c", None, "truncated to tf32"),
    (kernels.flawed("assumes_whole_k"), ANY,
     "every_hint_holds", "false_hint", None, None, "tl.assume"),
    (kernels.offsets_in_32_bits, ANY,
     "offsets_fit", "wrapped_offset", "a", "M", "2147483648"),
    (kernels.flawed("reads_the_next_tile"), ANY,
     "no_races", "race", "c", None, "same launch"),
    (promises.product_copied_over_the_result, wide(layouts="contiguous"),
     "computed_by_kernels", "host_product", "c", None, "torch.mm at promises.py"),
    (kernels.flawed("nan_scrubbed"), ANY,
     "special_values", "nan_lost", "c", None, "expected nan"),
    (kernels.flawed("scaled_by_the_largest"), ANY,
     "special_values", "special_spread", "c", None, "nan"),
    (kernels.flawed("sums_rounded_down", out=FP32), ANY,
     "symmetries", "not_negated", "c", None, "a negated"),
    (kernels.flawed("small_tiles_taken_for_empty", out=FP32), ANY,
     "symmetries", "not_scaled", "c", None, "a times 2**-10"),
    (kernels.flawed("lower_rows_from_zero", out=FP32), ANY,
     "symmetries", "not_permuted_rows", "c", "M", "rows of a"),
    (kernels.flawed("every_other_column_from_zero", out=FP32), ANY,
     "symmetries", "not_permuted_columns", "c", "N", "columns"),
    (kernels.strides_of_the_first_call, ANY,
     "call_order", "stale", None, None, "after them"),
    (kernels.split_where_rows_are_few, INVARIANT,
     "row_bits_at_any_m", "bits_differ", "c", "M", "as at M="),
    (strides.batch_stride_of_b_forgotten, wide(batched=True),
     "exact_on_integers", "operand_strides", "b", None, "a batch stride of 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("launch", "contract", "name", "fault", "operand", "axis", "message"),
    ALONE,
    ids=[f"{row[2]}-{row[0].__name__}" for row in ALONE],
)
def test_one_property_alone_kills_it(launch, contract, name, fault, operand, axis, message):
    report = check_launch(launch, contract)
    assert {f.property for f in report.findings if f.cause is None} == {name}
    first = report.findings[0]
    assert (first.fault, first.operand, first.axis) == (fault, operand, axis), first.message
    assert message in first.message
    replayed = check_launch(launch, contract, case=Case.from_json(first.case.to_json()))
    assert name in {f.property for f in replayed.findings}


@pytest.mark.parametrize(
    ("flaw", "operand", "axis"),
    [("no_row_mask", "a", "M"), ("no_column_mask", "b", "N"), ("no_k_mask", "a", "K")],
)
def test_a_missing_mask_is_found_at_one_element(flaw, operand, axis):
    first = check_launch(kernels.flawed(flaw)).findings[0]
    assert (first.property, first.fault) == ("stays_in_bounds", "out_of_bounds")
    assert (first.cause, first.operand, first.axis) == (None, operand, axis)
    assert first.case == Case(1, 1, 1)
    assert first.where.startswith("alone_kernels.py:")
    replayed = check_launch(kernels.flawed(flaw), case=first.case)
    assert first.property in {f.property for f in replayed.findings}


def test_a_missing_k_mask_is_one_cause_and_all_else_its_consequence():
    report = check_launch(kernels.flawed("no_k_mask"))
    roots = [(f.property, f.operand, f.axis) for f in report.findings if f.cause is None]
    assert roots == [("stays_in_bounds", "a", "K"), ("stays_in_bounds", "b", "K")]
    assert {f.property for f in report.findings if f.cause is not None} == {
        "undefined_lanes_never_stored",
        "exact_on_integers",
        "within_bound",
        "same_bits_on_dirty_outputs",
    }


@pytest.mark.lane("full")
def test_assumed_strides_are_named_by_the_values_and_accused_only_where_promised():
    report = check_launch(strides.b_assumed_contiguous)
    assert report.verdict == "fail"
    named = [f for f in report.findings if f.fault == "operand_strides"]
    assert [f.operand for f in named] == ["b"]
    assert {f.cause for f in report.findings if f.property == "within_bound"} == {named[0].property}
    dense = wide(layouts="contiguous")
    assert check_launch(strides.b_assumed_contiguous, dense, max_examples=20).verdict == "pass"


@pytest.mark.lane("full")
def test_few_multiprocessors_make_a_persistent_kernel_walk():
    contract = wide(M="0..40", N="0..40", K=0)  # K = 0 is all there is
    assert check_launch(scheduling.launch_persistent, contract, max_examples=60).verdict == "pass"
    apart = partial(scheduling.launch_persistent, flaw="steps_apart")
    first = check_launch(apart, contract, max_examples=60).findings[0]
    assert (first.property, first.fault) == ("stores_each_element_once", "never_stored")
    assert first.case.sms in (1, 7)


def test_our_persistent_kernel_is_run_with_few_multiprocessors_and_so_is_its_mirror():
    cases = corners(wide(), Survey(asks_sms=True), "fp16")
    assert {case.sms for case in cases} == {None, 1, 7, *COUNTS}
    kernel = KernelUnderTest("p", matmul_persistent, mirror=MIRRORS["matmul_persistent"])
    case = Case(200, 300, 20, config=4, sms=7)
    outcome = observe(kernel, case, Simulator(None, run))
    assert outcome.asked_sms
    assert outcome.calls[0].run.launches[0].grid[0] == 7
    assert judge(outcome).findings == ()


@pytest.mark.lane("full")
def test_a_fault_of_one_configuration_names_its_constants(texts):
    report = check_launch(tuning.one_configuration_has_wider_tiles, max_examples=60)
    first = report.findings[0]
    assert first.case.config == 2
    texts("a fault of one configuration", first.message[first.message.rindex("(") :])


def test_every_configuration_is_run_even_by_few_examples():
    seen = []
    launch = tuning.one_configuration_has_wider_tiles
    check_launch(launch, max_examples=3, listener=seen.append)
    assert {case.config for case in cases_in(seen)} >= {1, 2}


def test_sums_added_to_nothing_are_named_at_the_atomic():
    report = check_launch(kernels.atomics_onto_empty, max_examples=20)
    first = report.findings[0]
    assert first.property in ("stores_each_element_once", "undefined_lanes_never_stored")
    assert first.operand == "c"
    assert "uninitialised" in first.message or "undefined" in first.message


# a right kernel and the contract it keeps
INNOCENT = [
    (kernels.flawed("none"), INVARIANT),
    (kernels.flawed("assumes_what_is_so"), ANY),
    (kernels.flawed("masks_by_multiplying"), ANY),
    (kernels.flawed("masks_by_multiplying"), wide(formats=("bf16",))),
    (kernels.flawed("saturates", out=torch.float8_e4m3fn), wide(formats=("fp8e4m3",))),
    (kernels.flawed("none", out=torch.float8_e5m2), wide(formats=("fp16", "bf16"))),
    (kernels.flawed("none", out=torch.float8_e4m3fn), ANY),
    (kernels.flawed("none", out=FP32), ANY),
    (kernels.flawed("none"), wide(formats=("fp16", "bf16", "fp32", "tf32", "fp8e4m3"))),
    (kernels.flawed("products_in_tf32"), wide(formats=("tf32",))),
    (kernels.offsets_in_32_bits, wide(layouts="contiguous")),
    (kernels.small_by_torch, replace(ANY, host_epilogue=("mm",))),
    (kernels.atomics_onto_zeros, ANY),
    (kernels.atomics_onto_zeros, wide(deterministic=False)),
    (kernels.split_where_rows_are_few, ANY),
]


@pytest.mark.parametrize(
    ("launch", "contract"),
    first_of_each(INNOCENT, lambda row: row[1] is ANY),
    ids=[f"{f.__name__}-{'-'.join(c.formats)}" for f, c in INNOCENT],
)
def test_a_right_kernel_passes_every_property(launch, contract):
    report = check_launch(launch, contract, max_examples=60)
    assert [f.message for f in report.findings] == []
    unjudged = {p.name: p.status for p in report.properties if p.status != "pass"}
    has_hints = launch.__name__ == "assumes_what_is_so"
    assert unjudged == ({} if has_hints else {"every_hint_holds": "does not apply"})


def test_an_expanded_tensor_that_a_module_keeps_is_put_back():
    kernels.EXPANDED = torch.zeros(3, 1).expand(3, 4)
    try:
        state = find_state(kernels.launch)
        kernels.EXPANDED[1] += 1
    except RuntimeError:  # torch refuses to write to it, the storage is written instead
        kernels.EXPANDED.untyped_storage()[4] = 1
    state.restore()
    assert kernels.EXPANDED.tolist() == [[0.0] * 4] * 3
    del kernels.EXPANDED


def test_what_a_module_keeps_between_calls_is_put_back():
    state = find_state(kernels.strides_of_the_first_call)
    state.restore()
    before = dict(kernels._STRIDES)
    kernels._STRIDES["x"] = 1
    kernels.NEW = 1
    table = kernels._STRIDES
    state.restore()
    assert before == kernels._STRIDES == {}
    assert not hasattr(kernels, "NEW")
    assert kernels._STRIDES is table
