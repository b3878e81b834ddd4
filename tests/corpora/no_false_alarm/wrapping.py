"""Right wrappers that do part of the work, or show c by an unusual view."""

import torch
import triton
import triton.language as tl
from tests.corpora.tiled import batched, launch_column, plain

B = 16


def transposed_problem(a, b):
    """c^T = b^T a^T, and the result is shown by a transposed view."""
    return plain(b.t(), a.t()).t()


def column_major_result(a, b):
    return plain(a, b, c=a.new_empty(b.shape[1], a.shape[0]).t())


def operands_copied_first(a, b):
    return plain(a.contiguous(), b.t().contiguous().t())


def result_cut_from_padded_rows(a, b):
    """Rows of c are padded to 8 elements, for alignment; the padding is never written."""
    M, N = a.shape[0], b.shape[1]
    return plain(a, b, c=a.new_empty(M, triton.cdiv(N, 8) * 8)[:, :N])


@triton.jit
def maskless_kernel(a_ptr, b_ptr, c_ptr, K, N, BLOCK: tl.constexpr):
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(a_ptr + offs_m[:, None] * K + (k + offs_k)[None, :])
        b = tl.load(b_ptr + (k + offs_k)[:, None] * N + offs_n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc.to(c_ptr.dtype.element_ty))


def everything_padded_and_no_mask(a, b):
    """Operands are copied into whole tiles of zeros, and c is cut from whole tiles."""
    (M, K), N = a.shape, b.shape[1]
    up_m, up_n, up_k = (triton.cdiv(side, B) * B for side in (M, N, K))
    wide_a = torch.nn.functional.pad(a, (0, up_k - K, 0, up_m - M)).contiguous()
    wide_b = torch.nn.functional.pad(b, (0, up_n - N, 0, up_k - K)).contiguous()
    c = a.new_empty(up_m, up_n)
    maskless_kernel[(up_m // B, up_n // B)](wide_a, wide_b, c, up_k, up_n, BLOCK=B)
    return c[:M, :N]


another_kernel_for_one_column = launch_column


def tiles_chosen_by_the_sizes(a, b):
    small = a.shape[0] <= 16 or b.shape[1] <= 16
    block_m, block_n = (16, 16) if small else (32, 64)
    return plain(a, b, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=32)


def rows_in_two_launches(a, b):
    """The upper half of c by one launch, the lower by another, into one tensor."""
    c = a.new_empty(a.shape[0], b.shape[1])
    half = a.shape[0] // 2
    plain(a[:half], b, c=c[:half])
    plain(a[half:], b, c=c[half:])
    return c


def scratch_kept_from_call_to_call(a, b):
    """c is computed in memory of an earlier call and copied out."""
    M, N = a.shape[0], b.shape[1]
    key = (a.device, a.dtype)
    if key not in _SCRATCH or _SCRATCH[key].numel() < M * N:
        _SCRATCH[key] = a.new_empty(M * N)
    return plain(a, b, c=_SCRATCH[key][: M * N].view(M, N)).clone()


_SCRATCH: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}


def empty_problems_never_launched(a, b):
    """Empty problems never reach the kernel."""
    if 0 in (*a.shape, b.shape[1]):
        return a.new_zeros(a.shape[0], b.shape[1])
    return plain(a, b)


batch_on_the_third_axis = batched


def batch_laid_out_innermost(a, b):
    """c is made as (M, batch, N) and shown as (batch, M, N)."""
    batch, M, _ = a.shape
    return batched(a, b, c=a.new_empty(M, batch, b.shape[2]).transpose(0, 1))
