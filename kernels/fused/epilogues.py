"""The operands and device functions that follow a product in the same kernel, all in fp32."""

# mypy: allow-incomplete-defs, allow-untyped-defs
# The compiler types a kernel's arguments at each launch.

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ..arguments import num_sms
from ..checks import check_tensor, may_overlap

#: Of a and b, and of bias, c and residual, each of which may have another.
FORMATS = (torch.float16, torch.bfloat16, torch.float32)
#: The activations of `activate`: GELU by the error function, and its approximation by tanh.
ACTIVATIONS = (None, "relu", "gelu", "gelu_tanh", "silu")


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """An activation of each element; NaN stays NaN."""
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        # (1 + tanh(y)) / 2 = 1 / (1 + exp(-2 y)), which cancels nowhere; 2 sqrt(2 / pi) log2(e),
        # and 0.044715 of it
        x = x / (1.0 + tl.exp2(-x * (2.302208198144325 + 0.10294323958002349 * x * x)))
    elif ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    return x


@triton.jit
def finish(acc, bias, c, residual, alpha, beta, ACTIVATION: tl.constexpr):
    """activation(alpha acc + beta c + bias) + residual; what is None is left out.

    acc, c, residual (m, n), bias (1, n); the order is `matmul_fused`'s formula. What a compiler may
    fuse is fused, so that every one gives the same bits.
    """
    if c is not None:
        x = tl.fma(c.to(tl.float32), beta, alpha * acc)
        x = x if bias is None else x + bias.to(tl.float32)
    elif bias is not None:
        x = tl.fma(acc, alpha, bias.to(tl.float32))
    elif residual is not None and ACTIVATION is None:
        x = tl.fma(acc, alpha, residual.to(tl.float32))
    else:
        x = alpha * acc
    if ACTIVATION is not None:
        x = activate(x, ACTIVATION)
    if residual is not None and (c is not None or bias is not None or ACTIVATION is not None):
        x += residual.to(tl.float32)
    return x


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The operands of `finish` apart from acc, and out (M, N), which receives its result."""

    out: torch.Tensor
    bias: torch.Tensor | None
    c: torch.Tensor | None
    residual: torch.Tensor | None
    alpha: float
    beta: float
    activation: str | None
    in_place: bool  # out is c or the residual

    @property
    def constants(self) -> dict[str, object]:
        """The constants of a kernel and its tuner: bytes of an element, 0 for what is absent."""
        given = {"BIAS": self.bias, "C": self.c, "RESIDUAL": self.residual, "OUT": self.out}
        sizes = {f"{n}_BYTES": 0 if x is None else x.element_size() for n, x in given.items()}
        return {**sizes, "ACTIVATION": self.activation}


def make_epilogue(
    where: str,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    c: torch.Tensor | None,
    residual: torch.Tensor | None,
    alpha: float,
    beta: float,
    activation: str | None,
    is_new: bool,
) -> Epilogue:
    """The epilogue as the kernel may read its operands, without c where beta is 0.

    is_new: out was allocated for this call, so that it overlaps nothing. Raises TypeError for a
    wrong type, format or device, ValueError for a wrong shape or overlap.
    """
    if activation not in ACTIVATIONS:
        known = " or ".join(map(repr, ACTIVATIONS))
        raise ValueError(f"{where}: got activation={activation!r}, expected {known}")
    for name, number in (("alpha", alpha), ("beta", beta)):
        if not isinstance(number, int | float):
            raise TypeError(f"{where}: got {name} of {type(number).__name__}, expected a number")
    if beta != 0 and c is None:
        raise ValueError(f"{where}: got beta={beta} without c, expected c of {tuple(out.shape)}")
    bias = _check(where, "bias", bias, out.shape[1:], out)
    c = _check(where, "c", c, out.shape, out)
    residual = _check(where, "residual", residual, out.shape, out)
    c = c if beta != 0 else None
    in_place = False
    if not is_new:
        if bias is not None and may_overlap(out, bias[None]):
            raise ValueError(f"{where}: got out in the memory of bias, expected memory of its own")
        for name, x in (("c", c), ("residual", residual)):
            if x is not None and is_same(out, x):
                in_place = True
            elif x is not None and may_overlap(out, x):
                raise ValueError(
                    f"{where}: got out in the memory of {name}, "
                    f"expected {name} itself or memory of its own"
                )
    return Epilogue(out, bias, c, residual, float(alpha), float(beta), activation, in_place)


def is_same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether two tensors of one shape have each element at the same address and format."""
    return x.data_ptr() == y.data_ptr() and x.stride() == y.stride() and x.dtype == y.dtype


def launch_epilogue(
    kernel: Any,
    configs: list[triton.Config],
    programs: Callable[[dict[str, int]], tuple[int]],
    epilogue: Epilogue,
    given: Mapping[str, object],
) -> None:
    """Launch an autotuned kernel, by its tuner's choice unless out is updated in place.

    Timing would repeat the update; the first of `configs` that has a tile for each multiprocessor
    is taken then, or the last.
    """
    out = epilogue.out
    given = {**given, "alpha": epilogue.alpha, "beta": epilogue.beta, **epilogue.constants}
    with torch.cuda.device_of(out):
        if not epilogue.in_place:
            kernel[programs](**given)
            return
        sms = num_sms(out.device)
        config = next((x for x in configs if count_tiles(out, x.kwargs) >= sms), configs[-1])
        if config.pre_hook is not None:
            config.pre_hook({**given, **config.kwargs})
        kernel.fn[programs](**given, **config.all_kwargs())


def count_tiles(out: torch.Tensor, meta: dict[str, int]) -> int:
    """The tiles of a result in a configuration."""
    M, N = out.shape
    return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])


def _check(
    where: str, name: str, x: torch.Tensor | None, shape: torch.Size, out: torch.Tensor
) -> torch.Tensor | None:
    if x is None:
        return None
    check_tensor(where, name, x, FORMATS)
    if x.device != out.device:
        raise TypeError(f"{where}: got {name} on {x.device}, expected {out.device}")
    if x.shape != shape:
        raise ValueError(f"{where}: got {name} of shape {tuple(x.shape)}, expected {tuple(shape)}")
    # a view that negates lazily holds the wrong sign
    return x.resolve_neg()
