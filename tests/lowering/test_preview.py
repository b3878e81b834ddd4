"""`gemmproof lowering --dot`: code of single dots, and remedies for those without tensor cores."""

import json
import re
import shlex
from dataclasses import replace

import pytest
from tests.lowering.lower import label, run_task
from tests.texts import line_with

from gemmproof.cli import main
from gemmproof.compiled.compile import lower_launch
from gemmproof.compiled.record import FMA
from gemmproof.compiled.run import WorkerResults
from gemmproof.lowering.record import Dot, DotRequest, list_changes
from gemmproof.lowering.task import compile_dots, find_remedies, plan_dot
from gemmproof.lowering.text import lines, tabulate_dots

OF_TILE = "--dot 64 64 32 "


def preview(gpu, workdir, *dots, remedies=True):
    """Return a worker's results for dots, and its events."""
    target, events = run_task(compile_dots, workdir, DotRequest("k", dots, remedies, gpu))
    assert target.failures == []
    return target.lowerings, events


def lower_dot(dot, gpu, workdir):
    """Return the record of a dot that is compiled in this process."""
    return lower_launch(plan_dot("dot", dot, gpu), workdir)


def fields(dot):
    return {name: getattr(dot, name) for name in Dot.__slots__} | {"tile": list(dot.tile)}


def run(capsys, args):
    code = main(["lowering", *shlex.split(args), "--quiet"])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (f"{OF_TILE} k.py:f", "target: got 'k.py:f' and --dot, expected one of them"),
        (f"{OF_TILE} --sizes M=3", "--sizes: got it with --dot, expected it with TARGET"),
        (f"{OF_TILE} --kernel a", "--kernel: got it with --dot, expected it with TARGET"),
        (f"{OF_TILE} --layouts a=padded", "--layouts: got a=padded with --dot, expected row or"),
        (f"{OF_TILE} --dtype bf16 --acc fp16", "--acc: got fp16 for bf16, expected fp32"),
        (f"{OF_TILE} --dtype int8 --acc fp32", "--acc: got fp32 for int8, expected int32"),
        (f"{OF_TILE} --precision tf32", "--precision: got tf32 for fp16, expected it for fp32"),
        *(
            (f"{OF_TILE} --max-num-imprecise-acc {args}", f"--max-num-imprecise-acc: got {rest}")
            for args, rest in (
                ("32", "32 for fp16, expected it for fp8e4m3 or fp8e5m2 alone"),
                ("32 --dtype fp8e4m3 --acc fp16", "32 for sums of fp16, expected it for those"),
                (
                    "32 --dtype fp8e4m3 --target sm_90 --target sm_100",
                    "32 for sm_100, expected it for sm_90 alone, which has wgmma",
                ),
                ("33 --dtype fp8e4m3", "33, expected at most K = 32"),
            )
        ),
        ("k.py:f --max-num-imprecise-acc 0", "--max-num-imprecise-acc: got it without --dot"),
        ("k.py:f --warps 4", "--warps: got it without --dot, expected it with --dot M N K"),
        ("k.py:f --dtype fp64", "--dtype: got fp64 without --dot, expected of fp16"),
    ],
)
def test_what_does_not_go_together_is_one_line(args, message, capsys):
    code, out, err = run(capsys, args)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "args", ["--warps 3", "--warps -4", "--warps ²", "--dtype fp9", "--stages 0"]
)
def test_a_value_that_an_option_does_not_take(args, capsys):
    with pytest.raises(SystemExit) as left:
        run(capsys, OF_TILE + args)
    assert left.value.code == 2
    assert f"argument {args.split()[0]}: got" in capsys.readouterr().err


