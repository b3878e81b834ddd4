"""Handwritten IR and AMD assembly: dots, locations, layouts, matrix instructions, accesses."""

import re

import pytest

from gemmproof.compiled.assembly import count_buffers, has_specialised_warps, list_dots, read_amdgcn
from gemmproof.compiled.record import FMA, UNKNOWN, UNKNOWN_PLACE, format_place

ALIASES = """
#mma = #ttg.nvidia_mma<{versionMajor = 3, warpsPerCTA = [4, 1], instrShape = [16, 64, 16]}>
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = true}>
#smem = #ttg.shared_memory
#loc = loc("/project/k.py":1:0)
#loc1 = loc(unknown)
#loc7 = loc("/project/k.py":68:20)
#loc8 = loc("/project/lib.py":3:9)
#loc20 = loc("acc"(#loc7))
#loc21 = loc(callsite(#loc8 at #loc20))
#loc22 = loc(fused<"x">[#loc7, #loc8])
#loc23 = loc("acc"(#loc21))
"""
OUTER, INNER = ("/project/k.py", 68, 20), ("/project/lib.py", 3, 9)
#: An operation; its location, tile, formats and precision.
DOTS = {
    "%c = tt.dot %a, %b, %d, inputPrecision = tf32 : tensor<64x32xf32> * tensor<32x16xf32>"
    " -> tensor<64x16xf32> loc(#loc20)": (OUTER, (64, 16, 32), "f32 f32 f32", "tf32"),
    "%c = tt.dot %a, %b, %d {maxNumImpreciseAcc = 32 : i32} : tensor<2x64x32xf8E4M3FN>"
    " * tensor<2x32x16xf8E5M2> -> tensor<2x64x16xf32> loc(#loc23)":
        (INNER, (2, 64, 16, 32), "f8E4M3FN f8E5M2 f32", ""),
    "%c = tt.dot_scaled %a scale %s, %b scale %t, %d lhs = e4m3 rhs = e2m1 {fastMath = false}"
    " : tensor<64x64xf8E4M3FN>, tensor<64x2xi8> * tensor<32x16xi8>, tensor<16x2xi8>"
    " -> tensor<64x16xf32> loc(#loc22)": (OUTER, (64, 16, 64), "f8E4M3FN i8 f32", ""),
    "%c = tt.dot_scaled %a scale %s, %b scale %t, %d lhs = e2m1 rhs = e2m1 {fastMath = false}"
    " : tensor<64x32xi8>, tensor<64x2xi8> * tensor<32x16xi8>, tensor<16x2xi8>"
    " -> tensor<64x16xf32> loc(#loc22)": (OUTER, (64, 16, 64), "i8 i8 f32", ""),
    "%c = ttng.warp_group_dot %a, %b, %d, %true {inputPrecision = 0 : i32, isAsync = true} :"
    " !ttg.memdesc<64x32xf16, #shared, #smem, mutable> * !ttg.memdesc<32x16xf16, #shared, #smem>"
    " -> tensor<64x16xf32, #mma> loc(#loc21)": (INNER, (64, 16, 32), "f16 f16 f32", ""),
    "ttng.tc_gen5_mma %a, %b, %d[], %true, %false, %e[%true] {is_async} :"
    " !ttg.memdesc<128x32xf16, #shared, #smem, mutable>, !ttg.memdesc<32x64xf16, #shared, #smem>,"
    " !ttg.memdesc<128x64xf32, #tmem, #ttng.tensor_memory, mutable>,"
    " !ttg.memdesc<1xi64, #shared, #smem, mutable> loc(#loc1)":
        (UNKNOWN_PLACE, (128, 64, 32), "f16 f16 f32", ""),
}  # fmt: skip


