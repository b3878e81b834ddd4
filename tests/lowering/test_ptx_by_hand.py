"""Handwritten PTX after the grammar of its ISA: what is parsed, and what is not recognised."""

import pytest

from gemmproof.compiled.ptx import (
    Values,
    find_promotion,
    list_accesses,
    list_core_instructions,
    read_ptx,
    split_operands,
)
from gemmproof.compiled.record import UNKNOWN, UNKNOWN_PLACE

HEAD = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 1 a) .reqntid 128
{
	.local .align 16 .b8 	__local_depot0[48];
	.reg .b32 %r<99>;
"""
TAIL = """
$L__end:
}
	.file	1 "/project/k.py"
	.file	2 "/project/lib.py"
	.section	.debug_info
	{
.b32 7
	}
"""


def read(body):
    return read_ptx(HEAD + body + TAIL)


def test_statements_have_predicates_operands_and_places():
    program = read(
        "\t.loc\t1 7 13 // k.py:7:13\n"
        "start: @!%p1 bra \tdone;\n"
        "\t{ .reg .pred p; mov.b32 %r1, 0x10; mov.b32\n\t\t%r2, %r1; }\n"
        "\t.loc\t2 3 5, function_name $L__info0, inlined_at 1 9 20\n"
        "done:\n"
        "\tadd.s32 %r3, %r1, %r2; /* ; */ st.shared.v2.b32 [%r3 + 8], {%r1, %r2};\n"
    )
    assert [(x.opcode, x.operands) for x in program.statements] == [
        ("bra", ("done",)),
        ("mov.b32", ("%r1", "0x10")),
        ("mov.b32", ("%r2", "%r1")),
        ("add.s32", ("%r3", "%r1", "%r2")),
        ("st.shared.v2.b32", ("[%r3 + 8]", "{%r1, %r2}")),
    ]
    assert program.statements[0].guard == "!%p1"
    assert program.statements[0].location == ("/project/k.py", 7, 13)
    assert program.statements[4].location == ("/project/lib.py", 3, 5)
    assert program.labels == {"start": 0, "done": 3, "$L__end": 5}
    assert program.declared == 48


def test_lines_of_inline_assembly_are_those_of_its_place():
    """LLVM numbers them consecutively, and emits no line where the source's own line continues."""
    program = read(
        "\t.loc\t1 7 13\n\t// begin inline asm\n\t{\n"
        "\t.loc\t1 8 13\nprmt.b32 %r1, 0, %r2, 0x5140;\n"
        "\t.loc\t1 9 13\n\tprmt.b32 %r3, 0, %r2, 0x7362;\n\t}\n\t// end inline asm\n"
        "\tfma.rn.f32 %r4, %r1, %r3, %r4;\n"
        "\t.loc\t1 10 5\n\tmov.b32 %r5, %r4;\n"
    )
    assert [(x.parts[0], x.location[1]) for x in program.statements] == [
        ("prmt", 7), ("prmt", 7), ("fma", 7), ("mov", 10),
    ]  # fmt: skip


def test_a_text_without_lines_has_places_nowhere():
    assert read("\tret;\n").statements[0].location == UNKNOWN_PLACE


def test_operands_are_split_where_no_bracket_holds_the_comma():
    operands = ["{%r1, %r2}", "[%rd1, {%r3, %r4}]", "1"]
    assert split_operands(", ".join(operands)) == operands


def test_loops_are_what_branches_go_back_over():
    program = read("a: mov.b32 %r1, 0;\nb: mov.b32 %r2, 0;\n@%p1 bra b;\nbra.uni c;\nc: ret;\n")
    assert program.loops() == [(1, 2)]


def test_a_register_is_a_constant_where_its_last_writer_says_so():
    program = read(
        "mov.b32 %r1, 0f00000000;\nmov.b32 %r2, %r1;\nadd.s32 %r3, %r2, 1;\n"
        "loop: mov.b32 %r4, %r1;\nadd.s32 %r5, %r4, 1;\nadd.s32 %r4, %r4, 1;\n"
        "add.s32 %r5, %r4, %r2;\n@%p1 mov.b32 %r6, 1;\nret;\n"
    )
    values = Values(program)
    last = program.statements[-1]
    assert values.at(last, "%r1") == values.at(last, "%r2") == 0
    assert values.at(program.statements[4], "%r4") == 0
    assert values.at(program.statements[6], "%r4") is None  # the register was added to
    assert values.at(last, "%r3") is None
    assert values.at(last, "%r6") is None  # only if the predicate holds
    assert values.at(last, "%r9") is None


