"""Scales, epilogues and packed operands as specs, as kernels compute them, and wrongly."""

import math

import numpy as np
import pytest
from tests.reference.spec.spec_ways import dot, floats, judge, scales

from gemmproof.reference.arithmetic import round_to
from gemmproof.reference.formats import CODES
from gemmproof.reference.spec import Rules, SpecError, erf, evaluate, sigmoid

F = np.float32
M, N, K, G = 9, 7, 256, 128
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], F)


def test_scales_per_tensor_per_row_and_per_block():
    rng = np.random.default_rng(0)
    a, b = floats(rng, "fp8e4m3", M, K), floats(rng, "fp8e4m3", K, N)
    given = {"a": a, "b": b, "s": np.array([0.3], F), "t": np.array([7.3], F)}
    judge(lambda a, b, s, t: (a @ b) * s * t, given,
          [lambda a, b, s, t: dot(a, b) * (s * t),
           lambda a, b, s, t: dot(a.astype(F) * s, b, -1) * t],
          [lambda a, b, s, t: dot(a, b) * s])  # fmt: skip
    given |= {"s": scales(rng, M), "t": scales(rng, N)}
    judge(lambda a, b, s, t: (a @ b) * s[:, None] * t, given,
          [lambda a, b, s, t: dot(a, b) * s[:, None] * t,
           lambda a, b, s, t: dot(a.astype(F) * s[:, None], b.astype(F) * t, -1)],
          [lambda a, b, s, t: dot(a, b) * np.roll(s, 1)[:, None] * t])  # fmt: skip
    given |= {"s": scales(rng, M, K // G), "t": scales(rng, K // G, N)}

    def blocks(a, b, s, t):
        return sum(
            (a[:, g * G : g * G + G] @ b[g * G : g * G + G]) * s[:, g, None] * t[g]
            for g in range(K // G)
        )

    def promoted(a, b, s, t, step=1, shift=0):
        acc = F(0)
        for g in range(K // G)[::step]:
            ks = slice(g * G, g * G + G)
            acc = acc + dot(a[:, ks], b[ks]) * (s[:, g - shift, None] * t[g])
        return acc

    judge(blocks, given,
          [promoted, lambda **x: promoted(**x, step=-1),
           lambda a, b, s, t: dot(a.astype(F) * s.repeat(G, 1), b.astype(F) * t.repeat(G, 0))],
          [lambda **x: promoted(**x, shift=1)])  # fmt: skip


def test_int8_with_scales_bias_and_residual():
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((M, K), (K, N)))
    given = {"a": a, "b": b, "s": scales(rng, M), "t": scales(rng, N),
             "bias": floats(rng, "bf16", N), "res": floats(rng, "fp16", M, N)}  # fmt: skip

    def spec(a, b, s, t, bias, res):
        return (a @ b) * s[:, None] * t + bias + res

    def way(a, b, s, t, bias, res, row=slice(None)):
        whole = (a.astype(np.int32) @ b.astype(np.int32)).astype(F)
        return whole * (s[:, None] * t) + (bias.astype(F)[row] + res.astype(F))

    def first(a, b, s, t, bias, res):
        whole = (a.astype(np.int32) @ b.astype(np.int32)).astype(F)
        return (res.astype(F) + whole * s[:, None] * t) + bias.astype(F)

    judge(spec, given, [way, first], [lambda **x: way(**x, row=slice(None, None, -1))])


GELU = math.sqrt(2 / math.pi)
ACTIVATIONS = {
    "relu": (lambda x: np.maximum(x, 0),
             [lambda x: np.where(x > 0, x, F(0)), lambda x: x * (x > 0)]),
    "erf": (
        lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
        [lambda x: F(0.5) * x * (1 + ERF(x * F(math.sqrt(0.5)))),
         lambda x: (h := x * F(0.5)) + h * ERF(x * F(math.sqrt(0.5)))],
    ),
    "tanh": (
        lambda x: 0.5 * x * (1 + np.tanh(GELU * (x + 0.044715 * x * x * x))),
        [lambda x: F(0.5) * x * (1 + np.tanh(F(GELU) * x * (1 + F(0.044715) * x * x))),
         lambda x: x / (1 + np.exp(F(-2 * GELU) * (x + F(0.044715) * (x * x * x))))],
    ),
    "silu": (
        lambda x: x * sigmoid(x),
        [lambda x: x / (1 + np.exp(-x)), lambda x: x * (1 / (1 + np.exp2(x * F(-1.44269504))))],
    ),
}  # fmt: skip


def ERF(x):
    return np.vectorize(math.erf, otypes=[F])(x)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_bias_and_an_activation(name):
    rng = np.random.default_rng(2)
    act, ways = ACTIVATIONS[name]
    given = {"a": floats(rng, "fp16", 40, 16), "b": floats(rng, "fp16", 16, 30),
             "bias": floats(rng, "fp32", 30)}  # fmt: skip
    judge(lambda a, b, bias: act(a @ b + bias), given,
          [lambda a, b, bias, f=f, step=step: f(dot(a, b, step) + bias)
           for f in ways for step in (1, -1)],
          [lambda a, b, bias: ways[0](dot(a, b)) + bias,
           lambda a, b, bias: ways[0]((dot(a, b) + bias) * F(1 + 2.0**-14))])  # fmt: skip


def test_alpha_and_beta():
    rng = np.random.default_rng(3)
    given = {"a": floats(rng, "bf16", M, K), "b": floats(rng, "bf16", K, N),
             "c": floats(rng, "fp32", M, N), "alpha": 0.7, "beta": -1.3}  # fmt: skip
    judge(lambda a, b, c, alpha, beta: alpha * (a @ b) + beta * c, given,
          [lambda a, b, c, alpha, beta: F(alpha) * dot(a, b) + F(beta) * c,
           lambda a, b, c, alpha, beta: dot(a.astype(F) * F(alpha), b, -1) + c * F(beta)],
          [lambda a, b, c, alpha, beta: F(alpha) * (dot(a, b) + F(beta) * c)])  # fmt: skip


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_weights_with_group_scales_and_zero_points(bits):
    rng, group = np.random.default_rng(4), 64
    per = 8 // bits
    q = rng.integers(0, 256, (K // per, N)).astype(np.uint8)
    zero = rng.integers(0, 2**bits, (K // group, N)).astype(np.uint8)
    given = {"a": floats(rng, "fp16", M, K), "q": q, "zero": zero,
             "s": round_to(scales(rng, K // group, N), "fp16")}  # fmt: skip

    def unpack(q):
        parts = [q & 15, q >> 4] if bits == 4 else [q]
        return np.stack(parts, axis=1).reshape((K, N))

    def spec(a, q, zero, s):
        return a @ ((unpack(q) - zero.repeat(group, 0)) * s.repeat(group, 0))

    def stored(a, q, zero, s):
        return a @ ((unpack(q) - zero.repeat(group, 0)) * s.repeat(group, 0)).may_round("fp16")

    def weights(q, zero, s, shift=0):
        zero, s = np.roll(zero, shift, 0).repeat(group, 0), s.astype(F).repeat(group, 0)
        return (unpack(q).astype(F) - zero) * s

    def first(a, q, zero, s, shift=0):
        return dot(a, weights(q, zero, s, shift))

    def zeros_last(a, q, zero, s):
        acc = F(0)
        for g in range(K // group):
            ks = slice(g * group, g * group + group)
            row = a[:, ks].astype(F).sum(-1, keepdims=True)
            acc = acc + (dot(a[:, ks], unpack(q)[ks]) - row * zero[g].astype(F)) * s[g].astype(F)
        return acc

    judge(spec, given, [first, zeros_last], [lambda **x: first(**x, shift=1)])
    judge(stored, given,
          [first, lambda a, q, zero, s: dot(a, weights(q, zero, s).astype(np.float16))],
          [lambda **x: first(**x, shift=1)])  # fmt: skip


@pytest.mark.parametrize("kind", ["mxfp8", "nvfp4"])
def test_microscaled_operands(kind):
    rng = np.random.default_rng(5)
    size = 32 if kind == "mxfp8" else 16
    if kind == "mxfp8":
        a, b = floats(rng, "fp8e4m3", M, K), floats(rng, "fp8e4m3", K, N)
        s, t = (rng.integers(120, 134, n).astype(np.uint8) for n in ((M, K // 32), (K // 32, N)))
    else:
        a = rng.integers(0, 256, (M, K // 2)).astype(np.uint8)
        b = rng.integers(0, 256, (K // 2, N)).astype(np.uint8)
        s, t = (round_to(np.exp2(rng.uniform(-3, 3, n)), "fp8e4m3")
                for n in ((M, K // 16), (K // 16, N)))  # fmt: skip

    def halves(x, axis):
        shape = (M, K) if axis == 1 else (K, N)
        return np.stack([x & 15, x >> 4], axis=axis + 1).reshape(shape)

    def spec(a, b, s, t):
        if kind == "mxfp8":
            s, t = s.decode("e8m0"), t.decode("e8m0")
        else:
            a, b = halves(a, 1).decode("e2m1"), halves(b, 0).decode("e2m1")
        return (a * s.repeat(size, 1)) @ (b * t.repeat(size, 0))

    def numbers(a, b, s, t):
        if kind == "mxfp8":
            s, t = (F(2) ** (x.astype(F) - 127) for x in (s, t))
            return a.astype(F), b.astype(F), s, t
        return E2M1[halves(a, 1)], E2M1[halves(b, 0)], s.astype(F), t.astype(F)

    def whole(a, b, s, t):
        a, b, s, t = numbers(a, b, s, t)
        return dot(a * s.repeat(size, 1), b * t.repeat(size, 0))

    def groups(a, b, s, t, shift=0):
        a, b, s, t = numbers(a, b, s, t)
        acc = F(0)
        for g in range(K // size):
            ks = slice(g * size, g * size + size)
            acc = acc + dot(a[:, ks], b[ks]) * s[:, g - shift, None] * t[g]
        return acc

    given = {"a": a, "b": b, "s": s, "t": t}
    judge(spec, given, [whole, groups], [lambda **x: groups(**x, shift=1)], Rules("sm_100"))


def test_every_code_of_the_microscaling_formats():
    (c,) = evaluate(
        lambda q: q.decode("e2m1"), {"q": (np.arange(16, dtype=np.uint8), "uint8")}, Rules()
    )
    assert c.value.tolist() == E2M1.tolist()
    codes = np.arange(256, dtype=np.uint8)
    (c,) = evaluate(lambda q: q.decode("e8m0"), {"q": (codes, "uint8")}, Rules())
    assert c.value[:255].tolist() == [2.0 ** (i - 127) for i in range(255)]
    assert np.isnan(c.value[255])
    assert (CODES["e2m1"].max, CODES["e8m0"].max) == (6.0, 2.0**127)
    with pytest.raises(SpecError, match=r"^spec: got codes that may be rounded, expected"):
        evaluate(lambda q: q.decode("e2m1"), {"q": (np.ones(3, F), "fp32")}, Rules())
