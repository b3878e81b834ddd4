"""Weights of 8 or 4 bits under activations of 16: integers to the tensor cores, scales to the sums.

A weight less its zero point is an integer that fp16 and bf16 hold exactly, so no weight is rounded:
the tensor cores sum the products of a group's integers in fp32, and a sum is multiplied by the
group's scale in fp32. Tiles are those of c^T = b^T a^T, where the tensor cores take the weights
from registers.
"""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..arguments import MAX_SIZE, num_sms
from ..checks import check_operand, check_out
from ..matmul_splitk import add_shares, can_overlap
from .widening import BLOCK_K, PER_WORD, widen_bytes, widen_words

#: (BLOCK_M, BLOCK_N, num_warps, num_stages) and the programs for which an SM has room, by the
#: weights in a word: the first whose rows M does not exceed, else the last.
TILES = {
    4: ((16, 64, 4, 3, 6), (32, 64, 4, 3, 6), (64, 128, 8, 3, 2), (128, 128, 8, 3, 1)),
    1: ((16, 64, 4, 3, 4), (32, 64, 4, 3, 4), (64, 64, 4, 3, 2), (128, 128, 8, 3, 1)),
}
#: Steps along K that are worth a separate program.
STEPS = 4
#: Formats of a and c, and of scales.
FORMATS = (torch.float16, torch.bfloat16)
SCALES = (*FORMATS, torch.float32)


@triton.jit
def load_scales(
    scale_ptr, zero_ptr, group, offs_n, mask, stride_sg, stride_sn, stride_zg, stride_zn,
    MIDDLE: tl.constexpr,
):  # fmt: skip
    """The scales (BLOCK_N,) and the zero points of a group in fp32; MIDDLE where none are given."""
    scale_ptrs = scale_ptr + group * stride_sg + offs_n * stride_sn
    scale = tl.load(scale_ptrs, mask=mask, other=0.0).to(tl.float32)
    if zero_ptr is None:
        zero = tl.full(offs_n.shape, MIDDLE, tl.float32)
    else:
        zero_ptrs = zero_ptr + group * stride_zg + offs_n * stride_zn
        zero = tl.load(zero_ptrs, mask=mask, other=0).to(tl.float32)
    return scale, zero


@triton.jit
def weight_only_kernel(
    a_ptr,
    b_ptr,
    scale_ptr,
    zero_ptr,
    w_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_sg,
    stride_sn,
    stride_zg,
    stride_zn,
    stride_wz,
    stride_wm,
    stride_wn,
    SHARE,
    PER_WORD: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAPS: tl.constexpr,
):
    """W[z] = A ((B - zero) scale) over the k of share z, each of SHARE steps, for W (shares, M, N).

    PER_WORD: 1 for B (K, N) of bytes, 4 for words of `pack_int4`. GROUP: the rows of B that share a
    scale, 0 for all of them; a step goes through its groups one after another. OVERLAPS: the kernel
    that adds up may start before this one ends.
    """
    if OVERLAPS:
        tl.extra.cuda.gdc_launch_dependents()
    DTYPE: tl.constexpr = a_ptr.dtype.element_ty
    MIDDLE: tl.constexpr = 8.0 if PER_WORD == 4 else 0.0
    PART: tl.constexpr = GROUP if 0 < GROUP and GROUP < BLOCK_K else BLOCK_K
    num_pid_m = tl.cdiv(M, BLOCK_M)
    pid_m, pid_n = tl.program_id(0) % num_pid_m, tl.program_id(0) // num_pid_m
    offs_m = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    m_mask, n_mask = offs_m < M, offs_n < N
    share = tl.program_id(1).to(tl.int64)
    begin = share * SHARE * BLOCK_K
    end = tl.minimum(begin + SHARE * BLOCK_K, K)

    if GROUP == 0:
        scale, zero = load_scales(
            scale_ptr, zero_ptr, 0, offs_n, n_mask, stride_sg, stride_sn, stride_zg, stride_zn,
            MIDDLE,
        )  # fmt: skip
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(begin, end, BLOCK_K):
        if PER_WORD == 4:
            # the last block is padded: no row of words is cut off
            offs_w = start // PER_WORD + tl.arange(0, BLOCK_K // PER_WORD)
            words = tl.load(
                b_ptr + offs_n[:, None] * stride_bn + offs_w[None, :] * stride_bk,
                mask=n_mask[:, None],
                other=0,
            )
        for first in tl.static_range(0, BLOCK_K, PART):
            offs_k = start + first + tl.arange(0, PART)
            a = tl.load(
                a_ptr + offs_m[None, :] * stride_am + offs_k[:, None] * stride_ak,
                mask=m_mask[None, :] & (offs_k[:, None] < end),
                other=0.0,
            )
            if GROUP > 0:
                # the last step may go past the last group
                scale, zero = load_scales(
                    scale_ptr, zero_ptr, (start + first) // GROUP, offs_n,
                    n_mask & (start + first < end), stride_sg, stride_sn, stride_zg, stride_zn,
                    MIDDLE,
                )  # fmt: skip
            if PER_WORD == 4:
                b = widen_words(words, zero, first, PART, DTYPE)
            else:
                raw = tl.load(
                    b_ptr + offs_n[:, None] * stride_bn + offs_k[None, :] * stride_bk,
                    mask=n_mask[:, None] & (offs_k[None, :] < end),
                    other=0,
                )
                b = widen_bytes(raw, zero, DTYPE)
            acc = tl.fma(scale[:, None], tl.dot(b, a), acc) if GROUP > 0 else tl.dot(b, a, acc)
    if GROUP == 0:
        acc *= scale[:, None]

    tl.store(
        w_ptr + share * stride_wz + offs_n[:, None] * stride_wn + offs_m[None, :] * stride_wm,
        acc.to(w_ptr.dtype.element_ty),
        mask=n_mask[:, None] & m_mask[None, :],
    )


