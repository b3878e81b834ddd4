"""Class E: kernels and wrappers that confuse the addresses of elements."""

from functools import partial

import torch
from tests.corpora.mutants import k_tail
from tests.corpora.tiled import batched, plain


def strides_of_a_swapped(a, b):
    return plain(a, b, sa=(a.stride(1), a.stride(0)))


def strides_of_b_swapped(a, b):
    return plain(a, b, sb=(b.stride(1), b.stride(0)))


def strides_of_c_swapped(a, b):
    return plain(a, b, sc=(1, b.shape[1]))


def a_assumed_contiguous(a, b):
    return plain(a, b, sa=(a.shape[1], 1))


def b_assumed_contiguous(a, b):
    return plain(a, b, sb=(b.shape[1], 1))


def unit_column_stride_assumed(a, b):
    """Right for rows that are padded, wrong for every other view."""
    return plain(a, b, sb=(b.stride(0), 1))


def row_length_of_c_is_k(a, b):
    return plain(a, b, sc=(a.shape[1], 1))


def storage_offset_dropped(a, b):
    return plain(torch.as_strided(a, a.shape, a.stride(), 0), b)


def stride_zero_replaced(a, b):
    """`or` takes the stride 0 of an expanded operand for a missing one."""
    return plain(a, b, sa=(a.stride(0) or a.shape[1], a.stride(1) or 1))


def weight_taken_for_its_transpose(a, b):
    """The strides that fit a weight of shape (N, K)."""
    return plain(a, b, sb=(1, b.shape[0]) if b.is_contiguous() else None)


# the pointers of b advance by the stride along N
b_advances_along_n = partial(k_tail.right, FLAW="along_n")


def batch_stride_of_b_forgotten(a, b):
    return batched(a, b, sb=(0, b.stride(1), b.stride(2)))


def batch_stride_of_a_assumed(a, b):
    return batched(a, b, sa=(a.shape[1] * a.shape[2], a.stride(1), a.stride(2)))
