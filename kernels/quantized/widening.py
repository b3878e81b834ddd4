"""Weights of 8 or 4 bits as the numbers that tensor cores take, without converting integers.

Four weights of 4 bits lie in a word of 16, in the order in which they are widened.

Bits that become the fraction of a number whose last place is 1 (of 1024 in fp16, of 128 in bf16, of
2**23 in fp32) add their integer to it, and one subtraction removes it with the zero point. That is
exact, and conversions of integers have a quarter of its throughput or less.
"""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

import torch
import triton
import triton.language as tl

#: Rows of weights that lie in the same rows of words.
BLOCK_K = 128
#: Weights in a word.
PER_WORD = 4


def _take(i: int, magic: str) -> str:
    """PTX that puts bits 4 i to 4 i + 3 of two words into the fractions of two numbers."""
    return f"{{ .reg .b32 t; shr.b32 t, $1, {4 * i}; lop3.b32 $0, t, 0x000f000f, {magic}, 0xea; }}"


NIBBLES_F16 = tl.constexpr(tuple(_take(i, "0x64006400") for i in range(PER_WORD)))
NIBBLES_BF16 = tl.constexpr(tuple(_take(i, "0x43004300") for i in range(PER_WORD)))
BYTES_F16 = tl.constexpr(
    "{ .reg .b32 t; xor.b32 t, $1, 0x80808080; prmt.b32 $0, t, 0x64646464, 0x4140; }"
)
BYTES_F32 = tl.constexpr(
    "{ .reg .b32 t; xor.b32 t, $2, 0x80808080;"
    " prmt.b32 $0, t, 0x4b000000, 0x7440; prmt.b32 $1, t, 0x4b000000, 0x7441; }"
)


@triton.jit
def take_nibbles(words, i: tl.constexpr, DTYPE: tl.constexpr):
    """The weights of bits 4 i to 4 i + 3, above 1024 in fp16 and above 128 in bf16."""
    ASM: tl.constexpr = NIBBLES_F16[i] if DTYPE == tl.float16 else NIBBLES_BF16[i]
    bits = tl.inline_asm_elementwise(ASM, "=r,r", [words], dtype=tl.int16, is_pure=True, pack=2)
    return bits.to(DTYPE, bitcast=True)


@triton.jit
def join_columns(x, y):
    """The columns of x, then those of y."""
    return tl.reshape(tl.permute(tl.join(x, y), (0, 2, 1)), (x.shape[0], 2 * x.shape[1]))


@triton.jit
def widen_words(words, zero, FIRST: tl.constexpr, PART: tl.constexpr, DTYPE: tl.constexpr):
    """The weights FIRST to FIRST + PART of each block of 128, less the zero points."""
    i: tl.constexpr = FIRST // 32
    w = take_nibbles(words, i, DTYPE)
    if PART >= 64:
        w = join_columns(w, take_nibbles(words, i + 1, DTYPE))
    if PART == 128:
        last = join_columns(take_nibbles(words, 2, DTYPE), take_nibbles(words, 3, DTYPE))
        w = join_columns(w, last)
    BIAS: tl.constexpr = 1024.0 if DTYPE == tl.float16 else 128.0
    return w - (zero + BIAS).to(DTYPE)[:, None]


@triton.jit
def widen_bytes(b, zero, DTYPE: tl.constexpr):
    """Weights (BLOCK_N, PART) of 8 bits, less the zero points; 128 above them is 0 or more."""
    if DTYPE == tl.float16:
        bits = tl.inline_asm_elementwise(
            BYTES_F16, "=r,r", [b], dtype=tl.int16, is_pure=True, pack=2
        )
        return bits.to(tl.float16, bitcast=True) - (zero + 1152.0).to(tl.float16)[:, None]
    bits = tl.inline_asm_elementwise(
        BYTES_F32, "=r,=r,r", [b], dtype=tl.int32, is_pure=True, pack=2
    )
    return (bits.to(tl.float32, bitcast=True) - (zero + 8388736.0)[:, None]).to(DTYPE)


# -- packing ---------------------------------------------------------------------------------------
def pack_int4(w: torch.Tensor) -> torch.Tensor:
    """Words (32 ceil(K / 128), N) of int16 that hold weights (K, N) of 0 to 15.

    Bits 4 i to 4 i + 3 of word 32 t + j are weight 128 t + 32 i + j, for i from 0 to 3 and j from 0
    to 31; past K they are 0. So a word beside the next one has, at each i, two weights beside each
    other. The words of a column lie beside each other in memory, which `matmul_w4` reads fastest.
    Symmetric weights of -8 to 7 are packed as `w + 8`, of which 8 is the zero point.

    Raises TypeError for what is no matrix of integers, ValueError for other values.
    """
    if not isinstance(w, torch.Tensor):
        raise TypeError(f"pack_int4: got w of {type(w).__name__}, expected torch.Tensor")
    if w.dtype.is_floating_point or w.dtype.is_complex:
        raise TypeError(f"pack_int4: got w of {w.dtype}, expected integers")
    if w.dim() != 2:
        raise ValueError(f"pack_int4: got w of shape {tuple(w.shape)}, expected two dimensions")
    if w.numel() and not 0 <= int(w.min()) <= int(w.max()) < 16:
        low, high = int(w.min()), int(w.max())
        raise ValueError(f"pack_int4: got w of {low} to {high}, expected 0 to 15")
    K, N = w.shape
    blocks = -(-K // BLOCK_K)
    padded = torch.zeros((N, blocks * BLOCK_K), dtype=torch.int32, device=w.device)
    padded[:, :K] = w.T
    nibbles = padded.view(N, blocks, PER_WORD, BLOCK_K // PER_WORD)
    packed = torch.zeros_like(nibbles[:, :, 0])
    for i in range(PER_WORD):
        packed |= nibbles[:, :, i] << 4 * i
    return packed.to(torch.int16).view(N, blocks * BLOCK_K // PER_WORD).T
