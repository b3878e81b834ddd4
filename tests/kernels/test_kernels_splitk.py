"""matmul_splitk: how K is shared out, in which order it is added up, and what it compiles to."""

import math
import re

import pytest
import torch
import triton
import triton.language as tl
from compiled import count_stack
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmproof.kernels import matmul_splitk
from gemmproof.kernels.arguments import DEFAULT_OUT_DTYPE
from gemmproof.kernels.descriptors import SHARED_MEMORY
from gemmproof.kernels.matmul_splitk import NUM_WARPS, STEPS, TILES, matmul_splitk_kernel
from gemmproof.reference.simulator import run

SMS = 132
BLOCK_K = 128  # of 16-bit operands


def operands(M, N, K, dtype=torch.float16):
    rng = torch.Generator().manual_seed(M + N + K)
    return (torch.randint(-3, 4, shape, generator=rng).to(dtype) for shape in ((M, K), (K, N)))


def launch(M, N, K, **options):
    """The run on the simulator, and the shares into which K went."""
    seen = run(matmul_splitk, *operands(M, N, K), target="sm_90", kwargs=options)
    assert seen.faults == []
    return seen, seen.launches[0].grid[1]


@pytest.mark.parametrize(
    ("M", "N", "K"), [(1, 8, 4096), (16, 40, 1030), (17, 65, 2048), (64, 64, 1537), (70, 130, 600)]
)
def test_there_is_a_program_for_each_share_and_none_too_many(M, N, K):
    """As many as there are multiprocessors for, each of STEPS steps or more, and all of K."""
    seen, shares = launch(M, N, K)
    tiles = seen.launches[0].grid[0]
    steps = math.ceil(K / BLOCK_K)
    assert shares == seen.launches[1].constexprs.get("shares", shares)
    assert tiles * shares <= max(tiles, SMS)
    assert 1 < shares <= math.ceil(steps / STEPS)
    a, b = operands(M, N, K)
    assert torch.equal(seen.result.float(), (a.float() @ b.float()).half().float())


@pytest.mark.parametrize(("M", "N", "K"), [(5, 7, 0), (5, 7, 3), (3, 9, STEPS * BLOCK_K)])
def test_a_single_share_is_stored_as_the_result(M, N, K):
    seen, shares = launch(M, N, K)
    assert (len(seen.launches), shares) == (1, 1)
    a, b = operands(M, N, K)
    assert torch.equal(seen.result.float(), (a.float() @ b.float()).half().float())


def test_shares_are_added_from_the_first_on():
    """Sums of fp32 in another order have other bits: 2^24 + 1 - 2^24 is 0, 2^24 - 2^24 + 1 is 1."""
    K = 3 * STEPS * 64
    a, b = torch.zeros(1, K), torch.ones(K, 1)
    a[0, 0], a[0, STEPS * 64], a[0, -1] = 2.0**24, 1.0, -(2.0**24)
    seen = run(matmul_splitk, a, b, target="sm_90")
    assert seen.launches[0].grid[1] == 3
    assert seen.result.item() == 0.0
    a[0, STEPS * 64], a[0, -1] = -(2.0**24), 1.0
    assert run(matmul_splitk, a, b, target="sm_90").result.item() == 1.0


@pytest.mark.parametrize("dtype", DEFAULT_OUT_DTYPE, ids=str)
def test_every_format_goes_into_an_out_of_any_strides(dtype):
    M, N, K = 9, 33, 1100
    a, b = operands(M, N, K, torch.int8)
    a, b = a.to(dtype), b.to(dtype)
    memory = torch.zeros(2 * M, 3 * N, dtype=DEFAULT_OUT_DTYPE[dtype])
    seen = run(matmul_splitk, a, b, target="sm_90", kwargs={"out": memory[::2, ::3]})
    assert seen.faults == []
    assert seen.launches[0].grid[1] > 1
    assert torch.equal(
        memory[::2, ::3].double(), (a.double() @ b.double()).to(memory.dtype).double()
    )
    assert not memory[1::2].any()


@pytest.mark.parametrize(("BLOCK_M", "BLOCK_N", "stages"), TILES)
@pytest.mark.parametrize("unit", [("stride_ak", "stride_bn"), ("stride_ak", "stride_bk")])
@pytest.mark.parametrize(
    ("operand", "size", "precision"), [("bf16", 2, "ieee"), ("fp32", 4, "tf32"), ("fp8e4nv", 1, "")]
)
def test_a_tile_compiles_without_spills(
    BLOCK_M, BLOCK_N, stages, unit, operand, size, precision, tmp_path
):
    """And fits an SM: nothing tunes this kernel, so nothing would pass over what does not fit."""
    constants = {
        **dict.fromkeys((*unit, "stride_wn"), 1),
        "BLOCK_M": BLOCK_M,
        "BLOCK_N": BLOCK_N,
        "BLOCK_K": 256 // max(2, size),
        "ACC_DTYPE": tl.float32,
        "INPUT_PRECISION": precision or "ieee",
        "PROMOTE": size == 1,
    }
    names = matmul_splitk_kernel.arg_names
    types = {"a_ptr": f"*{operand}", "b_ptr": f"*{operand}", "w_ptr": "*fp32"}
    signature = {p: "constexpr" if p in constants else types.get(p, "i32") for p in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, p in enumerate(names) if p not in constants}
    by_place = {(names.index(p),): value for p, value in constants.items()}
    source = ASTSource(matmul_splitk_kernel, signature, constexprs=by_place, attrs=aligned)
    options = {"num_warps": NUM_WARPS, "num_stages": stages}
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert re.search("wgmma.mma_async|mma.sync", made.asm["ptx"])
    assert BLOCK_M < 64 or "wgmma.mma_async" in made.asm["ptx"] or unit[1] == "stride_bn"
    assert "cp.async" in made.asm["ptx"]
    assert made.metadata.shared <= SHARED_MEMORY
    assert count_stack(made, tmp_path) == 0
