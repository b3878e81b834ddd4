"""matmul_scaled: its values in every format, who gets descriptors, and errors."""

import warnings
from itertools import product
from unittest.mock import MagicMock, patch

import pytest
import torch
from tests.kernels.calls import (
    assert_pointers_told,
    assert_refused,
    is_within_roundings,
    run_quietly,
)
from tests.support.lanes import combine, first_of_each

from gemmproof.kernels import matmul_scaled
from gemmproof.kernels.arguments import FP8
from gemmproof.kernels.quantized.matmul_scaled import CONFIGS, keep_fitting, matmul_scaled_kernel
from gemmproof.reference.simulator import run

E4M3, E5M2, I8 = (*FP8, torch.int8)
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
MODULE = "gemmproof.kernels.quantized.matmul_scaled"
DESCRIBED, BY_POINTERS = "matmul_scaled_kernel", "matmul_scaled_pointer_kernel"


def draw_scaled(M, N, K, dtype, dense=True):
    """Operands of small integers, k by k where dense; scales of rows and columns; a bias."""
    rng = torch.Generator().manual_seed(M + N + K)
    a, b = (torch.randint(-8, 9, s, generator=rng).to(dtype) for s in ((M, K), (N, K)))
    scale_a, scale_b, bias = (torch.rand(n, generator=rng) + 0.5 for n in (M, N, N))
    return a, b.T if dense else b.T.contiguous(), scale_a, scale_b, bias.to(BF16)


def calculate(a, b, scale_a, scale_b, bias=None):
    c = (a.double() @ b.double()) * (scale_a.double().reshape(-1, 1) * scale_b.double())
    return c if bias is None else c + bias.double()


def is_rounded_once(c, a, b, scale_a, scale_b, bias=None):
    """Off by the rounding to c's format, and by four in fp32: of the sums, two products, a sum."""
    expected = calculate(a, b, scale_a, scale_b, bias)
    size = calculate(a, b, scale_a, scale_b).abs() + (0 if bias is None else bias.double().abs())
    return is_within_roundings(c, expected, size, 4)


def run_scaled(a, b, scale_a, scale_b, config=0, **options):
    options = {"scale_a": scale_a, "scale_b": scale_b, **options}
    return run_quietly(matmul_scaled, a, b, config, **options)


@pytest.mark.parametrize("dense", first_of_each([True, False]))
@pytest.mark.parametrize(
    ("dtype", "fast", "out_dtype"),
    combine([E4M3, E4M3, E5M2, E5M2, I8], [0, 1, 0, 1, 0], [BF16, F16, F32]),
)
def test_products_are_scaled_and_rounded_once(dense, dtype, fast, out_dtype):
    """Exact sums, several tiles with odd ones at every edge, in every configuration."""
    a, b, scale_a, scale_b, bias = draw_scaled(136, 264, 272, dtype, dense)
    for config in range(len(keep(out_dtype)) if dense else 1):
        options = {"out_dtype": out_dtype, "fast_accum": bool(fast), "config": config}
        seen = run_scaled(a, b, scale_a, scale_b, bias=bias, **options)
        assert [x.kernel for x in seen.launches] == [DESCRIBED if dense else BY_POINTERS]
        assert seen.result.dtype == out_dtype
        assert is_rounded_once(seen.result, a, b, scale_a, scale_b, bias)


@pytest.mark.parametrize("dense", first_of_each([True, False]))
@pytest.mark.parametrize(
    ("of_a", "of_b"),
    list(product([(), (1,), (1, 1), (40,), (40, 1)], [(), (1,), (1, 1), (24,), (1, 24)])),
)
def test_a_scale_is_of_the_tensor_or_of_its_rows(dense, of_a, of_b):
    a, b, scale_a, scale_b, _ = draw_scaled(40, 24, 32, E4M3, dense)
    scale_a, scale_b = (
        (x if max(shape, default=1) > 1 else x[3]).reshape(shape)
        for x, shape in ((scale_a, of_a), (scale_b, of_b))
    )
    seen = run_scaled(a, b, scale_a, scale_b)
    assert is_rounded_once(seen.result, a, b, scale_a, scale_b)


