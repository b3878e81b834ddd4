"""Registers this repository's kernels, in the words that another project would use."""


def pytest_gemm_kernels():
    from gemmproof import Contract, KernelUnderTest, kernels, multiple_of
    from gemmproof.kernels.matmul_ws import matmul_ws
    from gemmproof.reference.mirrors import MIRRORS

    contract = Contract(
        formats=("fp16", "bf16", "fp32", "fp8e4m3", "fp8e5m2", "int8"),
        M="0..",
        N="0..",
        K="0..",
        layouts="any",
        huge=True,
    )
    # what the copy engine addresses: all else is matmul_tma's, which is judged by itself
    half = Contract(
        formats=("fp16", "bf16"), N=multiple_of(8), K=multiple_of(8), layouts=("row", "column")
    )
    # in Gluon; its products are summed in the order of matmul_tma's
    by_warps = KernelUnderTest(
        "matmul_ws", matmul_ws, half, device_only=True, predicted_by=kernels.matmul_tma
    )
    return [
        *(
            KernelUnderTest(name, getattr(kernels, name), contract, mirror=MIRRORS.get(name))
            for name in kernels.__all__
        ),
        by_warps,
    ]
