"""Facts of real compiles, compared with what NVIDIA's tools read from the same binary."""

import pytest
from tests.lowering import lowered_kernels
from tests.lowering.lower import compile_only, count_sass, read_usage
from tests.support.lanes import first_of_each

from gemmproof.compiled.facts import read_facts
from gemmproof.lowering.text import describe

#: A wrapper, format and target; an instruction's unit, shape and formats, and its name in SASS.
DOTS = {
    "ampere": (
        "right fp16 sm_80", "mma", (16, 8, 16), "f16 f16 f32", "HMMA.16816.F32",
    ),
    "ampere tf32": (
        "cut fp32 sm_80", "mma", (16, 8, 8), "tf32 tf32 f32", "HMMA.1688.F32.TF32",
    ),
    "ampere int8": (
        "right int8 sm_80", "mma", (16, 8, 32), "s8 s8 s32", "IMMA.16832.S8.S8.SAT",
    ),
    "hopper": (
        "right fp16 sm_90", "wgmma", (64, 64, 16), "f16 f16 f32", "HGMMA.64x64x16.F32",
    ),
    "hopper fp8": (
        "promoted fp8e4m3 sm_90", "wgmma", (64, 64, 32), "e4m3 e4m3 f32",
        "QGMMA.64x64x32.F32.E4M3.E4M3",
    ),
    "hopper, few rows": (
        "flat fp8e4m3 sm_90", "mma", (16, 8, 16), "f16 f16 f32", "HMMA.16816.F32",
    ),
    "blackwell": (
        "right fp16 sm_100", "tcgen05", (64, 64, 16), "f16 f16 f32", "UTCHMMA",
    ),
    "blackwell fp8": (
        "promoted fp8e4m3 sm_100", "tcgen05", (64, 64, 32), "e4m3 e4m3 f32", "UTCQMMA",
    ),
}  # fmt: skip


def check_binary(compiled, facts, workdir):
    """Check registers, stack and shared memory against cuobjdump, and accesses against SASS."""
    usage, needs, sass = (
        read_usage(compiled, workdir),
        facts.resources,
        count_sass(compiled, workdir),
    )
    assert needs.registers == usage["REG"]
    assert needs.stack == usage["STACK"] + usage["LOCAL"]
    assert needs.static_shared == usage["SHARED"]
    assert needs.threads == 32 * compiled.metadata.num_warps
    assert (needs.spills > 0) == any(name.startswith("STL") for name in sass)
    assert (needs.spill_loads > 0) == any(name.startswith("LDL") for name in sass)
    for kind, names in (("store", "STG.E"), ("load", "LDG.E"), ("async copy", "LDGSTS.E")):
        counted = {x.bytes: 0 for x in facts.accesses if x.kind == kind}
        for x in facts.accesses:
            if x.kind == kind:
                counted[x.bytes] += x.count
        assert counted == count_widths(sass, names), kind


def count_widths(sass, prefix):
    """Count the accesses of a kind in SASS by bytes; from 64 bits on, the names have the width."""
    counts = {}
    for name, count in sass.items():
        if name == prefix or name.startswith(f"{prefix}."):
            parts = name.split(".")
            size = 16 if "128" in parts else 8 if "64" in parts else 2 if "U16" in parts else 4
            counts[size] = counts.get(size, 0) + count
    return counts


@pytest.mark.parametrize("case", first_of_each(DOTS))
def test_a_dot_is_what_stands_in_the_binary(case, tmp_path):
    named, unit, shape, formats, sass = DOTS[case]
    name, dtype, gpu = named.split()
    compiled, facts = compile_only(getattr(lowered_kernels, name), tmp_path, gpu, dtype)
    (dot,) = facts.dots
    (instruction,) = dot.instructions
    assert (instruction.unit, instruction.shape) == (unit, shape)
    assert f"{instruction.a} {instruction.b} {instruction.accumulator}" == formats
    assert instruction.count == count_sass(compiled, tmp_path)[sass]
    assert dot.where.endswith(("lowered_kernels.py:12", "lowered_kernels.py:13"))
    assert facts.unrecognised == ()
    check_binary(compiled, facts, tmp_path)


@pytest.mark.lane("full")
@pytest.mark.parametrize("gpu", ["sm_80", "sm_100"])
def test_fp32_in_full_has_no_tensor_core(gpu, tmp_path):
    """Blackwell has an instruction for two of them at once."""
    compiled, facts = compile_only(lowered_kernels.flat, tmp_path, gpu, "fp32")
    (dot,) = facts.dots
    sass = count_sass(compiled, tmp_path)
    assert not dot.has_cores
    assert dot.precision == "ieee"
    count = sum(x.count for x in dot.instructions)
    assert count == sass["FFMA"] + 2 * sass["FFMA2"] == 16 * 64 * 32 // 128
    check_binary(compiled, facts, tmp_path)


