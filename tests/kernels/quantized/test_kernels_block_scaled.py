"""matmul_block_scaled: its values, who gets descriptors, errors, what it compiles to."""

import warnings
from unittest.mock import MagicMock, patch

import pytest
import torch
from tests.kernels.calls import assert_refused, is_within_roundings, run_quietly
from tests.support.lanes import combine

from gemmproof.kernels import matmul_block_scaled
from gemmproof.kernels.arguments import FP8
from gemmproof.kernels.quantized.matmul_block_scaled import CONFIGS

E4M3, E5M2 = FP8
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
BOTH = ["matmul_block_scaled_kernel", "matmul_block_scaled_pointer_kernel"]


def draw_blocks(M, N, K, dtype=E4M3, dense=True):
    """Operands of small integers, k by k where dense, and a scale for each block."""
    rng = torch.Generator().manual_seed(M + N + K)
    a, b = (torch.randint(-8, 9, s, generator=rng).to(dtype) for s in ((M, K), (N, K)))
    blocks = -(-K // 128)
    scale_a = torch.rand(M, blocks, generator=rng) + 0.5
    scale_b = torch.rand(blocks, -(-N // 128), generator=rng) + 0.5
    return a, b.T if dense else b.T.contiguous(), scale_a, scale_b


def has_scaled_blocks(c, a, b, scale_a, scale_b):
    """Off by the rounding to c's format, and in fp32 by three for each block and one sum more."""
    (_, K), N = a.shape, b.shape[1]
    a = a.double() * scale_a.double().repeat_interleave(128, 1)[:, :K]
    blocks = scale_b.double().repeat_interleave(128, 0)[:K].repeat_interleave(128, 1)
    b = b.double() * blocks[:, :N]
    return is_within_roundings(c, a @ b, a.abs() @ b.abs(), 3 + scale_a.shape[1])


def run_blocks(a, b, scale_a, scale_b, config=0, **options):
    options = {"scale_a": scale_a, "scale_b": scale_b, **options}
    return run_quietly(matmul_block_scaled, a, b, config, **options)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("dtype", "out_dtype", "shape"),
    combine(FP8, [BF16, F16, F32], [(136, 264, 272), (1, 128, 128), (65, 8, 400)]),
)
def test_each_block_has_its_scales(dense, dtype, out_dtype, shape):
    """Several blocks of every axis, the last of them cut off, in every configuration."""
    operands = draw_blocks(*shape, dtype, dense)
    for config in range(len(CONFIGS) if dense else 1):
        seen = run_blocks(*operands, config, out_dtype=out_dtype)
        assert [x.kernel for x in seen.launches] == [BOTH[not dense]]
        assert seen.result.dtype == out_dtype
        assert has_scaled_blocks(seen.result, *operands)


@pytest.mark.parametrize("dense", [True, False])
def test_blocks_are_summed_from_zero(dense):
    """2^14 + 1 - 2^14 over three blocks: a unit of 13 bits that went on would drop the 1."""
    a, b, scale_a, scale_b = draw_blocks(16, 16, 384, dense=dense)
    a, b = torch.zeros_like(a.float()), torch.zeros_like(b.float())
    a[:, 0], a[:, 128], a[:, 256], b[0], b[128], b[256] = 128, 1, -128, 128, 1, 128
    a, b = a.to(E4M3), (b.T.contiguous().to(E4M3).T if dense else b.to(E4M3))
    seen = run_blocks(a, b, torch.ones_like(scale_a), torch.ones_like(scale_b))
    assert (seen.result == 1).all()


@pytest.mark.parametrize(
    ("M", "N", "K"), [(0, 8, 16), (8, 0, 16), (8, 8, 0), (1, 1, 1), (3, 1, 129)]
)
def test_axes_of_no_and_of_one_element(M, N, K):
    operands = draw_blocks(M, N, K)
    assert has_scaled_blocks(run_blocks(*operands).result, *operands)


def test_block_scales_and_out_may_have_any_strides():
    a, b, scale_a, scale_b = draw_blocks(40, 264, 272)
    memory = torch.zeros(264, 40, dtype=BF16)
    for out, kernel in ((None, BOTH[0]), (memory.T, BOTH[1])):
        scale_a = scale_a.T.contiguous().T
        scale_b = torch.stack([scale_b, -scale_b], 2)[..., 0]
        seen = run_blocks(a, b, scale_a, scale_b, out=out)
        assert [x.kernel for x in seen.launches] == [kernel]
        assert has_scaled_blocks(seen.result, a, b, scale_a, scale_b)


A, B, SA, SB = draw_blocks(40, 136, 144)


def test_blocks_that_are_not_described_get_a_line():
    module = "gemmproof.kernels.quantized.matmul_block_scaled"
    with (
        patch(f"{module}.{BOTH[0]}", MagicMock(configs=CONFIGS)) as described,
        patch(f"{module}.{BOTH[1]}", MagicMock()) as by_pointers,
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            matmul_block_scaled(A, B, SA, SB)
            matmul_block_scaled(A[:, :0], B[:0], SA[:, :0], SB[:0])
        with pytest.warns(
            UserWarning, match=r"^matmul_block_scaled: got a \(\d+, \d+\) with strides"
        ) as warned:
            matmul_block_scaled(A, B.contiguous(), SA, SB)
    assert str(warned[0].message).endswith("; pointers are used")
    assert warned[0].filename == __file__
    assert described.__getitem__.return_value.call_count == 1
    assert by_pointers.__getitem__.return_value.call_count == 2


BLOCK_ERRORS = {
    "got a of torch.int8, expected torch.float8_e4m3fn or": (TypeError, {"a": A.to(torch.int8)}),
    "got scale_a of shape (40, 1), expected (40, 2)": (ValueError, {"scale_a": SA[:, :1]}),
    "got scale_b of shape (1, 2), expected (2, 2)": (ValueError, {"scale_b": SB[:1]}),
    "got scale_b of shape (2,), expected (2, 2)": (ValueError, {"scale_b": SB[0]}),
    "got scale_b of torch.float16, expected torch.float32": (TypeError, {"scale_b": SB.half()}),
    "got scale_a on meta, expected cpu": (TypeError, {"scale_a": SA.to("meta")}),
    "got out_dtype=torch.int8, expected torch.bfloat16": (TypeError, {"out_dtype": torch.int8}),
    "got out of shape (136, 40), expected (40, 136)": (
        ValueError,
        {"out": torch.zeros(136, 40, dtype=BF16)},
    ),
}


@pytest.mark.parametrize("message", BLOCK_ERRORS)
def test_a_bad_product_of_blocks_gets_one_line(message):
    error, options = BLOCK_ERRORS[message]
    given = {"a": A, "b": B, "scale_a": SA, "scale_b": SB, **options}
    assert_refused(error, message, matmul_block_scaled, **given)


def test_a_result_in_the_memory_of_block_scales_is_refused():
    out = torch.zeros(40, 136)
    with pytest.raises(ValueError, match="out in the memory of scale_a, expected memory of its"):
        matmul_block_scaled(A, B, out[:, :2], SB, F32, out=out)
