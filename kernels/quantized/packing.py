"""Four weights of 4 bits in a word of 16, in the order in which tensor cores take them."""

from __future__ import annotations

import torch

#: Rows of weights that lie in the same rows of words.
BLOCK = 128
#: Weights in a word.
PER_WORD = 4


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
    blocks = -(-K // BLOCK)
    padded = torch.zeros((N, blocks * BLOCK), dtype=torch.int32, device=w.device)
    padded[:, :K] = w.T
    nibbles = padded.view(N, blocks, PER_WORD, BLOCK // PER_WORD)
    packed = torch.zeros_like(nibbles[:, :, 0])
    for i in range(PER_WORD):
        packed |= nibbles[:, :, i] << 4 * i
    return packed.to(torch.int16).view(N, blocks * BLOCK // PER_WORD).T
