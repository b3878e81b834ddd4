"""matmul_streamk: which tiles are whole, how the others are shared out, and what it compiles to."""

import math
import re
from itertools import product
from unittest.mock import patch

import pytest
import torch
import triton
import triton.language as tl
from compiled import FORMATS, count_stack
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmproof.kernels import matmul_streamk
from gemmproof.kernels.arguments import DEFAULT_OUT_DTYPE
from gemmproof.kernels.descriptors import SHARED_MEMORY
from gemmproof.kernels.matmul_streamk import (
    BLOCK_M,
    BLOCK_N,
    GROUP_M,
    ROW_BYTES,
    count_stages,
    matmul_streamk_kernel,
)
from gemmproof.reference.simulator import run

STREAMK = "gemmproof.kernels.matmul_streamk"


def integers(rows, columns, is_t=False, dtype=torch.float16):
    rng = torch.Generator().manual_seed(rows + columns)
    x = torch.randint(-3, 4, (columns, rows) if is_t else (rows, columns), generator=rng).to(dtype)
    return x.T if is_t else x


def exact(a, b, dtype):
    return (a.double() @ b.double()).to(dtype).double()


@pytest.mark.parametrize("b_is_t", [False, True])
@pytest.mark.parametrize(
    ("M", "N", "K", "sms"),
    [
        (128, 128, 64, 132),  # a single step
        (40, 72, 520, 132),  # one tile in steps of its own
        (300, 264, 200, 4),  # 9 tiles: two waves and one left
        (256, 256, 192, 4),  # none left
        (600, 392, 328, 7),  # 20 tiles, 6 left
        (136, 520, 64, 9),  # more tiles left than steps for each program
    ],
)
def test_whole_tiles_first_and_the_steps_of_the_rest_in_equal_shares(M, N, K, sms, b_is_t):
    a, b = integers(M, K), integers(K, N, b_is_t)
    with patch(f"{STREAMK}.num_sms", lambda device: sms):
        seen = run(matmul_streamk, a, b, target="sm_90")
    assert seen.faults == []
    assert torch.equal(seen.result.double(), exact(a, b, torch.float16))
    tiles = math.ceil(M / BLOCK_M) * math.ceil(N / BLOCK_N)
    assert seen.launches[0].grid[0] == sms
    assert len(seen.launches) == (2 if tiles % sms else 1)
    if tiles % sms:
        assert seen.launches[1].grid[0] == tiles % sms


def test_steps_are_added_from_the_first_on():
    """Sums of fp32 in another order have other bits: 2^24 + 1 - 2^24 is 0, 2^24 - 2^24 + 1 is 1."""
    K, step = 96, ROW_BYTES // 4  # three steps, a program each
    a, b = torch.zeros(4, K), torch.ones(K, 4)
    for values, expected in (((2.0**24, 1, -(2.0**24)), 0), ((2.0**24, -(2.0**24), 1), 1)):
        for place, value in zip((0, step, 2 * step), values, strict=True):
            a[0, place] = value
        seen = run(matmul_streamk, a, b, target="sm_90", kwargs={"input_precision": "tf32"})
        assert len(seen.launches) == 2
        assert seen.result[0, 0].item() == expected


@pytest.mark.parametrize("dtype", DEFAULT_OUT_DTYPE, ids=str)
def test_every_format_goes_into_an_out_of_either_order(dtype):
    a, b = integers(48, 272, dtype=torch.int8).to(dtype), integers(272, 80, True, torch.int8)
    b, result = b.to(dtype), DEFAULT_OUT_DTYPE[dtype]
    for out in (torch.zeros(48, 80, dtype=result), torch.zeros(80, 48, dtype=result).T):
        options = {"out": out, "input_precision": "tf32" if dtype == torch.float32 else "ieee"}
        seen = run(matmul_streamk, a, b, target="sm_90", kwargs=options)
        assert seen.faults == []
        assert len(seen.launches) == 2
        assert torch.equal(out.double(), exact(a, b, result))


def test_what_no_descriptor_can_say_is_read_by_pointers():
    a, b = integers(24, 7), integers(7, 16)
    with pytest.warns(UserWarning, match="matmul_streamk: got a with strides .* pointers are used"):
        seen = run(matmul_streamk, a, b, target="sm_90")
    assert len(seen.launches) == 1
    assert torch.equal(seen.result.double(), exact(a, b, torch.float16))


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"fp32"}))  # which goes to pointers
def test_the_kernel_compiles_without_spills_for_results_of_four_bytes(name, tmp_path):
    """The widest that an SM must have room for; of 1000 steps as of one."""
    _, instruction, bits, _ = FORMATS[name]
    made = compile_streamk(name, False, True, 90)
    ptx = made.asm["ptx"]
    assert re.search(rf"wgmma\.mma_async\.sync\.aligned\.m64n\d+k{256 // bits}\.", ptx)
    assert f".{instruction}." in ptx
    assert "cp.async.bulk.tensor" in ptx
    assert made.metadata.shared <= SHARED_MEMORY
    assert count_stack(made, tmp_path) == 0


@pytest.mark.parametrize(("a_is_t", "b_is_t"), list(product((False, True), repeat=2)))
@pytest.mark.parametrize("name", ["bf16", "tf32"])
def test_every_layout_has_room_on_blackwell_too(name, a_is_t, b_is_t):
    """Nothing tunes this kernel, so nothing would pass over what does not fit."""
    made = compile_streamk(name, a_is_t, b_is_t, 100)
    assert "tcgen05.mma" in made.asm["ptx"]
    assert made.metadata.shared <= SHARED_MEMORY


def compile_streamk(name, a_is_t, b_is_t, arch):
    operand, _, bits, _ = FORMATS[name]
    BLOCK_K = ROW_BYTES * 8 // bits
    constants = {
        "A_IS_T": a_is_t, "B_IS_T": b_is_t,
        "BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "GROUP_M": GROUP_M,
        "NUM_SMS": 132,
        "ACC_DTYPE": tl.int32 if name == "int8" else tl.float32,
        "INPUT_PRECISION": "tf32" if name == "tf32" else "ieee",
        "PROMOTE": name.startswith("fp8"),
    }  # fmt: skip
    sums = "i32" if name == "int8" else "fp32"
    types = {
        "a_desc": f"tensordesc<{operand}{[BLOCK_K, BLOCK_M] if a_is_t else [BLOCK_M, BLOCK_K]}>",
        "b_desc": f"tensordesc<{operand}{[BLOCK_N, BLOCK_K] if b_is_t else [BLOCK_K, BLOCK_N]}>",
        "c_desc": f"tensordesc<{sums}[{BLOCK_M},{BLOCK_N}]>",
        "w_ptr": f"*{sums}",
    }
    names = matmul_streamk_kernel.arg_names
    signature = {p: "constexpr" if p in constants else types.get(p, "i32") for p in names}
    by_place = {(names.index(p),): value for p, value in constants.items()}
    attributes = {(names.index("w_ptr"),): [["tt.divisibility", 16]]}
    source = ASTSource(matmul_streamk_kernel, signature, constexprs=by_place, attrs=attributes)
    warps = 8 if name.startswith("fp8") else 4
    options = {"num_warps": warps, "num_stages": count_stages(bits // 8, a_is_t, b_is_t)}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
