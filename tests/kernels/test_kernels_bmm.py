"""bmm: values in each format, who gets descriptors, and what it refuses."""

import warnings
from unittest.mock import MagicMock, patch

import pytest
import torch
import triton.language as tl
from tests.kernels.calls import assert_pointers_told, assert_refused, run_quietly
from tests.support.lanes import combine, first_of_each

from gemmproof.kernels import bmm
from gemmproof.kernels.arguments import DEFAULT_OUT_DTYPE, FP8, MAX_SIZE
from gemmproof.kernels.bmm import CONFIGS, POINTER_CONFIGS, SMALLEST_M, SMALLEST_N

F16, F32, I8 = torch.float16, torch.float32, torch.int8
MODULE = "gemmproof.kernels.bmm"


def zeros(*shape, dtype=F16, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


def draw(batch, M, N, K, dtype=F16):
    """Integers whose sums every format of a result holds."""
    rng = torch.Generator().manual_seed(M + N + K)
    shapes = ((batch, M, K), (batch, K, N))
    return [torch.randint(-2, 3, shape, generator=rng).to(dtype) for shape in shapes]


def multiply(a, b):
    return a.double() @ b.double()


def see(a, b, config=0, **options):
    """The run on the simulator, and the one kernel that it launched."""
    seen = run_quietly(bmm, a, b, config, **options)
    (launch,) = seen.launches
    return seen.result, launch.kernel


@pytest.mark.parametrize(("dtype", "config"), combine(DEFAULT_OUT_DTYPE, range(3)))
def test_every_format_is_multiplied_by_descriptors_and_by_pointers(dtype, config):
    """More tiles than programs, no side that fills its tiles; b is k by k."""
    a, b = draw(3, 264, 136, 144, dtype)
    dense = b.mT.contiguous().mT
    c, kernel = see(a, dense, config=config)
    assert kernel == ("bmm_kernel" if dtype == F32 else "bmm_tma_kernel")
    assert torch.equal(c.double(), multiply(a, b))
    odd = dense[:, 1:, :]
    c, kernel = see(a[:, :, 1:], odd, config=config)
    assert kernel == "bmm_kernel"
    assert torch.equal(c.double(), multiply(a[:, :, 1:], odd))
    assert c.dtype == DEFAULT_OUT_DTYPE[dtype]


VIEWS = {
    "a matrix for all": lambda x: x[1:2].expand(x.shape),
    "dense columns": lambda x: x.mT.contiguous().mT,
    "one matrix for all, dense columns": lambda x: x[:1].mT.contiguous().mT.expand(x.shape),
    "the batch between rows": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "every second matrix": lambda x: x.repeat_interleave(2, 0)[::2],
    "rows of a wider parent": lambda x: torch.cat((x, x), 2)[:, :, : x.shape[2]],
}


@pytest.mark.parametrize("of_a", VIEWS)
@pytest.mark.parametrize("of_b", first_of_each(VIEWS))
def test_views_are_read_where_they_lie_by_descriptors(of_a, of_b):
    a, b = draw(3, 72, 136, 80)
    a, b = VIEWS[of_a](a), VIEWS[of_b](b)
    c, kernel = see(a, b, config=1)
    assert kernel == "bmm_tma_kernel"
    assert torch.equal(c.double(), multiply(a, b))


@pytest.mark.parametrize("view", [x for x in VIEWS if "for all" not in x])
def test_a_result_is_stored_in_the_strides_of_out(view):
    """Dense columns too, which are rows of the transpose."""
    a, b = draw(3, 72, 136, 80)
    out = VIEWS[view](torch.full((3, 72, 136), 9.0, dtype=F16))
    c, kernel = see(a, b, out=out)
    assert (kernel, c.stride()) == ("bmm_tma_kernel", out.stride())
    assert torch.equal(out.double(), multiply(a, b))


def test_a_single_matrix_and_a_shared_result_of_one():
    a, b = draw(1, 72, 136, 80)
    out = torch.empty(72, 136, dtype=F16).as_strided((1, 72, 136), (0, 136, 1))
    c, kernel = see(a, b, out=out)
    assert kernel == "bmm_tma_kernel"
    assert torch.equal(c.double(), multiply(a, b))


def capture(a, b, **options):
    """The launch by descriptors, and the one by pointers, of a call: each a list of none or one."""
    kernel, fallback = MagicMock(configs=CONFIGS), MagicMock(configs=POINTER_CONFIGS)
    with patch(f"{MODULE}.bmm_tma_kernel", kernel), patch(f"{MODULE}.bmm_kernel", fallback):
        bmm(a, b, **options)
    return [
        [(x.args, x.kwargs) for x in mock.__getitem__.return_value.call_args_list]
        for mock in (kernel, fallback)
    ]


def test_a_shared_matrix_is_described_as_one_and_told_so():
    a, b = zeros(24, 40).expand(5, 24, 40), zeros(5, 16, 40).mT
    (((a_desc, b_desc, c_desc, *rest), constants),), fallback = capture(a, b)
    assert fallback == []
    assert (a_desc.shape, a_desc.strides) == ([1, 24, 40], [40, 40, 1])
    assert (b_desc.shape, b_desc.strides) == ([5, 16, 40], [640, 40, 1])
    assert (c_desc.shape, c_desc.strides) == ([5, 24, 16], [384, 16, 1])
    assert rest == [5, 24, 16, 40, False, True, True, False, 2]
    assert (constants["ACC_DTYPE"], constants["PROMOTE"]) == (tl.float32, False)


OBSTACLES = {
    "rows of 7 elements": (zeros(2, 24, 7), zeros(2, 7, 16)),
    "an address off 16 bytes": (zeros(2, 24, 48)[:, :, 4:44], zeros(2, 40, 16)),
    "every second column": (zeros(2, 24, 80)[:, :, ::2], zeros(2, 40, 16)),
    "matrices off 16 bytes": (
        zeros(2 * 964).as_strided((2, 24, 40), (964, 40, 1)),
        zeros(2, 40, 8),
    ),
    "one column for all": (zeros(2, 24, 40), zeros(2, 40, 1).expand(2, 40, 16)),
    "a result of 15 columns": (zeros(2, 24, 40), zeros(2, 40, 16)[:, :, :15]),
    "fp8 whose b is n by n": (zeros(2, 32, 32).to(FP8[0]), zeros(2, 32, 32).to(FP8[0])),
    "an empty K": (zeros(2, 24, 0), zeros(2, 0, 16)),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_no_descriptor_can_say_is_told_in_a_line_and_read_by_pointers(name):
    a, b = OBSTACLES[name]
    with pytest.warns(UserWarning, match=r"^bmm: got (a \(.*\) with strides|K=0)") as warned:
        launches, (((given_a, given_b, c, *rest), _),) = capture(a, b)
    assert_pointers_told(warned, __file__)
    assert (launches, given_a is a, given_b is b) == ([], True, True)
    assert tuple(rest) == (*c.shape, a.shape[2], *a.stride(), *b.stride(), *c.stride())


def test_full_precision_of_fp32_needs_no_warning():
    a, b = zeros(2, 24, 40, dtype=F32), zeros(2, 40, 16, dtype=F32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len(x) for x in capture(a, b)] == [0, 1]
        assert [len(x) for x in capture(a, b, input_precision="tf32")] == [1, 0]


A, B = zeros(2, 3, 4), zeros(2, 4, 5)
MANY = zeros(1, 1, 1, device="meta")
PARENT = zeros(2, 4, 20)
ERRORS = {
    "bmm: got a of shape (3, 4), expected three dimensions": ((A[0], B), {}),
    "bmm: got a (2, 3, 4) and b (2, 5, 4), expected (batch, M, K) and (b": ((A, B.mT), {}),
    "bmm: got a (2, 3, 4) and b (1, 4, 5), expected (batch, M, K) and (b": ((A, B[:1]), {}),
    f"bmm: got a ({MAX_SIZE + 1}, 1, 1) and b ({MAX_SIZE + 1}, 1, 1), expected sizes up to": (
        (MANY.expand(MAX_SIZE + 1, 1, 1), MANY.expand(MAX_SIZE + 1, 1, 1)),
        {},
    ),
    f"bmm: got c ({2**30}, 17, 65), expected up to {MAX_SIZE} tiles": (
        (MANY.expand(2**30, 17, 1), MANY.expand(2**30, 1, 65)),
        {},
    ),
    "bmm: got out of shape (3, 5), expected (2, 3, 5)": ((A, B), {"out": zeros(3, 5)}),
    "strides (0, 5, 1), expected one address per element": (
        (A, B),
        {"out": zeros(3, 5).expand(2, 3, 5)},
    ),
    "bmm: got out in the memory of a, expected memory of its own": (
        (PARENT[:, :3, :4], B),
        {"out": PARENT[:, :3, 3:8]},
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_a_bad_call_is_refused_in_one_line(message):
    arguments, options = ERRORS[message]
    assert_refused(ValueError, message, bmm, *arguments, **options)


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
def test_an_empty_batch_launches_nothing(shape):
    batch, M, N = shape
    assert bmm(zeros(batch, M, 4), zeros(batch, 4, N)).shape == shape


def test_no_tile_is_smaller_than_those_that_are_counted():
    for config in (*CONFIGS, *POINTER_CONFIGS):
        assert config.kwargs["BLOCK_M"] >= SMALLEST_M
        assert config.kwargs["BLOCK_N"] >= SMALLEST_N
