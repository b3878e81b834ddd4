"""torch's product with weights of 4 bits, which are packed in an order of its own."""

from __future__ import annotations

import torch

from gemmproof.bench.calls import Callee
from gemmproof.bench.formula.stated import Stated
from gemmproof.bench.operands import Buffers, draw_uniform
from gemmproof.reference.formats import FORMATS, Format

Tensor = torch.Tensor
INNER_K_TILES = 8  # of 16 k: how deep torch's packed int4 weights interleave
INT4_GROUPS = (32, 64, 128, 256)


def make_int4pack(stated: Stated, out: Format) -> Callee:
    """bf16 a, and int4 weights of its own in torch's order: (q - 8) scale + zero, q of 4 bits."""
    N, K, group = stated.problem.N, stated.problem.K, _find_group(stated)
    if group not in INT4_GROUPS or K % max(group, 16 * INNER_K_TILES) or N % 8:
        known = " ".join(map(str, INT4_GROUPS))
        raise ValueError(
            f"got N={N} K={K} in groups of {group}, expected N % 8 == 0, K % 128 == 0 and groups"
            f" of {known}"
        )
    pack = torch.ops.aten._convert_weight_to_int4pack
    multiply = torch.ops.aten._weight_int4pack_mm

    def prepare(buffers: Buffers) -> Buffers:
        device = buffers.a.device
        generator = torch.Generator(device).manual_seed(0)
        nibbles = torch.empty((N, K // 2), dtype=torch.uint8, device=device)
        draw_uniform(nibbles, FORMATS["uint8"], generator)
        scales = torch.empty((K // group, N, 2), dtype=torch.bfloat16, device=device)
        draw_uniform(scales, FORMATS["bf16"], generator)
        a = buffers.a.to(torch.bfloat16)
        return Buffers(a, pack(nibbles, INNER_K_TILES), {"scales": scales})

    def int4pack_mm(a: Tensor, b: Tensor, scales: Tensor) -> Tensor:
        made: Tensor = multiply(a, b, group, scales)
        return made

    return Callee("torch._weight_int4pack_mm", int4pack_mm, False, prepare=prepare)


def _find_group(stated: Stated) -> int:
    """How many k share a scale: an integer called group or group_size, or by the shape of scales.

    128 where neither is stated.
    """
    for name in ("group", "group_size"):
        if type(stated.values.get(name)) is int:
            return int(stated.values[name])
    for name in ("scales", "scale"):
        if name in stated.read and len(sides := stated.read[name].sides(stated.sizes)) == 2:
            return stated.problem.K // max(1, sides[0])
    return 128
