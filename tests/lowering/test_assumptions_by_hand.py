"""Models compared with handwritten compiled dots: each wrong assumption is named."""

import re
from dataclasses import replace

import pytest

from gemmproof.compiled.assumptions import (
    AGREED,
    CONTRADICTED,
    NOT_KNOWN,
    DotLine,
    compare,
    join_lines,
    join_predicted,
    list_order,
    list_steps,
    read_width,
)
from gemmproof.compiled.record import FMA, UNKNOWN, CompiledDot, DotInstruction
from gemmproof.reference.dot.triton_dot import triton_dot
from gemmproof.reference.simulation import PredictedDot, Where

WHERE = Where("file.py", 70, "kernel")
TILE = (64, 64, 128)
BATCHED = (4, *TILE)


def predict(target, in_format, tile=TILE, from_zero=False, **how):
    """Return a dot as the simulator records it."""
    blocks = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile[-3:], strict=True))
    model = triton_dot(target, in_format, **blocks, ndim=len(tile) - 1, **how)
    return PredictedDot(WHERE, tile, model, from_zero)


def emitted(unit, shape, a, accumulator="f32", count=8, name="", **more):
    """Return an instruction of a compiled program."""
    by_unit = {"wgmma": ("shared", "shared"), "tcgen05": ("shared", "shared")}
    operands = by_unit.get(unit, ("registers", "registers"))
    return DotInstruction(name or unit, unit, count, shape, a, a, accumulator, operands, **more)


def compiled(*instructions, tile=TILE, width=2, where="file.py:70", **more):
    """Return a dot of four warps, as the compiler's facts describe it."""
    warps = (2, 2) if len(tile) == 3 else (2, 1, 2)
    side = f"dot_op<{{opIdx = 0, parent = nvidia_mma<{{warpsPerCTA = [2, 2]}}>, kWidth = {width}}}>"
    layouts = (side, side, f"nvidia_mma<{{versionMajor = 2, warpsPerCTA = {list(warps)}}}>")
    fields = {"precision": "", "promoted": 0, "promoted_k": None} | more
    kinds, strays = fields.pop("kinds", 1), fields.pop("strays", False)
    dot = CompiledDot(where, ("", "", ""), tile, fields.pop("precision"), layouts, instructions)
    return DotLine(where, (replace(dot, **fields),), (tile,), kinds, warps, strays)


def judge(predicted, *dots):
    """Return the only comparison of some recorded dots."""
    several = predicted if isinstance(predicted, list) else [predicted]
    (comparison,) = compare(join_predicted(several), dots)
    return comparison


HOPPER = emitted("wgmma", (64, 64, 16), "f16")
FEW_ROWS = emitted("mma", (16, 8, 16), "f16")
PROMOTED = emitted("wgmma", (64, 64, 32), "e4m3", count=4, from_zero=1)
FP8 = {"tile": TILE, "promoted": 32, "promoted_k": 128}
AMPERE_INT8 = emitted("mma", (16, 8, 32), "s8", "s32", name="mma.m16n8k32.satfinite.s32.s8.s8.s32")
SPLIT = emitted("mma", (16, 8, 8), "tf32", count=3 * 2 * 4 * 16)
BATCHED_SPLIT = emitted("mma", (16, 8, 16), "bf16", count=6 * 2 * 4 * 4 * 8)  # 2 of 4 per warp
BY_SIX = {"tile": BATCHED, "precision": "bf16x6"}
FUSED = DotInstruction("fma.rn.f32", FMA, 4096, accumulator="f32")