@pytest.mark.lane("full")
def test_the_command_tells_one_dot_in_lines_and_several_in_rows(capsys, tmp_path, texts):
    """The default format is fp16; a format that a target lacks does not affect the others."""
    code, out, err = run(capsys, "--dot 16 16 16 --target sm_80")
    assert (code, err) == (0, "")
    where, dot = line_with(out, "m16n8k16").split(maxsplit=1)
    assert where.startswith("task.py:")
    texts("a dot of tensor cores", dot)
    texts("one dot was compiled", out.splitlines()[-1])
    path = tmp_path / "told.json"
    options = f"--dtype fp16 --dtype fp8e4m3 --warps 1 --json {path}"
    code, out, _ = run(capsys, f"--dot 16 16 32 --target sm_80 --target gfx942 {options}")
    assert code == 3
    rows = [line.split()[:4] for line in out.splitlines()[:5]]
    assert rows[1:] == [
        ["sm_80", "fp16", "1", "4"],
        ["sm_80", "fp8e4m3", "1", "not"],
        ["gfx942", "fp16", "1", "6"],
        ["gfx942", "fp8e4m3", "1", "4"],
    ]
    assert "type fp8e4nv not supported in this architecture" in out.splitlines()[2]
    launches = json.loads(path.read_text())["launches"]
    assert [(x["target"], x["dtype"], x["warps"]) for x in launches] == [
        (gpu, dtype, 1) for gpu in ("sm_80", "gfx942") for dtype in ("fp16", "fp8e4m3")
    ]


@pytest.mark.parametrize(
    ("dot", "message"),
    [(Dot((48, 64, 32)), "arange's range must be a power of 2"), (Dot((16, 16, 8)), "K >= 16")],
)
def test_what_triton_refuses_is_told_in_its_words(dot, message, tmp_path):
    ((lowered,), _) = preview("sm_90", tmp_path, dot)
    assert message in lowered.error
    assert lowered.remedies == ()


@pytest.mark.lane("full")
def test_a_dot_that_misses_the_tensor_cores_is_tried_with_one_thing_changed(tmp_path, texts):
    """Each remedy was compiled: the smallest tile that helps, a precision, or another GPU."""
    few, plain = Dot((1, 16, 16)), Dot((16, 16, 16), "fp32", precision="ieee")
    (lowered, other), _ = preview("gfx942", tmp_path, few, few)
    assert lowered.remedies == other.remedies
    texts("the remedy of a dot of one row", "\n".join(lowered.remedies))
    (lowered,), _ = preview("sm_80", tmp_path, plain)
    texts("the remedy of fp32 in full", "\n".join(lowered.remedies))
    (lowered,), _ = preview("sm_75", tmp_path, Dot((64, 64, 64), warps=8))
    texts("the remedies of a dot on Turing", "\n".join(lowered.remedies))
    (lowered,), _ = preview("gfx942", tmp_path, few, remedies=False)
    assert lowered.remedies == ()


def test_a_change_of_which_nothing_is_known_is_not_said_to_miss_the_tensor_cores(texts):
    dot = Dot((16, 16, 64), warps=8)

    def fail(dots, gpu):
        return [None for _ in dots]

    def fail_tall(dots, gpu):
        return [None if x.tile[0] > 16 else "" for x in dots]

    assert list(find_remedies(dot, "sm_75", fail)) == []
    texts("changes that are no remedy", "\n".join(find_remedies(dot, "sm_75", fail_tall)))


def test_changes_are_of_one_thing_each():
    dot = Dot((16, 32, 64), "fp32", warps=8, precision="ieee")
    assert [text for text, _ in list_changes(dot)] == [
        "input_precision=tf32", "M=32", "M=64", "N=64", "4 warps",
    ]  # fmt: skip
    for _, changed in list_changes(dot):
        assert sum(getattr(dot, x) != getattr(changed, x) for x in Dot.__slots__) == 1


def test_a_dot_is_reported_before_its_remedies_are_tried(tmp_path):
    _, events = preview("gfx942", tmp_path, Dot((16, 16, 16)), Dot((1, 16, 16)))
    assert list(map(label, events)) == ["case", "result", "case", "result", "result"]
    cases, results = ([x for x in events if label(x) == kind] for kind in ("case", "result"))
    assert [(x.index, x.of) for x in cases] == [(0, 2), (1, 2)]
    remedies = [(number, bool(result["remedies"])) for number, result in (x.value for x in results)]
    assert remedies == [(0, False), (1, False), (1, True)]


