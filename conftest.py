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
    bmm = KernelUnderTest("bmm", kernels.bmm, replace(contract, batched=True, batch="0.."))
    plain = [
        KernelUnderTest(name, function, contract, mirror=MIRRORS.get(name))
        for name, function in kernels.KERNELS.items()
        if name != "matmul_ws"  # Gluon's, of which the simulator sees nothing
    ]
    return [*plain, bmm, *_state_grouped_gemm(contract)]


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
