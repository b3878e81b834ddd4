"""Every right kernel that looks wrong, with the contract that it keeps."""

from __future__ import annotations

from importlib import import_module

from tests.support.triton_versions import holds
from tests.support.wide import wide

from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest

ANY = wide()
MANY = wide(formats=("fp16", "bf16"))
UNORDERED = wide(deterministic=False)
BATCHED = wide(batched=True)
INT8 = wide(formats=("int8",))
FEW = wide(M="0..4096", N="0..4096")  # at most 65536 tiles, which have locks, and 2**31 programs
SHORT = wide(M="0..300", N="0..300", K="0..300")  # one k at a time: a long K takes long

# target, contract, lane of tests: one of each file is in the default one
_ROWS = (
    ("addressing:rows_and_columns_wrapped", MANY, "default"),
    ("addressing:rows_and_columns_clamped_to_zero", ANY, "full"),
    ("addressing:addresses_clamped_and_one_load_unmasked", ANY, "full"),
    ("addressing:undefined_rows_never_stored", ANY, "full"),
    ("addressing:k_walked_backwards", MANY, "full"),
    ("addressing:two_loops_over_k", ANY, "full"),
    ("addressing:next_tile_loaded_past_the_end", ANY, "full"),
    ("addressing:no_masks_at_all_where_k_is_whole_tiles", ANY, "full"),
    ("addressing:rows_in_an_order_read_from_memory", ANY, "full"),
    ("splitting:atomics_onto_zeros", UNORDERED, "full"),
    ("splitting:workspace_and_second_kernel", ANY, "full"),
    ("splitting:ragged_slices_summed_by_torch", ANY, "default"),
    ("splitting:turns_kept_from_call_to_call", FEW, "full"),
    ("splitting:stream_k_with_fix_up", ANY, "full"),
    ("splitting:two_accumulators", ANY, "full"),
    ("scheduling:rotation_by_the_global_pid", ANY, "full"),
    ("scheduling:swizzle2d_over_the_grid", ANY, "default"),
    ("scheduling:more_programs_than_tiles", ANY, "full"),
    ("scheduling:persistent_while_loop", ANY, "full"),
    ("scheduling:tiles_and_k_in_one_loop", ANY, "full"),
    ("scheduling:tile_order_from_a_table", ANY, "full"),
    ("scheduling:tiles_taken_from_a_counter", ANY, "full"),
    ("wrapping:transposed_problem", ANY, "full"),
    ("wrapping:column_major_result", ANY, "full"),
    ("wrapping:operands_copied_first", ANY, "full"),
    ("wrapping:result_cut_from_padded_rows", ANY, "full"),
    ("wrapping:everything_padded_and_no_mask", ANY, "default"),
    ("wrapping:another_kernel_for_one_column", ANY, "full"),
    ("wrapping:tiles_chosen_by_the_sizes", ANY, "full"),
    ("wrapping:rows_in_two_launches", ANY, "full"),
    ("wrapping:scratch_kept_from_call_to_call", ANY, "full"),
    ("wrapping:empty_problems_never_launched", ANY, "full"),
    ("wrapping:batch_on_the_third_axis", BATCHED, "full"),
    ("wrapping:batch_laid_out_innermost", BATCHED, "full"),
    ("fast_paths:whole_tiles_by_the_bits_of_all_sides", ANY, "default"),
    ("fast_paths:enough_elements_for_wide_tiles", ANY, "full"),
    ("fast_paths:long_k_in_chunks", ANY, "full"),
    ("fast_paths:every_other_group_from_right_to_left", ANY, "full"),
    ("fast_paths:result_in_out", ANY, "full"),
    ("windows:block_pointers", ANY, "full"),
    ("windows:block_pointers_unpadded_rows", ANY, "full"),
    ("windows:descriptors_made_by_the_kernel", ANY, "default"),
    ("windows:descriptors_made_by_the_host", ANY, "full"),
    ("language:epilogue_as_an_argument", ANY, "default"),
    ("language:operands_as_named_tuples", ANY, "full"),
    ("language:branches_on_constants", ANY, "full"),
    ("language:bias_of_zeros", ANY, "full"),
    ("language:outer_products", SHORT, "full"),
    ("language:a_program_for_each_element", FEW, "full"),
    ("language:configurations_that_clear_c", UNORDERED, "full"),
    ("language:packed_bytes_interleaved", INT8, "full"),
    ("projects:compiler_template", ANY, "full"),
    ("projects:tiles_remapped_to_chiplets", ANY, "full"),
    ("projects:tokens_sorted_by_expert", ANY, "full"),
    ("projects:weights_in_nibbles", INT8, "default"),
)


def _kernel(target: str, contract: Contract) -> KernelUnderTest:
    module, _, function = target.partition(":")
    launch = getattr(import_module(f"tests.corpora.no_false_alarm.{module}"), function)
    return KernelUnderTest(function, launch, contract)


_KEPT = [row for row in _ROWS if holds("block_pointers") or "block_pointers" not in row[0]]
KERNELS = tuple(_kernel(target, contract) for target, contract, _ in _KEPT)
LANES = {target.partition(":")[2]: lane for target, _, lane in _KEPT}
