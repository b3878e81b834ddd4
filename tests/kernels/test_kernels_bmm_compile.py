"""bmm compiles for Hopper, in blocks of rank 3 and with pointers, and for its neighbours."""

import itertools
import re

import pytest
import triton
import triton.language as tl
from compiled import count_stack
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmproof.kernels.bmm import CONFIGS, POINTER_CONFIGS, bmm_kernel, bmm_tma_kernel

#: Operands, Triton's name of their type, the instruction's, the result's, and layouts of a and b.
ALL = tuple(itertools.product((False, True), repeat=2))
FORMATS = {
    "fp16": (2, "fp16", "k16.f32.f16", "fp16", ALL[:3]),
    "tf32": (4, "fp32", "k8.f32.tf32", "fp32", ALL[1:2]),
    "fp8e4m3": (1, "fp8e4nv", "k32.f32.e4m3", "fp32", ALL[1:2]),
    "int8": (1, "i8", "k32.s32.s8", "i32", ALL[1:2]),
}
CASES = [
    (name, *transposed, i)
    for name, (size, *_, layouts) in FORMATS.items()
    for transposed in layouts
    for i, config in enumerate(CONFIGS)
    if config.kwargs["BLOCK_K"] * size == 128
    if not (name == "fp8e4m3" and config.kwargs["BLOCK_N"] > 128)
]


def compile_for(kernel, config, signature, constants, attributes=None, arch=90):
    names = kernel.arg_names
    source = ASTSource(
        kernel.fn,
        {p: "constexpr" if p in constants else signature.get(p, "i32") for p in names},
        constexprs={(names.index(p),): value for p, value in constants.items()},
        attrs=attributes or {},
    )
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def say_arithmetic(name):
    return {
        "NUM_SMS": 132,
        "ACC_DTYPE": tl.int32 if name == "int8" else tl.float32,
        "INPUT_PRECISION": "tf32" if name == "tf32" else "ieee",
        "PROMOTE": name.startswith("fp8"),
    }


def compile_tma(name, a_is_t, b_is_t, config, arch=90):
    _, operand, _, result, _ = FORMATS[name]
    m, n, k, parts = (config.kwargs[x] for x in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SUBTILES"))
    blocks = {
        "a_desc": f"tensordesc<{operand}{[1, k, m] if a_is_t else [1, m, k]}>",
        "b_desc": f"tensordesc<{operand}{[1, n, k] if b_is_t else [1, k, n]}>",
        "c_desc": f"tensordesc<{result}{[1, m, n // parts]}>",
    }
    flags = {"A_IS_T": a_is_t, "B_IS_T": b_is_t, "A_IS_SHARED": False, "B_IS_SHARED": b_is_t}
    constants = {**config.kwargs, **say_arithmetic(name), **flags, "C_BYTES": 2}
    return compile_for(bmm_tma_kernel, config, blocks, constants, arch=arch)


@pytest.mark.parametrize(("name", "a_is_t", "b_is_t", "index"), CASES)
def test_a_configuration_of_blocks_compiles_without_spills(name, a_is_t, b_is_t, index, tmp_path):
    """Blocks of rank 3 by the copy engine, wgmma on the right format, and room on an SM."""
    made = compile_tma(name, a_is_t, b_is_t, CONFIGS[index])
    ptx = made.asm["ptx"]
    assert re.search(rf"wgmma\.mma_async\S*{re.escape(FORMATS[name][2])}\.", ptx)
    assert "cp.async.bulk.tensor.3d.shared" in ptx
    assert "cp.async.bulk.tensor.3d.global" in ptx
    assert made.metadata.shared <= 227 * 1024
    assert count_stack(made, tmp_path) == 0


def test_blackwell_has_the_copy_engine_too():
    config = next(x for x in CONFIGS if x.kwargs["BLOCK_N"] == 128)
    ptx = compile_tma("fp16", False, False, config, arch=100).asm["ptx"]
    assert "cp.async.bulk.tensor.3d" in ptx
    assert "tcgen05.mma" in ptx


@pytest.mark.parametrize("config", POINTER_CONFIGS, ids=str)
@pytest.mark.parametrize("is_aligned", [False, True])
def test_pointers_compile_without_spills(config, is_aligned, tmp_path):
    made = compile_pointers(config, is_aligned, 90)
    assert ("wgmma" if config.kwargs["BLOCK_M"] >= 64 else "mma.sync") in made.asm["ptx"]
    assert ("cp.async" in made.asm["ptx"]) == is_aligned
    assert count_stack(made, tmp_path) == 0


@pytest.mark.parametrize(("arch", "instruction"), [(80, "mma.sync"), (100, "tcgen05.mma")])
def test_pointers_compile_for_other_gpus(arch, instruction):
    assert instruction in compile_pointers(POINTER_CONFIGS[1], True, arch).asm["ptx"]


def compile_pointers(config, is_aligned, arch):
    unit = dict.fromkeys(("stride_ak", "stride_bn", "stride_cn"), 1)
    constants = {**config.kwargs, **say_arithmetic("fp16"), **unit}
    signature = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*fp16")
    names = bmm_kernel.arg_names
    aligned = {(i,): [["tt.divisibility", 16]] for i, p in enumerate(names) if p not in constants}
    attributes = aligned if is_aligned else {}
    return compile_for(bmm_kernel, config, signature, constants, attributes, arch)
