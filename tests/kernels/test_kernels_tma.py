"""matmul_tma: the calls that get descriptors, its warnings about others, and its compiled code."""

import re
import warnings
from itertools import product
from types import SimpleNamespace
from unittest.mock import MagicMock, patch

import pytest
import torch
import triton.language as tl
from tests.kernels.calls import assert_pointers_told
from tests.support.lanes import combine, first_of_each

from gemmproof import Contract, KernelUnderTest, check
from gemmproof.kernels import matmul_persistent, matmul_tma
from gemmproof.kernels.arguments import DEFAULT_OUT_DTYPE, FP8
from gemmproof.kernels.descriptors import has_engine
from gemmproof.kernels.matmul_tma import CONFIGS, ROW_BYTES, TILES, matmul_tma_kernel
from gemmproof.properties.cases.case import Case
from gemmproof.reference.mirrors import MIRRORS
from gemmproof.reference.simulator import run

F16, F32, I8 = torch.float16, torch.float32, torch.int8
MODULE = "gemmproof.kernels.matmul_tma"


def matrix(rows, columns, dtype=F16, is_t=False):
    """A dense matrix, or the transpose of one."""
    x = torch.zeros((columns, rows) if is_t else (rows, columns), dtype=dtype)
    return x.T if is_t else x


def capture(a, b, **options):
    """The launch by descriptors, and the one by pointers, of a call: each a list of none or one."""
    kernel, fallback = MagicMock(configs=CONFIGS), MagicMock()
    with (
        patch(f"{MODULE}.matmul_tma_kernel", kernel),
        patch(f"{MODULE}.launch_persistent", fallback),
    ):
        matmul_tma(a, b, **options)
    launches = kernel.__getitem__.return_value.call_args_list
    return [(x.args, x.kwargs) for x in launches], [x.args for x in fallback.call_args_list]


