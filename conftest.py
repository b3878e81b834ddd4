"""Registers this repository's kernels, in the words that another project would use."""


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
        KernelUnderTest(name, function, contract, mirror=MIRRORS.get(name))
        for name, function in kernels.KERNELS.items()
        if name != "matmul_ws"  # Gluon's, of which the simulator sees nothing
    ]
