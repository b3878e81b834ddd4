"""Registers this repository's kernels, in the words that another project would use."""


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
    others = [KernelUnderTest("bmm", kernels.bmm, replace(contract, batched=True, batch="0.."))]
    stated = {kernel.name for kernel in others}
    return others + [
        KernelUnderTest(name, getattr(kernels, name), contract, mirror=MIRRORS.get(name))
        for name in kernels.__all__
        if name not in stated
    ]
