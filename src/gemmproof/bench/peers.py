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


def make_matmul(declared: Stated, out: Format) -> Callee:
    return Callee("torch.matmul", torch.matmul, True, prepare=partial(take_product, declared))


def make_bmm(declared: Stated, out: Format) -> Callee:
    if declared.problem.batch is None:
        raise ValueError(f"got {declared.problem.sides}, expected batchxMxNxK")
    return Callee("torch.bmm", torch.bmm, True, prepare=partial(take_product, declared))


def make_int_mm(declared: Stated, out: Format) -> Callee:
    if declared.fmt.kind != "int":
        raise ValueError(f"got {declared.fmt.name}, expected int8")
    prepare = partial(take_product, declared, columns=True)
    return Callee("torch._int_mm", torch._int_mm, False, prepare=prepare)


def make_scaled_mm(declared: Stated, out: Format, fast: bool = False) -> Callee:
    """Scale by the kernel's scale_a and scale_b, one for the tensor or one per row, else by 1.

    Torch scales rows for results in bf16 only. Sums of fp8 are kept in fp32, as the default
    contract requires, unless they are `fast`.
    """
    if not declared.fmt.is_fp8:
        raise ValueError(f"got {declared.fmt.name}, expected fp8e4m3 or fp8e5m2")
    M, N = declared.problem.M, declared.problem.N
    counts = [count_elements(declared, name) for name in ("scale_a", "scale_b")]
    by_tensor = counts == [1, 1]
    by_row = counts == [M, N] and out.name == "bf16" and not by_tensor
    dtype = TORCH_DTYPES[out.name]
    has_bias = count_elements(declared, "bias") == N and out.itemsize == 2

    def prepare(buffers: Buffers) -> Buffers:
        product = take_product(declared, buffers, columns=True)
        unit = torch.ones((), device=product.a.device)
        scales: dict[str, Tensor] = {"scale_a": unit, "scale_b": unit}
        if by_row or by_tensor:
            shapes: Any = ((M, 1), (1, N)) if by_row else ((), ())
            for name, shape in zip(scales, shapes, strict=True):
                scales[name] = buffers.named[name].float().reshape(shape)
        bias = {"bias": buffers.named["bias"].to(dtype).reshape(N)} if has_bias else {}
        return Buffers(product.a, product.b, {**scales, **bias})

    options: Any = {"out_dtype": dtype, "use_fast_accum": fast}

    def scaled_mm(a: Tensor, b: Tensor, **more: Any) -> Tensor:
        return torch._scaled_mm(a, b, **more, **options)

    scaled = "scaled by rows" if by_row else "scaled" if by_tensor else ""
    modes = ", ".join(filter(None, (scaled, "bias" * has_bias, "fast" * fast)))
    name = f"torch._scaled_mm ({modes})" if modes else "torch._scaled_mm"
    return Callee(name, scaled_mm, False, prepare=prepare)


def take_product(declared: Stated, buffers: Buffers, columns: bool = False) -> Buffers:
    """Return a and b of the problem in the format; with `columns` b in column-major memory.

    Operands in another format, or transposed, are converted; those in another shape, such as packed
    weights, are redrawn.
    """
    a, b = (_convert(declared, name, buffers.tensors[name]) for name in ROLES)
    if columns:
        # 1-byte elements as bytes: few operations support fp8
        code = b.view(torch.uint8) if b.element_size() == 1 else b
        b = code.transpose(-1, -2).contiguous().transpose(-1, -2).view(b.dtype)
    return Buffers(a, b)


def count_elements(declared: Stated, name: str) -> int:
    """Return the number of elements of an operand, 0 if it is not declared."""
    operand = declared.read.get(name)
    return 0 if operand is None else math.prod(operand.sides(declared.sizes))


def _convert(declared: Stated, name: str, x: Tensor) -> Tensor:
    fmt, dtype = declared.fmt, TORCH_DTYPES[declared.fmt.name]
    if declared.axes[name][1][-2:] == ROLES[name].axes[::-1]:
        x = x.transpose(-1, -2)
    shape = declared.problem.shapes[ROLES[name].number]
    if tuple(x.shape) == shape:
        return x.to(dtype)
    drawn = torch.empty(shape, dtype=dtype, device=x.device)
    draw_uniform(drawn, fmt, torch.Generator(x.device).manual_seed(0))
    return drawn


