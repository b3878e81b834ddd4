"""Registers this repository's kernels, in the words that another project would use."""

import math


def pytest_gemm_kernels():
    from dataclasses import replace

    from gemmproof import Contract, KernelUnderTest, kernels
    from gemmproof.reference.mirrors import MIRRORS

    contract = Contract(
        formats=("fp16", "bf16", "fp32", "fp8e4m3", "fp8e5m2", "int8"),
        M="0..",
        N="0..",
        K="0..",
        layouts="any",
        huge=True,
    )
    bmm = KernelUnderTest("bmm", kernels.bmm, replace(contract, batched=True, batch="0.."))
    plain = [
        KernelUnderTest(name, function, contract, mirror=MIRRORS.get(name))
        for name, function in kernels.KERNELS.items()
        if name != "matmul_ws"  # Gluon's, of which the simulator sees nothing
    ]
    return [*plain, bmm, *_state_grouped_gemm(contract), *_state_fused()]


def _state_grouped_gemm(contract):
    """For each format: that of b is stated as an operand."""
    from dataclasses import replace

    import numpy as np

    from gemmproof import KernelUnderTest, OneOf, Operand, kernels

    def call(a, b, offsets, groups):
        return kernels.grouped_gemm(a, b, offsets)

    def multiply(a, b, offsets, groups):
        rows, c = np.arange(a.shape[0])[:, None], 0
        for g in range(groups):
            c = np.where(rows >= offsets[g], a @ b[g], c)
        return c

    def draw_offsets(rng, shape, M, groups):
        """Sorted draws repeat themselves, which makes groups empty."""
        return np.concatenate([[0], np.sort(rng.integers(0, M + 1, groups - 1)), [M]])

    for fmt in ("fp16", "bf16", "fp8e4m3", "fp8e5m2"):
        operands = {
            "groups": OneOf(1, 3),
            "b": Operand(fmt, ("groups", "K", "N"), layouts="any"),
            "offsets": Operand("int32", "groups + 1", draw_offsets, layouts="any"),
        }
        own = replace(contract, formats=(fmt,))
        yield KernelUnderTest(f"grouped_gemm_{fmt}", call, own, operands=operands, spec=multiply)


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

    return [
        KernelUnderTest(
            "matmul_fused",
            launch,
            Contract(("fp16", "bf16", "fp32"), **any_sizes, layouts="any", huge=True),
            operands=operands(
                "any",
                activation=OneOf(None, "relu", "gelu", "gelu_tanh", "silu"),
                residual=Operand("bf16", ("M", "N"), optional=True, layouts="any"),
            ),
            spec=_finish,
        ),
        KernelUnderTest(
            "matmul_fused_tiled",
            launch,
            Contract(("bf16",), **tiled),
            operands=operands(
                "contiguous",
                activation=OneOf(None, "gelu"),
                residual=Operand("bf16", ("M", "N"), optional=True),
            ),
            spec=_finish,
        ),
        KernelUnderTest(
            "matmul_fused_in_place",
            update,
            Contract(("fp16",), **any_sizes),
            operands={
                "alpha": OneOf(1.0, 0.5),
                "beta": OneOf(-2.0, 0.0),
                "c": Operand("fp16", ("M", "N"), use="updated"),
            },
            spec=add,
        ),
    ]


def _finish(a, b, alpha, beta, added, bias, activation, residual):
    """activation(alpha * (a @ b) + beta * c + bias) + residual."""
    import numpy as np

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