def is_described(desc, x):
    return (desc.base.data_ptr(), tuple(desc.shape), tuple(desc.strides)) == (
        x.data_ptr(), tuple(x.shape), tuple(x.stride()),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [F16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("a_is_t", [False, True])
@pytest.mark.parametrize("b_is_t", [False, True])
def test_dense_rows_and_dense_columns_are_described(dtype, a_is_t, b_is_t):
    a, b = matrix(24, 40, dtype, a_is_t), matrix(40, 16, dtype, b_is_t)
    ((args, constants),), fallback = capture(a, b)
    assert fallback == []
    assert is_described(args[0], a.T if a_is_t else a)
    assert is_described(args[1], b.T if b_is_t else b)
    assert args[3:] == (24, 16, 40, a_is_t, b_is_t, 2)
    assert (constants["ACC_DTYPE"], constants["PROMOTE"]) == (tl.float32, False)


def test_a_result_of_dense_columns_is_that_of_the_transposes():
    """c^T = b^T a^T, which reads dense rows of a as dense columns of a^T."""
    a, b, out = matrix(24, 40), matrix(40, 16, is_t=True), matrix(24, 16, is_t=True)
    (((b_desc, a_desc, c_desc, *rest), _),), _ = capture(a, b, out=out)
    assert is_described(b_desc, b.T)
    assert is_described(a_desc, a)
    assert is_described(c_desc, out.T)
    assert rest == [16, 24, 40, False, True, 2]


@pytest.mark.parametrize("dtype", [I8, *FP8], ids=str)
def test_formats_of_8_bits_are_described_where_k_is_dense(dtype):
    """Hopper's instruction for them reads both operands k by k."""
    ((_, constants),), fallback = capture(matrix(32, 64, dtype), matrix(64, 48, dtype, True))
    assert fallback == []
    assert constants["ACC_DTYPE"] == (tl.int32 if dtype == I8 else tl.float32)
    assert constants["PROMOTE"] is (dtype in FP8)
    for a_is_t, b_is_t in ((False, False), (True, True), (True, False)):
        a, b = matrix(32, 64, dtype, a_is_t), matrix(64, 48, dtype, b_is_t)
        with pytest.warns(UserWarning, match="expected dense k by k"):
            launches, fallback = capture(a, b)
        assert (launches, len(fallback)) == ([], 1)


OBSTACLES = {
    "rows of 7 elements": (matrix(24, 7), matrix(7, 16)),
    "rows off 16 bytes": (torch.zeros(24, 44, dtype=F16)[:, :40], matrix(40, 16)),
    "an address off 16 bytes": (torch.zeros(24, 48, dtype=F16)[:, 4:44], matrix(40, 16)),
    "every second column": (torch.zeros(24, 80, dtype=F16)[:, ::2], matrix(40, 16)),
    "one row for all": (torch.zeros(1, 40, dtype=F16).expand(24, 40), matrix(40, 16)),
    "one column for all": (matrix(24, 40), torch.zeros(40, 1, dtype=F16).expand(40, 16)),
    "a result of 15 columns": (matrix(24, 40), matrix(40, 16)[:, :15]),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_no_descriptor_can_say_is_told_in_a_line_and_read_by_pointers(name):
    a, b = OBSTACLES[name]
    with pytest.warns(UserWarning, match="matmul_tma: got ") as warned:
        launches, ((given_a, given_b, c, precision),) = capture(a, b)
    assert_pointers_told(warned, __file__)
    assert str(tuple(a.stride())) in str(warned[0].message)
    assert (launches, given_a is a, given_b is b, precision) == ([], True, True, "ieee")
    assert tuple(c.shape) == (a.shape[0], b.shape[1])


def test_an_old_gpu_is_told_so():
    with (
        patch("gemmproof.kernels.descriptors.has_engine", lambda device: False),
        patch.object(torch.cuda, "get_device_name", lambda device: "A100"),
        pytest.warns(UserWarning, match="got A100, expected a GPU with a copy engine and"),
    ):
        launches, fallback = capture(matrix(24, 40), matrix(40, 16))
    assert (launches, len(fallback)) == ([], 1)


@pytest.mark.parametrize(
    ("target", "is_addressed"),
    [("sm_80", 0), ("sm_89", 0), ("sm_90", 1), ("sm_100", 1), ("sm_120", 0), ("gfx942", 0)],
)
def test_a_gpu_without_room_for_the_tiles_has_pointers(target, is_addressed, texts):
    """sm_120 has the copy engine, but 99 KB a program: less than any configuration takes."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        seen = run(matmul_tma, matrix(24, 40), matrix(40, 16), target=target)
    kernel = "matmul_tma_kernel" if is_addressed else "matmul_persistent_kernel"
    assert [x.kernel for x in seen.launches] == [kernel]
    assert len(warned) == 1 - is_addressed
    for warning in warned:
        message = re.sub("got .*, expected", "got <GPU>, expected", str(warning.message))
        texts("a GPU without room for the tiles", message)


def test_an_amd_gpu_says_nothing_of_its_room_and_has_no_engine():
    """torch gives it the capability (9, 4)."""
    facts = SimpleNamespace(major=9)
    with patch.object(torch.cuda, "get_device_properties", lambda device: facts):
        assert not has_engine(torch.device("cuda"))


def test_full_precision_of_fp32_needs_no_warning_and_an_empty_k_has_its_own():
    """fp32 in full precision has no tensor core; of no k there is nothing to fetch."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert capture(matrix(24, 40, F32), matrix(40, 16, F32))[0] == []
        cut = capture(matrix(24, 40, F32), matrix(40, 16, F32), input_precision="tf32")
        assert len(cut[0]) == 1
        assert cut[0][0][1]["INPUT_PRECISION"] == "tf32"
    # the strides of these are what descriptors want
    with pytest.warns(UserWarning, match="matmul_tma: got K=0, expected 1 or more; pointers are"):
        assert capture(matrix(24, 8)[:, :0], matrix(8, 16)[:0])[0] == []


def keep(dtype, size=None):
    """The configurations that the tuner tries on a format, for results of `size` bytes."""
    given = {"a_desc": MagicMock(base=matrix(1, 1, dtype))}
    size = size or DEFAULT_OUT_DTYPE[dtype].itemsize
    options = {"PROMOTE": dtype in FP8, "C_BYTES": size}
    return matmul_tma_kernel.early_config_prune(CONFIGS, given, **options)


@pytest.mark.parametrize("dtype", DEFAULT_OUT_DTYPE, ids=str)
def test_configurations_fit_their_format(dtype):
    """As many k in a row as ROW_BYTES hold; two accumulators have room in the narrower tiles."""
    kept = keep(dtype)
    assert {x.kwargs["BLOCK_K"] for x in kept} == {ROW_BYTES // dtype.itemsize}
    tiles = [x for x in TILES[dtype.itemsize] if dtype not in FP8 or x[1] <= 128]
    assert [(x.kwargs["BLOCK_M"], x.kwargs["BLOCK_N"]) for x in kept] == [x[:2] for x in tiles]
    assert kept


def test_results_of_32_bits_leave_out_what_does_not_fit_with_them():
    """The tuner's choice for one format of c is not used for another."""
    narrow, wide = keep(F16), keep(F16, 4)
    assert len(wide) == len(narrow) - 2
    assert all(x in narrow for x in wide)
    assert "C_BYTES" in matmul_tma_kernel.keys
    for dtype in DEFAULT_OUT_DTYPE:
        for size in (1, 2, 4):
            assert keep(dtype, size)


@pytest.mark.lane("full")
def test_sizes_that_fill_no_tile_give_the_same_bits_as_pointers():
    """Several tiles for a program, and odd ones at every edge."""
    rng = torch.Generator().manual_seed(1)
    for a_is_t, b_is_t in ((False, False), (False, True), (True, False), (True, True)):
        a, b = matrix(520, 200, is_t=a_is_t), matrix(200, 328, is_t=b_is_t)
        for x in (a, b):
            x.copy_(torch.randn(x.shape, generator=rng))
        theirs = run(matmul_persistent, a, b, target="sm_90")
        for config in range(len(TILES[2])):
            ours = run(matmul_tma, a, b, target="sm_90", config=config)
            assert ours.faults == []
            assert [x.kernel for x in ours.launches] == ["matmul_tma_kernel"]
            assert torch.equal(ours.result, theirs.result)


@pytest.mark.parametrize(
    ("dtype", "layouts"),
    first_of_each(combine(["fp16", "fp8e4m3", "int8"], product(("row", "column"), repeat=2))),
)
def test_every_property_holds_where_descriptors_are_used(dtype, layouts):
    """Access by access as the mirror says, and bit for bit as predicted, in each configuration."""
    contract = Contract((dtype,), layouts="any")
    kernel = KernelUnderTest("tma", matmul_tma, contract, mirror=MIRRORS["matmul_tma"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if dtype != "fp16" else "error")
        for config in range(5):
            case = Case(264, 304, 144, dtype, config=config)
            for name, layout in zip("ab", layouts, strict=True):
                case = case.with_layout(name, layout)
            report = check(kernel, case=case, target="sm_90", proof=False)
            assert report.findings == ()
            judged = {x.name: x.examples for x in report.properties}
            assert judged["mirror_equals_source"] == 1
