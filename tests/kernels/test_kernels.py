"""The wrappers: what they refuse, with which message, what they launch, and empty products."""

import inspect
from importlib import import_module
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest
import torch
import triton.language as tl
from tests.kernels.calls import assert_refused

from gemmproof import kernels
from gemmproof.kernels.arguments import (
    DEFAULT_OUT_DTYPE,
    FP8,
    MAX_GRID_Y,
    MAX_SIZE,
    SMS_WITHOUT_GPU,
    num_sms,
)

WRAPPERS = [*kernels.KERNELS.values(), kernels.gemm]
F16, F32, I8 = torch.float16, torch.float32, torch.int8
wrappers = pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda f: f.__name__)
# the others have separate files
POINTERS = [
    getattr(kernels, name)
    for name in ("matmul", "matmul_grouped", "matmul_persistent", "matmul_swizzled")
]
pointers = pytest.mark.parametrize("wrapper", POINTERS, ids=lambda f: f.__name__)


def zeros(*shape: int, dtype: torch.dtype = F16, device: str = "cpu") -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


A, B = zeros(3, 4), zeros(4, 5)
SHARED = zeros(4, 20)


def call(*arguments, **options):
    return arguments, options


APART, OWN = "expected one address per element", "expected memory of its own"
TYPE_ERRORS = {
    "got a of list, expected torch.Tensor": call([[1.0]], B),
    "got a with torch.sparse_coo, expected torch.str": call(A.to_sparse(), B),
    "got a of torch.float64, expected torch.float16 or": call(A.double(), B),
    "got b of torch.uint8, expected": call(A, B.to(torch.uint8)),
    "got a of torch.float16 and b of torch.float32, exp": call(A, B.float()),
    "expected one format": call(A.to(FP8[0]), B.to(FP8[1])),
    "got a on cpu and b on meta, expected one device": call(A, B.to("meta")),
    "got out_dtype=torch.float64 for torch.fl": call(A, B, torch.float64),
    "for torch.int8, expected torch.i": call(A.to(I8), B.to(I8), F32),
    "got out_dtype=torch.int32 for torch.flo": call(A, B, torch.int32),
    "got input_precision='tf32' for tor": call(A, B, input_precision="tf32"),
    "got out of list, expected torch.Tensor": call(A, B, out=[]),
    "got out of torch.float32, e": call(A, B, out=zeros(3, 5, dtype=F32)),
    "got out of torch.float16, expecte": call(A, B, F32, out=zeros(3, 5)),
    "got out on meta, exp": call(A, B, out=zeros(3, 5, device="meta")),
}
VALUE_ERRORS = {
    "got a (3, 4) and b (5, 4), expected (M, K) and": call(A, zeros(5, 4)),
    "got a of shape (4,), expected two dimensions": call(zeros(4), B),
    "got b of shape (1, 4, 5), expected two dim": call(A, zeros(1, 4, 5)),
    f"expected sizes up to {MAX_SIZE}": call(zeros(1, 1).expand(MAX_SIZE + 1, 1), zeros(1, 1)),
    "got input_precision='high', ex": call(A, B, input_precision="high"),
    "got out of shape (5, 3), expected (3,": call(A, B, out=zeros(5, 3)),
    f"out with shape (3, 5) and strides (0, 1), {APART}": call(A, B, out=zeros(1, 5).expand(3, 5)),
    f"strides (2, 1), {APART}": call(A, B, out=zeros(20).as_strided((3, 5), (2, 1))),
    f"out in the memory of a, {OWN}": call(SHARED[:3, :4], zeros(4, 4), out=SHARED[:3, :4]),
    f"out in the memory of b, {OWN}": call(A, SHARED[:, :5], out=SHARED[1:, 4:9]),
}
BAD_CALLS = [
    *((TypeError, *case) for case in TYPE_ERRORS.items()),
    *((ValueError, *case) for case in VALUE_ERRORS.items()),
]


@wrappers
@pytest.mark.parametrize(("error", "message", "bad"), BAD_CALLS)
def test_a_bad_call_gets_one_line_that_names_what_it_got(wrapper, error, message, bad):
    """The type of the error, the wrapper's name, the value, and what was expected."""
    arguments, options = bad
    assert_refused(error, message, wrapper, *arguments, **options)


@wrappers
@pytest.mark.parametrize("dtype", DEFAULT_OUT_DTYPE, ids=str)
@pytest.mark.parametrize(("M", "N"), [(0, 5), (3, 0), (0, 0)])
def test_an_empty_product_launches_nothing(wrapper, dtype, M, N):
    """The result has its shape and format even where there is no device to launch on."""
    c = wrapper(zeros(M, 4, dtype=dtype), zeros(4, N, dtype=dtype))
    assert (c.shape, c.dtype) == ((M, N), DEFAULT_OUT_DTYPE[dtype])


def capture_launch(wrapper, *arguments, **options):
    """Return the launch of a wrapper: the grid function, the arguments and the constants."""
    module = import_module(wrapper.__module__)
    kernel = MagicMock(configs=module.CONFIGS)
    with patch.object(module, f"{wrapper.__name__}_kernel", kernel):
        returned = wrapper(*arguments, **options)
    (grid,), _ = kernel.__getitem__.call_args
    args, constants = kernel.__getitem__.return_value.call_args
    return SimpleNamespace(grid=grid, args=args, constants=constants, returned=returned)


