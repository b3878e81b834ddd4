"""Registers this repository's kernels, as another project would do it."""

import math
from dataclasses import replace
from functools import partial

import numpy as np


def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest, kernels, multiple_of
    from gemmproof.kernels.matmul_ws import matmul_ws
    from gemmproof.reference.mirrors import CALL_MIRRORS, MIRRORS

    mirrors = {**MIRRORS, **CALL_MIRRORS}
    contract = Contract(
        formats=("fp16", "bf16", "fp32", "fp8e4m3", "fp8e5m2", "int8"),
        M="0..",
        N="0..",
        K="0..",
        layouts="any",
        huge=True,
    )
    batched = replace(contract, batched=True, batch="0..")
    # launched by pointers alone, so that a proof decides it
    single = replace(batched, formats=("fp32",))
    others = replace(batched, formats=tuple(x for x in contract.formats if x != "fp32"))
    bmm = [
        KernelUnderTest(name, kernels.bmm, own, mirror=mirrors["bmm"])
        for name, own in (("bmm", others), ("bmm_fp32", single))
    ]
    plain = [
        KernelUnderTest(name, function, contract, mirror=mirrors.get(name))
        for name, function in kernels.KERNELS.items()
        if name not in ("matmul_ws", "matmul_tma")
    ]
    # the tiles and layouts of all formats at once are too many for a proof
    for name, few in (("matmul_tma", slice(2)), ("matmul_tma_others", slice(2, None))):
        own = replace(contract, formats=contract.formats[few])
        plain.append(KernelUnderTest(name, kernels.matmul_tma, own, mirror=MIRRORS["matmul_tma"]))
    # sizes that the copy engine addresses: all others are matmul_tma's, which is judged separately
    half = Contract(
        formats=("fp16", "bf16"), N=multiple_of(8), K=multiple_of(8), layouts=("row", "column")
    )
    # in Gluon; its products are summed in the order of matmul_tma's
    by_warps = KernelUnderTest(
        "matmul_ws", matmul_ws, half, device_only=True, predicted_by=kernels.matmul_tma
    )
    return [
        *plain,
        by_warps,
        *bmm,
        *_state_grouped_gemm(contract),
        *_state_fused(),
        *_state_weight_only(),
        *_state_scaled(contract),
        *_state_block_scaled(contract),
    ]


def _state_grouped_gemm(contract):
    """For each format: that of b is declared as an operand."""
    from gemmproof import KernelUnderTest, OneOf, Operand, kernels
    from gemmproof.reference.mirrors import CALL_MIRRORS

    def call(a, b, offsets, groups):
        return kernels.grouped_gemm(a, b, offsets)

    def multiply(a, b, offsets, groups):
        rows, c = np.arange(a.shape[0])[:, None], 0
        for g in range(groups):
            c = np.where(rows >= offsets[g], a @ b[g], c)
        return c

    def draw_offsets(rng, shape, M, groups):
        """Draw sorted offsets, whose repetitions make groups empty."""
        return np.concatenate([[0], np.sort(rng.integers(0, M + 1, groups - 1)), [M]])

    for fmt in ("fp16", "bf16", "fp8e4m3", "fp8e5m2"):
        operands = {
            "groups": OneOf(1, 3),
            "b": Operand(fmt, ("groups", "K", "N"), layouts="any"),
            "offsets": Operand("int32", "groups + 1", draw_offsets, layouts="any"),
        }
        own = replace(contract, formats=(fmt,))
        options = {"operands": operands, "spec": multiply, "mirror": CALL_MIRRORS["grouped_gemm"]}
        yield KernelUnderTest(f"grouped_gemm_{fmt}", call, own, **options)


