"""Each row of a tile of a and b begins at a multiple of 16 bytes, as loads of 16 bytes require."""

from hypothesis import given, settings
from split_k import matmul

from gemmproof import Contract, KernelUnderTest, multiple_of, observe
from gemmproof.strategies import cases

CONTRACT = Contract(N=multiple_of(8), K=multiple_of(8), layouts=("row",))
KERNEL = KernelUnderTest("matmul", matmul, CONTRACT)


@settings(deadline=None)
@given(case=cases(KERNEL))
def test_rows_of_tiles_begin_at_multiples_of_16_bytes(case):
    for access in observe(KERNEL, case).accesses:
        if access.operand in ("a", "b"):
            first = access.offsets[..., 0][access.mask[..., 0]]  # element of each row, in fp16
            assert not (first % 8).any(), f"{access.where}: rows of {access.operand} at {first}"
