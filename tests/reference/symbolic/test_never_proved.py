"""Wrong kernels are not proved to be right, each with a fault that a prover might miss."""

import pytest
import torch
from tests.corpora.mutants.table import MUTANTS
from tests.reference.symbolic.wrong import sneaky_kernels, unsound_calls, unsound_kernels
from tests.support.lanes import first_of_each
from tests.support.wide import wide

from gemmproof.engine.kernel_check import check
from gemmproof.properties.cases.case import Case
from gemmproof.properties.judges import exact_values, memory_use
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof import PROVED
from gemmproof.properties.proof import prove as prove_module
from gemmproof.properties.proof.prove import prove

SECONDS = 4.0
SEEK = prove_module.seek


@pytest.fixture(autouse=True)
def nothing_is_tried(monkeypatch):
    """Disable trials, whose cases would refute a wrong proof: the solver alone is tested here."""
    monkeypatch.setattr(prove_module, "seek", lambda *given: {})


# the property that does not hold, the sizes at which it does not, and what the contract admits
WRONG = {
    "while_loop_ends_in_the_middle": (exact_values.EXACT, (1, 1, 49), {}),
    "products_in_half": (exact_values.EXACT, None, {"N": "1..1"}),
    "doubled_by_torch": (exact_values.EXACT, (1, 1, 1), {}),
    "operand_doubled_by_torch": (exact_values.EXACT, (1, 1, 1), {}),
    "operand_doubled_by_a_kernel": (exact_values.EXACT, (1, 1, 1), {}),
    "returned_transposed": (exact_values.EXACT, (2, 2, 1), {}),
    "returned_as_other_bits": (exact_values.EXACT, None, {}),
    "read_as_pairs": (memory_use.BOUNDS, (1, 1, 1), {}),
    "half_of_it_zeroed": (exact_values.EXACT, (2, 1, 1), {"deterministic": False}),
    "operands_exchanged_by_trips": (exact_values.EXACT, (2, 3, 17), {}),
    "every_lane_stores_one_column": (memory_use.ONCE, (1, 1, 1), {"N": "1..1"}),
    "undefined_rows_decide_masks": (memory_use.LANES, (1, 1, 1), {}),
    "divided_by_no_strips": (memory_use.LANES, (1, 1, 1), {}),
    "scaled_by_a_quotient_by_0": (memory_use.LANES, (1, 1, 1), {}),
    "scaled_by_counts_beyond_the_bins": (memory_use.LANES, (1, 1, 1), {}),
    "scaled_by_a_clock": (memory_use.LANES, (1, 1, 1), {}),
    "odd_strips_alone": (memory_use.ONCE, (1, 1, 1), {}),
    "rows_counted_by_inner_loops": (memory_use.BOUNDS, None, {"M": "3..3"}),
    "summed_by_torch": (memory_use.ONCE, (1, 1, 1), {}),
    "copied_by_torch": (memory_use.LANES, (1, 1, 1), {}),
    "rounded_on_the_way": (exact_values.EXACT, None, {}),
    "read_as_half": (exact_values.EXACT, (1, 1, 1), {}),
}
# the property and the sizes at which a slip of sneaky_kernels shows, or None if they are large
SLIPS = {
    "rows_wrapped_at_n": (exact_values.EXACT, (2, 1, 1), {}),
    "rows_in_16_bits": (memory_use.FIT, None, {}),
    "rows_clamped_far_away": (exact_values.EXACT, None, {}),
    "columns_masked_by_bits": (exact_values.EXACT, (1, 4097, 1), {}),
    "columns_of_the_neighbour": (exact_values.EXACT, (1, 2, 1), {}),
    "k_begins_below_0": (memory_use.BOUNDS, (1, 1, 1), {}),
    "trips_rounded_by_one_less": (exact_values.EXACT, (1, 1, 1), {}),
    "steps_of_half_a_tile": (exact_values.EXACT, (1, 1, 15), {}),
    "k_walked_down_without_the_rest": (exact_values.EXACT, (1, 1, 1), {}),
    "masks_joined_by_or": (memory_use.BOUNDS, (1, 1, 1), {}),
    "k_masked_along_rows": (memory_use.BOUNDS, (1, 1, 1), {}),
    "every_tile_begins_anew": (exact_values.EXACT, (1, 1, 17), {}),
    "odd_tiles_subtracted": (exact_values.EXACT, (1, 1, 17), {}),
    "second_tile_left_out": (exact_values.EXACT, (1, 1, 17), {}),
    "both_transposed": (exact_values.EXACT, (1, 2, 1), {}),
    "rest_of_k_twice": (exact_values.EXACT, (1, 1, 1), {}),
    "rows_clamped_and_stored": (memory_use.ONCE, (1, 1, 1), {}),
    "columns_masked_by_rows": (memory_use.ONCE, (1, 2, 1), {}),
    "stored_from_the_end": (memory_use.BOUNDS, (1, 1, 1), {}),
}
# the same of other functions of that module, and what the contract admits
SLIPPED = {
    "batch_of_b_is_dense": (memory_use.BOUNDS, None, {"batched": True}),
    "batch_of_b_is_that_of_a": (exact_values.EXACT, (2, 1, 2, 1), {"batched": True}),
    "batch_of_c_is_that_of_a": (memory_use.ONCE, (2, 1, 1, 0), {"batched": True}),
    "last_group_has_fewer_rows": (memory_use.ONCE, (1, 17, 1), {}),
    "one_tile_too_few": (memory_use.ONCE, (1, 1, 1), {}),
    "k_is_the_stride_of_a": (memory_use.BOUNDS, (1, 1, 0), {}),
    "first_rows_of_many": (memory_use.ONCE, None, {}),
    "whole_tiles_by_common_bits": (memory_use.BOUNDS, (1, 2, 4), {}),
    "whole_tiles_by_equal_bits": (memory_use.BOUNDS, (1, 1, 32), {}),
    "whole_tiles_by_bits_of_two": (memory_use.BOUNDS, (1, 1, 15), {}),
    "odd_k_in_no_half": (exact_values.EXACT, (1, 1, 1), {"deterministic": False}),
    "middle_k_in_both_halves": (exact_values.EXACT, (1, 1, 1), {"deterministic": False}),
    "added_twice": (exact_values.EXACT, (1, 1, 1), {"deterministic": False}),
    "reduced_by_twice_the_first": (exact_values.EXACT, (1, 1, 1), {}),
}


