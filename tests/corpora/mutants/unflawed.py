"""The kernels behind the mutants without their flaws: right, or the flaw is not what is caught."""

from functools import partial

import torch
from tests.corpora import tiled
from tests.corpora.mutants import (
    coverage,
    degenerate,
    fast_paths,
    hints,
    k_tail,
    offsets,
    precision,
    promises,
    scales,
    scheduling,
    split_k,
    tuning,
    undefined,
)
from tests.corpora.tiled import launch
from tests.support.wide import wide

from gemmproof.properties.kernel import KernelUnderTest


def single_precision_sums(a, b):
    return precision.right(a, b, dtype=torch.int32 if a.dtype == torch.int8 else a.dtype)


_WRAPPERS = {
    "masks_that_test_k": partial(launch, k_tail.even_kernel, EVEN_K=False),
    "masks_that_advance": k_tail.right,
    "slices_of_whole_tiles": split_k.launch_atomic,
    "partials_all_written": split_k.launch_with_workspace,
    "other_is_zero": undefined.right,
    "every_element_stored": coverage.right,
    "strides_as_they_are": tiled.plain,
    "batch_strides_as_they_are": tiled.batched,
    "no_hints": hints.right,
    "groups_clamped": scheduling.launch_grouped,
    "persistent_over_all_tiles": scheduling.launch_persistent,
    "single_precision_sums": single_precision_sums,
    "subnormals_kept_and_rounded_once": precision.right_at_the_edges,
    "fp8_sums_promoted": precision.fp8_promoted,
    "scales_of_their_groups": scales.launch_scaled,
    "bytes_unpacked": scales.launch_packed,
    "zero_k_stored": degenerate.right,
    "offsets_in_64_bits": offsets.right,
    "one_slice_whatever_m": tuning.split,
    "groups_of_eight": fast_paths.launch_swizzled,
    "groups_or_rows": fast_paths.launch_by_rows,
    "four_tiles_a_step": fast_paths.launch_unrolled,
    "long_columns": fast_paths.launch_columns,
    "halves_of_a_long_k": fast_paths.launch_halves,
    "masks_where_tiles_are_ragged": fast_paths.launch_whole,
    "tiles_of_zeros_not_loaded": fast_paths.launch_sparse,
    "copy_of_b_kept_until_it_changes": tuning.launch_prepared,
    "zeros_for_each_trial_run": tuning.tuned_onto_zeros_each_time,
    "planes_in_64_bits": offsets.launch_planes,
    "result_in_out": promises.launch_into,
}
_CONTRACTS = {
    "batch_strides_as_they_are": wide(batched=True),
    "bytes_unpacked": wide(formats=("int8",)),
    "single_precision_sums": wide(formats=("fp16", "fp32", "int8")),
    "subnormals_kept_and_rounded_once": wide(formats=("bf16", "fp32", "fp8e4m3", "fp8e5m2")),
    "fp8_sums_promoted": wide(formats=("fp8e4m3",)),
    "slices_of_whole_tiles": wide(deterministic=False),
    "one_slice_whatever_m": wide(batch_invariant=True),
    "tiles_of_zeros_not_loaded": wide(formats=("int8",)),
}
KERNELS = tuple(
    KernelUnderTest(name, launch, _CONTRACTS.get(name, wide()))
    for name, launch in _WRAPPERS.items()
)