def _state_fused():
    """matmul_fused: any operands, those that the copy engine addresses, and c updated in place."""
    from gemmproof import Contract, KernelUnderTest, OneOf, Operand
    from gemmproof.kernels import matmul_fused

    any_sizes = {"M": "0..", "N": "0..", "K": "0.."}
    tiled = {"M": "8..:8", "N": "8..:8", "K": "8..:8", "layouts": ("row", "column")}

    def operands(layouts, **others):
        return {
            "alpha": OneOf(0.5),
            "beta": OneOf(0.0, -2.0),
            "bias": Operand("fp32", "N", optional=True, layouts=layouts),
            "added": Operand("fp16", ("M", "N"), layouts=layouts),
            **others,
        }

    def launch(a, b, added, **options):
        return matmul_fused(a, b, c=added, **options)

    def update(a, b, c, **options):
        return matmul_fused(a, b, c=c, out=c, **options)

    def add(a, b, alpha, beta, c):
        return alpha * (a @ b) + beta * c if beta else alpha * (a @ b)

    def multiply(a, b, activation):
        return matmul_fused(a, b, activation=activation)

    def activate(a, b, activation):
        return np.maximum(a @ b, 0) if activation else a @ b

    residual = Operand("bf16", ("M", "N"), optional=True, layouts="any")
    activations = OneOf(None, "relu", "gelu", "gelu_tanh", "silu")
    whole = Contract(("fp16", "bf16"), **any_sizes, layouts="any", huge=True)
    some = {"activation": OneOf(None, "silu"), "residual": residual}
    every = {
        "beta": OneOf(-2.0),
        "bias": Operand("fp32", "N"),
        "activation": OneOf("gelu"),
        "residual": Operand("bf16", ("M", "N")),
    }
    in_place = {
        "alpha": OneOf(1.0, 0.5),
        "beta": OneOf(-2.0, 0.0),
        "c": Operand("fp16", ("M", "N"), use="updated"),
    }
    of_all = operands("any", activation=activations, residual=residual)
    single = replace(whole, formats=("fp32",))
    described, updated = Contract(("bf16",), **tiled), Contract(("fp16",), **any_sizes)
    # some forms of calls have separate contracts, each with few enough forms for a proof
    forms = (
        ("", launch, whole, of_all, _finish),
        ("_fp32", launch, single, operands("any", **some), _finish),
        ("_tiled", launch, described, operands("contiguous", **every), _finish),
        ("_bare", multiply, described, {"activation": OneOf(None, "relu")}, activate),
        ("_in_place", update, updated, in_place, add),
    )
    return [
        KernelUnderTest(f"matmul_fused{name}", call, contract, operands=given, spec=spec)
        for name, call, contract, given, spec in forms
    ]


def _finish(a, b, alpha, beta, added, bias, activation, residual):
    """activation(alpha * (a @ b) + beta * c + bias) + residual."""
    from gemmproof import erf, sigmoid

    x = alpha * (a @ b)
    x = x + beta * added if beta else x
    x = x if bias is None else x + bias
    if activation == "relu":
        x = np.maximum(x, 0)
    elif activation == "gelu":
        x = 0.5 * x * (1 + erf(x / math.sqrt(2)))
    elif activation == "gelu_tanh":
        x = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    elif activation == "silu":
        x = x * sigmoid(x)
    return x if residual is None else x + residual