#: A statement; its unit, shape, formats and operands.
INSTRUCTIONS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r1,%r2,%r3,%r4}, {%r5,%r6,%r7,%r8},"
    " {%r9,%r10}, {%r1,%r2,%r3,%r4}": ("mma", (16, 8, 16), "bf16 bf16 f32", "registers registers"),
    "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e5m2.e2m1.f32 {%r1}, {%r2}, {%r3}, {%r4}":
        ("mma", (16, 8, 32), "e5m2 e2m1 f32", "registers registers"),
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1,%d2}, {%d3}, {%d4}, {%d1,%d2}":
        ("mma", (8, 8, 4), "f64 f64 f64", "registers registers"),
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32"
    ".ue4m3 {%r1}, {%r2}, {%r3}, {%r4}, %r5, {0, 0}, %r6, {0, 0}":
        ("mma", (16, 8, 64), "e2m1 e2m1 f32", "registers registers"),
    "wgmma.mma_async.sync.aligned.m64n256k32.f16.e4m3.e5m2 {%r1}, {%r2,%r3}, %rd1, 1, 1, 1":
        ("wgmma", (64, 256, 32), "e4m3 e5m2 f16", "registers shared"),
    "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%r1}, %rd1, %rd2, %p1":
        ("wgmma", (64, 8, 32), "s8 u8 s32", "shared shared"),
    "tcgen05.mma.cta_group::1.kind::tf32 [%r1 + 0], [%r2], %rd2, %r90, %p1":
        ("tcgen05", (128, 64, 8), "tf32 tf32 f32", "tensor memory|shared"),
}  # fmt: skip


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_instructions_of_tensor_cores(text):
    # m 128, n 64, fp32, a and b of tf32
    descriptor = (128 >> 4) << 24 | (64 >> 3) << 17 | 2 << 10 | 2 << 7 | 1 << 4
    program = read(f"mov.b32 %r90, {descriptor};\n{text};\n")
    (core,) = list_core_instructions(program)
    instruction = core.instruction
    unit, shape, formats, operands = INSTRUCTIONS[text]
    assert (instruction.unit, instruction.shape) == (unit, shape)
    assert f"{instruction.a} {instruction.b} {instruction.accumulator}" == formats
    assert instruction.operands == tuple(operands.split("|" if "|" in operands else " "))


@pytest.mark.parametrize(
    "text",
    [
        "mma.sync.aligned.m16n8k16.row.col.f99.f16 {%r1}, {%r2}, {%r3}, {%r4}",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%r1}, {%r2}, {%r3}, {%r4}",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.new.new {%r1}, %rd1, %rd2, 1, 1, 1",
        "tcgen05.mma.cta_group::1.kind::f16 [%r1]",
    ],
)
def test_what_the_grammar_does_not_have_is_not_recognised(text):
    (instruction,) = list_core_instructions(read(f"{text};\n"))
    assert instruction.unit == UNKNOWN


def test_a_descriptor_that_is_computed_leaves_the_shape_open():
    text = "add.s32 %r90, %r1, 1;\ntcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r90, 1;\n"
    (core,) = list_core_instructions(read(text))
    instruction = core.instruction
    assert (instruction.unit, instruction.shape, instruction.a) == ("tcgen05", None, "")


WGMMA = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%r1,%r2}, %rd1, %rd2, {};\n"


PAIR = "mov.b64 %rd3, {%r1, %r2};\nadd.f32x2 %rd4, %rd4, %rd3;\n"


def promotion_of(program, part=slice(None)):
    """Return the promotion of a part of the program's instructions."""
    cores = list(list_core_instructions(program))
    return find_promotion(program, cores[part], cores)