def test_promotion_keeps_what_the_unit_s_13_bits_lose():
    """2^14 + 1 - 2^14 over three blocks: the unit alone drops the 1."""
    a, b = torch.zeros(16, 384), torch.zeros(384, 16)
    a[:, 0], a[:, 128], a[:, 256], b[0], b[128], b[256] = 128, 1, -128, 128, 1, 128
    a, b, scale = a.to(E4M3), b.T.contiguous().to(E4M3).T, torch.ones(1)
    for operand in (b, b.contiguous()):  # fetched, and by pointers
        assert (run_scaled(a, operand, scale, scale).result == 1).all()
        assert (run_scaled(a, operand, scale, scale, fast_accum=True).result == 0).all()


def test_sums_of_integers_are_exact_before_they_are_rounded():
    """2^24 + 3 and -2^24 cancel in int32; fp32 would drop the 3."""
    K = 2 * 1040 + 16
    a, b = torch.full((16, K), 127), torch.full((16, K), 127)
    b[:, 1040:2080] = -127
    a[:, 2080:], b[:, 2080:] = 0, 0
    a[:, 2080:2083], b[:, 2080:2083] = 1, 1
    seen = run_scaled(a.to(I8), b.to(I8).T, torch.ones(1), torch.ones(1))
    assert (seen.result == 3).all()


@pytest.mark.parametrize("M", [0, 1, 33])
@pytest.mark.parametrize("K", [0, 1, 16])
def test_no_k_gives_the_bias(M, K):
    """Without a warning of layouts, which no k has."""
    a, b, scale_a, scale_b, bias = draw_scaled(M, 24, K, E4M3)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if K != 1 else "ignore")
        c = run(
            matmul_scaled, a, b, target="sm_90",
            kwargs={"scale_a": scale_a, "scale_b": scale_b, "bias": bias},
        ).result  # fmt: skip
    assert is_rounded_once(c, a, b, scale_a, scale_b, bias)


def test_scales_a_bias_and_out_may_have_any_strides():
    a, b, scale_a, scale_b, bias = draw_scaled(40, 24, 32, E4M3)
    scale_a, scale_b, bias = (torch.stack([x, -x], 1)[:, 0] for x in (scale_a, scale_b, bias))
    memory = torch.zeros(80, 72, dtype=BF16)
    for out in (memory[::2, ::3], memory[:24, :40].T):
        seen = run_scaled(a, b, scale_a, scale_b, bias=bias, out=out)
        assert [x.kernel for x in seen.launches] == [BY_POINTERS]
        assert is_rounded_once(out, a, b, scale_a, scale_b, bias)


def capture_scaled(*args, **options):
    """Return how often each path was taken."""
    with (
        patch(f"{MODULE}.matmul_scaled_kernel", MagicMock(configs=CONFIGS)) as kernel,
        patch(f"{MODULE}.launch_by_pointers") as fallback,
    ):
        matmul_scaled(*args, **options)
    return kernel.__getitem__.return_value.call_count, fallback.call_count


OUT_OF_ROWS = torch.zeros(24, 40, dtype=BF16).T
A, B, SA, SB, BIAS = draw_scaled(40, 24, 32, E4M3)


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        (A, B.contiguous(), {}),
        (A.T.contiguous().T, B, {}),
        (draw_scaled(40, 24, 30, E4M3)[0], draw_scaled(40, 24, 30, E4M3)[1], {}),
        (torch.zeros(40, 48).to(E4M3)[:, 1:33], B, {}),
        (A, B[:, :23], {"scale_b": SB[:23]}),
        (A, B, {"out": OUT_OF_ROWS}),
    ],
)
def test_what_the_copy_engine_cannot_address_is_told_in_a_line(a, b, options):
    options = {"scale_a": SA, "scale_b": SB, **options}
    with pytest.warns(
        UserWarning, match=r"^matmul_scaled: got a \(40, \d+\) with strides"
    ) as warned:
        assert capture_scaled(a, b, **options) == (0, 1)
    assert_pointers_told(warned, __file__)


