"""What torch fuses behind a product: a bias, an activation, a residual."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
import torch.nn.functional as F

from gemmproof.bench.calls import Callee
from gemmproof.bench.formula.stated import Stated
from gemmproof.bench.operands import Buffers
from gemmproof.bench.peers.products import count_elements, take_product
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.reference.formats import Format

Tensor = torch.Tensor


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