def _state_weight_only():
    """Products with weights of integers, whose scales belong to columns or to groups of rows."""
    from gemmproof import Contract, KernelUnderTest, OneOf, Operand, kernels
    from gemmproof.reference.mirrors import CALL_MIRRORS

    contract = Contract(("fp16", "bf16"), M="0..", N="0..", K="0..", layouts="any", huge=True)
    bytes_ = Operand("int8", ("K", "N"), layouts="any")
    packed = Operand("int16", ("(K + 127) // 128 * 32", "N"), layouts="any")
    # group 0 stands for none: a quotient by 0 is 0, so there is one row
    rows = "(K + group - 1) // group + 1 - group // group"
    scales = {
        "group": OneOf(128, 0, 64, 32, 256),
        "scale": Operand("fp16", (rows, "N"), layouts="any"),
        "zero": Operand("int8", (rows, "N"), optional=True, layouts="any"),
    }

    def call(wrapper, a, b, group, scale, zero):
        if group:
            return wrapper(a, b, scale, zero, group=group)
        return wrapper(a, b, scale[0], None if zero is None else zero[0])

    def dequantize(a, b, group, scale, zero, middle):
        k = np.arange(a.shape[1])
        row = k // group if group else 0 * k
        return (b - (middle if zero is None else zero[row])) * scale[row]

    def w8(a, b, **given):
        return a @ dequantize(a, b, **given, middle=0)

    def w4(a, b, **given):
        k = np.arange(a.shape[1])
        nibbles = (b[k // 128 * 32 + k % 32] >> (k // 32 % 4 * 4)[:, None]) & 15
        return a @ dequantize(a, nibbles, **given, middle=8)

    return [
        KernelUnderTest(
            wrapper.__name__,
            partial(call, wrapper),
            contract,
            operands={"b": b, **scales},
            spec=spec,
            mirror=CALL_MIRRORS[wrapper.__name__],
        )
        for wrapper, b, spec in ((kernels.matmul_w8, bytes_, w8), (kernels.matmul_w4, packed, w4))
    ]


def _state_scaled(contract):
    """Products of scaled operands: each scale of the tensor or of its rows, with a bias or without.

    Sums that stay in a unit of 13 bits are declared separately. Of all layouts hardly any is for
    the copy engine; those that are have contracts that say so.
    """
    import torch

    from gemmproof import KernelUnderTest, OneOf, Operand
    from gemmproof.kernels import matmul_scaled

    operands = {
        "rows": OneOf(1, 0),
        "columns": OneOf(1, 0),
        "scale_a": Operand("fp32", "(M - 1) * rows + 1", layouts="any"),
        "scale_b": Operand("fp32", "(N - 1) * columns + 1", layouts="any"),
        "bias": Operand("bf16", "N", layouts="any"),
    }
    or_without = {**operands, "bias": Operand("bf16", "N", optional=True, layouts="any")}

    def call(a, b, rows, columns, **given):
        return matmul_scaled(a, b, **given)

    def call_described(a, b, rows, columns, **given):
        return matmul_scaled(a, b.t(), **given)

    def call_fast(a, b, rows, columns, **given):
        return matmul_scaled(a, b.t(), **given, out_dtype=torch.float32, fast_accum=True)

    def spec(a, b, scale_a, scale_b, bias):
        # an int32 that fp32 does not hold is rounded to it, which the product allows for
        c = (a @ b) * scale_a[:, None] * scale_b
        return c if bias is None else c + bias

    def spec_described(a, b, scale_a, scale_b, bias):
        return spec(a, b.T, scale_a, scale_b, bias)

    where = "K % 16 == 0 and N % 8 == 0"
    for fmt in ("fp8e4m3", "fp8e5m2", "int8"):
        own = replace(contract, formats=(fmt,))
        described = replace(own, layouts="contiguous", huge=False, where=where)
        yield KernelUnderTest(f"matmul_scaled_{fmt}", call, own, operands=operands, spec=spec)
        columns = {"b": Operand(fmt, ("N", "K"))}  # dense along K, for the copy engine
        given = {"operands": {**or_without, **columns}, "spec": spec_described}
        name = f"matmul_scaled_described_{fmt}"
        yield KernelUnderTest(name, call_described, described, **given)
        if fmt != "int8":
            fast = replace(described, accumulator="e8m13")
            given = {"operands": {**operands, **columns}, "spec": spec_described}
            yield KernelUnderTest(f"matmul_scaled_fast_{fmt}", call_fast, fast, **given)


def _state_block_scaled(contract):
    """Products whose scales are of 128 elements along K, and of b of 128 columns too."""
    import torch

    from gemmproof import KernelUnderTest, OneOf, Operand
    from gemmproof.kernels import matmul_block_scaled
    from gemmproof.reference.mirrors import CALL_MIRRORS

    mirror = CALL_MIRRORS["matmul_block_scaled"]
    operands = {
        "out_dtype": OneOf(torch.bfloat16, torch.float32),
        "scale_a": Operand("fp32", ("M", "-(-K // 128)"), layouts="any"),
        "scale_b": Operand("fp32", ("-(-K // 128)", "-(-N // 128)"), layouts="any"),
    }

    def call_described(a, b, **given):
        return matmul_block_scaled(a, b.t(), **given)

    def spec(a, b, scale_a, scale_b):
        k, n = (np.arange(size) // 128 for size in b.shape)
        return (a * scale_a[:, k]) @ (b * scale_b[k][:, n])

    def spec_described(a, b, scale_a, scale_b):
        return spec(a, b.T, scale_a, scale_b)

    where = "K % 16 == 0 and N % 8 == 0"
    for fmt in ("fp8e4m3", "fp8e5m2"):
        own = replace(contract, formats=(fmt,))
        described = replace(own, layouts="contiguous", huge=False, where=where)
        options = {"operands": operands, "spec": spec, "mirror": mirror}
        yield KernelUnderTest(f"matmul_block_scaled_{fmt}", matmul_block_scaled, own, **options)
        options = {"operands": {**operands, "b": Operand(fmt, ("N", "K"))}, "spec": spec_described}
        options["mirror"] = partial(mirror, b_is_given_t=True)
        name = f"matmul_block_scaled_described_{fmt}"
        yield KernelUnderTest(name, call_described, described, **options)