@pointers
@pytest.mark.parametrize(
    ("dtype", "acc", "promote"),
    [
        (torch.float16, tl.float32, False),
        (torch.bfloat16, tl.float32, False),
        (torch.float32, tl.float32, False),
        (torch.float8_e4m3fn, tl.float32, True),
        (torch.float8_e5m2, tl.float32, True),
        (torch.int8, tl.int32, False),
    ],
    ids=str,
)
def test_each_format_is_summed_as_documented(wrapper, dtype, acc, promote):
    """fp32 or int32 accumulator, fp8 promoted, fp32 operands in full unless tf32 is requested."""
    a, b = zeros(3, 4, dtype=dtype), zeros(4, 5, dtype=dtype)
    constants = capture_launch(wrapper, a, b).constants
    assert constants["ACC_DTYPE"] == acc
    assert constants["PROMOTE"] is promote
    assert constants["INPUT_PRECISION"] == "ieee"
    if dtype == torch.float32:
        cut = capture_launch(wrapper, a, b, input_precision="tf32").constants
        assert cut["INPUT_PRECISION"] == "tf32"


@pointers
def test_global_switches_do_not_change_the_precision(wrapper):
    """torch.backends.cuda.matmul.allow_tf32 is torch.matmul's, not ours."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert capture_launch(wrapper, A.float(), B.float()).constants["INPUT_PRECISION"] == "ieee"
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@pointers
def test_sizes_and_strides_reach_the_kernel_as_they_are(wrapper):
    """Six different strides, each in its place; a given out is written and returned."""
    a, b = zeros(7, 33)[::2, ::3][:3, :4], zeros(40, 9)[::5, ::2][:4, :5]
    out = zeros(11, 70)[::3, ::7][:3, :5]
    launch = capture_launch(wrapper, a, b, out=out)
    assert [x.data_ptr() for x in launch.args[:3]] == [x.data_ptr() for x in (a, b, out)]
    assert launch.args[3:] == (3, 5, 4, *a.stride(), *b.stride(), *out.stride())
    assert len({a.stride(), b.stride(), out.stride()}) == 3
    assert launch.returned is out


@pointers
def test_out_may_share_a_parent_without_sharing_an_element(wrapper):
    """Column ranges of one buffer side by side."""
    parent = zeros(4, 20)
    out = parent[:3, 9:14]
    assert capture_launch(wrapper, parent[:3, :4], parent[:, 4:9], out=out).returned is out


@pointers
def test_a_view_that_negates_is_resolved(wrapper):
    """The imaginary part of a conjugate stores the opposite sign of its values."""
    a = torch.full((3, 4), 1 + 2j, dtype=torch.complex64).conj().imag
    assert a.is_neg()
    given = capture_launch(wrapper, a, zeros(4, 5, dtype=F32)).args[0]
    assert not given.is_neg()
    assert (given == -2.0).all()
    with pytest.raises(TypeError, match="negated: True"):
        wrapper(zeros(3, 3, dtype=F32), zeros(3, 4, dtype=F32), out=a)


@pytest.mark.parametrize(("M", "N"), [(1, 5_000_000), (5_000_000, 1)])
@pointers
def test_no_grid_is_taller_than_cuda_allows(wrapper, M, N):
    """A side of five million is put on the first axis, for every configuration."""
    launch = capture_launch(wrapper, zeros(M, 1), zeros(1, N))
    for config in import_module(wrapper.__module__).CONFIGS:
        grid = launch.grid(config.kwargs)
        tiles = -(-max(M, N) // config.kwargs["BLOCK_N" if launch.args[4] > 1 else "BLOCK_M"])
        assert all(programs <= MAX_GRID_Y for programs in grid[1:])
        assert max(grid) == min(tiles, SMS_WITHOUT_GPU if "NUM_SMS" in launch.constants else tiles)


@pointers
def test_the_tuner_s_key_holds_whatever_may_change_the_choice(wrapper):
    """Sizes, strides and the arithmetic; formats are added by the tuner itself."""
    kernel = getattr(import_module(wrapper.__module__), f"{wrapper.__name__}_kernel")
    parameters = inspect.signature(kernel.fn.fn).parameters
    tuned = {"BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"}
    follows_from_the_format = {"a_ptr", "b_ptr", "c_ptr", "ACC_DTYPE", "PROMOTE"}
    assert set(kernel.keys) == set(parameters) - tuned - follows_from_the_format


@pytest.mark.parametrize("error", [AssertionError, RuntimeError])
def test_without_a_gpu_the_number_of_programs_is_defined(error):
    """torch raises one or the other; with a device its own count is taken."""

    def absent(device):
        raise error("no GPU")

    with patch.object(torch.cuda, "get_device_properties", absent):
        assert num_sms(torch.device("cpu")) == SMS_WITHOUT_GPU
        with pytest.raises(error, match="no GPU"):
            num_sms(torch.device("cuda", 0))
    properties = SimpleNamespace(multi_processor_count=132)
    with patch.object(torch.cuda, "get_device_properties", lambda _: properties):
        assert num_sms(torch.device("cpu")) == num_sms(torch.device("cuda", 0)) == 132
