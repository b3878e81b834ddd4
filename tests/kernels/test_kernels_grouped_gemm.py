"""grouped_gemm: values for every kind of groups, who gets descriptors, what it refuses."""

import itertools
import re
import warnings
from unittest.mock import MagicMock, patch

import pytest
import torch
import triton
from compiled import count_stack
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmproof.kernels import grouped_gemm
from gemmproof.kernels.grouped_gemm import (
    CONFIGS,
    FORMATS,
    MAX_GROUPS,
    POINTER_CONFIGS,
    grouped_gemm_kernel,
    grouped_gemm_tma_kernel,
    keep_fitting,
)
from gemmproof.reference.reserved import reserve
from gemmproof.reference.simulator import run

F16, FP8 = torch.float16, torch.float8_e4m3fn
MODULE = "gemmproof.kernels.grouped_gemm"
#: Where groups begin, and M: empty ones at both ends and between, and ends inside of tiles.
OFFSETS = {
    "one group": [0, 300],
    "empty ones everywhere": [0, 0, 1, 1, 130, 258, 258, 258, 387, 387],
    "whole tiles": [0, 128, 384, 512],
    "single rows": list(range(12)),
}


def zeros(*shape, dtype=F16, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


def draw(offsets, N, K, dtype=F16):
    """Integers whose sums every format of a result holds; b is k by k."""
    rng = torch.Generator().manual_seed(N + K)
    shapes = ((offsets[-1], K), (len(offsets) - 1, N, K))
    a, b = (torch.randint(-2, 3, shape, generator=rng).to(dtype) for shape in shapes)
    return a, b.mT, torch.tensor(offsets, dtype=torch.int32)


def multiply(a, b, offsets):
    ends = offsets.tolist()
    return torch.cat(
        [a[x:y].double() @ b[g].double() for g, (x, y) in enumerate(itertools.pairwise(ends))]
    )


def see(a, b, offsets, config=0, **options):
    """The run on the simulator, and the one kernel that it launched."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = run(
            lambda a, b: grouped_gemm(a, b, offsets, **options), a, b,
            target="sm_90", config=config,
        )  # fmt: skip
    assert seen.faults == []
    (launch,) = seen.launches
    return seen.result, launch.kernel


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("name", OFFSETS)
def test_rows_are_multiplied_by_the_matrix_of_their_group(dtype, name):
    """By descriptors and by pointers, in each configuration."""
    a, b, offsets = draw(OFFSETS[name], 264, 144, dtype)
    right = multiply(a, b, offsets)
    for config in range(2 if dtype.itemsize == 1 else 4):
        c, kernel = see(a, b, offsets, config)
        assert kernel == "grouped_gemm_tma_kernel"
        assert torch.equal(c.double(), right)
        assert c.dtype == (torch.float32 if dtype.itemsize == 1 else dtype)
    odd = zeros(2 * a.shape[0], 2 * a.shape[1], dtype=dtype)[::2, ::2]
    odd.copy_(a)
    for config in range(2):
        c, kernel = see(odd, b, offsets, config)
        assert kernel == "grouped_gemm_kernel"
        assert torch.equal(c.double(), right)


VIEWS = {
    "rows": lambda x: x.contiguous(),
    "dense columns": lambda x: x.mT.contiguous().mT,
    "one matrix for all groups": lambda x: x[:1].expand(x.shape),
    "groups between rows": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
}


@pytest.mark.parametrize("of_b", VIEWS)
def test_views_are_read_where_they_lie_by_descriptors(of_b):
    """Offsets of a step too, and an out of dense columns."""
    a, b, offsets = draw([0, 8, 8, 136], 72, 80)
    b, offsets = VIEWS[of_b](b), offsets.repeat_interleave(2)[::2]
    out = torch.full((72, 136), 9.0, dtype=F16).T
    c, kernel = see(a, b, offsets, config=1, out=out)
    assert kernel == "grouped_gemm_tma_kernel"
    assert torch.equal(c.double(), multiply(a, b, offsets))
    assert torch.equal(c, out)


def test_dense_columns_of_a_are_read_by_pointers():
    """A group begins at any row: for the copy engine an illegal instruction, seen on an H200."""
    a, b, offsets = draw([0, 3, 9, 16], 32, 16)
    c, kernel = see(a.T.contiguous().T, b, offsets)
    assert kernel == "grouped_gemm_kernel"
    assert torch.equal(c.double(), multiply(a, b, offsets))


@pytest.mark.parametrize("kernel", ["grouped_gemm_tma_kernel", "grouped_gemm_kernel"])
def test_offsets_may_lie_far_apart(kernel):
    """The last one is 2**31 elements from the first."""
    a, b, near = draw([0, 3, 9], 16, 16)
    a = a if kernel == "grouped_gemm_tma_kernel" else a.repeat_interleave(2, 1)[:, ::2]
    memory = torch.frombuffer(reserve(2**33 + 4), dtype=torch.int32)
    offsets = memory[:: 2**30].copy_(near)
    c, launched = see(a, b, offsets)
    assert launched == kernel
    assert torch.equal(c.double(), multiply(a, b, near))


def test_a_row_reaches_no_other_row():
    """A tile fetches rows of the next group, which are not stored with it."""
    a, b, offsets = draw([0, 100, 200], 128, 64)
    a[100:] = float("nan")
    c, _ = see(a, b, offsets)
    assert not c[:100].isnan().any()
    assert c[100:].isnan().all()


def capture(*arguments):
    """The launch by descriptors, and the one by pointers, of a call: each a list of none or one."""
    kernels = MagicMock(), MagicMock()
    with (
        patch(f"{MODULE}.grouped_gemm_tma_kernel", kernels[0]),
        patch(f"{MODULE}.grouped_gemm_kernel", kernels[1]),
    ):
        grouped_gemm(*arguments)
    return [x.__getitem__.return_value.call_args_list for x in kernels]


@pytest.mark.parametrize("M", [130, 256])
def test_the_host_reads_no_offset_and_the_tuner_no_exact_number_of_rows(M):
    """There is nothing to be read on this device, whose tensors have no memory."""
    a, b = zeros(M, 64, device="meta"), zeros(4, 64, 32, device="meta")
    ((launch,), ()) = capture(a, b, torch.empty(5, dtype=torch.int32, device="meta"))
    assert (launch.kwargs["ROWS"], launch.kwargs["BLOCK_G"]) == (64, 4)
    assert "M" not in grouped_gemm_tma_kernel.keys + grouped_gemm_kernel.keys


OBSTACLES = {
    "rows of 7 elements": (zeros(24, 7), zeros(2, 7, 16)),
    "a base off 16 bytes": (zeros(24, 48)[:, 4:44], zeros(2, 40, 16)),
    "rows of b of 15 elements": (zeros(24, 40), zeros(2, 40, 15)),
    "fp8 whose b is n by n": (zeros(24, 32, dtype=FP8), zeros(2, 32, 32, dtype=FP8)),
    "an empty K": (zeros(24, 0), zeros(2, 0, 16)),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_no_descriptor_can_say_is_told_in_a_line_and_read_by_pointers(name):
    a, b = OBSTACLES[name]
    with pytest.warns(UserWarning, match="^grouped_gemm: got (a with strides|K=0)") as said:
        launches, (by_pointers,) = capture(a, b, torch.tensor([0, 9, 24], dtype=torch.int32))
    (warning,) = said
    assert "\n" not in str(warning.message)
    assert str(warning.message).endswith("; pointers are used")
    assert warning.filename == __file__
    assert launches == []
    assert (by_pointers.args[0] is a, by_pointers.args[1] is b) == (True, True)


def test_an_empty_k_gives_zeros():
    c, _ = see(zeros(24, 0), zeros(2, 0, 16), torch.tensor([0, 9, 24], dtype=torch.int32))
    assert torch.equal(c, zeros(24, 16))


@pytest.mark.parametrize(("M", "N", "G"), [(0, 5, 2), (3, 0, 2), (0, 5, 0)])
def test_an_empty_product_launches_nothing(M, N, G):
    offsets = zeros(G + 1, dtype=torch.int32)
    assert grouped_gemm(zeros(M, 4), zeros(G, 4, N), offsets).shape == (M, N)


A, B, O = zeros(3, 4), zeros(2, 4, 5), torch.tensor([0, 1, 3], dtype=torch.int32)
TYPES = {
    "got a of torch.float32, expected 16-bit": (A.float(), B.float(), O),
    "got offsets of torch.int64, expected torch.int32": (A, B, O.long()),
    "got offsets of list, expected torch.int32": (A, B, [0, 1, 3]),
    "got offsets on meta, expected cpu": (A, B, O.to("meta")),
    "got out_dtype=torch.int32 for torch.float16, exp": (A, B, O, torch.int32),
}
VALUES = {
    "got b of shape (4, 5), expected three dimensions": (A, B[0], O),
    "got a (3, 4) and b (2, 5, 4), expected (M, K) and (G, K, N)": (A, B.mT, O),
    "got offsets of shape (2,), expected (3,)": (A, B, O[:2]),
    "got 0 groups for 3 rows, expected 1 to": (A, B[:0], O[:1]),
    f"got {MAX_GROUPS + 1} groups for 3 rows, expected 1 to {MAX_GROUPS}": (
        A,
        B[:1].expand(MAX_GROUPS + 1, 4, 5),
        zeros(MAX_GROUPS + 2, dtype=torch.int32),
    ),
}


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [(e, *x) for e, table in ((TypeError, TYPES), (ValueError, VALUES)) for x in table.items()],
)
def test_a_bad_call_is_refused_in_one_line(error, message, arguments):
    with pytest.raises(error, match=re.escape(message)) as caught:
        grouped_gemm(*arguments)
    assert str(caught.value).startswith("grouped_gemm: got ")
    assert "\n" not in str(caught.value)


def compile_for(kernel, config, types, constants, arch=90):
    names = kernel.arg_names
    source = ASTSource(
        kernel.fn,
        {p: "constexpr" if p in constants else types.get(p, "i32") for p in names},
        constexprs={(names.index(p),): value for p, value in constants.items()},
        attrs={
            (i,): [["tt.divisibility", 16]]
            for i, p in enumerate(names)
            if p in ("N", "K") or p.startswith("stride") or p.endswith("ptr")
            if p not in constants
        },
    )
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def say_constants(config, groups, promote):
    common = {"ROWS": 64, "NUM_SMS": 132, "PROMOTE": promote, "BLOCK_G": groups}
    return {**config.kwargs, **common, "stride_cn": 1, "stride_offsets": 1}


def compile_tma(dtype, b_is_t, groups, config, arch=90):
    operand, result = {F16: ("fp16", "fp16"), FP8: ("fp8e4nv", "fp32")}[dtype]
    m, n, k = (config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")
    types = {
        "a_desc": f"tensordesc<{operand}{[m, k]}>",
        "b_desc": f"tensordesc<{operand}{[1, n, k] if b_is_t else [1, k, n]}>",
        "c_ptr": f"*{result}",
        "offsets_ptr": "*i32",
    }
    flags = {"B_IS_T": b_is_t, "B_IS_SHARED": False}
    constants = {**say_constants(config, groups, dtype == FP8), **flags}
    return compile_for(grouped_gemm_tma_kernel, config, types, constants, arch)


def keep(dtype):
    given = {"a_desc": MagicMock(base=zeros(1, dtype=dtype)), "PROMOTE": dtype == FP8}
    return keep_fitting(CONFIGS, given)


CASES = [(F16, False, i) for i in range(4)] + [(F16, True, 0)] + [(FP8, True, i) for i in (0, 1)]


@pytest.mark.parametrize(("dtype", "b_is_t", "index"), CASES)
@pytest.mark.parametrize("groups", [8, MAX_GROUPS])
def test_a_configuration_compiles_without_spills(dtype, b_is_t, index, groups, tmp_path):
    """a in blocks of rank 2 and b of rank 3 by the copy engine; c stored 16 bytes a lane."""
    made = compile_tma(dtype, b_is_t, groups, keep(dtype)[index])
    ptx = made.asm["ptx"]
    assert re.search(rf"wgmma\.mma_async\S*\.{'f16' if dtype == F16 else 'e4m3'}\.", ptx)
    assert "cp.async.bulk.tensor.2d.shared" in ptx
    assert "cp.async.bulk.tensor.3d.shared" in ptx
    assert "st.global.v4.b32" in ptx
    assert made.metadata.shared <= 227 * 1024
    assert count_stack(made, tmp_path) == 0


@pytest.mark.parametrize(("config", "arch"), [(0, 80), (0, 90), (1, 90), (0, 100)])
def test_pointers_compile_for_each_gpu(config, arch, tmp_path):
    config = POINTER_CONFIGS[config]
    types = {**dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16"), "offsets_ptr": "*i32"}
    constants = {**say_constants(config, 8, False), "stride_ak": 1, "stride_bn": 1}
    made = compile_for(grouped_gemm_kernel, config, types, constants, arch)
    instruction = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma"}[arch]
    assert instruction in made.asm["ptx"]
    assert "cp.async" in made.asm["ptx"]
    if arch == 90:
        assert count_stack(made, tmp_path) == 0


def test_blackwell_has_the_copy_engine_too():
    ptx = compile_tma(F16, False, 8, keep(F16)[1], arch=100).asm["ptx"]
    assert "cp.async.bulk.tensor.3d" in ptx
    assert "tcgen05.mma" in ptx