NEAR = {"layouts": "contiguous"}
CALLS = {
    "rows_declared_in_16_bits": (memory_use.ONCE, (2**15, 1, 1), NEAR),
    "rows_declared_as_a_flag": (exact_values.EXACT, (2, 1, 1), NEAR),
    "depth_of_1_is_not_compiled": (exact_values.EXACT, None, NEAR),
    "depth_of_1_has_another_type": (exact_values.EXACT, (1, 1, 1), NEAR),
    "if_comparison_is_true": (exact_values.EXACT, (3001, 1, 1), NEAR),
    "if_no_index": (exact_values.EXACT, (3072, 1, 1), NEAR),
    "if_no_character": (exact_values.EXACT, (11142, 1, 1), NEAR),
    "if_number_of_an_enum": (exact_values.EXACT, (3000, 1, 1), NEAR),
    "if_seen_as_other_bits": (exact_values.EXACT, (3001, 1, 1), NEAR),
    "pruned_by_k_without_a_key": (exact_values.EXACT, None, NEAR),
    "wrapped_by_torch": (exact_values.EXACT, None, {**NEAR, "formats": ("int8",)}),
    "negated_by_torch": (exact_values.EXACT, (1, 1, 1), NEAR),
    "parts_summed_in_half": (exact_values.EXACT, None, NEAR),
}


def rows_of(table, launch_of, is_judged, seconds):
    """Rows of a table as parameters; `is_judged`: the property must be there in any case."""
    rows = [(name, launch_of(name), is_judged, seconds, *row) for name, row in table.items()]
    return first_of_each(rows, lambda row: row[4])


@pytest.mark.parametrize("name", ["k_mask_admits_one_more", "store_mask_admits_one_more_column"])
def test_a_mask_that_admits_one_more_is_not_proved(name):
    kernel = next(mutant.kernel for mutant in MUTANTS if mutant.name == name)
    assert prove(kernel, seconds=SECONDS).find(memory_use.BOUNDS).status != PROVED


