"""Registers this repository's kernels, in the words that another project would use."""

from dataclasses import replace


def pytest_gemm_kernels():
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
    return [
        *(
            KernelUnderTest(name, getattr(kernels, name), contract, mirror=MIRRORS.get(name))
            for name in kernels.PLAIN
        ),
        *list_scaled(replace(contract, formats=("fp8e4m3", "fp8e5m2", "int8"))),
        *list_block_scaled(replace(contract, formats=("fp8e4m3", "fp8e5m2"))),
    ]


def list_scaled(contract):
    """Products of scaled operands: each scale of the tensor or of its rows, with a bias or without.

    Sums that stay in a unit of 13 bits are a promise of their own. Of all layouts hardly any is for
    the copy engine; those that are have contracts that say so.
    """
    import torch

    from gemmproof import KernelUnderTest, OneOf, Operand
    from gemmproof.kernels import matmul_scaled

    operands = {
        "rows": OneOf(1, 0),
        "columns": OneOf(1, 0),
        "out_dtype": OneOf(torch.bfloat16, torch.float32),
        "scale_a": Operand("fp32", "(M - 1) * rows + 1", layouts="any"),
        "scale_b": Operand("fp32", "(N - 1) * columns + 1", layouts="any"),
        "bias": Operand("bf16", "N", optional=True, layouts="any"),
    }

    def call(a, b, rows, columns, **given):
        return matmul_scaled(a, b, **given)

    def call_described(a, b, rows, columns, **given):
        return matmul_scaled(a, b.t().contiguous().t(), **given)

    def call_fast(a, b, rows, columns, **given):
        return matmul_scaled(a, b.t().contiguous().t(), **given, fast_accum=True)

    def spec(a, b, scale_a, scale_b, bias):
        # an int32 that fp32 does not hold is rounded to it, which the product allows for
        c = (a @ b) * scale_a[:, None] * scale_b
        return c if bias is None else c + bias

    where = "K % 16 == 0 and N % 8 == 0"
    described = replace(
        contract, formats=("fp8e4m3", "int8"), layouts="contiguous", huge=False, where=where
    )
    fast = replace(described, formats=("fp8e4m3", "fp8e5m2"), accumulator="e8m13")
    return [
        KernelUnderTest("matmul_scaled", call, contract, operands=operands, spec=spec),
        KernelUnderTest(
            "matmul_scaled_described", call_described, described, operands=operands, spec=spec
        ),
        KernelUnderTest("matmul_scaled_fast", call_fast, fast, operands=operands, spec=spec),
    ]


def list_block_scaled(contract):
    """Products whose scales are of 128 elements along K, and of b of 128 columns too."""
    import torch

    from gemmproof import KernelUnderTest, OneOf, Operand
    from gemmproof.kernels import matmul_block_scaled

    operands = {
        "out_dtype": OneOf(torch.bfloat16, torch.float32),
        "scale_a": Operand("fp32", ("M", "-(-K // 128)"), layouts="any"),
        "scale_b": Operand("fp32", ("-(-K // 128)", "-(-N // 128)"), layouts="any"),
    }

    def call_described(a, b, **given):
        return matmul_block_scaled(a, b.t().contiguous().t(), **given)

    def spec(a, b, scale_a, scale_b):
        # what is scaled are sums of fp8, as Hopper's units make them; (a * scales) @ b has others
        N, c = b.shape[1], a[:, :0] @ b[:0]
        for i in range(scale_a.shape[1]):
            part = slice(128 * i, 128 * (i + 1))
            scale = scale_a[:, i : i + 1] * scale_b[i].repeat(128, 0)[:N]
            c = c + (a[:, part] @ b[part]) * scale
        return c

    where = "K % 16 == 0 and N % 8 == 0"
    described = replace(contract, layouts="contiguous", huge=False, where=where)
    words = {"operands": operands, "spec": spec}
    return [
        KernelUnderTest("matmul_block_scaled", matmul_block_scaled, contract, **words),
        KernelUnderTest("matmul_block_scaled_described", call_described, described, **words),
    ]