#: Predicted and compiled dots that agree.
RIGHT = {
    "wgmma": (predict("sm_90", "fp16"), compiled(HOPPER)),
    "mma": (predict("sm_80", "fp16"), compiled(FEW_ROWS)),
    "tcgen05": (predict("sm_100", "fp16"), compiled(emitted("tcgen05", (64, 64, 16), "f16"))),
    "fma": (predict("sm_70", "fp16"), compiled(FUSED)),
    "doubles": (
        predict("sm_90", "fp64"), compiled(emitted("mma", (8, 8, 4), "f64", "f64"), width=1),
    ),
    "doubles, fused": (
        predict("sm_89", "fp64"), compiled(replace(FUSED, name="fma.rn.f64", accumulator="f64")),
    ),
    "fp16 sums": (
        predict("sm_90", "fp16", acc_format="fp16"),
        compiled(emitted("wgmma", (64, 64, 16), "f16", "f16")),
    ),
    "integers": (predict("sm_80", "int8"), compiled(AMPERE_INT8, width=4)),
    "fp8, never promoted": (
        predict("sm_90", "fp8e4m3"),
        compiled(emitted("wgmma", (64, 64, 32), "e4m3", count=4)),
    ),
    "fp8, promoted": (
        predict("sm_90", "fp8e4m3", max_num_imprecise_acc=128), compiled(PROMOTED, **FP8),
    ),
    "fp8, promoted twice a block": (
        predict("sm_90", "fp8e4m3", max_num_imprecise_acc=64),
        compiled(replace(PROMOTED, from_zero=2), promoted=32, promoted_k=64),
    ),
    "widened": (predict("sm_80", "fp8e5m2"), compiled(FEW_ROWS, width=4)),
    "split": (
        predict("sm_80", "fp32", input_precision="tf32x3"),
        compiled(SPLIT, width=1, precision="tf32x3"),
    ),
    "cut": (
        predict("sm_80", "fp32", input_precision="tf32"),
        compiled(emitted("mma", (16, 8, 8), "tf32"), width=1, precision="tf32"),
    ),
    "batched": (predict("sm_90", "fp16", BATCHED), compiled(FEW_ROWS, tile=BATCHED)),
    "batched, widened": (
        predict("sm_90", "fp8e4m3", BATCHED), compiled(FEW_ROWS, tile=BATCHED, width=4),
    ),
    "batched, split": (
        predict("sm_80", "fp32", BATCHED, input_precision="bf16x6"),
        compiled(BATCHED_SPLIT, **BY_SIX),
    ),
}  # fmt: skip

#: The same with one of the two changed, and the aspect that is named.
WRONG = {
    "another unit": ("wgmma", compiled(FEW_ROWS), "the unit"),
    "no tensor core": ("mma", compiled(FUSED), "the unit"),
    "a tensor core": ("fma", compiled(FEW_ROWS), "the unit"),
    "a shorter step": ("wgmma", compiled(emitted("wgmma", (64, 64, 8), "f16")), "k of a step"),
    "other formats": (
        "wgmma", compiled(emitted("wgmma", (64, 64, 16), "bf16")), "formats",
    ),
    "fp8 that is not widened": (
        "widened", compiled(emitted("mma", (16, 8, 32), "e5m2"), width=4), "formats",
    ),
    "sums in fp16": (
        "wgmma", compiled(emitted("wgmma", (64, 64, 16), "f16", "f16")), "the accumulator",
    ),
    "sums in fp32": ("fp16 sums", compiled(HOPPER), "the accumulator"),
    "doubles in a tensor core": (
        "doubles, fused", compiled(emitted("mma", (8, 8, 4), "f64", "f64"), width=1), "the unit",
    ),
    "fused sums in fp64": (
        "fma", compiled(replace(FUSED, accumulator="f64")), "the accumulator",
    ),
    "k as it lies": ("widened", compiled(FEW_ROWS, width=2), "the order of k"),
    "k as loaded": ("mma", compiled(FEW_ROWS, width=4), "the order of k"),
    "nothing saturates": (
        "integers", compiled(replace(AMPERE_INT8, name="mma.s32.s8"), width=4), "saturation",
    ),
    "promoted, not predicted": ("fp8, never promoted", compiled(PROMOTED, **FP8), "promotion"),
    "predicted, not promoted": (
        "fp8, promoted", compiled(replace(PROMOTED, from_zero=0)), "promotion",
    ),
    "promoted too often": (
        "fp8, promoted",
        compiled(replace(PROMOTED, from_zero=2), promoted=32, promoted_k=64), "promotion",
    ),
    "each dot from zero": (
        "wgmma", compiled(replace(HOPPER, from_zero=1)), "sums from zero",
    ),
    "one product of a split": (
        "split", compiled(replace(SPLIT, count=2 * 4 * 16), width=1, precision="tf32x3"),
        "split",
    ),
    "another split": ("split", compiled(SPLIT, width=1, precision="bf16x3"), "precision"),
    "ieee, not cut": (
        "cut", compiled(emitted("mma", (16, 8, 8), "tf32"), width=1, precision="ieee"),
        "precision",
    ),
    "another unit of a batch": ("batched", compiled(HOPPER, tile=BATCHED), "the unit"),
    "a batch as it lies": (
        "batched, widened", compiled(FEW_ROWS, tile=BATCHED), "the order of k",
    ),
    "a batch from zero": (
        "batched", compiled(replace(FEW_ROWS, from_zero=1), tile=BATCHED), "sums from zero",
    ),
    "three products of six": (
        "batched, split", compiled(replace(BATCHED_SPLIT, count=3 * 256), **BY_SIX), "split",
    ),
}  # fmt: skip

