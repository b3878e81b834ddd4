"""matmul_fused: the configurations that fit, and what they compile to."""

import re

import pytest
import triton
from compiled import count_stack
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gemmproof.kernels.descriptors import SHARED_MEMORY
from gemmproof.kernels.fused.matmul_fused import CONFIGS, TILES, keep_fitting, matmul_fused_kernel
from gemmproof.kernels.fused.pointers import CONFIGS as POINTERS
from gemmproof.kernels.fused.pointers import matmul_fused_pointers_kernel

SIZES = {None: 0, "bf16": 2, "fp16": 2, "fp32": 4}
#: Formats of bias, c, residual and out: absent, as in a, and as wide as they may be.
GIVEN = {
    "a bias": ("bf16", None, None, "bf16"),
    "a residual": ("bf16", None, "bf16", "bf16"),
    "everything in fp32": ("fp32", "fp32", "fp32", "fp32"),
}


def keep(given):
    names = ("BIAS_BYTES", "C_BYTES", "RESIDUAL_BYTES", "OUT_BYTES")
    return keep_fitting(CONFIGS, {n: SIZES[x] for n, x in zip(names, given, strict=True)})


def compile_fused(function, config, types, constants, capability=90):
    """A kernel of which what is neither a constant nor typed is an integer, a multiple of 16."""
    names = function.arg_names
    signature = {p: "constexpr" if p in constants else types.get(p, "i32") for p in names}
    places = (i for i, p in enumerate(names) if signature[p][:3] in ("i32", "*bf", "*fp"))
    source = ASTSource(
        function,
        signature,
        constexprs={(names.index(p),): value for p, value in constants.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i in places},
    )
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


@pytest.mark.parametrize("given", GIVEN)
def test_every_tile_has_a_configuration_that_fits(given):
    assert [(x.kwargs["BLOCK_M"], x.kwargs["BLOCK_N"]) for x in keep(GIVEN[given])] == [
        tile[:2] for tile in TILES
    ]


def test_the_tuner_keeps_apart_what_may_change_its_choice():
    """Presence and widths too, which Triton does not see in descriptors."""
    for kernel in (matmul_fused_kernel, matmul_fused_pointers_kernel):
        assert {"ACTIVATION", *(f"{x}_BYTES" for x in ("BIAS", "C", "RESIDUAL", "OUT"))} <= set(
            kernel.keys
        )


#: Every activation in the widest tile, and in the others the one that takes most registers.
CASES = [(0, x) for x in (None, "gelu", "gelu_tanh", "silu")]
CASES += [(i, "gelu") for i in range(1, len(TILES))]


@pytest.mark.parametrize(("index", "activation"), CASES)
@pytest.mark.parametrize("given", GIVEN)
def test_a_fused_configuration_compiles_without_spills(given, activation, index, tmp_path):
    """Loads and stores by the copy engine, one wgmma in flight, and room on an SM."""
    config = keep(GIVEN[given])[index]
    bias, c, residual, out = GIVEN[given]
    m, n, k, parts = (config.kwargs[x] for x in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SUBTILES"))
    types = {
        "a_desc": f"tensordesc<bf16{[m, k]}>",
        "b_desc": f"tensordesc<bf16{[n, k]}>",
        "out_desc": f"tensordesc<{out}{[m, n // parts]}>",
        **dict.fromkeys(("alpha", "beta"), "fp32"),
    }
    constants = {**config.kwargs, "A_IS_T": False, "B_IS_T": True, "NUM_SMS": 132}
    constants |= {"ACTIVATION": activation, "OUT_BYTES": SIZES[out], "stride_bias": 1}
    for name, x, kind in (
        ("bias_ptr", bias, f"*{bias}"),
        ("c_desc", c, f"tensordesc<{c}{[m, n // parts]}>"),
        ("residual_desc", residual, f"tensordesc<{residual}{[m, n // parts]}>"),
    ):
        constants[f"{name.split('_')[0].upper()}_BYTES"] = SIZES[x]
        (types if x else constants)[name] = kind if x else None
    made = compile_fused(matmul_fused_kernel.fn, config, types, constants)
    ptx = made.asm["ptx"]
    assert re.search(r"wgmma\.mma_async\S*k16\.f32\.bf16\.", ptx)
    assert "cp.async.bulk.tensor.2d.shared" in ptx
    assert "cp.async.bulk.tensor.2d.global" in ptx
    assert re.search(r"wgmma\.wait_group\S*\s+1;", ptx)
    assert made.metadata.shared <= SHARED_MEMORY
    assert count_stack(made, tmp_path) == 0


@pytest.mark.parametrize("index", range(len(POINTERS)))
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_pointers_compile_without_spills_on_every_gpu(capability, index, tmp_path):
    config = POINTERS[index]
    types = {"a_ptr": "*bf16", "b_ptr": "*bf16", "bias_ptr": "*bf16", "out_ptr": "*bf16"}
    types |= {"residual_ptr": "*bf16", "alpha": "fp32", "beta": "fp32"}
    unit = ("stride_ak", "stride_bn", "stride_bias", "stride_rn", "stride_on")
    sizes = {"BIAS_BYTES": 2, "C_BYTES": 0, "RESIDUAL_BYTES": 2, "OUT_BYTES": 2}
    constants = {**config.kwargs, **dict.fromkeys(unit, 1), **sizes, "c_ptr": None}
    constants |= {"ACTIVATION": "gelu", "INPUT_PRECISION": "ieee"}
    made = compile_fused(matmul_fused_pointers_kernel.fn, config, types, constants, capability)
    wide = config.kwargs["BLOCK_M"] >= 64
    expected = {
        80: "mma.sync",
        90: "wgmma" if wide else "mma.sync",
        100: "tcgen05" if wide else "mma.sync",
    }
    assert expected[capability] in made.asm["ptx"]
    assert "cp.async" in made.asm["ptx"]
    if capability == 90:
        assert count_stack(made, tmp_path) == 0
