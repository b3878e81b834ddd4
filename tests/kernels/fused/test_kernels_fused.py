"""matmul_fused: its values, which path it takes, in place and out of it, and what it refuses."""

import warnings
from unittest.mock import MagicMock, patch

import pytest
import torch
import torch.nn.functional as F
from tests.kernels.calls import assert_refused
from tests.support.lanes import first_of_each

from gemmproof.kernels import matmul_fused
from gemmproof.kernels.fused.matmul_fused import CONFIGS, TILES, keep_fitting, matmul_fused_kernel
from gemmproof.kernels.fused.pointers import CONFIGS as POINTERS
from gemmproof.kernels.fused.pointers import matmul_fused_pointers_kernel
from gemmproof.reference.simulator import run

MODULE = "gemmproof.kernels.fused.matmul_fused"
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32
ACTIVATIONS = {
    None: lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
BY_DESCRIPTORS, BY_POINTERS = ["matmul_fused_kernel"], ["matmul_fused_pointers_kernel"]


def draw(*shape, dtype=F16):
    rng = torch.Generator().manual_seed(sum(shape) + 7 * len(shape))
    return torch.randn(shape, generator=rng).to(dtype)


def operands(M, N, K, dtype):
    """a and b, and the others, whose formats differ."""
    others = {
        "bias": draw(N, dtype=F32),
        "c": draw(M, N, dtype=dtype),
        "residual": draw(M, N + 1)[:, :N].contiguous().to(BF16),
    }
    return draw(M, K, dtype=dtype), draw(K, N, dtype=dtype), others


def calculate(a, b, bias=None, c=None, residual=None, alpha=1.0, beta=0.0, activation=None):
    """The formula in fp64."""
    x = alpha * (a.double() @ b.double())
    x = x if beta == 0 else x + beta * c.double()
    x = x if bias is None else x + bias.double()
    x = ACTIVATIONS[activation](x)
    return x if residual is None else x + residual.double()


def launch(a, b, path, config=0, **options):
    seen = run(matmul_fused, a, b, target="sm_90", config=config, kwargs=options)
    assert seen.faults == []
    assert [x.kernel for x in seen.launches] == path
    return seen.result


def is_near(got, expected):
    """Return whether the values agree up to fp32 sums of a few terms near 1, and one rounding."""
    spacing = 2 * torch.finfo(got.dtype).eps * expected.abs()
    return bool(((got.double() - expected).abs() <= spacing + 64 * 2.0**-24).all())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", first_of_each([F16, BF16, F32]), ids=str)
def test_the_formula_in_its_order(dtype, activation):
    """alpha, beta, bias, activation, residual; rounded once, in the format of a."""
    for M, N, K, path in ((136, 264, 40, BY_DESCRIPTORS), (33, 17, 21, BY_POINTERS)):
        a, b, others = operands(M, N, K, dtype)
        options = {**others, "alpha": 0.5, "beta": -2.0, "activation": activation}
        got = launch(a, b, BY_POINTERS if dtype == F32 else path, **options)
        assert got.dtype == dtype
        assert is_near(got, calculate(a, b, **options))


@pytest.mark.parametrize(
    "names", first_of_each(["", "bias", "c", "residual", "bias c", "bias residual"])
)
def test_any_operands_may_be_absent_in_every_configuration(names):
    a, b, others = operands(136, 264, 72, BF16)
    options = {name: others[name] for name in names.split()}
    options |= {"beta": 3.0} if "c" in options else {}
    for config in range(len(TILES)):
        got = launch(a, b, BY_DESCRIPTORS, config, out_dtype=F32, activation="gelu", **options)
        assert is_near(got, calculate(a, b, activation="gelu", **options))
    for config in range(len(POINTERS)):
        odd = a[:, 1:], b[1:]
        got = launch(*odd, BY_POINTERS, config, out_dtype=F32, activation="gelu", **options)
        assert is_near(got, calculate(*odd, activation="gelu", **options))


@pytest.mark.parametrize("size", [40, 33])
def test_beta_of_0_reads_no_c(size):
    """Not even where out is c, as BLAS calls it."""
    a, b, _ = operands(size, size, size, F16)
    c = torch.full((size, size), torch.nan, dtype=F16)
    path = BY_DESCRIPTORS if size == 40 else BY_POINTERS
    assert is_near(launch(a, b, path, c=c, beta=0), calculate(a, b))
    assert launch(a, b, path, c=c, out=c) is c
    assert is_near(c, calculate(a, b))


def test_nan_and_inf_go_through_the_activations():
    a, b = torch.tensor([[torch.nan], [torch.inf], [-torch.inf], [-100.0], [1e4]]), torch.ones(1, 8)
    for activation, function in ACTIVATIONS.items():
        got = launch(a.half(), b.half(), BY_POINTERS, activation=activation)
        expected = function(a.half().double() @ b.double())
        assert torch.allclose(got[[0, 1, 3, 4]].double(), expected[[0, 1, 3, 4]], equal_nan=True)


@pytest.mark.parametrize("name", ["c", "residual"])
@pytest.mark.parametrize("N", [272, 271])
def test_an_update_in_place(name, N):
    """Each element is read before it is written; the tuner, who would repeat it, is not asked."""
    a, b, others = operands(136, N, 40, F16)
    x = others[name].to(F16)
    options = {"beta": 0.5} if name == "c" else {}
    expected = calculate(a, b, **options, **{name: x.clone()})
    with patch("triton.runtime.autotuner.Autotuner.__getitem__", side_effect=AssertionError):
        path = BY_DESCRIPTORS if N == 272 else BY_POINTERS
        got = launch(a, b, path, out=x, **options, **{name: x})
    assert got is x
    assert is_near(x, expected)


def test_an_update_in_place_takes_the_widest_tiles_that_occupy_the_gpu():
    for sms, tile in ((1, (128, 256)), (5, (128, 128)), (9, (64, 128)), (100, (64, 64))):
        kernel = MagicMock()
        c = torch.zeros(256, 512, dtype=F16)
        with (
            patch(f"{MODULE}.matmul_fused_kernel", kernel),
            patch("gemmproof.kernels.fused.epilogues.num_sms", lambda device, sms=sms: sms),
        ):
            matmul_fused(draw(256, 64), draw(64, 512), c=c, beta=1.0, out=c)
        kernel.__getitem__.assert_not_called()
        given = kernel.fn.__getitem__.return_value.call_args.kwargs
        assert (given["BLOCK_M"], given["BLOCK_N"]) == tile
        assert given["c_desc"].block_shape == given["out_desc"].block_shape
        assert given["out_desc"].block_shape == [tile[0], tile[1] // given["SUBTILES"]]


WIDE = torch.zeros(64, 96, dtype=F16)
OBSTACLES = {
    "a": {"a": WIDE[:24, 1:41]},
    "b": {"b": torch.zeros(40, 17, dtype=F16)[:, :16]},
    "c": {"c": WIDE[:24, 1:17], "beta": 1.0},
    "c by columns": {"c": torch.zeros(16, 24, dtype=F16).T, "beta": 1.0},
    "residual": {"residual": torch.zeros(1, 16).expand(24, 16)},
    "out": {"out": torch.zeros(16, 24, dtype=F16).T},
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_no_descriptor_can_say_is_told_in_a_line(name):
    options = {"a": draw(24, 40), "b": draw(40, 16), **OBSTACLES[name]}
    a, b = options.pop("a"), options.pop("b")
    with pytest.warns(
        UserWarning, match=r"^matmul_fused: got a \(.*; pointers are used$"
    ) as warned:
        got = launch(a, b, BY_POINTERS, **options)
    assert len(warned) == 1
    assert is_near(got, calculate(a, b, **{k: x for k, x in options.items() if k != "out"}))


def test_an_old_gpu_is_told_so_and_what_needs_no_engine_is_silent():
    with (
        patch(f"{MODULE}.has_engine", lambda device: False),
        pytest.warns(
            UserWarning, match="expected a GPU with a copy engine and .* memory; pointers are used"
        ),
    ):
        launch(draw(24, 40), draw(40, 16), BY_POINTERS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(draw(24, 40, dtype=F32), draw(40, 16, dtype=F32), BY_POINTERS)
        launch(draw(24, 0), draw(0, 16), BY_POINTERS, bias=draw(16))
        launch(draw(40, 24).T, draw(16, 40).T, BY_DESCRIPTORS, bias=draw(32)[::2])
        unused = torch.zeros(24, 17, dtype=F16)[:, 1:]
        launch(draw(24, 40), draw(40, 16), BY_DESCRIPTORS, c=unused)


A, B, C = draw(24, 40), draw(40, 16), draw(24, 16)
ROWS = torch.zeros(48, 16, dtype=F16)
BAD_CALLS = {
    "a of torch.int8, expected torch.float16 or torch.bfloat16 or": (
        TypeError, {"a": A.to(torch.int8), "b": B.to(torch.int8)},
    ),
    "activation='tanh', expected None or 'relu' or": (ValueError, {"activation": "tanh"}),
    "alpha of Tensor, expected a number": (TypeError, {"alpha": torch.ones(1)}),
    "beta of str, expected a number": (TypeError, {"beta": "1"}),
    "beta=2.0 without c, expected c of (24, 16)": (ValueError, {"beta": 2.0}),
    "bias of list, expected torch.Tensor": (TypeError, {"bias": [0.0]}),
    "bias of torch.float64, expected torch.float16 or": (TypeError, {"bias": draw(16).double()}),
    "bias on meta, expected cpu": (TypeError, {"bias": torch.zeros(16, device="meta")}),
    "bias of shape (24,), expected (16,)": (ValueError, {"bias": draw(24)}),
    "c of shape (16, 24), expected (24, 16)": (ValueError, {"c": draw(16, 24)}),
    "residual of shape (16,), expected (24, 16)": (ValueError, {"residual": draw(16)}),
    "out of torch.float32, expected torch.float16": (TypeError, {"out": C.float()}),
    "out in the memory of bias, expected memory of its own": (
        ValueError, {"bias": ROWS[3], "out": ROWS[:24]},
    ),
    "out in the memory of c, expected c itself or memory of its own": (
        ValueError, {"c": ROWS[1:25], "beta": 1.0, "out": ROWS[:24]},
    ),
    "out in the memory of residual, expected residual itself or": (
        ValueError, {"residual": ROWS[:24].view(torch.bfloat16), "out": ROWS[:24]},
    ),
    "out in the memory of a, expected memory of its own": (
        ValueError, {"a": ROWS[:24, :8], "b": draw(8, 16), "out": ROWS[:24]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD_CALLS)
def test_a_bad_call_of_matmul_fused_gets_one_line(message):
    error, options = BAD_CALLS[message]
    assert_refused(error, message, matmul_fused, **{"a": A, "b": B, **options})


def test_an_empty_result_launches_nothing():
    assert matmul_fused(draw(0, 4), draw(4, 5), draw(5), activation="silu").shape == (0, 5)
    assert matmul_fused(draw(3, 4), draw(4, 0), out_dtype=F32).dtype == F32


@pytest.mark.parametrize("sizes", [(2, 0, 0, 2), (2, 0, 2, 2), (4, 4, 4, 4)], ids=str)
def test_every_tile_has_a_configuration_that_fits(sizes):
    """For bytes of bias, c, residual and out, as in a, and as wide as they may be."""
    names = ("BIAS_BYTES", "C_BYTES", "RESIDUAL_BYTES", "OUT_BYTES")
    kept = keep_fitting(CONFIGS, dict(zip(names, sizes, strict=True)))
    assert [(x.kwargs["BLOCK_M"], x.kwargs["BLOCK_N"]) for x in kept] == [x[:2] for x in TILES]


def test_the_tuner_keeps_apart_what_may_change_its_choice():
    """Presence and widths too, which Triton does not see in descriptors."""
    for kernel in (matmul_fused_kernel, matmul_fused_pointers_kernel):
        assert {"ACTIVATION", *(f"{x}_BYTES" for x in ("BIAS", "C", "RESIDUAL", "OUT"))} <= set(
            kernel.keys
        )
