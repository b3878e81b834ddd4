"""Classes I, O, P and S: right integers within every bound, and still a broken guarantee."""

from functools import partial

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, plain


@triton.jit
def promising_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, FLAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK).to(tl.int64)
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & (offs_n[None, :] < N)
        a = tl.load(a_ptr + offs_m[:, None] * sa[0] + offs_k[None, :] * sa[1], a_mask, 0.0)
        b = tl.load(b_ptr + offs_k[:, None] * sb[0] + offs_n[None, :] * sb[1], b_mask, 0.0)
        if FLAW == "zeros_skipped":
            if tl.max(tl.max(tl.abs(a).to(tl.float32), axis=1), axis=0) > 0:
                acc = tl.dot(a, b, acc)
        else:
            acc = tl.dot(a, b, acc)
    if FLAW == "nan_dropped":
        acc = tl.where(acc == acc, acc, 0.0)
    if FLAW == "clamped":
        acc = tl.clamp(acc, -65504.0, 65504.0)
    c = acc.to(c_ptr.dtype.element_ty)
    if FLAW == "upward" and K > BLOCK:
        code = acc.to(tl.int32, bitcast=True)
        code += tl.where((acc > 0) & (acc != tl.floor(acc)), 1, 0)
        c = code.to(tl.float32, bitcast=True).to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + offs_m[:, None] * sc[0] + offs_n[None, :] * sc[1]
    tl.store(c_ptrs, c, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


right = partial(launch, promising_kernel, FLAW="")
right_in_fp32 = partial(right, dtype=torch.float32)
nan_becomes_zero = partial(right, FLAW="nan_dropped")
overflow_clamped = partial(right, FLAW="clamped")
# 0 times NaN is NaN, and a tile of zeros is never multiplied
tiles_of_zeros_skipped = partial(right, FLAW="zeros_skipped")
# one unit in the last place, which the bound of a long sum hides; -c is not what -a gives
positive_sums_rounded_up = partial(right_in_fp32, FLAW="upward")


def operand_scaled_in_place(a, b):
    """a is doubled for the kernel and left so; the result is halved."""
    c = right_in_fp32(a.mul_(2), b)
    return (c / 2).to(a.dtype)


_CALLS = [0]


def every_other_call_splits_k(a, b):
    """Right each time, and other bits than the time before."""
    _CALLS[0] += 1
    half = a.shape[1] // 2 if _CALLS[0] % 2 else 0
    return right_in_fp32(a[:, :half], b[:half]) + right_in_fp32(a[:, half:], b[half:])


def launch_into(a, b, out=None, out_dtype=None):
    c = right_in_fp32(a, b)
    if out is None:
        return c.to(out_dtype or a.dtype)
    return out.copy_(c)


def out_stays_as_it_was(a, b, out=None):
    """The result is a new tensor, whatever `out` is."""
    return launch_into(a, b)


def out_dtype_reached_in_two_steps(a, b, out_dtype=None):
    """Rounded to the operands' format before it is widened."""
    return launch_into(a, b).to(out_dtype or a.dtype)


# -- work of the host ------------------------------------------------------------------------------
def product_copied_over_the_result(a, b):
    return plain(a, b).copy_(a @ b)


def long_k_by_torch(a, b):
    return plain(a, b) if a.shape[1] < 24 else torch.matmul(a, b)


def last_rows_by_torch(a, b):
    whole = a.shape[0] // 4 * 4
    c = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    plain(a[:whole], b, c=c[:whole])
    c[whole:] = a[whole:] @ b
    return c


_RESULTS = {}


def result_kept_for_its_shape(a, b):
    key = a.shape, b.shape
    if key not in _RESULTS:
        _RESULTS[key] = plain(a, b)
    return _RESULTS[key]
