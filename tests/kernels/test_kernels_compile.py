"""Every configuration compiles for Hopper without a GPU, to the instructions that it should use."""

import re
from importlib import import_module

import pytest
import triton
import triton.language as tl
from compiled import FORMATS, count_stack
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

KERNELS = ("matmul", "matmul_grouped", "matmul_swizzled", "matmul_persistent")
CONFIGS = {name: import_module(f"gemmproof.kernels.{name}").CONFIGS for name in KERNELS}
#: Every configuration and every format of each kernel at least once.
CASES = [
    (name, i % len(CONFIGS[name]), list(FORMATS)[i % len(FORMATS)])
    for name in KERNELS
    for i in range(max(len(CONFIGS[name]), len(FORMATS)))
]


def compile_kernel(
    name, config, in_format, integers="i32", unit=("stride_ak", "stride_bn", "stride_cn")
):
    """The kernel for sm_90: `unit` strides are 1, other integers multiples of 16 if i32."""
    kernel = getattr(import_module(f"gemmproof.kernels.{name}"), f"{name}_kernel").fn
    operand, _, _, result = FORMATS[in_format]
    constants = {
        **config.kwargs,
        **dict.fromkeys(unit, 1),
        "ACC_DTYPE": tl.int32 if in_format == "int8" else tl.float32,
        "INPUT_PRECISION": "tf32" if in_format == "tf32" else "ieee",
        "PROMOTE": in_format.startswith("fp8"),
    }
    if "NUM_SMS" in kernel.arg_names:
        constants["NUM_SMS"] = 132
    types = {"a_ptr": f"*{operand}", "b_ptr": f"*{operand}", "c_ptr": f"*{result}"}
    signature = {
        p: "constexpr" if p in constants else types.get(p, integers) for p in kernel.arg_names
    }
    aligned = [["tt.divisibility", 16]] if integers == "i32" else []
    attributes = {
        (i,): aligned for i, p in enumerate(kernel.arg_names) if signature[p] != "constexpr"
    }
    by_place = {(kernel.arg_names.index(p),): value for p, value in constants.items()}
    source = ASTSource(kernel, signature, constexprs=by_place, attrs=attributes)
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize(("name", "index", "in_format"), CASES)
def test_a_configuration_uses_the_tensor_core_of_its_format(name, index, in_format):
    """wgmma for 64 rows and a whole warp group, mma.sync for less, fused multiply-adds for fp32."""
    config = CONFIGS[name][index]
    _, instruction, bits, _ = FORMATS[in_format]
    ptx = compile_kernel(name, config, in_format).asm["ptx"]
    wgmma = rf"wgmma\.mma_async\.sync\.aligned\.m64n\d+k{256 // bits}\.[fs]32\.{instruction}\."
    BLOCK_M, BLOCK_N = config.kwargs["BLOCK_M"], config.kwargs["BLOCK_N"]
    if in_format == "fp32":
        assert "fma.rn.f32" in ptx
        assert "mma.sync" not in ptx
        assert "wgmma" not in ptx
    elif BLOCK_M % 64 == 0 and config.num_warps % 4 == 0:
        assert re.search(wgmma, ptx)
    else:
        assert "mma.sync" in ptx
    # Promotion is one fp32 addition per element of the accumulator; other sums stay in the unit.
    additions = len(re.findall(r"add(?:\.rn)?\.f32", ptx))
    promoted = BLOCK_M * BLOCK_N // (32 * config.num_warps)
    assert additions >= promoted if in_format.startswith("fp8") else additions == 0


STRIDES = tuple(f"stride_{x}" for x in ("am", "ak", "bk", "bn", "cm", "cn"))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(("integers", "unit"), [("i64", ()), ("i32", ("M", "N", "K", *STRIDES))])
def test_odd_strides_and_sizes_of_one_compile_too(name, integers, unit):
    """64-bit strides without alignment, as of a view of a huge parent; sizes of 1 are constants."""
    config = min(CONFIGS[name], key=lambda c: c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"])
    assert ".entry" in compile_kernel(name, config, "fp16", integers, unit).asm["ptx"]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("unit", [("stride_ak", "stride_bn"), ("stride_ak", "stride_bk")])
def test_both_operands_are_fetched_ahead_and_nothing_is_spilled(name, unit, tmp_path):
    """There is shared memory for every stage of both, with either layout of b."""
    for config in CONFIGS[name]:
        made = compile_kernel(name, config, "fp16", unit=(*unit, "stride_cn"))
        m, n, k = (config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")
        stages = config.num_stages - (m < 64)  # mma.sync reads one of them from registers
        assert made.metadata.shared >= stages * (m + n) * k * 2, config
        assert count_stack(made, tmp_path) == 0, config
