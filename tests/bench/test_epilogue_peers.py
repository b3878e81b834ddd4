"""What torch fuses behind a product: each peer computes what its name says, and nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from peer_calls import call, differs

from gemmproof import Operand
from gemmproof.reference.spec import erf, sigmoid

EPILOGUE = {"bias": Operand("bf16", "N"), "residual": Operand("bf16", ("M", "N"))}


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    """torch.compile is asked for, and gives the function as it is."""
    asked = []

    def compiled(function, **words):
        asked.append(words)
        return function

    monkeypatch.setattr(torch, "compile", compiled)
    return asked


# torch may store what is between two operations
ACTIVATIONS = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    ),
    "silu": lambda x: x * sigmoid(x),
}


def write_formula(activation):
    """activation(a @ b + bias) + residual, as torch may round it."""

    def formula(a, b, bias=None, residual=None):
        sums = (a @ b).may_round("bf16")
        c = ACTIVATIONS[activation](sums if bias is None else (sums + bias).may_round("bf16"))
        return c if residual is None else c.may_round("bf16") + residual

    return formula


@pytest.mark.lane("full")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_compile_has_the_activation_the_bias_and_the_residual(activation, no_compiler):
    name = f"compile_{activation}" if activation else "compile"
    for operands in (EPILOGUE, {"bias": EPILOGUE["bias"]}, {}):
        peer, x, made = call(name, operands)
        assert made.dtype == torch.bfloat16
        for other in ACTIVATIONS:
            share = differs(made, write_formula(other), **x.tensors)
            assert (share == 0) == (other == activation), other
    assert peer.name == (f"torch.compile ({activation})" if activation else "torch.compile")
    assert no_compiler[0] == {"mode": "max-autotune-no-cudagraphs", "dynamic": False}


@pytest.mark.parametrize(
    ("name", "activation", "said"),
    [
        ("addmm", "", "torch.addmm"),
        ("addmm_relu", "relu", "torch._addmm_activation (relu)"),
        # torch has the tanh form on GPUs only
        ("addmm_gelu", "gelu", "torch._addmm_activation (gelu_tanh)"),
    ],
)
def test_addmm_has_the_bias_and_its_activation(name, activation, said):
    peer, x, made = call(name, {"bias": Operand("bf16", "N")})
    assert peer.name == said
    for other in ACTIVATIONS:
        share = differs(made, write_formula(other), **x.tensors)
        assert (share == 0) == (other == activation), other
    assert differs(made, write_formula(activation), a=x.a, b=x.b) > 0.5  # without the bias


def test_a_bias_in_another_format_is_converted():
    _, x, made = call("addmm", {"bias": Operand("fp32", "N")})
    tensors = {**x.tensors, "bias": x.named["bias"].bfloat16()}
    assert differs(made, write_formula(""), **tensors) == 0
