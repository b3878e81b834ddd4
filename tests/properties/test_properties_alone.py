"""Each property has a mutant that it alone kills, and right kernels that it does not accuse."""

from __future__ import annotations

import alone_kernels as kernels
import pytest
import torch

from gemmproof.engine.check import check
from gemmproof.engine.wrapper_state import keep_state
from gemmproof.properties.cases.case import Case
from gemmproof.properties.contract import Contract, KernelUnderTest

INVARIANT = Contract(batch_invariant=True)
ANY = Contract()


def judged(launch, contract=ANY, **options):
    return check(KernelUnderTest(launch.__name__, launch, contract), **options)


# wrapper, contract, property, fault, operand, axis, what the message holds
FP32 = torch.float32
ALONE = [
    (kernels.flawed("doubles_in_a_loop"), ANY,
     "compiles", "compile_error", None, None, "from Triton's compiler, expected kernel to compile"),
    (kernels.flawed("products_in_tf32"), Contract(formats=("fp32",)),
     "within_bound", "rounding", "c", None, "truncated to tf32"),
    (kernels.flawed("assumes_whole_k"), ANY,
     "every_hint_holds", "false_hint", None, None, "tl.assume"),
    (kernels.offsets_in_32_bits, ANY,
     "offsets_fit", "wrapped_offset", "a", "M", "2147483648"),
    (kernels.flawed("reads_the_next_tile"), ANY,
     "no_races", "race", "c", None, "same launch"),
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
]  # fmt: skip


@pytest.mark.parametrize(
    ("launch", "contract", "name", "fault", "operand", "axis", "words"),
    ALONE,
    ids=[f"{row[2]}-{row[0].__name__}" for row in ALONE],
)
def test_one_property_alone_kills_it(launch, contract, name, fault, operand, axis, words):
    report = judged(launch, contract)
    assert {f.property for f in report.findings if f.cause is None} == {name}
    first = report.findings[0]
    assert (first.fault, first.operand, first.axis) == (fault, operand, axis), first.message
    assert words in first.message
    replayed = judged(launch, contract, case=Case.from_json(first.case.to_json()))
    assert name in {f.property for f in replayed.findings}


def test_a_fault_of_one_configuration_names_its_constants():
    report = judged(kernels.one_configuration_is_wrong, max_examples=60)
    first = report.findings[0]
    assert first.case.config == 2
    assert first.message.endswith("(configuration 2: BLOCK=64)")


def test_every_configuration_is_run_even_by_few_examples():
    seen = []
    kernel = KernelUnderTest("tuned", kernels.one_configuration_is_wrong)
    check(kernel, max_examples=3, listener=lambda e: seen.append(e.get("case", "")))
    assert [sum(f'"config":{i}' in case for case in seen) > 0 for i in (1, 2)] == [True, True]


def test_sums_added_to_nothing_are_named_at_the_atomic():
    report = judged(kernels.atomics_onto_empty, max_examples=20)
    first = report.findings[0]
    assert first.property in ("stores_each_element_once", "undefined_lanes_never_stored")
    assert first.operand == "c"
    assert "uninitialised" in first.message or "undefined" in first.message


# a right kernel, the contract it keeps, and how often the property must have been asked
INNOCENT = [
    (kernels.flawed("none"), INVARIANT),
    (kernels.flawed("assumes_what_is_so"), ANY),
    (kernels.flawed("masks_by_multiplying"), ANY),
    (kernels.flawed("masks_by_multiplying"), Contract(formats=("bf16",))),
    (kernels.flawed("saturates", out=torch.float8_e4m3fn), Contract(formats=("fp8e4m3",))),
    (kernels.flawed("none", out=torch.float8_e5m2), Contract(formats=("fp16", "bf16"))),
    (kernels.flawed("none"), Contract(formats=("fp32", "tf32", "fp8e4m3"))),
    (kernels.flawed("products_in_tf32"), Contract(formats=("tf32",))),
    (kernels.offsets_in_32_bits, Contract(layouts="contiguous")),
    (kernels.workspace_of_the_first_call, ANY),
    (kernels.atomics_onto_zeros, Contract(deterministic=False)),
    (kernels.split_where_rows_are_few, ANY),
]


@pytest.mark.parametrize(
    ("launch", "contract"),
    INNOCENT,
    ids=[f"{f.__name__}-{'-'.join(c.formats)}" for f, c in INNOCENT],
)
def test_a_right_kernel_is_asked_and_not_accused(launch, contract):
    report = judged(launch, contract, max_examples=60)
    assert [f.message for f in report.findings] == []
    assert {p.name: p.status for p in report.properties if p.status != "pass"} == {}


def test_an_expanded_tensor_that_a_module_keeps_is_put_back():
    kernels.EXPANDED = torch.zeros(3, 1).expand(3, 4)
    try:
        state = keep_state(kernels.launch)
        kernels.EXPANDED[1] += 1
    except RuntimeError:  # torch refuses to write to it, the storage is written instead
        kernels.EXPANDED.untyped_storage()[4] = 1
    state.restore()
    assert kernels.EXPANDED.tolist() == [[0.0] * 4] * 3
    del kernels.EXPANDED


def test_what_a_module_keeps_between_calls_is_put_back():
    state = keep_state(kernels.strides_of_the_first_call)
    state.restore()
    before = dict(kernels._STRIDES)
    kernels._STRIDES["x"] = 1
    kernels.NEW = 1
    table = kernels._WORKSPACE
    state.restore()
    assert before == kernels._STRIDES == {}
    assert not hasattr(kernels, "NEW")
    assert kernels._WORKSPACE is table
