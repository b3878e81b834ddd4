"""grouped_gemm: values for every kind of groups, who gets descriptors, what it refuses."""

import itertools
from unittest.mock import MagicMock, patch

import pytest
import torch
from tests.kernels.calls import assert_pointers_told, assert_refused, run_quietly
from tests.kernels.compiled import capture_launches
from tests.support.lanes import combine, first_of_each

from gemmproof.kernels import grouped_gemm
from gemmproof.kernels.grouped_gemm import (
    FORMATS,
    MAX_GROUPS,
    TILES,
    grouped_gemm_kernel,
    grouped_gemm_tma_kernel,
)
from gemmproof.reference.provenance import reserve

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
    seen = run_quietly(grouped_gemm, a, b, config, offsets=offsets, **options)
    (launch,) = seen.launches
    return seen.result, launch.kernel


@pytest.mark.parametrize(("dtype", "name"), first_of_each(combine(FORMATS, OFFSETS)))
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
    with pytest.warns(
        UserWarning, match=r"^grouped_gemm: got (a \(.*\) with strides|K=0)"
    ) as warned:
        launches, (by_pointers,) = capture(a, b, torch.tensor([0, 9, 24], dtype=torch.int32))
    assert_pointers_told(warned, __file__)
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
    assert_refused(error, message, grouped_gemm, *arguments)


@pytest.mark.lane("full")
def test_c_is_stored_16_bytes_a_lane():
    """Though the flattened loop does not carry what divides a tile's first column."""
    with capture_launches("sm_90") as launches:
        a, b = zeros(256, 64, device="cuda"), zeros(2, 64, 256, device="cuda")
        grouped_gemm(a, b, torch.zeros(3, dtype=torch.int32, device="cuda"))
    assert len(launches) == len(TILES[2])
    for launch in launches:
        assert "st.global.v4.b32" in launch.compile().asm["ptx"], launch
