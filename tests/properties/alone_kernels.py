"""Kernels with a fault that one property alone finds, and right ones that must pass it."""

import torch
import triton
import triton.language as tl
from tests.corpora.no_false_alarm.splitting import atomic_kernel


@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    FLAW: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """C = A B with a mask on every axis; FLAW is what is wrong, or odd and right, in it."""
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows, columns = offs_m, offs_n
    if WIDE:
        rows, columns = offs_m.to(tl.int64), offs_n.to(tl.int64)
    if FLAW == "assumes_whole_k":
        tl.assume(K % BLOCK == 0)
    if FLAW == "assumes_what_is_so":
        tl.assume(K >= 0)
        tl.assume(stride_cn == 1)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    late = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        offs_k = k + tl.arange(0, BLOCK)
        if WIDE:
            offs_k = offs_k.to(tl.int64)
        a_ptrs = a_ptr + rows[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + columns[None, :] * stride_bn
        if FLAW == "masks_by_multiplying":
            # lanes beyond K read the first column or row, which the mask then makes zero
            inside = offs_k < K
            wrapped = tl.where(inside, offs_k, 0)
            a_ptrs = a_ptr + rows[:, None] * stride_am + wrapped[None, :] * stride_ak
            b_ptrs = b_ptr + wrapped[:, None] * stride_bk + columns[None, :] * stride_bn
            a = tl.load(a_ptrs, mask=offs_m[:, None] < M, other=0.0) * inside[None, :]
            b = tl.load(b_ptrs, mask=offs_n[None, :] < N, other=0.0) * inside[:, None]
            a, b = a.to(a_ptr.dtype.element_ty), b.to(b_ptr.dtype.element_ty)
        else:
            a_rows, a_k = offs_m[:, None] < M, offs_k[None, :] < K
            b_k, b_columns = offs_k[:, None] < K, offs_n[None, :] < N
            if FLAW == "no_row_mask":
                a_rows = tl.full((BLOCK, 1), 1, tl.int1)
            if FLAW == "no_column_mask":
                b_columns = tl.full((1, BLOCK), 1, tl.int1)
            if FLAW == "no_k_mask":
                a_k, b_k = tl.full((1, BLOCK), 1, tl.int1), tl.full((BLOCK, 1), 1, tl.int1)
            a = tl.load(a_ptrs, mask=a_rows & a_k, other=0.0)
            b = tl.load(b_ptrs, mask=b_k & b_columns, other=0.0)
        if FLAW == "sums_rounded_down":
            # the exact error of acc + part (Knuth) says which way to round
            part = tl.dot(a, b)
            total = acc + part
            back = total - acc
            error = (acc - (total - back)) + (part - back)
            code = total.to(tl.int32, bitcast=True)
            code = tl.where(total > 0, code - 1, code + 1)
            acc = tl.where((error < 0) & (total != 0), code.to(tl.float32, bitcast=True), total)
        elif FLAW == "every_other_row_in_halves":
            if k % (2 * BLOCK) == 0:
                late = tl.dot(a, b, late)
            acc = tl.dot(a, b, acc) if k % (2 * BLOCK) else acc
        elif FLAW == "every_other_column_from_zero":
            other = acc + tl.dot(a, b)
            acc = tl.where(tl.arange(0, BLOCK)[None, :] % 2 == 0, tl.dot(a, b, acc), other)
        elif FLAW == "lower_rows_from_zero":
            other = acc + tl.dot(a, b)
            acc = tl.where(tl.arange(0, BLOCK)[:, None] < 3, tl.dot(a, b, acc), other)
        elif FLAW == "doubles_in_a_loop":
            acc += tl.dot(a, b).to(tl.float64)
        elif FLAW == "products_in_tf32":
            acc = tl.dot(a, b, acc)  # Triton's default for fp32 operands
        else:
            acc = tl.dot(a, b, acc, input_precision="ieee")
    if FLAW == "nan_scrubbed":
        acc = tl.where(acc == acc, acc, 0.0)
    if FLAW == "scaled_by_the_largest":
        # a power of two that the sums are divided by and multiplied with: exact but for NaN
        top = tl.max(tl.abs(acc))
        acc = tl.where(top > 1.0, acc * 0.5 + top * 0.0, acc * 0.5) * 2.0
    if FLAW == "small_tiles_taken_for_empty":
        acc = tl.where(tl.max(tl.abs(acc)) < 1.0 / 512, 0.0, acc)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if FLAW == "saturates":
        top = 448.0
        acc = tl.minimum(tl.maximum(acc, -top), top)
    if FLAW == "reads_the_next_tile":
        # a load that nothing uses, of what another program stores
        there = (offs_m[:, None] < M) & (offs_n[None, :] + BLOCK < N)
        tl.device_print("next", tl.load(c_ptrs + BLOCK * stride_cn, mask=there))
    tl.store(c_ptrs, (acc + late).to(c_ptr.dtype.element_ty), mask=mask)


def launch(a, b, flaw="none", wide=True, out=None, strides=None):
    """The product by `kernel` with one flaw."""
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=out or a.dtype)
    if c.numel():
        sa, sb = strides or (a.stride(), b.stride())
        block = 32 if a.element_size() == 1 else 16  # what a dot of 8 bits takes
        grid = (triton.cdiv(M, block), triton.cdiv(N, block))
        strides = (*sa, *sb, *c.stride())
        kernel[grid](a, b, c, M, N, K, *strides, FLAW=flaw, WIDE=wide, BLOCK=block)
    return c


def flawed(flaw, **options):
    """A wrapper `f(a, b)` with this flaw."""

    def wrapper(a, b):
        return launch(a, b, flaw, **options)

    wrapper.__name__ = flaw
    return wrapper


def offsets_in_32_bits(a, b):
    """Offsets as in a tutorial: a program's index times a stride, all in 32 bits."""
    return launch(a, b, wide=False)


_STRIDES = {}


def strides_of_the_first_call(a, b):
    """A cache of launch arguments whose key lacks the strides."""
    key = (a.shape, b.shape, a.dtype)
    return launch(a, b, strides=_STRIDES.setdefault(key, (a.stride(), b.stride())))


def small_by_torch(a, b):
    """Launches nothing where there are few rows."""
    if a.shape[0] < 8 or a.shape[1] == 0:
        return (a.float() @ b.float()).to(a.dtype)
    return launch(a, b)


def split_where_rows_are_few(a, b):
    """Two sums over halves of K where there are few rows: other bits for the same row."""
    if a.shape[0] > 16 or a.shape[1] < 2:
        return launch(a, b)
    half = a.shape[1] // 2
    first = launch(a[:, :half], b[:half], out=torch.float32)
    return (first + launch(a[:, half:], b[half:], out=torch.float32)).to(a.dtype)


def _split(a, b, c):
    """Three programs a tile add their parts of K onto c."""
    (M, K), N = a.shape, b.shape[1]
    if c.numel():
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16), 3)
        strides = a.stride(), b.stride(), c.stride()
        atomic_kernel[grid](a, b, c, M, N, K, *strides, SPLIT_K=3, BLOCK=16)
    return c


def atomics_onto_empty(a, b):
    """Sums added onto memory that nothing has defined."""
    return _split(a, b, torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32))


def atomics_onto_zeros(a, b):
    """Sums added onto zeros."""
    return _split(a, b, torch.zeros((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32))