#: Compiled dots with too few facts to contradict anything.
UNTOLD = {
    "another line": compiled(HOPPER, where="file.py:71", tile=(32, 64, 128)),
    "another tile": compiled(HOPPER, tile=(64, 64, 32)),
    "a batch": compiled(HOPPER, tile=BATCHED),
    "nothing": compiled(DotInstruction("", UNKNOWN, 0)),
    "a name": compiled(DotInstruction("mma.sp.sync", UNKNOWN, 4)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_was_predicted_was_compiled(name):
    comparison = judge(*RIGHT[name])
    assert (comparison.status, comparison.line) == (AGREED, "")
    assert not comparison.open


@pytest.mark.parametrize("name", WRONG)
def test_a_assumption_that_does_not_hold_is_named_with_both_sides(name):
    base, dot, aspect = WRONG[name]
    comparison = judge(RIGHT[base][0], dot)
    assert comparison.status == CONTRADICTED
    line = r"(.*): predicted as .+; compiled to .+ \(they differ in (.*)\)"
    assert re.fullmatch(line, comparison.line).groups() == ("file.py:70", aspect)


@pytest.mark.parametrize("name", UNTOLD)
def test_what_is_not_recognised_contradicts_nothing(name):
    comparison = judge(RIGHT["wgmma"][0], UNTOLD[name])
    assert comparison.status == NOT_KNOWN
    assert comparison.line.startswith("file.py:70: ")


def test_assumptions_that_the_program_does_not_tell_are_open():
    unknown = replace(FEW_ROWS, shape=None, a="", b="", accumulator="")
    assert judge(RIGHT["mma"][0], compiled(unknown)).open == (
        "the accumulator", "formats", "k of a step", "the order of k", "promotion",
    )  # fmt: skip
    strange = compiled(FEW_ROWS)
    unknown_layouts = replace(strange.dots[0], layouts=("linear<{}>", "linear<{}>", ""))
    assert judge(RIGHT["mma"][0], replace(strange, dots=(unknown_layouts,))).open == (
        "the order of k",
    )
    wide = compiled(
        emitted("mma", (8, 8, 4), "f64", "f64")
    )  # two neighbours in a thread: not its own
    comparison = judge(predict("sm_90", "fp64"), wide)
    assert (comparison.status, comparison.open) == (AGREED, ("the order of k",))
    # a chain that is interrupted by a register move: the two ways to count disagree
    interrupted = compiled(PROMOTED, promoted=32, promoted_k=32)
    never = RIGHT["fp8, never promoted"][0]
    assert judge([never, replace(never, from_zero=True)], interrupted).status == AGREED


def test_a_dot_whose_sum_is_zero_at_first_is_one_that_adds_onto_it():
    added = RIGHT["wgmma"][0]
    both = [added, replace(added, from_zero=True)]
    assert judge(both, compiled(replace(HOPPER, from_zero=1))).status == AGREED
    # fp8 dots have a separate model if they begin at zero
    first = predict("sm_90", "fp8e4m3", from_zero=True, acc_passed=False)
    later = RIGHT["fp8, never promoted"][0]
    assert first.model != later.model
    assert judge([first, later], RIGHT["fp8, never promoted"][1]).status == AGREED


def test_sums_that_the_source_itself_adds_are_no_promotion():
    """An example is attention's scores: a dot from zero, of which an fp32 multiple is added."""
    alone = replace(RIGHT["wgmma"][0], from_zero=True)
    dot = compiled(replace(HOPPER, from_zero=1), promoted=32, promoted_k=128)
    assert judge(alone, dot).status == AGREED
    unrolled = compiled(replace(HOPPER, count=16, from_zero=1), promoted=32, promoted_k=256)
    assert judge([alone, RIGHT["wgmma"][0]], unrolled).status == AGREED


def test_two_dots_of_a_line_need_an_instruction_each():
    fine, coarse = RIGHT["wgmma"][0], predict("sm_90", "fp16", tile=(16, 64, 128))
    dot = replace(compiled(HOPPER, FEW_ROWS, kinds=2), tiles=(TILE, coarse.tile))
    comparisons = compare(join_predicted([fine, coarse]), [dot])
    assert [x.status for x in comparisons] == [AGREED, AGREED]
    incomplete = replace(compiled(HOPPER, kinds=2), tiles=(TILE, coarse.tile))
    comparisons = compare(join_predicted([fine, coarse]), [incomplete])
    assert {x.status for x in comparisons} == {AGREED, CONTRADICTED}


def test_a_sum_that_is_folded_into_a_dot_moves_it_to_its_own_line():
    assert judge(RIGHT["wgmma"][0], compiled(HOPPER, where="file.py:69")).status == AGREED
    two = [compiled(HOPPER, where=f"file.py:{n}") for n in (68, 69)]
    assert judge(RIGHT["wgmma"][0], *two).status == NOT_KNOWN


def test_instructions_at_the_line_of_an_operand_are_those_of_the_only_dot():
    (asked,) = RIGHT["wgmma"][1].dots
    empty = replace(asked, instructions=(DotInstruction("", UNKNOWN, 0),))
    elsewhere = replace(asked, where="file.py:60")
    dot = ir_dot(70)
    (home,) = join_lines([dot], [empty, elsewhere])
    assert [x.where for x in home.dots] == ["file.py:70", "file.py:60"]
    assert not home.strays
    # with two lines it may belong to either: the number of instructions decides nothing
    both = join_lines([dot, ir_dot(80)], [asked, replace(asked, where="file.py:80"), elsewhere])
    assert [x.strays for x in both] == [True, True]


def test_warps_are_told_of_each_axis_of_the_result():
    for tile, warps in ((TILE, (2, 2)), (BATCHED, (2, 1, 2))):
        (asked,) = compiled(FEW_ROWS, tile=tile).dots
        (home,) = join_lines([ir_dot(70)], [asked])
        assert home.warps == warps


def ir_dot(line):
    return CompiledDot(f"file.py:{line}", ("f16", "f16", "f32"), TILE, "", ("", "", ""))


# -- the order of k ------------------------------------------------------------------------------
def test_the_order_of_k_by_kwidth():
    assert list_order(2, 16, 64) == tuple(range(16))
    assert list_order(1, 32, 64) == tuple(range(8))
    assert list_order(4, 8, 64) == tuple(range(32))
    # fp8 widened to fp16: pairs of four, the lower half and 16 later
    first = [4 * t + half + e for half in (0, 16) for t in range(4) for e in (0, 1)]
    assert list_order(4, 16, 64) == (*first, *(k + 2 for k in first))
    assert sorted(list_order(8, 16, 32)) == list(range(32))  # four bits in half a group
    assert list_order(4, 16, 48) == ()
    assert list_steps((), 8, 16) == (frozenset(range(8)), frozenset(range(8, 16)))
    assert list_steps((0, 2, 1, 3), 2, 4) == (frozenset({0, 2}), frozenset({1, 3}))


def test_kwidth_is_read_from_layouts():
    for layout, width in (
        ("dot_op<{opIdx = 0, parent = nvidia_mma<{x = [1]}>, kWidth = 4}>", 4),
        ("nvmma_shared<{elementBitWidth = 16}>, shared_memory", None),
        ("", None),
    ):
        assert read_width(layout) == width
