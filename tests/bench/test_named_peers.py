"""The peers of torch: each computes what its name says, compared with the formula in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gemmproof import Contract, KernelUnderTest, OneOf, Operand
from gemmproof.bench.peers import PEERS, make_peer, require_known
from gemmproof.bench.problems import Problem
from gemmproof.bench.record import EAGER
from gemmproof.bench.timed_calls import make_leg
from gemmproof.bench.verify import Stated, to_storage
from gemmproof.cli import parser
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.judges.exact_values import judge_stored
from gemmproof.reference.formats import FORMATS
from gemmproof.reference.spec import Rules, erf, evaluate, sigmoid
from gemmproof.target import TargetError

FORMAT_OF = {TORCH_DTYPES[name]: name for name in ("bf16", "fp8e4m3", "fp32")}
SMALL = Problem(48, 32, 128)


def call(name, operands, fmt="bf16", out=None, problem=SMALL):
    """Return the peer, the set that it was made for, and its result on data drawn afterwards."""
    kernel = KernelUnderTest(
        "k", print, Contract(formats=(fmt,)), operands=operands, spec=lambda a, b: a @ b
    )
    workload = Stated(kernel, problem, FORMATS[fmt])
    out = FORMATS[out or fmt]
    buffers = workload.make("cpu")
    workload.fill(buffers, 0)
    peer = make_peer(name, workload, out)
    leg = make_leg(peer, [buffers], problem.shapes[2], out, "here", Eager())
    workload.fill(buffers, 1)
    leg.refresh()
    leg.run(EAGER)()
    (c,) = leg.results(EAGER)
    return peer, buffers, c


class Eager:
    """A device that captures nothing."""

    def warm(self, body):
        body()

    def capture(self, body):
        raise RuntimeError("no graphs")


def exact(x):
    return x.float().double() if x.is_floating_point() else x.double()


def differs(result, spec, **tensors) -> float:
    """Return the share of elements that differ from a formula by more than its bound."""
    given = {name: (to_storage(x), FORMAT_OF[x.dtype]) for name, x in tensors.items()}
    (c,) = evaluate(spec, given, Rules())
    wrong, bound = judge_stored(to_storage(result), c, FORMATS[FORMAT_OF[result.dtype]])
    assert np.isfinite(bound).all()
    return wrong.mean()


ROWS = {"scale_a": Operand("fp32", ("M", 1)), "scale_b": Operand("fp32", "N")}
TENSORS = {"scale_a": Operand("fp32"), "scale_b": Operand("fp32", 1)}


def multiply(a, b):
    return a @ b


def test_matmul_and_bmm_multiply():
    for name, problem in (("matmul", Problem(24, 16, 64)), ("bmm", Problem(24, 16, 64, 3))):
        peer, x, c = call(name, {}, problem=problem)
        assert (peer.name, peer.takes_out) == (f"torch.{name}", True)
        assert differs(c, multiply, **x.tensors) == 0


def test_a_product_beside_weights_of_another_format_has_them_in_as():
    _, x, c = call("matmul", {"b": Operand("int8", ("K", "N"), (-8, 7))})
    assert x.b.dtype == torch.int8
    assert differs(c, multiply, a=x.a, b=x.b.bfloat16()) == 0
    _, x, c = call("matmul", {"b": Operand("int8", ("N", "K"), (-8, 7))})
    assert differs(c, multiply, a=x.a, b=x.b.T.bfloat16()) == 0
    _, x, c = call("matmul", {"b": Operand("int32", ("K // 8", "N"))})
    assert c.shape == (48, 32)
    assert c.isfinite().all()


def test_int_mm_has_b_in_column_major_memory(monkeypatch):
    strides = []
    real = torch._int_mm

    def int_mm(a, b):
        strides.append(b.stride())
        return real(a, b)

    monkeypatch.setattr(torch, "_int_mm", int_mm)
    _, x, c = call("int_mm", {}, fmt="int8", out="int32")
    assert torch.equal(c.double(), exact(x.a) @ exact(x.b))
    assert set(strides) == {(1, 128)}


@pytest.mark.parametrize(
    ("operands", "label"),
    [
        ({}, "torch._scaled_mm"),
        (TENSORS, "torch._scaled_mm (scaled)"),
        (ROWS, "torch._scaled_mm (scaled by rows)"),
        ({**ROWS, "bias": Operand("fp32", "N")}, "torch._scaled_mm (scaled by rows, bias)"),
        # scales of blocks: a product of the same operands, whose name says that it has no scales
        ({"scale_a": Operand("fp32", ("M", "K // 64")), "scale_b": TENSORS["scale_b"]},
         "torch._scaled_mm"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fast", [False, True])
def test_scaled_mm_has_the_scales_of_the_kernel(operands, label, fast, monkeypatch):
    asked = []

    def scaled(a, b, *, scale_a, scale_b, out_dtype, use_fast_accum, bias=None):
        asked.append((use_fast_accum, b.stride(), scale_a.shape, scale_b.shape))
        c = (exact(a) @ exact(b)) * scale_a.double() * scale_b.double()
        return (c if bias is None else c + bias.double()).to(out_dtype)

    monkeypatch.setattr(torch, "_scaled_mm", scaled)
    name = "scaled_mm_fast" if fast else "scaled_mm"
    peer, x, c = call(name, operands, fmt="fp8e4m3", out="bf16")
    if fast:
        label = f"{label[:-1]}, fast)" if label.endswith(")") else f"{label} (fast)"
    assert peer.name == label
    expected = exact(x.a) @ exact(x.b)
    if "scaled" in label.partition(" ")[2]:
        scale_a, scale_b = (exact(x.named[n]) for n in ("scale_a", "scale_b"))
        expected = expected * scale_a * scale_b  # in the order of the fake
    if "bias" in label:
        expected += exact(x.named["bias"].bfloat16())
    assert torch.equal(c, expected.bfloat16())
    shapes = ((48, 1), (1, 32)) if "rows" in label else ((), ())
    assert asked[-1] == (fast, (1, 128), *shapes)


@pytest.mark.parametrize(
    ("operands", "formula"),
    [
        ({}, lambda a, b: a @ b),
        (TENSORS, lambda a, b, scale_a, scale_b: (a @ b) * scale_a * scale_b),
        pytest.param(
            ROWS,
            lambda a, b, scale_a, scale_b: (a @ b) * scale_a * scale_b,
            marks=pytest.mark.triton("scales_of_rows_on_the_cpu"),
        ),
    ],
)
def test_torchs_own_scaled_mm_gives_the_formula(operands, formula):
    _, x, c = call("scaled_mm", operands, fmt="fp8e4m3", out="bf16")
    assert differs(c, formula, **x.tensors) == 0
    halved = {**x.tensors, "a": (x.a.float() / 2).to(x.a.dtype)}
    assert differs(c, formula, **halved) > 0.5


def test_int4pack_mm_has_weights_of_its_own_in_the_kernels_groups(monkeypatch):
    asked = []

    class Ops:
        @staticmethod
        def _convert_weight_to_int4pack(nibbles, tiles):
            asked.append((nibbles.dtype, tuple(nibbles.shape), tiles))
            return nibbles

        @staticmethod
        def _weight_int4pack_mm(a, b, group, scales):
            q = torch.stack([b >> 4, b & 15], -1).reshape(b.shape[0], -1)
            q = q.view(b.shape[0], -1, group).double() - 8
            w = q * scales[..., :1].permute(1, 0, 2) + scales[..., 1:].permute(1, 0, 2)
            asked.append((a.dtype, group, w))
            return (exact(a) @ w.reshape(b.shape[0], -1).double().T).to(a.dtype)

    monkeypatch.setattr(torch.ops, "aten", Ops)
    operands = {
        "b": Operand("int32", ("K // 8", "N")),
        "group": OneOf(64, 128),
        "scales": Operand("fp16", ("K // group", "N")),
    }
    peer, x, c = call("int4pack_mm", operands, fmt="fp16")
    assert peer.name == "torch._weight_int4pack_mm"
    assert asked[0] == (torch.uint8, (32, 64), 8)
    dtype, group, w = asked[-1]
    assert (dtype, group, c.dtype) == (torch.bfloat16, 64, torch.bfloat16)
    assert torch.equal(c, (exact(x.a.bfloat16()) @ w.reshape(32, -1).double().T).bfloat16())
    del operands["group"]
    operands["scales"] = Operand("fp16", ("K // 32", "N"))
    call("int4pack_mm", operands)
    assert asked[-1][1] == 32


def test_what_the_peer_prepared_follows_the_data_in_the_same_memory():
    kernel = KernelUnderTest("k", print, Contract(formats=("int8",)))
    workload = Stated(kernel, Problem(32, 32, 32), FORMATS["int8"])
    buffers = workload.make("cpu")
    workload.fill(buffers, 0)
    peer = make_peer(None, workload, FORMATS["int32"])
    leg = make_leg(peer, [buffers], (32, 32), FORMATS["int32"], "here", Eager())
    (own,) = leg.sets
    assert own.a is buffers.a  # an operand that is passed unchanged takes no memory
    address = own.b.data_ptr()
    workload.fill(buffers, 1)
    assert not torch.equal(own.b, buffers.b)
    leg.refresh()
    assert torch.equal(leg.sets[0].b, buffers.b)
    assert leg.sets[0].b.data_ptr() == address != buffers.b.data_ptr()


@pytest.mark.parametrize(
    ("name", "operands", "fmt", "message"),
    [
        ("bmm", {}, "bf16", "--against bmm: got 48x32x128, expected batchxMxNxK"),
        ("int_mm", {}, "bf16", "--against int_mm: got bf16, expected int8"),
        ("scaled_mm", {}, "bf16", "--against scaled_mm: got bf16, expected fp8e4m3 or fp8e5m2"),
        (
            "addmm",
            {"bias": Operand("bf16", "M")},
            "bf16",
            "--against addmm: got no operand bias of N elements, expected 'bias=FORMAT[N]'",
        ),
        (
            "int4pack_mm",
            {"group_size": OneOf(48)},
            "bf16",
            "--against int4pack_mm: got N=32 K=128 in groups of 48, expected N % 8 == 0,"
            " K % 128 == 0 and groups of 32 64 128 256",
        ),
    ],
)
def test_a_peer_that_does_not_fit_is_refused_in_one_line(name, operands, fmt, message):
    with pytest.raises(TargetError) as caught:
        call(name, operands, fmt)
    assert str(caught.value) == message


def test_what_this_torch_lacks_is_refused_in_one_line(monkeypatch):
    monkeypatch.delattr(torch, "_int_mm")
    with pytest.raises(TargetError, match=r"^--against int_mm: got torch .*, which does not have"):
        call("int_mm", {}, fmt="int8", out="int32")


def test_the_help_and_the_refusal_name_every_peer():
    commands = next(a for a in parser()._actions if a.dest == "command").choices
    text = next(a.help for a in commands["bench"]._actions if a.dest == "against")
    assert all(f" {name} " in f" {text.replace(chr(58), ' ')} " for name in PEERS)
    with pytest.raises(ValueError, match=f"^against: got 'mm', .* {' '.join(PEERS)}$"):
        require_known("against", "mm")


# -- what torch fuses behind a product -------------------------------------------------------------
EPILOGUE = {"bias": Operand("bf16", "N"), "residual": Operand("bf16", ("M", "N"))}


@pytest.fixture
def no_compiler(monkeypatch):
    """Replace torch.compile by a fake that returns the function unchanged."""
    asked = []

    def compiled(function, **options):
        asked.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compiled)
    return asked


# torch may store the result between two operations
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
    """Return the formula activation(a @ b + bias) + residual, as torch may round it."""

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
        peer, x, c = call(name, operands)
        assert c.dtype == torch.bfloat16
        for other in ACTIVATIONS:
            share = differs(c, write_formula(other), **x.tensors)
            assert (share == 0) == (other == activation), other
    assert peer.name == (f"torch.compile ({activation})" if activation else "torch.compile")
    assert no_compiler[0] == {"mode": "max-autotune-no-cudagraphs", "dynamic": False}


@pytest.mark.parametrize(
    ("name", "activation", "label"),
    [
        ("addmm", "", "torch.addmm"),
        ("addmm_relu", "relu", "torch._addmm_activation (relu)"),
        # torch has the tanh form on GPUs only
        ("addmm_gelu", "gelu", "torch._addmm_activation (gelu_tanh)"),
    ],
)
def test_addmm_has_the_bias_and_its_activation(name, activation, label):
    peer, x, c = call(name, {"bias": Operand("bf16", "N")})
    assert peer.name == label
    for other in ACTIVATIONS:
        share = differs(c, write_formula(other), **x.tensors)
        assert (share == 0) == (other == activation), other
    assert differs(c, write_formula(activation), a=x.a, b=x.b) > 0.5  # without the bias


def test_a_bias_in_another_format_is_converted():
    _, x, c = call("addmm", {"bias": Operand("fp32", "N")})
    tensors = {**x.tensors, "bias": x.named["bias"].bfloat16()}
    assert differs(c, write_formula(""), **tensors) == 0
