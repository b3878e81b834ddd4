"""Registers this repository's kernels, in the words that another project would use."""


def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest
    from gemmproof.kernels import matmul, matmul_grouped, matmul_persistent, matmul_swizzled
    from gemmproof.reference.mirrors import mirror_for

    contract = Contract(
        formats=("fp16", "bf16", "fp32", "fp8e4m3", "fp8e5m2", "int8"),
        M="0..",
        N="0..",
        K="0..",
        layouts="any",
        huge=True,
    )
    wrappers = (matmul, matmul_grouped, matmul_swizzled, matmul_persistent)
    return [
        KernelUnderTest(f.__name__, f, contract, mirror=mirror_for(f.__name__)) for f in wrappers
    ]
