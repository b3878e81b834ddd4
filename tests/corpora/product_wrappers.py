"""Wrappers that copy operands and pass results on by torch: right and wrong ones."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from tests.corpora.tiled import launch, plain


def rows_of_whole_tiles(a, b):
    """Right: a copied into rows of zeros."""
    wide = a.new_zeros(a.shape[0], triton.cdiv(a.shape[1], 16) * 16)
    wide[:, : a.shape[1]] = a
    return plain(wide[:, : a.shape[1]], b)


def padded_by_torch(a, b):
    """Right: K is filled up with zeros."""
    beyond = -a.shape[1] % 16
    return plain(F.pad(a, (0, beyond)), F.pad(b, (0, 0, 0, beyond)))


def copied_in_single_precision(a, b):
    """Right: the copies hold every number of the operands."""
    wide_a, wide_b = (torch.empty(x.shape, device=x.device, dtype=torch.float32) for x in (a, b))
    wide_a.copy_(a)
    wide_b.copy_(b)
    return plain(wide_a, wide_b, dtype=torch.float16)


def padded_with_ones(a, b):
    beyond = -a.shape[1] % 16
    return plain(F.pad(a, (0, beyond), value=1.0), F.pad(b, (0, 0, 0, beyond), value=1.0))


def padded_with_what_was_there(a, b):
    (M, K), N = a.shape, b.shape[1]
    deep = triton.cdiv(K, 16) * 16
    wide_a, wide_b = a.new_empty(M, deep), b.new_empty(deep, N)
    wide_a[:, :K], wide_b[:K] = a, b
    return plain(wide_a, wide_b)


def copied_one_to_the_right(a, b):
    wide = a.new_zeros(a.shape[0], a.shape[1] + 1)
    wide[:, 1:] = a
    return plain(wide[:, : a.shape[1]], b)


def half_of_it_copied(a, b):
    same = torch.zeros_like(a)
    half = a.shape[0] // 2
    same[:half] = a[:half]
    return plain(same, b)


def copied_and_cleared(a, b):
    same = a.clone(memory_format=torch.contiguous_format)
    same[:1].zero_()
    return plain(same, b)


def copied_upside_down(a, b):
    return plain(a.flip(0), b)


def copied_transposed(a, b):
    return plain(a.t().contiguous(), b)


def changed_before_it_is_copied(a, b):
    a.mul_(2)
    return plain(a.clone(memory_format=torch.contiguous_format), b)


def one_operand_twice(a, b):
    return plain(a.contiguous(), a.contiguous().view(b.shape))


def copied_in_half_the_bits(a, b):
    return plain(a.to(torch.float8_e5m2).to(a.dtype), b)


# -- results -------------------------------------------------------------------------------------
def copied_into_the_result(a, b):
    """Right: c is made in other memory, and wider."""
    c = a.new_empty(a.shape[0], b.shape[1])
    c.copy_(plain(a, b, dtype=torch.float32))
    return c


def zeros_where_k_is_small(a, b):
    if a.shape[1] < 2:
        return a.new_zeros(a.shape[0], b.shape[1])
    return plain(a, b)


def made_unless_empty(a, b):
    """Right: of no element, nothing is launched."""
    c = a.new_empty(a.shape[0], b.shape[1])
    return plain(a, b, c=c) if c.numel() else c


def made_unless_it_is_one_row(a, b):
    c = a.new_empty(a.shape[0], b.shape[1])
    return plain(a, b, c=c) if a.shape[0] > 1 else c


def a_row_between_two_launches(a, b):
    c = a.new_zeros(a.shape[0], b.shape[1])
    half = a.shape[0] // 2
    plain(a[:half], b, c=c[:half])
    plain(a[half + 1 :], b, c=c[half + 1 :])
    return c


def rows_of_the_second_launch_shifted(a, b):
    """The second launch stores its rows one too high, and the last row is 0."""
    M, N = a.shape[0], b.shape[1]
    c = a.new_zeros(M, N)
    half = M // 2
    plain(a[:half], b, c=c[:half])
    plain(a[half:], b, c=c[half - 1 : M - 1])
    return c


def cleared_between_two_launches(a, b):
    c = a.new_empty(a.shape[0], b.shape[1])
    half = a.shape[0] // 2
    plain(a[:half], b, c=c[:half])
    c.zero_()
    plain(a[half:], b, c=c[half:])
    return c


def half_of_it_made_single(a, b):
    """Zeros, of which a launch stores half; then converted."""
    c = torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    half = (a.shape[0] + 1) // 2
    plain(a[:half], b, c=c[:half])
    return c.to(a.dtype)


def rounded_before_it_is_widened(a, b):
    """Sums that were rounded to fp16, in single precision."""
    return plain(a, b).float()


def doubled_by_what_returns_nothing(a, b):
    c = plain(a, b)
    torch._foreach_mul_([c], 2)
    return c


def stored_as_other_bits(a, b):
    c = a.new_empty(a.shape[0], b.shape[1])
    plain(a, b, c=c.view(torch.bfloat16))
    return c


def copied_too_early(a, b):
    c = a.new_zeros(a.shape[0], b.shape[1])
    early = c.clone()
    plain(a, b, c=c)
    return early


@triton.jit
def slice_kernel(
    a_ptr, b_ptr, w_ptr, M, N, K, sa, sb, sw, SLICES: tl.constexpr, FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Every SLICES-th tile of K, into a slice of w of its own."""
    part = tl.program_id(2) + FIRST
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(part * BLOCK, K, SLICES * BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        acc = tl.dot(a, b, acc)
    ptrs = w_ptr + part.to(tl.int64) * sw[0]
    ptrs += offs_m[:, None] * sw[1] + offs_n[None, :] * sw[2]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(ptrs, acc.to(w_ptr.dtype.element_ty), mask=mask)


def make_slices(a, b, slices=3, depth=3, first=0, dtype=torch.float32, like=torch.empty):
    (M, _), N = a.shape, b.shape[1]
    w = like((depth, M, N), device=a.device, dtype=dtype)
    return launch(slice_kernel, a, b, c=w, depth=depth - first, SLICES=slices, FIRST=first)


def slices_summed(a, b):
    """Right: torch adds the slices up."""
    return make_slices(a, b).sum(0).to(a.dtype)


def slices_summed_but_the_first(a, b):
    return make_slices(a, b)[1:].sum(0).to(a.dtype)


def slices_of_which_one_is_never_made(a, b):
    return make_slices(a, b, first=1, like=torch.zeros).sum(0).to(a.dtype)


def slices_that_take_some_tiles_twice(a, b):
    return make_slices(a, b, slices=2).sum(0).to(a.dtype)


def slices_that_miss_some_tiles(a, b):
    return make_slices(a, b, slices=4).sum(0).to(a.dtype)


def slices_rounded_and_summed(a, b):
    return make_slices(a, b, dtype=torch.float16).sum(0)


def slices_summed_along_the_rows(a, b):
    return make_slices(a, b).sum(1).to(a.dtype)