@pytest.mark.parametrize(
    ("name", "launch", "is_judged", "seconds", "broken", "sizes", "fields"),
    [
        *rows_of(WRONG, lambda name: getattr(unsound_kernels, name), False, SECONDS),
        *rows_of(SLIPS, sneaky_kernels.make, True, SECONDS / 2),
        *rows_of(SLIPPED, lambda name: getattr(sneaky_kernels, name), True, SECONDS / 2),
        *rows_of(CALLS, lambda name: getattr(unsound_calls, name), True, SECONDS),
    ],
)
def test_a_wrong_kernel_is_not_proved(name, launch, is_judged, seconds, broken, sizes, fields):
    kernel = KernelUnderTest(name, launch, wide(**fields))
    proof = prove(kernel, seconds=seconds).find(broken)
    assert proof is not None or not is_judged
    assert proof is None or proof.status != PROVED
    if sizes is not None:
        case = Case(*sizes[-3:], batch=sizes[0] if len(sizes) == 4 else None)
        report = check(kernel, case=case, proof=False)
        assert broken in {finding.property for finding in report.findings}, report


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("pruned_by_k_in_the_key", ("fp16",)),
        ("widened_by_torch", ("int8",)),
        ("parts_summed_in_single", ("fp16",)),
        ("depth_in_64_bits", ("fp16",)),
    ],
)
def test_a_right_twin_is_proved(name, formats):
    kernel = KernelUnderTest(name, getattr(unsound_calls, name), wide(formats=formats, **NEAR))
    proof = prove(kernel, seconds=SECONDS).find(exact_values.EXACT)
    assert proof.status == PROVED, proof.why


@pytest.mark.parametrize(
    ("name", "formats", "reason"),
    [
        ("always_raises", ("fp16",), "every path of the wrapper raises"),
        ("raises_for_all_formats_but_one", ("fp16", "bf16"), "every path of the wrapper raises"),
        (
            "launches_nothing",
            ("fp16",),
            "no path of the wrapper that was followed launches a kernel",
        ),
    ],
)
def test_of_what_launches_nothing_nothing_is_proved(name, formats, reason):
    kernel = KernelUnderTest(name, getattr(sneaky_kernels, name), wide(formats=formats))
    proofs = prove(kernel, seconds=SECONDS).verdicts
    assert all(proof.status != PROVED for proof in proofs)
    assert {proof.why for proof in proofs if proof.property == memory_use.BOUNDS} == {reason}


def test_a_path_without_a_launch_accesses_nothing():
    def launch(a, b):
        return a @ b if a.shape[0] < 16 else unsound_kernels.plain(a, b)

    proofs = prove(KernelUnderTest("some", launch, wide(layouts="contiguous")), seconds=20.0)
    status = {proof.property: (proof.status, proof.why) for proof in proofs.verdicts}
    assert status[memory_use.BOUNDS][0] == status[memory_use.LANES][0] == PROVED
    for name in (memory_use.ONCE, exact_values.EXACT):
        assert status[name][0] == "not decided"
        assert status[name][1].endswith("a path that launches no kernel")


def test_a_wrapper_may_raise_for_some_sizes():
    def launch(a, b):
        if b.shape[1] > 1000:
            raise ValueError("at most 1000 columns")
        return unsound_kernels.plain(a, b)

    kernel = KernelUnderTest("some", launch, wide(layouts="contiguous"))
    assert prove(kernel, seconds=20.0).find(memory_use.BOUNDS).status == PROVED


def test_a_second_result_that_nothing_stores_is_not_proved(monkeypatch, texts):
    def launch(a, b):
        c = unsound_kernels.plain(a, b)
        return c, torch.empty_like(c)

    kernel = KernelUnderTest("two", launch, wide(), spec=lambda a, b: (a @ b, a @ b))
    proof = prove(kernel, seconds=10.0).find(memory_use.ONCE)
    reason = "stored once: no store of a result was seen"
    assert (proof.status, proof.why) == ("not decided", reason)
    monkeypatch.setattr(prove_module, "seek", SEEK)
    proof = prove(kernel, seconds=10.0).find(memory_use.ONCE)
    assert proof.status == "refuted"
    texts("a second result that nothing stores", proof.why)
    report = check(kernel, case=Case.from_json(proof.case), proof=False)
    assert memory_use.ONCE in {finding.property for finding in report.findings}