def test_dense_operands_are_described_and_old_gpus_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert capture_scaled(A, B, SA, SB, BIAS) == (1, 0)
    with (
        patch(f"{MODULE}.has_engine", lambda device: False),
        patch("gemmproof.kernels.quantized.scales.has_engine", lambda device: False),
        patch.object(torch.cuda, "get_device_name", lambda device: "A100"),
        pytest.warns(UserWarning, match="got A100, expected a GPU with a copy engine; pointers"),
    ):
        assert capture_scaled(A, B, SA, SB) == (0, 1)


SCALED_ERRORS = {
    "got a of torch.float16, expected torch.float8_e4m3fn or": (TypeError, {"a": A.half()}),
    "got a of torch.float8_e4m3fn and b of torch.int8": (TypeError, {"b": B.to(I8)}),
    "got scale_a of float, expected torch.Tensor": (TypeError, {"scale_a": 1.0}),
    "got scale_a of torch.float16, expected torch.float32": (TypeError, {"scale_a": SA.half()}),
    "got scale_b on meta, expected cpu": (TypeError, {"scale_b": SB.to("meta")}),
    "got scale_b with torch.sparse_coo, expected": (TypeError, {"scale_b": SB.to_sparse()}),
    "got scale_a of shape (24,), expected (40,) or (40, 1)": (ValueError, {"scale_a": SB}),
    "got scale_a of shape (1, 40), expected (40,) or": (ValueError, {"scale_a": SA[None]}),
    "got scale_b of shape (24, 1), expected (24,) or": (ValueError, {"scale_b": SB[:, None]}),
    "got bias of shape (1,), expected (24,)": (ValueError, {"bias": BIAS[:1]}),
    "got bias of torch.float64, expected torch.bfloat16 or": (TypeError, {"bias": BIAS.double()}),
    "got out_dtype=torch.int32, expected torch.bfloat16": (TypeError, {"out_dtype": torch.int32}),
    "got fast_accum=True for torch.int8, expected it for fp8": (
        TypeError, {"a": A.to(I8), "b": B.to(I8), "fast_accum": True},
    ),
    "got a (40, 32) and b (24, 32), expected (M, K)": (ValueError, {"b": B.T}),
    "got out of torch.float32, expected torch.bfl": (TypeError, {"out": torch.zeros(40, 24)}),
    "got out of shape (24, 40), expected (40, 24)": (
        ValueError, {"out": torch.zeros(24, 40, dtype=BF16)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", SCALED_ERRORS)
def test_a_bad_scaled_product_gets_one_line(message):
    error, options = SCALED_ERRORS[message]
    given = {"a": A, "b": B, "scale_a": SA, "scale_b": SB, **options}
    assert_refused(error, message, matmul_scaled, **given)


@pytest.mark.parametrize("name", ["scale_a", "scale_b", "bias"])
def test_a_result_in_the_memory_of_scales_is_refused(name):
    out = torch.zeros(40, 24)
    given = {"scale_a": SA, "scale_b": SB, "bias": BIAS}
    given[name] = out[:, 3] if name == "scale_a" else out[3]
    with pytest.raises(ValueError, match=f"out in the memory of {name}, expected memory of its"):
        matmul_scaled(A, B, **given, out_dtype=F32, out=out)


def keep(out_dtype):
    """The configurations that the tuner tries."""
    return keep_fitting(CONFIGS, {}, C_BYTES=out_dtype.itemsize)


def test_results_of_32_bits_leave_out_the_deepest_tile():
    assert [x.num_stages for x in keep(F32)] == [x.num_stages for x in keep(BF16)[1:]]
    assert keep(BF16) == CONFIGS
    assert {"C_BYTES", "PROMOTE", "ACC_DTYPE"} < set(matmul_scaled_kernel.keys)