@pytest.mark.lane("full")
@pytest.mark.parametrize("gpu", ["sm_89", "sm_90", "sm_100"])
def test_short_sums_of_fp8_are_added_in_fp32(gpu, tmp_path):
    """They are added in the loop, once for each element of the accumulator."""
    facts = compile_only(lowered_kernels.promoted, tmp_path, gpu, "fp8e4m3")[1]
    (dot,) = facts.dots
    assert (dot.promoted, dot.promoted_k) == (64 * 64 // 128, 64)
    facts = compile_only(lowered_kernels.right, tmp_path, gpu, "fp8e4m3")[1]
    (dot,) = facts.dots
    assert (dot.promoted, dot.promoted_k) == (0, None)


def test_what_is_asked_and_what_is_multiplied_differ_where_fp8_is_widened(tmp_path):
    facts = compile_only(lowered_kernels.flat, tmp_path, "sm_90", "fp8e4m3")[1]
    (dot,) = facts.dots
    assert dot.asked[:2] == ("f8E4M3FN", "f8E4M3FN")
    assert dot.tile == (16, 64, 32)
    assert [x.a for x in dot.instructions] == ["f16"]


@pytest.mark.lane("full")
def test_a_length_that_nothing_divides_costs_the_wide_loads(tmp_path):
    compiled, facts = compile_only(lowered_kernels.right, tmp_path, "sm_80", odd=True)
    kinds = {(x.kind, x.bytes) for x in facts.accesses}
    assert ("load", 2) in kinds
    assert facts.specialised["stride_am"] == ""
    assert facts.specialised["stride_ak"] == "1"
    assert facts.specialised["stride_bk"] == facts.specialised["K"] == "16"
    check_binary(compiled, facts, tmp_path)


@pytest.mark.parametrize("gpu", ["sm_90", "sm_100"])
def test_multiply_adds_are_counted_by_value_and_shown_by_instruction(gpu, tmp_path):
    """From sm_100 on an instruction multiplies and adds a pair of values."""
    compiled, facts = compile_only(lowered_kernels.outer, tmp_path, gpu, "fp32")
    name = "fma.rn.f32x2" if gpu == "sm_100" else "fma.rn.f32"
    (line,) = facts.multiply_adds
    (instruction,) = line.instructions
    assert instruction.name == name
    # of a tile of 64 x 64, a thread of 128
    assert instruction.count == 32
    assert compiled.asm["ptx"].count(f"{name} ") == (16 if gpu == "sm_100" else 32)
    (shown,) = (text for text, _ in describe(facts) if "fused" in text)
    pairs = "16 fma.rn.f32x2: 32 fused multiply-adds"
    assert (pairs if gpu == "sm_100" else "32 fma.rn.f32: fused multiply-adds") in shown


@pytest.mark.parametrize("gpu", ["sm_90", "sm_100"])
def test_bytes_spilled_are_those_that_ptxas_reports(gpu, tmp_path):
    """The stack frame of a thread is another number: it is a multiple of 8."""
    compiled, facts = compile_only(lowered_kernels.short, tmp_path, gpu, "fp32")
    line = next(x for x in compiled.asm["ptxas"].splitlines() if "spill stores" in x)
    needs = facts.resources
    assert (
        line.split()
        == (
            f"{needs.stack} bytes stack frame, {needs.spill_stores} bytes spill stores, "
            f"{needs.spill_loads} bytes spill loads"
        ).split()
    )
    assert needs.spills == needs.spill_stores > 0


def test_bytes_that_a_called_function_spills_count_too(tmp_path):
    compiled, facts = compile_only(lowered_kernels.right, tmp_path, "sm_80")
    called = "    8 bytes stack frame, 24 bytes spill stores, 16 bytes spill loads\n"
    asm = {**compiled.asm, "ptxas": compiled.asm["ptxas"] + called}
    needs = read_facts(facts, asm, compiled.metadata).resources
    assert needs.spill_stores == facts.resources.spill_stores + 24
    assert needs.spill_loads == facts.resources.spill_loads + 16


@pytest.mark.lane("full")
@pytest.mark.parametrize("gpu", ["sm_80", "sm_100"])
def test_spills_are_told(gpu, tmp_path):
    compiled, facts = compile_only(lowered_kernels.spilling, tmp_path, gpu)
    assert facts.resources.spills > 0
    check_binary(compiled, facts, tmp_path)


def test_a_pipelined_loop_has_buffers(tmp_path):
    facts = compile_only(lowered_kernels.right, tmp_path, "sm_90")[1]
    assert facts.buffers == 3
    assert facts.specialised_warps is False


@pytest.mark.parametrize(
    ("dtype", "name", "formats"),
    [
        ("fp16", "v_mfma_f32_32x32x8_f16", ("f16", "f16", "f32")),
        ("fp32", "v_mfma_f32_32x32x2_f32", ("f32", "f32", "f32")),
        ("int8", "v_mfma_i32_32x32x16_i8", ("i8", "i8", "i32")),
    ],
)
def test_amd_matrix_cores(dtype, name, formats, tmp_path):
    """The counts agree with the assembly's instructions, and with its summary in comments."""
    compiled, facts = compile_only(lowered_kernels.right, tmp_path, "gfx942", dtype)
    (dot,) = facts.dots
    (instruction,) = dot.instructions
    assert (instruction.name, instruction.a, instruction.b, instruction.accumulator) == (
        name,
        *formats,
    )
    text = compiled.asm["amdgcn"]
    assert instruction.count == text.count(f"\t{name} ")
    needs = facts.resources
    assert f"; TotalNumVgprs: {needs.registers}\n" in text
    assert f"; NumAgprs: {needs.accumulation_registers}\n" in text
    assert f"; TotalNumSgprs: {needs.scalar_registers}\n" in text
    assert f"; ScratchSize: {needs.stack}\n" in text
    stores = sum(x.count for x in facts.accesses if x.kind == "store")
    assert stores == text.count("\tbuffer_store_") + text.count("\tglobal_store_") > 0
