"""The kernels behind the mutants without their flaws: right, or the flaw is not what is caught."""

import torch
from mutants import (
    coverage,
    degenerate,
    hints,
    k_tail,
    offsets,
    precision,
    scales,
    scheduling,
    split_k,
    strides,
    tuning,
    undefined,
)


def masks_that_test_k(a, b):
    return k_tail._launch(k_tail.even_kernel, a, b, EVEN_K=False)


def masks_that_advance(a, b):
    return k_tail._launch(k_tail.advancing_kernel, a, b, FLAW="")


def slices_of_whole_tiles(a, b):
    return split_k._atomic(a, b, split_k._zeros(a, b), split_k._whole_tiles(a.shape[1]))


def partials_all_written(a, b):
    return split_k._with_workspace(a, b)


def other_is_zero(a, b):
    return undefined._launch(a, b, "")


def every_element_stored(a, b):
    return coverage._launch(a, b)


def strides_as_they_are(a, b):
    return strides._launch(a, b)


def batch_strides_as_they_are(a, b):
    return strides._launch_batched(a, b)


def no_hints(a, b):
    return hints._launch(a, b, "")


def groups_clamped(a, b):
    return scheduling._launch_grouped(a, b, "")


def persistent_over_all_tiles(a, b):
    return scheduling._launch_persistent(a, b, "")


def single_precision_sums(a, b):
    return precision._launch(a, b, dtype=torch.int32 if a.dtype == torch.int8 else a.dtype)


def scales_of_their_groups(a, b):
    return scales._launch(a, b)


def bytes_unpacked(a, b):
    return scales._launch_packed(a, b, "")


def zero_k_stored(a, b):
    return degenerate._launch(a, b)


def offsets_in_64_bits(a, b):
    return offsets._launch(a, b)


def one_slice_whatever_m(a, b):
    return tuning._split(a, b, 2)
