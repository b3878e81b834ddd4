"""Casts and arithmetic lane by lane: the kernels whose outputs were recorded, and how they are
launched, on a GPU or on the simulator."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

LANES = 1024

# name of a type -> (Triton's, torch's)
TYPES = {
    **{f"i{n}": (getattr(tl, f"int{n}"), getattr(torch, f"int{n}")) for n in (8, 16, 32, 64)},
    **{f"u{n}": (getattr(tl, f"uint{n}"), getattr(torch, f"uint{n}")) for n in (8, 16, 32, 64)},
    "f16": (tl.float16, torch.float16),
    "bf16": (tl.bfloat16, torch.bfloat16),
    "f32": (tl.float32, torch.float32),
    "f64": (tl.float64, torch.float64),
    "e4m3": (tl.float8e4nv, torch.float8_e4m3fn),
    "e5m2": (tl.float8e5, torch.float8_e5m2),
}


@triton.jit
def cast_kernel(x_ptr, o_ptr, TYPE: tl.constexpr, ROUNDING: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(o_ptr + i, tl.load(x_ptr + i).to(TYPE, fp_downcast_rounding=ROUNDING))


@triton.jit
def two_operand_kernel(x_ptr, y_ptr, o_ptr, OP: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    if OP == "add":
        r = x + y
    elif OP == "sub":
        r = x - y
    elif OP == "mul":
        r = x * y
    elif OP == "div_rn":
        r = tl.div_rn(x, y)
    elif OP == "idiv":
        r = x // y
    elif OP == "rem":
        r = x % y
    elif OP == "shl":
        r = x << y
    elif OP == "shr":
        r = x >> y
    elif OP == "umulhi":
        r = tl.umulhi(x, y)
    elif OP == "min":
        r = tl.minimum(x, y)
    elif OP == "max":
        r = tl.maximum(x, y)
    elif OP == "minn":
        r = tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "maxn":
        r = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    tl.store(o_ptr + i, r)


def inputs_of(name: str) -> list[str]:
    """The inputs of a recording: "cast|f32|i8" reads "f32", "add|f16" reads "a:f16" and "b:f16"."""
    operation, kind, *_ = name.split("|")
    return [kind] if operation == "cast" else [f"a:{kind}", f"b:{kind}"]


def launch(name: str, *operands: torch.Tensor) -> torch.Tensor:
    """The output of the kernel that a recording is named after."""
    operation, kind, *rest = name.split("|")
    out = rest[0] if operation == "cast" else kind
    output = torch.empty(operands[0].shape, dtype=TYPES[out][1], device=operands[0].device)
    grid = (output.numel() // LANES,)
    if operation == "cast":
        rounding = rest[1] if len(rest) > 1 else None
        cast_kernel[grid](*operands, output, TYPES[out][0], rounding, LANES)
    else:
        two_operand_kernel[grid](*operands, output, operation, LANES)
    return output


def as_tensor(bits: np.ndarray, kind: str) -> torch.Tensor:
    """Bits as a tensor of a type."""
    return torch.from_numpy(bits.view(f"i{bits.itemsize}").copy()).view(TYPES[kind][1])


def as_bits(x: torch.Tensor) -> np.ndarray:
    """A tensor's bits as unsigned integers."""
    size = x.element_size()
    return x.cpu().contiguous().view(getattr(torch, f"int{8 * size}")).numpy().view(f"u{size}")