def test_what_is_stated_of_a_dot_is_what_is_compiled(tmp_path):
    """This covers accumulator, stages, precision and the order of b in memory."""
    half = lower_dot(Dot((64, 16, 32), acc="fp16", stages=2, b="column"), "sm_90", tmp_path)
    assert half.dots[0].instructions[0].accumulator == "f16"
    assert (half.stages, half.specialised["stride_bk"], half.specialised["stride_bn"]) == (
        2, "1", "16",
    )  # fmt: skip
    short = lower_dot(Dot((64, 16, 64), "fp8e4m3", imprecise=32), "sm_90", tmp_path)
    assert short.dots[0].promoted_k == 32


@pytest.mark.lane("full")
def test_sums_of_fp8_are_promoted_as_asked(capsys, texts):
    """Promotion is in steps of the instruction's k; below one step there is no wgmma."""
    options = "--dot 64 16 64 --dtype fp8e4m3 --max-num-imprecise-acc"
    code, out, _ = run(capsys, f"{options} 33")
    assert code == 0
    texts("sums that are added in fp32", line_with(out, "are added in fp32"))
    _, out, _ = run(capsys, f"{options} 31")
    unit = re.search(r"(mma \S+), (\S+) x (\S+) \+ (\S+),", out)
    assert unit.groups() == ("mma m16n8k16", "f16", "f16", "f32")
    assert "are added in fp32" not in out


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("gpu", "dot"),
    [
        ("sm_90", Dot((64, 16, 32))),
        ("sm_90", Dot((64, 16, 32), "fp8e4m3", acc="fp16")),
        ("sm_89", Dot((16, 16, 32), "fp8e4m3")),
        ("sm_100", Dot((64, 16, 32), "fp8e4m3")),
    ],
    ids=lambda x: x if isinstance(x, str) else x.dtype,
)
def test_where_a_promotion_is_refused_it_would_change_nothing(gpu, dot, tmp_path):
    dots = (dot, *(replace(dot, imprecise=n) for n in (0, 32)))
    lowerings, _ = preview(gpu, tmp_path, *dots, remedies=False)
    assert [x.error for x in lowerings] == [""] * 3
    assert len({x.binary for x in lowerings}) == 1


def test_dots_that_the_compiler_puts_elsewhere_are_the_source_s_own(tmp_path):
    """The instructions of bf16x6 are at the line where its operand was computed."""
    dot = Dot((16, 16, 32), "fp32", precision="bf16x6")
    lowered = lower_dot(dot, "sm_80", tmp_path)
    (lowered_dot,) = lowered.dots
    assert (lowered_dot.asked[0], lowered_dot.precision) == ("f32", "bf16x6")
    assert {x.a for x in lowered_dot.instructions} == {"bf16"}
    assert lowered.unrecognised == ()


@pytest.mark.triton("conversions_of_the_target")
def test_multiply_adds_at_another_line_are_the_dot_s_if_they_are_as_many(tmp_path):
    """If the compiler widens fp8 for Turing, they are at the line of the next operation."""
    lowered = lower_dot(Dot((16, 16, 32), "fp8e5m2", warps=1), "sm_75", tmp_path)
    assert lowered.unrecognised == ()
    (dot,) = lowered.dots
    assert [(x.unit, x.count) for x in dot.instructions] == [(FMA, 16 * 16 * 32 // 32)]


@pytest.mark.lane("full")
def test_rows_of_what_misses_and_what_is_refused(tmp_path, texts):
    dots = Dot((1, 16, 16)), Dot((16, 16, 8), "fp8e5m2"), Dot((16, 24, 16))
    lowerings, _ = preview("gfx942", tmp_path, *dots)
    shown = [text for text, _ in tabulate_dots(lowerings)]
    assert shown[1].split()[4:6] == ["fused", "multiply-adds"]
    texts("a dot that Triton refuses in a table", shown[3].partition("4      ")[2])
    texts("a remedy below a table", shown[4])
    block = lines("dot", [WorkerResults("gfx942", {0: lowerings[0]})], 0.1)
    (remedy,) = lowerings[0].remedies
    assert shown[4].endswith(f": {remedy}")
    assert remedy in [text.strip() for text, _ in block]
