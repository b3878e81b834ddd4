"""Registers this repository's kernels, in the words that another project would use."""

from functools import partial

import numpy as np


def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest, kernels
    from gemmproof.kernels import quantized
    from gemmproof.reference.mirrors import MIRRORS

    contract = Contract(
        formats=("fp16", "bf16", "fp32", "fp8e4m3", "fp8e5m2", "int8"),
        M="0..",
        N="0..",
        K="0..",
        layouts="any",
        huge=True,
    )
    plain = [name for name in kernels.__all__ if name not in quantized.__all__]
    return [
        *(
            KernelUnderTest(name, getattr(kernels, name), contract, mirror=MIRRORS.get(name))
            for name in plain
        ),
        *list_weight_only(),
    ]


def list_weight_only():
    """Products with weights of integers, whose scales belong to columns or to groups of rows."""
    from gemmproof import Contract, KernelUnderTest, OneOf, Operand, kernels

    contract = Contract(("fp16", "bf16"), M="0..", N="0..", K="0..", layouts="any", huge=True)
    bytes_ = Operand("int8", ("K", "N"), layouts="any")
    words = Operand("int16", ("(K + 127) // 128 * 32", "N"), layouts="any")
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
        )
        for wrapper, b, spec in ((kernels.matmul_w8, bytes_, w8), (kernels.matmul_w4, words, w4))
    ]
