"""Every right kernel that looks wrong, with the contract that it keeps."""

from __future__ import annotations

from importlib import import_module

from triton_versions import holds
from wide import wide

from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest

ANY = wide()
MANY = wide(formats=("fp16", "bf16"))
UNORDERED = wide(deterministic=False)
BATCHED = wide(batched=True)
INT8 = wide(formats=("int8",))
FEW = wide(M="0..4096", N="0..4096")  # at most 65536 tiles, which have locks, and 2**31 programs
SHORT = wide(M="0..300", N="0..300", K="0..300")  # one k at a time: a long K takes long

_PLACES = {
    "addressing:rows_and_columns_wrapped": MANY,
    "addressing:rows_and_columns_clamped_to_zero": ANY,
    "addressing:addresses_clamped_and_one_load_unmasked": ANY,
    "addressing:undefined_rows_never_stored": ANY,
    "addressing:k_walked_backwards": MANY,
    "addressing:two_loops_over_k": ANY,
    "addressing:next_tile_loaded_past_the_end": ANY,
    "addressing:no_masks_at_all_where_k_is_whole_tiles": ANY,
    "addressing:rows_in_an_order_read_from_memory": ANY,
    "splitting:atomics_onto_zeros": UNORDERED,
    "splitting:workspace_and_second_kernel": ANY,
    "splitting:ragged_slices_summed_by_torch": ANY,
    "splitting:turns_kept_from_call_to_call": FEW,
    "splitting:stream_k_with_fix_up": ANY,
    "splitting:two_accumulators": ANY,
    "scheduling:rotation_by_the_global_pid": ANY,
    "scheduling:swizzle2d_over_the_grid": ANY,
    "scheduling:more_programs_than_tiles": ANY,
    "scheduling:persistent_while_loop": ANY,
    "scheduling:tiles_and_k_in_one_loop": ANY,
    "scheduling:tile_order_from_a_table": ANY,
    "scheduling:tiles_taken_from_a_counter": ANY,
    "wrapping:transposed_problem": ANY,
    "wrapping:column_major_result": ANY,
    "wrapping:operands_copied_first": ANY,
    "wrapping:result_cut_from_padded_rows": ANY,
    "wrapping:everything_padded_and_no_mask": ANY,
    "wrapping:another_kernel_for_one_column": ANY,
    "wrapping:tiles_chosen_by_the_sizes": ANY,
    "wrapping:rows_in_two_launches": ANY,
    "wrapping:scratch_kept_from_call_to_call": ANY,
    "wrapping:empty_problems_never_launched": ANY,
    "wrapping:batch_on_the_third_axis": BATCHED,
    "wrapping:batch_laid_out_innermost": BATCHED,
    "fast_paths:whole_tiles_by_the_bits_of_all_sides": ANY,
    "fast_paths:enough_elements_for_wide_tiles": ANY,
    "fast_paths:long_k_in_chunks": ANY,
    "fast_paths:every_other_group_from_right_to_left": ANY,
    "fast_paths:result_in_out": ANY,
    "windows:block_pointers": ANY,
    "windows:block_pointers_unpadded_rows": ANY,
    "windows:descriptors_made_by_the_kernel": ANY,
    "windows:descriptors_made_by_the_host": ANY,
    "language:epilogue_as_an_argument": ANY,
    "language:operands_as_named_tuples": ANY,
    "language:branches_on_constants": ANY,
    "language:bias_of_zeros": ANY,
    "language:outer_products": SHORT,
    "language:a_program_for_each_element": FEW,
    "language:configurations_that_clear_c": UNORDERED,
    "language:packed_bytes_interleaved": INT8,
    "projects:compiler_template": ANY,
    "projects:tiles_remapped_to_chiplets": ANY,
    "projects:tokens_sorted_by_expert": ANY,
    "projects:weights_in_nibbles": INT8,
}


def _kernel(place: str, contract: Contract) -> KernelUnderTest:
    module, _, function = place.partition(":")
    launch = getattr(import_module(f"no_false_alarm.{module}"), function)
    return KernelUnderTest(function, launch, contract)


KERNELS = tuple(
    _kernel(place, contract)
    for place, contract in _PLACES.items()
    if holds("block_pointers") or "block_pointers" not in place
)
