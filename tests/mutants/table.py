"""Every mutant: its class in docs/strength.md, its contract, and how it must be found."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from gemmproof.properties.case import Case
from gemmproof.properties.contract import Contract, KernelUnderTest

# class -> what it is
CLASSES = {
    "A": "K tail",
    "B": "undefined lanes",
    "C": "coverage",
    "D": "32-bit offsets",
    "E": "strides and axes",
    "F": "false hints",
    "G": "split-K and configurations",
    "H": "scheduling",
    "I": "precision",
    "J": "scales and packing",
    "K": "degenerate sizes",
    "L": "descriptors",
    "O": "determinism",
    "P": "state between calls",
}

BOUNDS, ONCE = "stays_in_bounds", "stores_each_element_once"
LANES, ENDS = "undefined_lanes_never_stored", "runs_to_completion"
EXACT, BOUND = "exact_on_integers", "within_bound"
HINTS, FIT, RACES = "hints_hold", "offsets_fit", "no_races"
ROWS, CALLS = "row_bits_at_any_m", "call_order"

CONTIGUOUS = Contract(layouts="contiguous")
BATCHED = Contract(batched=True)
FP32 = Contract(formats=("fp32",))
INT8 = Contract(formats=("int8",))
NARROW = Contract(layouts=("row", "narrow"))
INVARIANT = Contract(batch_invariant=True)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A kernel that is wrong in one way, and what must be said of it.

    `place` is "module:function" below tests/mutants. Its first finding must be of `property`, of
    class `fault`, blame `operand` and `axis`, and have `smallest` as its case.
    """

    letter: str
    place: str
    property: str
    fault: str
    operand: str | None
    axis: str | None
    smallest: Case
    contract: Contract = Contract()
    target: str | None = None

    @property
    def name(self) -> str:
        """The function's name, which states the fault."""
        return self.place.partition(":")[2]

    @property
    def kernel(self) -> KernelUnderTest:
        """The mutant as the suite judges it."""
        module, _, function = self.place.partition(":")
        return KernelUnderTest(
            self.name, getattr(import_module(f"mutants.{module}"), function), self.contract
        )


def _case(M: int, N: int, K: int, **other: object) -> Case:
    return Case(M, N, K, **other)  # type: ignore[arg-type]


ONE = _case(1, 1, 1)
NO_K = _case(1, 1, 0)

# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    Mutant("A", "k_tail:even_k_means_divisible_by_two", BOUNDS, "out_of_bounds", "a", "K", _case(1, 1, 2)),
    Mutant("A", "k_tail:mask_does_not_advance", BOUNDS, "out_of_bounds", "b", "K", _case(1, 1, 17)),
    Mutant("A", "k_tail:k_mask_admits_one_more", BOUNDS, "out_of_bounds", "a", "K", ONE),
    Mutant("A", "k_tail:no_k_mask_on_b", BOUNDS, "out_of_bounds", "b", "K", ONE),
    Mutant("A", "k_tail:k_mask_loses_the_last", EXACT, "last_k_block", "c", "K", ONE),
    Mutant("A", "k_tail:k_tiles_rounded_down", EXACT, "last_k_block", "c", "K", ONE),
    Mutant("A", "k_tail:bound_in_packed_units", EXACT, "last_k_block", "c", "K", ONE),
    Mutant("A", "split_k:slices_overlap", EXACT, "last_k_block", "c", "K", _case(1, 1, 2)),
    Mutant("A", "split_k:slices_lose_the_remainder", EXACT, "last_k_block", "c", "K", ONE),
    Mutant("B", "undefined:no_other_on_a", LANES, "undefined_stored", "a", "K", ONE),
    Mutant("B", "undefined:no_other_on_b", LANES, "undefined_stored", "b", "K", ONE),
    Mutant("B", "undefined:other_is_one", EXACT, "k_tail", "c", "K", ONE),
    Mutant("B", "undefined:other_is_minus_infinity", EXACT, "not_finite", "c", None, ONE),
    Mutant("B", "undefined:window_not_padded", LANES, "undefined_stored", "b", "K", ONE),
    Mutant("B", "undefined:bias_never_written", LANES, "undefined_stored", "bias_ptr", None, ONE),
    Mutant("B", "split_k:empty_slices_leave_their_partials", LANES, "undefined_stored", "w_ptr", None, ONE),
    Mutant("C", "coverage:no_row_mask_on_store", BOUNDS, "out_of_bounds", "c", "M", ONE),
    Mutant("C", "coverage:no_column_mask_on_store", BOUNDS, "out_of_bounds", "c", "N", ONE),
    Mutant("C", "coverage:store_mask_of_wrapped_rows", BOUNDS, "out_of_bounds", "c", "M", ONE),
    Mutant("C", "coverage:store_mask_admits_one_more_column", BOUNDS, "out_of_bounds", "c", "N", ONE),
    Mutant("C", "coverage:store_mask_of_the_other_axis", BOUNDS, "out_of_bounds", "c", "M", _case(1, 2, 1)),
    Mutant("C", "coverage:store_to_wrapped_columns", ONCE, "stored_twice", "c", "N", _case(1, 17, 1)),
    Mutant("C", "coverage:last_row_not_stored", ONCE, "never_stored", "c", "M", _case(2, 1, 1)),
    Mutant("C", "coverage:grid_rounded_down", ONCE, "never_stored", "c", "M", _case(17, 1, 1)),
    Mutant("C", "coverage:grid_of_the_other_block", ONCE, "never_stored", "c", "N", _case(1, 33, 1)),
    Mutant("C", "coverage:every_tile_launched_twice", ONCE, "stored_twice", "c", None, ONE),
    Mutant("E", "strides:strides_of_a_swapped", BOUNDS, "out_of_bounds", "a", "M", _case(1, 1, 2)),
    Mutant("E", "strides:strides_of_b_swapped", BOUNDS, "out_of_bounds", "b", "K", _case(1, 2, 1)),
    Mutant("E", "strides:strides_of_c_swapped", BOUNDS, "out_of_bounds", "c", "M", _case(1, 2, 1)),
    Mutant("E", "strides:a_assumed_contiguous", BOUNDS, "out_of_bounds", "a", "K", _case(2, 1, 2, a="padded")),
    Mutant("E", "strides:b_assumed_contiguous", BOUNDS, "out_of_bounds", "b", "N", _case(1, 2, 2, b="padded")),
    Mutant("E", "strides:unit_column_stride_assumed", BOUNDS, "out_of_bounds", "b", "K", _case(1, 2, 2, b="transposed")),
    Mutant("E", "strides:row_length_of_c_is_k", BOUNDS, "out_of_bounds", "c", "M", _case(2, 1, 2)),
    Mutant("E", "strides:storage_offset_dropped", EXACT, "not_finite", "c", None, ONE),
    Mutant("E", "strides:stride_zero_replaced", BOUNDS, "out_of_bounds", "a", "K", _case(2, 1, 1, a="expanded")),
    Mutant("E", "strides:weight_taken_for_its_transpose", EXACT, "wrong_strides", "b", None, _case(1, 2, 2)),
    Mutant("E", "strides:b_advances_along_n", EXACT, "everywhere", "c", None, _case(1, 2, 17)),
    Mutant("E", "strides:batch_stride_of_b_forgotten", EXACT, "wrong_strides", "b", None, _case(1, 1, 1, batch=2), BATCHED),
    Mutant("E", "strides:batch_stride_of_a_assumed", BOUNDS, "out_of_bounds", "a", "M", _case(2, 1, 3, batch=2, a="padded"), BATCHED),
    Mutant("G", "split_k:atomics_onto_empty", EXACT, "not_finite", "c", None, ONE),
    Mutant("G", "split_k:last_partial_not_added", EXACT, "last_k_block", "c", "K", _case(1, 1, 33)),
    Mutant("G", "tuning:one_configuration_has_wider_tiles", ONCE, "stored_twice", "c", "N", _case(1, 65, 1, config=2)),
    Mutant("H", "scheduling:last_group_not_clamped", ONCE, "never_stored", "c", "N", _case(1, 17, 1)),
    Mutant("H", "scheduling:columns_divided_by_the_full_group", ONCE, "stored_twice", "c", "N", _case(1, 17, 1)),
    Mutant("H", "scheduling:column_taken_from_the_rows", ONCE, "stored_twice", "c", "N", _case(1, 17, 1)),
    Mutant("H", "scheduling:last_tile_dropped", ONCE, "never_stored", "c", "N", _case(1, 33, 1)),
    Mutant("H", "scheduling:tail_wave_dropped", ONCE, "never_stored", "c", None, ONE),
    Mutant("H", "scheduling:persistent_steps_overlap", ONCE, "stored_twice", "c", None, _case(33, 65, 1, sms=7)),
    Mutant("H", "scheduling:early_exit_one_too_late", ONCE, "stored_twice", "c", "N", _case(1, 17, 1)),
    Mutant("I", "precision:half_accumulator", BOUND, "rounding", "c", None, _case(1, 1, 11, fill="normal")),
    Mutant("I", "precision:sums_rounded_between_tiles", BOUND, "rounding", "c", None, _case(1, 1, 92, fill="normal")),
    Mutant("I", "precision:operands_rounded_to_bf16", BOUND, "rounding", "c", None, _case(1, 1, 1, fill="normal")),
    Mutant("I", "precision:fp32_operands_rounded_to_half", BOUND, "rounding", "c", None, _case(1, 1, 1, dtype="fp32", fill="normal"), FP32),
    Mutant("I", "precision:tf32_not_asked_for", BOUND, "rounding", "c", None, _case(1, 1, 1, dtype="fp32", fill="normal"), FP32, "sm_90"),
    Mutant("I", "precision:result_rounded_twice", EXACT, "scattered", "c", None, _case(1, 1, 2)),
    Mutant("I", "precision:int8_result_wraps", EXACT, "wrapped", "c", None, _case(1, 1, 1, dtype="int8"), INT8),
    Mutant("I", "precision:one_column_in_low_precision", BOUND, "rounding", "c", None, _case(1, 1, 32, fill="normal")),
    Mutant("I", "split_k:half_precision_atomics", BOUND, "rounding", "c", None, _case(1, 1, 33, fill="normal")),
    Mutant("I", "split_k:half_precision_partials", BOUND, "rounding", "c", None, _case(1, 1, 37, fill="normal")),
    Mutant("J", "scales:scale_of_the_k_tile", EXACT, "everywhere", "c", None, _case(1, 1, 33)),
    Mutant("J", "scales:scale_group_depends_on_the_row_tile", EXACT, "tile_edge", "c", "M", _case(17, 1, 33)),
    Mutant("J", "scales:tail_group_unscaled", EXACT, "scattered", "c", None, ONE),
    Mutant("J", "scales:sum_scaled_again_by_every_tile", EXACT, "scattered", "c", None, _case(1, 1, 17)),
    Mutant("J", "scales:strides_of_scales_ignored", EXACT, "everywhere", "c", None, _case(2, 1, 33)),
    Mutant("J", "scales:low_byte_unsigned", EXACT, "scattered", "c", None, _case(1, 1, 1, dtype="int8"), INT8),
    Mutant("J", "scales:bytes_swapped", EXACT, "last_k_block", "c", "K", _case(1, 1, 1, dtype="int8"), INT8),
    Mutant("J", "scales:high_byte_shifted_by_seven", EXACT, "everywhere", "c", None, _case(1, 1, 2, dtype="int8"), INT8),
    Mutant("K", "degenerate:no_store_without_k", ONCE, "never_stored", "c", None, NO_K),
    Mutant("K", "degenerate:first_k_tile_peeled", BOUNDS, "out_of_bounds", "a", "K", NO_K),
    Mutant("K", "degenerate:stores_only_inside_the_k_loop", ONCE, "never_stored", "c", None, NO_K),
    Mutant("K", "degenerate:wrapper_divides_by_k", ENDS, "raised", None, None, NO_K),
    Mutant("K", "degenerate:wrapper_squeezes_one_row", ENDS, "wrong_shape", None, None, ONE),
    Mutant("K", "degenerate:wrapper_returns_early_without_k", ONCE, "never_stored", "c", None, NO_K),
    Mutant("K", "degenerate:wrapper_refuses_one_column", ENDS, "raised", None, None, ONE),
    Mutant("L", "hints:descriptor_of_unaligned_rows", ENDS, "bad_descriptor", "a", None, ONE),
    Mutant("O", "split_k:two_slices_store_to_one_partial", EXACT, "last_k_block", "c", "K", ONE),
    Mutant("O", "tuning:slices_add_without_a_lock", ONCE, "race", "c_ptr", None, ONE),
)
# fmt: on

