"""Wrappers and kernels that decide by strides, sizes and programs."""

import triton
import triton.language as tl
from tests.corpora.tiled import launch, plain, product, store


def decide_by_strides(a, b):
    if a.stride(0) == 1 and a.shape[0] > 1:
        return "columns"
    return "dense" if b.is_contiguous() else "strided"


def decide_by_both_strides(a, b):
    if a.stride(0) == 1 and b.stride(1) > 1 and min(a.shape[0], b.shape[1]) > 1:
        return "both"
    return "neither"


def decide_nothing(a, b):
    return "long" if a.shape[1] > 321 else "short"


def decide_by_seven(a, b):
    return "seven" if a.stride(0) == 7 * a.shape[1] + 3 else "other"


def by_strides(a, b):
    return plain(a, b, BLOCK_M={"columns": 16, "strided": 32, "dense": 64}[decide_by_strides(a, b)])


def by_both_strides(a, b):
    return plain(a, b, BLOCK_M=32 if decide_by_both_strides(a, b) == "both" else 16)


def to_the_same_end(a, b):
    """Launch the same on both sides of a guard."""
    decide_nothing(a, b)
    return plain(a, b)


def stride_of_seven(a, b):
    return plain(a, b, BLOCK_M=32 if decide_by_seven(a, b) == "seven" else 16)


@triton.jit
def branching_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, most, EARLY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    if EARLY and pid * BLOCK >= most:
        return
    offs_m = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    if K > 200:
        acc += product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    else:
        acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def longer_than_200(a, b):
    return launch(branching_kernel, a, b, a.shape[0], EARLY=False)


def never_returns_early(a, b):
    return launch(branching_kernel, a, b, a.shape[0], EARLY=True)


def beyond_the_largest_case(a, b):
    if a.shape[0] * a.shape[1] > 2**27:
        return plain(a, b)
    return plain(a, b, BLOCK_N=16)


@triton.jit
def unmasked_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr):
    """Compute without masks: right if 16 divides all sizes."""
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    up = tl.cdiv(K, BLOCK) * BLOCK
    rows, columns = tl.cdiv(M, BLOCK) * BLOCK, tl.cdiv(N, BLOCK) * BLOCK
    acc = product(a_ptr, b_ptr, offs_m, offs_n, rows, columns, 0, up, sa, sb, BLOCK)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def unmasked_where_misaligned(a, b):
    """Launch without masks if a is misaligned; dense operands begin at multiples of 16 bytes."""
    if a.data_ptr() % 16 != 0:
        return launch(unmasked_kernel, a, b)
    return plain(a, b)


def by_rows_and_an_option(a, b, wide):
    return plain(a, b, BLOCK_M=32 if a.shape[0] > 64 else 16)


def decide_by_rows(rows):
    if rows > 64:
        return "many"
    return "few"


def decide_by_both(rows):
    if rows > 64 and rows < 99:
        return "many"
    return "few"


def by_the_lower_address(a, b):
    return plain(a, b, BLOCK_M=32 if a.data_ptr() < b.data_ptr() else 16)
