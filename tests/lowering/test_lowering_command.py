"""`gemmproof lowering`: its answer and its JSON, bad usage, compilers that hang or fill memory."""

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.kernels.replaced_ptxas import replace_ptxas
from tests.texts import line_with

from gemmproof.cli import main

KERNELS = "lowered_kernels.py"
FILLS = 'x = bytearray(b"x") * (3 << 29); import time; time.sleep(99)'


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)


def run(capsys, args):
    """Run the command; return its exit code, stdout and stderr."""
    code = main(["lowering", *shlex.split(args)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "target: got neither of TARGET and --kernel, expected one of them"),
        (f"{KERNELS}:right --kernel matmul", "target: got both of TARGET and --kernel"),
        (f"{KERNELS}:right --case " + '\'{"M":1,"N":1,"K":1}\' --dtype bf16', "--case: got"),
        ("--kernel a --conftest none.py", "--conftest: got 'none.py' (no such file), expected"),
        ("--kernel a --conftest lowered_kernels.py --batched", "--batched: got it with --kernel"),
        (f"{KERNELS}:raises", "got ValueError: no such thing, expected launches for sm_90"),
        (f"{KERNELS}:right --json /nowhere/x.json", "--json: got '/nowhere/x.json'"),
    ],
)
def test_bad_usage_is_one_line(args, message, capsys):
    code, out, err = run(capsys, f"{args} --quiet")
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "args",
    [
        f"{KERNELS}:right --target sm_60",
        f"{KERNELS}:right --sizes M=0",
        f"{KERNELS}:right --sizes M=²",
        f"{KERNELS}:right --sizes Q=3",
        f"{KERNELS}:right --layouts c=row",
        f"{KERNELS}:right --config second",
    ],
)
def test_what_an_option_does_not_take_is_told_by_its_name(args, capsys):
    with pytest.raises(SystemExit) as left:
        run(capsys, args)
    assert left.value.code == 2
    assert f"argument {args.split()[1]}: got" in capsys.readouterr().err


def test_targets_are_told_in_their_order_and_written(capsys, tmp_path, texts):
    """A target that refuses the kernel does not prevent the others from compiling it."""
    path = tmp_path / "told.json"
    options = f"--dtype int8 --sizes M=64,N=64,K=64 --json {path} --quiet"
    code, out, err = run(capsys, f"{KERNELS}:right --target sm_75 --target gfx942 {options}")
    assert (code, err) == (3, "")
    heads = [line for line in out.splitlines() if line.startswith("tile_kernel")]
    assert [line.partition(" for ")[2].partition(":")[0] for line in heads] == ["sm_75", "gfx942"]
    texts("one of two launches is not compiled", out.splitlines()[-1])
    refused, compiled = json.loads(path.read_text())["launches"]
    assert [x["target"] for x in (refused, compiled)] == ["sm_75", "gfx942"]
    assert refused["where"] == "lowered_kernels.py:13"
    assert f"not compiled: {refused['where']}: {refused['error']}" in out
    texts("what a launch was compiled for", refused["error"].partition(": ")[0])
    assert compiled["grid"] == [1, 1, 1]
    (unit,) = compiled["dots"][0]["instructions"]
    assert (unit["name"], unit["operands"]) == ("v_mfma_i32_32x32x16_i8", ["registers"] * 2)
    assert (unit["a"], unit["b"], unit["accumulator"]) == ("i8", "i8", "i32")
    shown = line_with(out, unit["name"]).partition(unit["name"])[2]
    texts("formats and operands of an instruction", shown)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("wrapper", "does", "limits", "message"),
    [
        ("several", "sleep 1000", "--time-limit 2", "it timed out after 2 s; a larger"),
        ("right", f"exec python3 -c '{FILLS}'", "--memory-limit 1", "of memory (1 allowed)"),
    ],
    ids=["hangs", "fills the memory"],
)
def test_a_compiler_that_ends_badly_is_told_and_others_go_on(
    wrapper, does, limits, message, capsys, tmp_path, monkeypatch
):
    """Each of several launches is reported, and each target compiles the launches that it can."""
    count = 1 + (wrapper == "several")
    replace_ptxas(monkeypatch, tmp_path, does)
    options = f"--target sm_80 --target gfx942 {limits} --quiet"
    code, out, _ = run(capsys, f"{KERNELS}:{wrapper} {options}")
    assert code == 3
    assert out.count(message) == count
    assert "v_mfma_f32_32x32x8_f16" in out
    summary = re.search(r" compiled for (.*), (\d+) not \(", out.splitlines()[-1])
    assert summary.groups() == ("sm_80 gfx942", str(count))