@pytest.mark.parametrize("text", DOTS)
def test_a_dot_is_read(text):
    (dot,) = list_dots(f"{ALIASES}\n    {text}\n    scf.yield %c : tensor<4xf32> loc(#loc)\n")
    location, tile, formats, precision = DOTS[text]
    assert (dot.where, dot.column) == (format_place(location), location[2])
    assert dot.tile == tile
    assert (" ".join(dot.asked), dot.precision) == (formats, precision)


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("inputPrecision = 1 : i32", "tf32x3"), ("x = 1 : i32", "ieee"), ("inputPrecision = 9", "9")],
)
def test_precision_is_that_of_fp32_operands(precision, expected):
    types = "tensor<64x32xf32> * tensor<32x16xf32> -> tensor<64x16xf32>"
    (dot,) = list_dots(f"%c = tt.dot %a, %b, %d {{{precision}}} : {types} loc(#loc)\n")
    assert dot.precision == expected


def test_layouts_have_what_their_names_stand_for():
    text = next(x for x in DOTS if "warp_group" in x)
    (dot,) = list_dots(f"{ALIASES}\n {text}\n")
    layouts = dict(re.findall(r"#(\w+) = #ttg\.(.*)", ALIASES))
    assert dot.layouts[0].startswith(layouts["shared"])
    assert dot.layouts[2].startswith(layouts["mma"])


def test_a_dot_without_types_is_not_passed_over():
    with pytest.raises(ValueError, match=r"tt\.dot: got 0 types"):
        list_dots("%c = tt.dot %a, %b, %d : !new.type loc(#loc)\n")


def test_buffers_are_those_of_operands_and_not_of_barriers():
    text = """
    %x = ttg.memdesc_index %a[%i] : !ttg.memdesc<3x128x32xf16, #s, #smem, mutable> -> !ttg.memdesc
    %y = ttg.memdesc_index %b[%i] : !ttg.memdesc<8x1xi64, #s, #smem, mutable> -> !ttg.memdesc<1xi64>
    """
    assert count_buffers(text) == 3
    assert count_buffers("") == 0
    assert has_specialised_warps("ttg.warp_specialize(%a)")


ASSEMBLY = """
	.text
k:
	.file	1 "/project" "k.py"
	.loc	1 7 13 is_stmt 1                ; k.py:7:13
; %bb.0:
	v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], 0
	v_mfma_f32_32x32x16_fp8_bf8 a[0:15], v[4:5], v[6:7], a[0:15]
	v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3]
	v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3], v1, v2
	v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]
	v_mfma_new v1, v2
	v_fmac_f32_e32 v1, v2, v3
	v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1]
	v_dot4_i32_i8 v1, v2, v3, v4
	v_add_f32_e32 v1, v2, v3
	buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen ; k.py
	buffer_load_dwordx4 v4, s[0:3], 0 offen lds
	global_load_short_d16_hi v1, v[2:3], off
	global_store_dwordx3 v[0:1], v[2:4], off
	global_atomic_add_f32 v[0:1], v2, off
	ds_read_b128 v[0:3], v4
	.amdgpu_metadata
amdhsa.kernels:
  - .agpr_count:     4
    .args:
      - .offset:         0
    .private_segment_fixed_size: 16
    .vgpr_count:     126
    .vgpr_spill_count: 3
"""


def test_amd_assembly():
    program = read_amdgcn(ASSEMBLY)
    read = [x for _, x in program.products]
    assert [(x.unit, x.shape, x.a, x.b, x.accumulator, bool(x.from_zero)) for x in read] == [
        ("mfma", (16, 16, 16), "bf16", "bf16", "f32", True),
        ("mfma", (32, 32, 16), "fp8", "bf8", "f32", False),
        ("mfma", (4, 4, 4), "f16", "f16", "f32", False),
        ("mfma", (16, 16, 128), "f8f6f4", "f8f6f4", "f32", False),
        ("wmma", (16, 16, 16), "f16", "f16", "f32", False),
        (UNKNOWN, None, "", "", "", False),
        (FMA, None, "", "", "f32", False),
        (FMA, None, "", "", "f32", False),
        (FMA, None, "", "", "", False),
    ]
    assert [x[1:] for x in program.accesses] == [
        ("load", 16), ("lds load", 16), ("load", 2), ("store", 12), ("atomic", 0),
    ]  # fmt: skip
    assert {location for location, _ in program.products} == {("/project/k.py", 7, 13)}
    assert program.counts["vgpr_count"] == 126
    assert program.counts["agpr_count"] == 4
    assert program.counts["vgpr_spill_count"] == 3