# -- epilogues -----------------------------------------------------------------------------------
def make_addmm(declared: Stated, out: Format) -> Callee:
    def addmm(a: Tensor, b: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.addmm(bias, a, b, out=out)

    _require_bias(declared)
    return Callee("torch.addmm", addmm, True, prepare=partial(_take_linear, declared))


def make_addmm_activation(declared: Stated, out: Format, gelu: bool) -> Callee:
    """Use cuBLASLt's epilogues; its GELU is the tanh form."""
    activate = torch._addmm_activation

    def addmm_activation(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        return activate(bias, a, b, use_gelu=gelu)

    _require_bias(declared)
    name = f"torch._addmm_activation ({'gelu_tanh' if gelu else 'relu'})"
    return Callee(name, addmm_activation, False, prepare=partial(_take_linear, declared))


_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        "": lambda x: x,
        "relu": F.relu,
        "gelu": F.gelu,
        "gelu_tanh": partial(F.gelu, approximate="tanh"),
        "silu": F.silu,
    }
)


def make_compiled(declared: Stated, out: Format, activation: str = "") -> Callee:
    """Compile activation(a @ b + bias) + residual, with those operands that the kernel has."""
    activate, dtype = _ACTIVATIONS[activation], TORCH_DTYPES[out.name]

    def epilogue(
        a: Tensor, b: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
    ) -> Tensor:
        c = activate(a @ b if bias is None else a @ b + bias)
        return (c if residual is None else c + residual).to(dtype)

    def prepare(buffers: Buffers) -> Buffers:
        product = take_product(declared, buffers)
        takes = [n for n in ("bias", "residual") if isinstance(buffers.named.get(n), Tensor)]
        return Buffers(
            product.a, product.b, {n: buffers.named[n].to(product.a.dtype) for n in takes}
        )

    torch._dynamo.reset()  # or it would give up compiling after some shapes
    compiled = torch.compile(epilogue, mode="max-autotune-no-cudagraphs", dynamic=False)
    name = f"torch.compile ({activation})" if activation else "torch.compile"
    return Callee(name, compiled, False, prepare=prepare)


def _take_linear(declared: Stated, buffers: Buffers) -> Buffers:
    product = take_product(declared, buffers)
    bias = buffers.named["bias"].to(product.a.dtype).reshape(declared.problem.N)
    return Buffers(product.a, product.b, {"bias": bias})


def _require_bias(declared: Stated) -> None:
    N = declared.problem.N
    if declared.problem.batch is not None:
        raise ValueError(f"got {declared.problem.sides}, expected MxNxK")
    if count_elements(declared, "bias") != N:
        raise ValueError("got no operand bias of N elements, expected 'bias=FORMAT[N]'")


# -- packed --------------------------------------------------------------------------------------
INNER_K_TILES = 8  # of 16 k: how deep torch's packed int4 weights interleave
INT4_GROUPS = (32, 64, 128, 256)


def make_int4pack(declared: Stated, out: Format) -> Callee:
    """Use bf16 a, and int4 weights drawn in torch's order: (q - 8) scale + zero, q of 4 bits."""
    N, K, group = declared.problem.N, declared.problem.K, _find_group(declared)
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
        result: Tensor = multiply(a, b, group, scales)
        return result

    return Callee("torch._weight_int4pack_mm", int4pack_mm, False, prepare=prepare)


def _find_group(declared: Stated) -> int:
    """Return how many k share a scale: the integer group or group_size, or by the shape of scales.

    128 if neither is declared.
    """
    for name in ("group", "group_size"):
        if type(group := declared.values.get(name)) is int:
            return group
    for name in ("scales", "scale"):
        if name in declared.read and len(sides := declared.read[name].sides(declared.sizes)) == 2:
            return declared.problem.K // max(1, sides[0])
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


def make_peer(name: str | None, declared: Stated, out: Format) -> Callee:
    """Return the peer of that name for a kernel's inputs; None for torch's product of the format.

    Raises TargetError, in one line, for inputs that the peer cannot take, or if this torch does not
    have it.
    """
    fmt = declared.fmt
    if name is None:
        name = "scaled_mm" if fmt.is_fp8 else "int_mm" if fmt.kind == "int" else "matmul"
    try:
        return PEERS[name](declared, out)
    except AttributeError:
        got = f"torch {torch.__version__}, which does not have it"
        raise TargetError(f"--against {name}: got {got}, expected another peer") from None
    except ValueError as error:
        raise TargetError(f"--against {name}: {error}") from None


def require_known(where: str, name: str) -> None:
    """Raise ValueError, in one line, for a name that no peer has."""
    if name not in PEERS:
        raise ValueError(f"{where}: got {name!r}, expected a function or one of {' '.join(PEERS)}")