def matmul_w8(
    a: torch.Tensor,
    b: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor | None = None,
    *,
    group: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """c = a @ ((b - zero) * scale) in a's format.

    a: (M, K) of fp16 or bf16. b: (K, N) of int8. scale: fp16, bf16 or fp32, (N,), or with `group`
    (ceil(K / group), N), whose row g belongs to rows g * group and on of b; group is 32, 64 or a
    multiple of 128. zero: int8, of scale's shape; 0 where there is none. out: where c goes.

    No weight is rounded: products and their sums are of fp32, as are the scales' products, and c is
    rounded once. Dense columns of b are read fastest. The sums' order depends on the sizes and on
    the number of multiprocessors, and is the same in every run. Raises TypeError for a wrong type,
    format or device, ValueError for a wrong shape or group, or for an out that overlaps an operand.
    """
    return _multiply("matmul_w8", 1, a, b, scale, zero, group, out)


def matmul_w4(
    a: torch.Tensor,
    b: torch.Tensor,
    scale: torch.Tensor,
    zero: torch.Tensor | None = None,
    *,
    group: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """As `matmul_w8`, for weights (K, N) of 0 to 15 in b = `pack_int4(weights)`.

    zero: int8 of any value; 8 where there is none, as for symmetric weights.
    """
    return _multiply("matmul_w4", PER_WORD, a, b, scale, zero, group, out)


def list_tiles(per_word: int, group: int | None) -> tuple[tuple[int, ...], ...]:
    """The tiles for groups of so many rows.

    Registers do not suffice in the widest tile for the four sums of a step of groups of 32, nor for
    two and the bytes of a tile.
    """
    is_narrow = group == 32 or (group == 64 and per_word == 1)
    return TILES[per_word][:-1] if is_narrow else TILES[per_word]


def _multiply(
    where: str, per_word: int, a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor,
    zero: torch.Tensor | None, group: int | None, out: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    _check(where, per_word, a, b, scale, zero, group)
    (M, K), N = a.shape, b.shape[1]
    # A view that negates lazily (such as the imaginary part of a conjugate) holds the wrong sign.
    a, scale = a.resolve_neg(), scale.resolve_neg()
    if group is None:
        scale, zero = scale[None], None if zero is None else zero[None]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out
    if out is not None:
        given = {"a": a, "b": b, "scale": scale} | ({} if zero is None else {"zero": zero})
        check_out(where, out, (M, N), a.dtype, **given)
    if c.numel() == 0:
        return c

    tiles = list_tiles(per_word, group)
    BLOCK_M, BLOCK_N, warps, stages, slots = next((x for x in tiles if x[0] >= M), tiles[-1])
    programs = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    steps = triton.cdiv(K, BLOCK_K)
    share = max(STEPS, triton.cdiv(steps, max(1, slots * num_sms(a.device) // programs)))
    shares = max(1, triton.cdiv(steps, share))
    # a single share is the product, and needs no second kernel
    w = c[None] if shares == 1 else torch.empty((shares, M, N), device=a.device)
    overlaps = shares > 1 and can_overlap(c.device)
    zero_strides = (0, 0) if zero is None else zero.stride()
    with torch.cuda.device_of(c):
        weight_only_kernel[(programs, shares)](
            a, b, scale, zero, w, M, N, K,
            *a.stride(), *b.stride(), *scale.stride(), *zero_strides,
            *w.stride(), share,
            PER_WORD=per_word, GROUP=group or 0,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K,
            OVERLAPS=overlaps,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    if shares > 1:
        add_shares(w, c, overlaps)
    return c


def _check(
    where: str, per_word: int, a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor,
    zero: torch.Tensor | None, group: int | None,
) -> None:  # fmt: skip
    dim = 1 if group is None else 2
    check_operand(where, "a", a, FORMATS)
    check_operand(where, "b", b, (torch.int8,) if per_word == 1 else (torch.int16,))
    check_operand(where, "scale", scale, SCALES, dim)
    if zero is not None:
        check_operand(where, "zero", zero, (torch.int8,), dim)
    for name, x in (("b", b), ("scale", scale), ("zero", a if zero is None else zero)):
        if x.device != a.device:
            raise TypeError(
                f"{where}: got a on {a.device} and {name} on {x.device}, expected one device"
            )
    (M, K), N = a.shape, b.shape[1]
    rows = K if per_word == 1 else triton.cdiv(K, BLOCK_K) * (BLOCK_K // per_word)
    if b.shape[0] != rows:
        raise ValueError(
            f"{where}: got a {tuple(a.shape)} and b {tuple(b.shape)}, expected b ({rows}, N)"
        )
    if max(M, K, N) > MAX_SIZE:
        raise ValueError(
            f"{where}: got a {tuple(a.shape)} and b {tuple(b.shape)}, "
            f"expected sizes up to {MAX_SIZE}"
        )
    if group is not None and (
        type(group) is not int or (group not in (32, 64) and (group < 1 or group % BLOCK_K))
    ):
        raise ValueError(
            f"{where}: got group={group!r}, expected None, 32, 64 or a multiple of {BLOCK_K}"
        )
    shape = (N,) if group is None else (triton.cdiv(K, group), N)
    for name, x in (("scale", scale), ("zero", scale if zero is None else zero)):
        if tuple(x.shape) != shape:
            raise ValueError(f"{where}: got {name} {tuple(x.shape)}, expected {shape}")
