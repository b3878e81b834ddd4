"""torch's products: matmul, bmm, _int_mm, and _scaled_mm with the kernel's own scales."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from gemmproof.bench.calls import Callee
from gemmproof.bench.formula.stated import Stated
from gemmproof.bench.operands import Buffers, draw_uniform
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.contract import ROLES
from gemmproof.reference.formats import Format

Tensor = torch.Tensor


def make_matmul(stated: Stated, out: Format) -> Callee:
    return Callee("torch.matmul", torch.matmul, True, prepare=partial(take_product, stated))


def make_bmm(stated: Stated, out: Format) -> Callee:
    if stated.problem.batch is None:
        raise ValueError(f"got {stated.problem.sides}, expected batchxMxNxK")
    return Callee("torch.bmm", torch.bmm, True, prepare=partial(take_product, stated))


def make_int_mm(stated: Stated, out: Format) -> Callee:
    if stated.fmt.kind != "int":
        raise ValueError(f"got {stated.fmt.name}, expected int8")
    prepare = partial(take_product, stated, columns=True)
    return Callee("torch._int_mm", torch._int_mm, False, prepare=prepare)


def make_scaled_mm(stated: Stated, out: Format, fast: bool = False) -> Callee:
    """Scales of the kernel's scale_a and scale_b, one for the tensor or one a row, else of 1.

    Torch scales rows for results in bf16 only. Sums of fp8 are kept in fp32, as the default
    contract wants, unless they are to be `fast`.
    """
    if not stated.fmt.is_fp8:
        raise ValueError(f"got {stated.fmt.name}, expected fp8e4m3 or fp8e5m2")
    M, N = stated.problem.M, stated.problem.N
    counts = [count_elements(stated, name) for name in ("scale_a", "scale_b")]
    by_tensor = counts == [1, 1]
    by_row = counts == [M, N] and out.name == "bf16" and not by_tensor
    dtype = TORCH_DTYPES[out.name]
    has_bias = count_elements(stated, "bias") == N and out.itemsize == 2

    def prepare(buffers: Buffers) -> Buffers:
        made = take_product(stated, buffers, columns=True)
        one = torch.ones((), device=made.a.device)
        scales: dict[str, Any] = {"scale_a": one, "scale_b": one}
        if by_row or by_tensor:
            shapes: Any = ((M, 1), (1, N)) if by_row else ((), ())
            for name, shape in zip(scales, shapes, strict=True):
                scales[name] = buffers.named[name].float().reshape(shape)
        bias = {"bias": buffers.named["bias"].to(dtype).reshape(N)} if has_bias else {}
        return Buffers(made.a, made.b, {**scales, **bias})

    words: Any = {"out_dtype": dtype, "use_fast_accum": fast}

    def scaled_mm(a: Tensor, b: Tensor, **more: Any) -> Tensor:
        return torch._scaled_mm(a, b, **more, **words)

    scaled = "scaled by rows" if by_row else "scaled" if by_tensor else ""
    said = ", ".join(filter(None, (scaled, "bias" * has_bias, "fast" * fast)))
    name = f"torch._scaled_mm ({said})" if said else "torch._scaled_mm"
    return Callee(name, scaled_mm, False, prepare=prepare)


def take_product(stated: Stated, buffers: Buffers, columns: bool = False) -> Buffers:
    """a and b of the problem in the format; with `columns` b in column-major memory.

    What the kernel has in another format, or transposed, is converted; what it has in another
    shape, as packed weights, is drawn anew.
    """
    a, b = (_convert(stated, name, buffers.tensors[name]) for name in ROLES)
    if columns:
        # as bytes where an element is one: few operations take fp8
        code = b.view(torch.uint8) if b.element_size() == 1 else b
        b = code.transpose(-1, -2).contiguous().transpose(-1, -2).view(b.dtype)
    return Buffers(a, b)


def count_elements(stated: Stated, name: str) -> int:
    """The elements of an operand, 0 of one that is not stated."""
    known = stated.read.get(name)
    return 0 if known is None else math.prod(known.sides(stated.sizes))


def _convert(stated: Stated, name: str, x: Tensor) -> Tensor:
    fmt, dtype = stated.fmt, TORCH_DTYPES[stated.fmt.name]
    if stated.axes[name][1][-2:] == ROLES[name].axes[::-1]:
        x = x.transpose(-1, -2)
    shape = stated.problem.shapes[ROLES[name].number]
    if tuple(x.shape) == shape:
        return x.to(dtype)
    made = torch.empty(shape, dtype=dtype, device=x.device)
    draw_uniform(made, fmt, torch.Generator(x.device).manual_seed(0))
    return made
