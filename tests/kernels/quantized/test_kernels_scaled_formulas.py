"""fp8 kernels that scale sums, judged by formulas that scale the operands."""

import numpy as np
import pytest
import torch

from gemmproof import Contract, KernelUnderTest, Operand
from gemmproof.engine.kernel_check import check
from gemmproof.kernels import matmul_block_scaled, matmul_scaled
from gemmproof.properties.cases.case import Case

pytestmark = pytest.mark.filterwarnings("ignore:.*pointers are used")
BLOCK = 128
BLOCKS = {
    "scale_a": Operand("fp32", ("M", f"-(-K // {BLOCK})")),
    "scale_b": Operand("fp32", (f"-(-K // {BLOCK})", f"-(-N // {BLOCK})")),
}
VECTORS = {"scale_a": Operand("fp32", "M"), "scale_b": Operand("fp32", "N")}


def multiply_in_fp32(a, b, scale_a, scale_b):
    return matmul_block_scaled(a, b, scale_a, scale_b, torch.float32)


def take_scales_of_the_next_block(a, b, scale_a, scale_b):
    return multiply_in_fp32(a, b, scale_a.roll(-1, 1), scale_b)


def drop_the_last_block(a, b, scale_a, scale_b):
    k = (scale_a.shape[1] - 1) * BLOCK
    return multiply_in_fp32(a[:, :k], b[:k], scale_a[:, :-1].contiguous(), scale_b[:-1])


def promote(a, b, scale_a, scale_b):
    return matmul_scaled(a, b.t().contiguous().t(), scale_a, scale_b, out_dtype=torch.float32)


def stay_in_the_unit(a, b, scale_a, scale_b):
    """Sums of all k in 13 bits, scaled."""
    b = b.t().contiguous().t()
    return matmul_scaled(a, b, scale_a, scale_b, out_dtype=torch.float32, fast_accum=True)


def repeat_scales(a, b, scale_a, scale_b):
    (_, K), N = a.shape, b.shape[1]
    rows = np.repeat(scale_a, BLOCK, 1)[:, :K]
    blocks = scale_b.repeat(BLOCK, 0)[:K].repeat(BLOCK, 1)[:, :N]
    return (a * rows) @ (b * blocks)


def index_scales(a, b, scale_a, scale_b):
    k, n = (np.arange(size) // BLOCK for size in b.shape)
    return (a * scale_a[:, k]) @ (scale_b[k][:, n] * b)


def scale_rows(a, b, scale_a, scale_b):
    return (a * scale_a[:, None]) @ (b * scale_b)


def judge(launch, operands, spec, case, accumulator="fp32"):
    contract = Contract(("fp8e4m3",), accumulator=accumulator)
    kernel = KernelUnderTest(launch.__name__, launch, contract, operands=operands, spec=spec)
    report = check(kernel, case=case, target="sm_90")
    return report.verdict, {f.property for f in report.findings}


PASSES = ("pass", set())
SMALLEST = Case(1, 8, 240, dtype="fp8e4m3", fill="positive")
DEEP = Case(16, 16, 1200, dtype="fp8e4m3", fill="positive")


@pytest.mark.parametrize("case", [SMALLEST, DEEP], ids=["smallest", "deep"])
@pytest.mark.parametrize("spec", [repeat_scales, index_scales])
def test_blocks_may_be_scaled_in_the_formula_before_the_product(spec, case):
    assert judge(multiply_in_fp32, BLOCKS, spec, case) == PASSES


@pytest.mark.parametrize("fill", ["index", "normal", "positive"])
@pytest.mark.parametrize("launch", [take_scales_of_the_next_block, drop_the_last_block])
def test_a_wrong_block_is_found_by_such_a_formula(launch, fill):
    case = Case(1, 8, 240, dtype="fp8e4m3", fill=fill)
    verdict, findings = judge(launch, BLOCKS, repeat_scales, case)
    assert (verdict, bool(findings)) == ("fail", True)


@pytest.mark.lane("full")
def test_a_sum_that_stays_in_the_unit_is_found_by_such_a_formula():
    assert judge(promote, VECTORS, scale_rows, DEEP) == PASSES
    assert judge(stay_in_the_unit, VECTORS, scale_rows, DEEP) == ("fail", {"within_bound"})
    assert judge(stay_in_the_unit, VECTORS, scale_rows, DEEP, "e8m13") == PASSES
