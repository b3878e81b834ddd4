"""Every mutant, line by line as `mutant.parse` reads it, those of the families behind them."""

from __future__ import annotations

from tests.corpora.families.table import FAMILIES
from tests.corpora.mutant import parse
from tests.support.triton_versions import holds

_LINES = """
A k_tail:even_k_means_divisible_by_two BOUNDS out_of_bounds a K 1 1 2
A k_tail:mask_does_not_advance BOUNDS out_of_bounds b K 1 1 17
A k_tail:k_mask_admits_one_more BOUNDS out_of_bounds a K 1 1 1
A k_tail:no_k_mask_on_b BOUNDS out_of_bounds b K 1 1 1 lane=default
A k_tail:k_mask_loses_the_last EXACT last_k_block c K 1 1 1
A k_tail:k_tiles_rounded_down EXACT last_k_block c K 1 1 1
A k_tail:bound_in_packed_units EXACT last_k_block c K 1 1 1
A split_k:slices_overlap EXACT last_k_block c K 1 1 2
A split_k:slices_lose_the_remainder EXACT last_k_block c K 1 1 1
B undefined:no_other_on_a LANES undefined_stored a K 1 1 1
B undefined:no_other_on_b LANES undefined_stored b K 1 1 1 lane=default
B undefined:other_is_one EXACT k_tail c K 1 1 1
B undefined:other_is_minus_infinity EXACT not_finite c - 1 1 1
B undefined:window_not_padded LANES undefined_stored b K 1 1 1
B undefined:bias_never_written LANES undefined_stored bias_ptr - 1 1 1
B split_k:empty_slices_leave_their_partials LANES undefined_stored w_ptr - 1 1 1
C coverage:no_row_mask_on_store BOUNDS out_of_bounds c M 1 1 1
C coverage:no_column_mask_on_store BOUNDS out_of_bounds c N 1 1 1
C coverage:store_mask_of_wrapped_rows BOUNDS out_of_bounds c M 1 1 1
C coverage:store_mask_admits_one_more_column BOUNDS out_of_bounds c N 1 1 1
C coverage:store_mask_of_the_other_axis BOUNDS out_of_bounds c M 1 2 1
C coverage:store_to_wrapped_columns ONCE stored_twice c N 1 1 1
C coverage:last_row_not_stored ONCE never_stored c M 1 1 1
C coverage:grid_rounded_down ONCE never_stored c M 1 1 1 lane=default
C coverage:grid_of_the_other_block ONCE never_stored c N 1 33 1
C coverage:every_tile_launched_twice ONCE stored_twice c - 1 1 1
D offsets:row_offset_of_a_in_32_bits FIT wrapped_offset a M 3 1 1 a=narrow
D offsets:k_offset_of_b_in_32_bits FIT wrapped_offset b K 1 1 3 b=narrow lane=default
D offsets:k_step_of_a_in_32_bits FIT wrapped_offset a K 1 1 17 a=narrow_transposed
D offsets:row_offset_of_c_in_32_bits FIT wrapped_offset c M 37453 57340 1
D offsets:workspace_plane_in_32_bits FIT wrapped_offset w_ptr - 5351 57332 1
D offsets:batch_offset_of_a_in_32_bits FIT wrapped_offset a batch 1 1 1 batch=3 a=narrow_batch
E strides:strides_of_a_swapped BOUNDS out_of_bounds a M 1 1 2 lane=default
E strides:strides_of_b_swapped BOUNDS out_of_bounds b K 1 2 1
E strides:strides_of_c_swapped BOUNDS out_of_bounds c M 1 2 1
E strides:a_assumed_contiguous BOUNDS out_of_bounds a M 2 1 1 a=padded
E strides:b_assumed_contiguous BOUNDS out_of_bounds b K 1 1 2 b=padded
E strides:unit_column_stride_assumed BOUNDS out_of_bounds b N 1 2 1 b=sliced
E strides:row_length_of_c_is_k BOUNDS out_of_bounds c M 2 1 2
E strides:storage_offset_dropped BOUNDS out_of_bounds a - 1 1 1
E strides:stride_zero_replaced BOUNDS out_of_bounds a K 2 1 1 a=expanded
E strides:weight_taken_for_its_transpose EXACT operand_strides b - 1 2 2
E strides:b_advances_along_n EXACT everywhere c - 1 2 17 layouts=contiguous
E strides:batch_stride_of_b_forgotten EXACT operand_strides b - 1 1 1 batch=2
E strides:batch_stride_of_a_assumed BOUNDS out_of_bounds a - 1 1 1 batch=2 a=padded
F hints:stride_said_to_be_a_multiple_of_16 HINTS false_hint a - 2 1 2
F hints:column_stride_assumed_to_be_1 HINTS false_hint - - 1 1 2 b=column
F hints:k_assumed_to_be_whole_tiles HINTS false_hint - - 1 1 1 lane=default
F hints:k_assumed_to_be_many_tiles HINTS false_hint - - 1 1 1
F hints:offsets_said_to_be_multiples HINTS false_hint b - 1 2 2 b=column
F hints:offsets_said_to_be_constant HINTS false_hint b - 1 2 1
G split_k:atomics_onto_empty LANES undefined_stored c_ptr - 1 1 1 lane=default
G split_k:last_partial_not_added EXACT last_k_block c K 1 1 33
G tuning:one_configuration_has_wider_tiles ONCE stored_twice c N 1 65 1 config=2
H scheduling:last_group_not_clamped ONCE never_stored c N 1 17 1
H scheduling:columns_divided_by_the_full_group ONCE stored_twice c N 1 17 1
H scheduling:column_taken_from_the_rows ONCE stored_twice c N 1 17 1
H scheduling:last_tile_dropped ONCE never_stored c - 1 1 1 lane=default
H scheduling:tail_wave_dropped ONCE never_stored c - 1 1 1
H scheduling:persistent_steps_overlap ONCE stored_twice c N 1 1249 1 sms=40
H scheduling:early_exit_one_too_late ONCE stored_twice c N 1 1 1
I precision:half_accumulator BOUND rounding c - 1 1 11 fill=normal
I precision:sums_rounded_between_tiles BOUND rounding c - 2 2 33 fill=normal
I precision:operands_rounded_to_bf16 BOUND rounding c - 1 1 1 fill=normal
I precision:fp32_operands_rounded_to_half BOUND rounding c - 1 1 1 dtype=fp32 fill=normal
I precision:tf32_not_asked_for BOUND rounding c - 1 1 1 dtype=fp32 fill=normal target=sm_90
I precision:result_rounded_twice EXACT rounded_twice c - 2 3 1
I precision:int8_result_wraps EXACT wrapped c - 1 1 1 dtype=int8
I precision:fp8_never_promoted BOUND rounding c - 1 1 1197 dtype=fp8e4m3 fill=positive target=sm_90
I precision:subnormal_operands_flushed BOUND scattered c - 1 1 1 dtype=bf16 fill=subnormal
I precision:subnormal_fp32_operands_flushed BOUND scattered c - 1 1 1 dtype=fp32 fill=subnormal
I precision:subnormal_results_flushed BOUND column c N 1 2 1 dtype=bf16 fill=subnormal
I precision:subnormal_fp32_results_flushed BOUND column c N 1 2 1 dtype=fp32 fill=subnormal
I precision:fp8_rounded_through_half EXACT rounded_twice c - 2 1 3 dtype=fp8e4m3 fill=ties
I precision:e5m2_rounded_through_bf16 EXACT rounded_twice c - 1 1 3 dtype=fp8e5m2 fill=ties
I precision:one_column_in_low_precision BOUND rounding c - 1 1 3 fill=normal
I split_k:half_precision_atomics BOUND rounding c - 1 2 19 fill=normal
I split_k:half_precision_partials BOUND rounding c - 1 2 19 fill=normal
I promises:nan_becomes_zero SPECIAL nan_lost c - 1 25 1 fill=special
I promises:overflow_clamped SPECIAL nan_lost c - 1 25 1 fill=special lane=default
I promises:positive_sums_rounded_up SYMMETRY not_negated c - 1 1 17 fill=normal compare=negated
J scales:scale_of_the_k_tile EXACT everywhere c - 1 1 33
J scales:scale_group_depends_on_the_row_tile EXACT tile_edge c M 17 1 33
J scales:tail_group_unscaled EXACT scattered c - 1 1 1
J scales:sum_scaled_again_by_every_tile EXACT scattered c - 1 1 17
J scales:strides_of_scales_ignored EXACT everywhere c - 2 1 33
J scales:low_byte_unsigned EXACT scattered c - 1 1 1 dtype=int8 lane=default
J scales:bytes_swapped EXACT last_k_block c K 1 1 1 dtype=int8
J scales:high_byte_shifted_by_seven EXACT everywhere c - 1 1 2 dtype=int8
K degenerate:no_store_without_k ONCE never_stored c - 1 1 0
K degenerate:first_k_tile_peeled BOUNDS out_of_bounds a K 1 1 0
K degenerate:stores_only_inside_the_k_loop ONCE never_stored c - 1 1 0
K degenerate:wrapper_divides_by_k ENDS raised - - 1 1 0 lane=default
K degenerate:wrapper_squeezes_one_row ENDS wrong_shape - - 1 1 1
K degenerate:wrapper_returns_early_without_k ONCE never_stored c - 1 1 0
K degenerate:wrapper_refuses_one_column ENDS raised - - 1 1 1
K promises:operand_scaled_in_place INPUTS element_changed a - 1 1 1
L hints:descriptor_of_unaligned_rows HINTS bad_descriptor a - 1 1 1 lane=default layouts=contiguous
O split_k:two_slices_store_to_one_partial EXACT last_k_block c K 1 1 1
O tuning:slices_add_without_a_lock RACES race c_ptr - 1 1 1 lane=default
O tuning:split_chosen_by_m ROWS bits_differ c M 1 21 18 fill=normal compare=rows invariant=1
O promises:every_other_call_splits_k SAME bits_differ c - 1 1 17 fill=normal calls=3
P tuning:strides_kept_from_the_first_call CALLS stale - - 1 1 2 compare=order lane=default
P tuning:counters_not_reset_between_calls LANES undefined_stored c_ptr - 1 1 1 calls=3
A fast_paths:unrolled_steps_lose_the_last_tile EXACT last_k_block c K 1 1 256
A fast_paths:long_column_loses_its_tail EXACT last_k_block c K 1 1 1025
A fast_paths:halves_of_a_long_k_lose_the_odd_one EXACT last_k_block c K 1 1 1025
A fast_paths:even_k_means_divisible_by_16 BOUNDS out_of_bounds a K 1 1 16
C fast_paths:whole_tiles_judged_by_the_product BOUNDS out_of_bounds c M 16 64 1
E fast_paths:pointer_stays_at_tiles_of_zeros EXACT operand_wrapped b K 1 1 63 dtype=int8 fill=wide
H fast_paths:second_group_begins_at_its_number ONCE stored_twice c M 129 1 1
H fast_paths:neither_path_takes_a_whole_group ONCE never_stored c - 113 1 1
I promises:tiles_of_zeros_skipped SPECIAL nan_lost c - 1 1 1 fill=special
G tuning:trial_runs_add_to_the_result EXACT everywhere c - 1 1 1 calls=3
P tuning:copy_of_b_kept_by_its_address CALLS stale - - 1 2 2 compare=order
Q refused:accumulator_changes_its_type COMPILES compile_error - - 1 1 1
Q refused:hint_on_a_stride_of_1 COMPILES compile_error - - 1 1 1 lane=default
Q refused:one_configuration_of_24_columns COMPILES compile_error - - 1 1 1 config=1
S promises:product_copied_over_the_result HOST host_product c - 1 1 1 lane=default
S promises:long_k_by_torch HOST host_product c - 1 1 24
S promises:last_rows_by_torch HOST host_product c - 1 1 1
S promises:result_kept_for_its_shape HOST earlier_result c - 1 1 1 calls=3
Q refused:loop_left_with_break COMPILES compile_error - - 1 1 1
""".strip().splitlines()
# excludes features that Triton no longer has
_OWN = tuple(parse(line) for line in _LINES if holds("block_pointers") or "window_" not in line)
MUTANTS = (*_OWN, *(mutant for family in FAMILIES for mutant in family.wrong))

# Wrong, and not found by a hundred cases: no case gives keywords.
SURVIVORS = tuple(
    parse(line)
    for line in """
I promises:out_dtype_reached_in_two_steps BOUND rounding c - 1 1 1 fill=normal
K promises:out_stays_as_it_was ONCE never_stored c - 1 1 1
""".strip().splitlines()
)