def write_sums(first, second, after):
    """Return a loop with two instructions, and the code that uses their sums."""
    mma0, mma1 = (WGMMA.replace("{}", word) for word in (first, second))
    return (
        f"mov.pred %p1, 0;\nloop: {mma0}{mma1}{after}@%p9 bra loop;\nadd.f32 %r5, %r1, %r6;\nret;\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (write_sums("%p1", "1", "add.f32 %r3, %r3, %r1;\nadd.f32 %r4, %r4, %r2;\n"), (2, 64)),
        (write_sums("0", "0", "add.rn.f32 %r3, %r3, %r1;\n"), (1, 32)),
        (write_sums("%p1", "1", "mul.f32 %r7, %r1, %r8;\nadd.f32 %r3, %r3, %r7;\n"), (1, 64)),
        (write_sums("%p1", "1", PAIR), (2, 64)),
        (write_sums("1", "1", "add.f32 %r3, %r3, %r1;\n"), (0, None)),  # it does not begin at zero
        (write_sums("%p8", "1", "add.f32 %r3, %r3, %r1;\n"), (0, None)),  # only in some trips
        (write_sums("%p1", "1", "add.s32 %r3, %r3, %r1;\n"), (0, None)),  # an address
        (write_sums("%p1", "1", ""), (0, None)),  # a sum after the loop is no promotion
    ],
)  # fmt: skip
def test_promotion_is_a_sum_from_zero_that_is_added_in_its_loop(text, expected):
    assert promotion_of(read(text)) == expected


def test_what_a_persistent_kernel_adds_after_its_inner_loop_is_no_promotion():
    """The example adds a bias in the loop over tiles."""
    inner = f"inner: {WGMMA.replace('{}', '%p1')}@%p8 bra inner;\n"
    body = f"{inner}add.f32 %r5, %r1, %r6;\n"
    program = read(f"mov.pred %p1, 0;\nouter: {body}@%p9 bra outer;\nret;\n")
    assert promotion_of(program) == (0, None)


def test_a_sum_that_another_dot_goes_on_with_is_added_by_that_one():
    """Two dots of 64 of k, the second onto the first; the loop branches back from both."""
    cores = WGMMA.replace("{}", "%p1") + WGMMA.replace("{}", "1")
    twice = f"{cores}@%p8 bra loop;\n{cores.replace('%p1', '1')}"
    added = "add.f32 %r3, %r3, %r1;\n@%p9 bra loop;\nret;\n"
    program = read(f"mov.pred %p1, 0;\nloop: {twice}{added}")
    first, second = (slice(0, 2), slice(2, 4))
    assert promotion_of(program, first) == (0, None)
    assert promotion_of(program, second) == (1, 128)


def test_a_sum_that_a_select_passes_on_is_that_of_its_chain():
    """The last product of a split continues the others' sum, in which NaN became zero."""
    first, last = WGMMA.replace("{}", "%p1"), WGMMA.replace("{}", "1").replace("%r1,%r2", "%r5,%r6")
    select = "selp.f32 %r5, %r1, %r9, %p7;\n"
    program = read(
        f"mov.pred %p1, 0;\nloop: {first}{select}{last}add.f32 %r3, %r3, %r5;\n@%p9 bra loop;\n"
    )
    assert promotion_of(program) == (1, 32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd1]", ("load", 16)),
        ("@%p1 ld.global.L1::evict_last.L2::cache_hint.v2.b64 {%rd1,%rd2}, [%rd3], %rd4",
         ("load", 16)),
        ("ld.global.nc.v8.b32 {%r1}, [%rd1]", ("load", 32)),
        ("ld.global.b16 %rs1, [%rd1]", ("load", 2)),
        ("ld.relaxed.gpu.global.f32 %f1, [%rd1]", ("load", 4)),
        ("st.global.v4.f32 [%rd1], {%f1,%f2,%f3,%f4}", ("store", 16)),
        ("st.global.b8 [%rd1], %rs1", ("store", 1)),
        ("atom.global.gpu.acq_rel.add.f32 %f1, [%rd1], %f2", ("atomic", 4)),
        ("red.relaxed.gpu.global.add.noftz.f16x2 [%rd1], %r1", ("atomic", 4)),
        ("cp.async.cg.shared.global [%r1], [%rd1], 0x10, %r2", ("async copy", 16)),
        ("cp.async.ca.shared.global.L2::128B [%r1], [%rd1], 4", ("async copy", 4)),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1],"
         " [%rd1, {%r2, %r3}], [%r4]", ("tma load", 0)),
        ("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r2]",
         ("tma store", 0)),
        ("cp.async.bulk.commit_group", None),
        ("cp.async.wait_group 2", None),
        ("ld.shared.v4.b32 {%r1}, [%r2]", None),
        ("ld.param.b64 %rd1, [k_param_0]", None),
    ],
)  # fmt: skip
def test_accesses_of_global_memory(text, expected):
    accesses = [x[1:] for x in list_accesses(read(f"{text};\n"))]
    assert accesses == ([] if expected is None else [expected])