# Found once the table of properties has what they break.
# fmt: off
AWAITED: tuple[Mutant, ...] = (
    Mutant("D", "offsets:row_offset_of_a_in_32_bits", FIT, "wrapped_offset", "a", "M", _case(2, 1, 1, a="narrow")),
    Mutant("D", "offsets:k_offset_of_b_in_32_bits", FIT, "wrapped_offset", "b", "K", _case(1, 1, 2, b="narrow")),
    Mutant("D", "offsets:k_step_of_a_in_32_bits", FIT, "wrapped_offset", "a", "K", _case(1, 1, 17, a="narrow")),
    Mutant("D", "offsets:batch_offset_of_a_in_32_bits", FIT, "wrapped_offset", "a", "batch", _case(1, 1, 1, batch=2, a="narrow"), BATCHED),
    Mutant("F", "hints:stride_said_to_be_a_multiple_of_16", HINTS, "false_hint", "a", None, ONE),
    Mutant("F", "hints:column_stride_assumed_to_be_1", HINTS, "false_hint", None, None, _case(1, 1, 1, b="column")),
    Mutant("F", "hints:k_assumed_to_be_whole_tiles", HINTS, "false_hint", None, None, ONE),
    Mutant("F", "hints:k_assumed_to_be_many_tiles", HINTS, "false_hint", None, None, NO_K),
    Mutant("F", "hints:offsets_said_to_be_multiples", HINTS, "false_hint", "b", None, ONE),
    Mutant("F", "hints:offsets_said_to_be_constant", HINTS, "false_hint", "b", None, ONE),
    Mutant("O", "tuning:split_chosen_by_m", ROWS, "bits_differ", "c", "M", ONE, INVARIANT),
    Mutant("P", "tuning:strides_kept_from_the_first_call", CALLS, "stale", None, None, ONE),
    Mutant("P", "tuning:counters_not_reset_between_calls", CALLS, "stale", None, None, ONE),
)
# fmt: on
