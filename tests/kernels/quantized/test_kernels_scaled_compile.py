"""What the kernels of matmul_scaled compile to, without a GPU."""

import re

import pytest
import triton
import triton.language as tl
from compiled import count_stack
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmproof.kernels.quantized.matmul_scaled import CONFIGS, matmul_scaled_kernel
from gemmproof.kernels.quantized.scaled_pointers import (
    BLOCK_M,
    BLOCK_N,
    GROUP_M,
    NUM_STAGES,
    NUM_WARPS,
    matmul_scaled_pointer_kernel,
)

#: Triton's name of an operand's type, and its name in PTX.
OPERANDS = {"fp8e4nv": "e4m3", "fp8e5": "e5m2", "i8": "s8"}
VECTORS = {"scale_a_ptr": "*fp32", "scale_b_ptr": "*fp32", "bias_ptr": "*bf16"}


def compile_scaled(function, constants, types, options, arch=90):
    """A kernel whose pointers and 32-bit integers are multiples of 16."""
    names = function.arg_names
    signature = {p: "constexpr" if p in constants else types.get(p, "i32") for p in names}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, p in enumerate(names)
        if not signature[p].startswith(("constexpr", "tensordesc", "i64"))
    }
    by_place = {(names.index(p),): value for p, value in constants.items()}
    source = ASTSource(function, signature, constexprs=by_place, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize(("operand", "promote"), [("fp8e4nv", 0), ("fp8e5", 1), ("i8", 0)])
@pytest.mark.parametrize("per_row", [True, False])
def test_a_scaled_configuration_compiles_without_spills(
    config, operand, promote, per_row, tmp_path
):
    """With promotion too, in the widest tile by halves: there a few bytes may not have room."""
    m, n, parts = (config.kwargs[x] for x in ("BLOCK_M", "BLOCK_N", "SUBTILES"))
    c_type = "fp32" if config.num_stages == 3 else "bf16"
    types = {
        "a_desc": f"tensordesc<{operand}[{m}, 128]>",
        "b_desc": f"tensordesc<{operand}[{n // parts if promote else n}, 128]>",
        "c_desc": f"tensordesc<{c_type}[{m}, {n // parts}]>",
        **VECTORS,
    }
    constants = {
        **config.kwargs,
        **dict.fromkeys(("stride_sa", "stride_sb", "stride_bias"), 1),
        **dict.fromkeys(("A_PER_ROW", "B_PER_COLUMN"), per_row),
        **({} if per_row else {"bias_ptr": None}),
        "C_BYTES": 2,
        "NUM_SMS": 132,
        "ACC_DTYPE": tl.int32 if operand == "i8" else tl.float32,
        "PROMOTE": bool(promote),
    }
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    made = compile_scaled(matmul_scaled_kernel.fn, constants, types, options)
    ptx = made.asm["ptx"]
    assert re.search(rf"wgmma\.mma_async\S*k32\.[fs]32\.{OPERANDS[operand]}\.", ptx)
    assert "cp.async.bulk.tensor.2d.shared" in ptx
    assert "cp.async.bulk.tensor.2d.global" in ptx
    assert made.metadata.shared <= 227 * 1024
    assert count_stack(made, tmp_path) <= (16 if n == 256 else 0)


@pytest.mark.parametrize(
    ("arch", "operand"), [(80, "i8"), (90, "fp8e4nv"), (90, "i8"), (100, "fp8e4nv")]
)
@pytest.mark.parametrize("integers", ["i32", "i64"])
def test_the_scaled_way_by_pointers_compiles(arch, operand, integers, tmp_path):
    """Dense rows of both operands; 64-bit strides of no alignment."""
    unit = ("stride_ak", "stride_bn", "stride_cn") if integers == "i32" else ()
    constants = {
        **dict.fromkeys(unit, 1),
        **dict.fromkeys(("A_PER_ROW", "B_PER_COLUMN"), True),
        **{"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": 128, "GROUP_M": GROUP_M},
        "ACC_DTYPE": tl.int32 if operand == "i8" else tl.float32,
        "PROMOTE": operand != "i8",
    }
    names = matmul_scaled_pointer_kernel.arg_names
    types = {p: integers for p in names if p.startswith("stride")}
    types |= {"a_ptr": f"*{operand}", "b_ptr": f"*{operand}", "c_ptr": "*bf16", **VECTORS}
    options = {"num_warps": NUM_WARPS, "num_stages": NUM_STAGES}
    made = compile_scaled(matmul_scaled_pointer_kernel, constants, types, options, arch)
    assert re.search(r"wgmma|mma\.sync|tcgen05\.mma", made.asm["ptx"])
    assert integers == "i64" or "cp.async" in made.asm["ptx"]
    assert count_stack(made, tmp_path) == 0
