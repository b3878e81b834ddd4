"""Torch's own functions that a kernel is timed against."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F

from gemmproof.bench.device_operands import Buffers, draw_uniform
from gemmproof.bench.timed_calls import Callee
from gemmproof.bench.verify import Stated
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.contract import ROLES
from gemmproof.reference.formats import FORMATS, Format
from gemmproof.target import TargetError

# -- products ------------------------------------------------------------------------------------
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


# -- epilogues -----------------------------------------------------------------------------------
def make_addmm(stated: Stated, out: Format) -> Callee:
    def addmm(a: Tensor, b: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.addmm(bias, a, b, out=out)

    _require_bias(stated)
    return Callee("torch.addmm", addmm, True, prepare=partial(_take_linear, stated))


def make_addmm_activation(stated: Stated, out: Format, gelu: bool) -> Callee:
    """cuBLASLt's epilogues; its GELU is the tanh form."""
    activate = torch._addmm_activation

    def addmm_activation(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        return activate(bias, a, b, use_gelu=gelu)

    _require_bias(stated)
    name = f"torch._addmm_activation ({'gelu_tanh' if gelu else 'relu'})"
    return Callee(name, addmm_activation, False, prepare=partial(_take_linear, stated))


_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "": lambda x: x,
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": partial(F.gelu, approximate="tanh"),
        "silu": F.silu,
    }
)


def make_compiled(stated: Stated, out: Format, activation: str = "") -> Callee:
    """activation(a @ b + bias) + residual, as far as the kernel has these operands."""
    activate, dtype = _ACTIVATIONS[activation], TORCH_DTYPES[out.name]

    def epilogue(
        a: Tensor, b: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
    ) -> Tensor:
        c = activate(a @ b if bias is None else a @ b + bias)
        return (c if residual is None else c + residual).to(dtype)

    def prepare(buffers: Buffers) -> Buffers:
        made = take_product(stated, buffers)
        takes = [n for n in ("bias", "residual") if isinstance(buffers.named.get(n), Tensor)]
        return Buffers(made.a, made.b, {n: buffers.named[n].to(made.a.dtype) for n in takes})

    torch._dynamo.reset()  # or it would give up compiling after some shapes
    compiled = torch.compile(epilogue, mode="max-autotune-no-cudagraphs", dynamic=False)
    name = f"torch.compile ({activation})" if activation else "torch.compile"
    return Callee(name, compiled, False, prepare=prepare)


def _take_linear(stated: Stated, buffers: Buffers) -> Buffers:
    made = take_product(stated, buffers)
    bias = buffers.named["bias"].to(made.a.dtype).reshape(stated.problem.N)
    return Buffers(made.a, made.b, {"bias": bias})


def _require_bias(stated: Stated) -> None:
    N = stated.problem.N
    if stated.problem.batch is not None:
        raise ValueError(f"got {stated.problem.sides}, expected MxNxK")
    if count_elements(stated, "bias") != N:
        raise ValueError("got no operand bias of N elements, expected 'bias=FORMAT[N]'")


# -- packed --------------------------------------------------------------------------------------
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


# -- registry ------------------------------------------------------------------------------------
PEERS: Mapping[str, Callable[[Stated, Format], Callee]] = MappingProxyType(
    {
        "matmul": make_matmul,
        "bmm": make_bmm,
        "int_mm": make_int_mm,
        "scaled_mm": make_scaled_mm,
        "scaled_mm_fast": partial(make_scaled_mm, fast=True),
        "addmm": make_addmm,
        "addmm_relu": partial(make_addmm_activation, gelu=False),
        "addmm_gelu": partial(make_addmm_activation, gelu=True),
        "compile": make_compiled,
        "compile_relu": partial(make_compiled, activation="relu"),
        "compile_gelu": partial(make_compiled, activation="gelu"),
        "compile_gelu_tanh": partial(make_compiled, activation="gelu_tanh"),
        "compile_silu": partial(make_compiled, activation="silu"),
        "int4pack_mm": make_int4pack,
    }
)


def make_peer(name: str | None, stated: Stated, out: Format) -> Callee:
    """The peer of that name for what a kernel takes; None for torch's own product of the format.

    Raises TargetError, in one line, for what it cannot be, and for what this torch does not have.
    """
    fmt = stated.fmt
    if name is None:
        name = "scaled_mm" if fmt.is_fp8 else "int_mm" if fmt.kind == "int" else "matmul"
    try:
        return PEERS[name](stated, out)
    except AttributeError:
        got = f"torch {torch.__version__}, which does not have it"
        raise TargetError(f"--against {name}: got {got}, expected another peer") from None
    except ValueError as mistake:
        raise TargetError(f"--against {name}: {mistake}") from None


def require_known(where: str, name: str) -> None:
    """Raise ValueError, in one line, for a name that no peer has."""
    if name not in PEERS:
        raise ValueError(f"{where}: got {name!r}, expected a function or one of {' '.join(PEERS)}")
