"""Launches captured, compiled and reported as in a worker, but in this process."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kernels.replaced_ptxas import hide_tools, replace_ptxas
from tests.lowering import lowered_kernels
from tests.lowering.lower import capture, label, run_task
from tests.texts import line_with

from gemmproof.compiled import compile as compiling
from gemmproof.compiled.compile import join_launches
from gemmproof.lowering.record import LaunchRequest
from gemmproof.lowering.task import compile_launches
from gemmproof.lowering.text import describe, tabulate
from gemmproof.properties.contract import Contract
from gemmproof.properties.kernel import KernelUnderTest, Operand
from gemmproof.reference.simulation import CompileError
from gemmproof.target import KernelRef, TargetError


def ask(wrapper, workdir, gpu="sm_90", contract=None, operands=None, spec=None, **options):
    """Return the launches of a wrapper that a worker reports, and its events."""
    contract = contract or Contract()
    kernel = KernelUnderTest("k", wrapper, contract, operands=operands or {}, spec=spec)
    request = LaunchRequest(KernelRef("k"), None, {}, {}, False, gpu)
    target, events = run_task(compile_launches, workdir, replace(request, **options), kernel)
    assert target.failures == []
    return target.lowerings, events


def show(lowering):
    return "\n".join(text for text, _ in describe(lowering))


def test_each_configuration_that_pruning_leaves_is_captured():
    """Heuristics are evaluated for each configuration."""
    captured = capture(lowered_kernels.tuned, size=48)
    assert [x.configuration for x in captured] == [{"BM": n, "BN": 64, "BK": 32} for n in (32, 64)]
    assert [x.configurations for x in captured] == [2, 2]
    assert [x.constants["WHOLE"] for x in captured] == [False, False]
    assert [x.grids for x in captured] == [[(2, 1, 1)], [(1, 1, 1)]]
    (first,) = capture(lowered_kernels.tuned, size=64, every=False)
    assert (first.configuration["BM"], first.constants["WHOLE"]) == (32, True)


def test_launches_that_compile_to_the_same_are_one():
    joined = join_launches(capture(lowered_kernels.several))
    assert [(x.configuration["BM"], len(x.grids)) for x in joined] == [(16, 2), (64, 1)]
    assert [x.options.num_warps for x in joined] == [4, 8]


def test_a_wrapper_may_ask_what_it_compiled():
    captured = capture(lowered_kernels.asks_the_kernel)
    launched = [("cleared_kernel", []), ("tile_kernel", [(2, 2, 1)])]
    assert [(x.kernel, x.grids) for x in captured] == launched


@pytest.mark.lane("full")
def test_all_of_it_survives_json_and_is_the_same_again(tmp_path, monkeypatch):
    """Nothing is read from a cache or written to it."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    (_, first), events = ask(lowered_kernels.several, tmp_path)
    (_, again), _ = ask(lowered_kernels.several, tmp_path)
    assert [label(x) for x in events] == ["case", "result", "case", "result"]
    assert [(x.index, x.of) for x in events if label(x) == "case"] == [(0, 2), (1, 2)]
    assert first.seconds > 0
    assert replace(first, seconds=0) == replace(again, seconds=0)
    assert [path.name for path in tmp_path.iterdir()] == ["sm_90.output"]


@pytest.mark.lane("full")
def test_the_screen_says_what_an_engineer_asks(tmp_path, texts):
    (launch,), _ = ask(lowered_kernels.promoted, tmp_path, contract=Contract(formats=("fp8e4m3",)))
    texts("a launch whose sums are added in fp32", "\n".join(show(launch).splitlines()[:3]))
    (launch,), _ = ask(lowered_kernels.cut, tmp_path, "sm_80", Contract(formats=("fp32",)))
    texts("operands that are cut as asked", line_with(show(launch), "reduced to tf32"))
    quiet = replace(launch, dots=(replace(launch.dots[0], precision="ieee"),))
    texts("operands that are cut unasked", line_with(show(quiet), "does not ask"))
    assert "does not fit" not in show(launch)
    full = replace(launch, resources=replace(launch.resources, shared=10**6))
    texts("a block of too much shared memory", line_with(show(full), "does not fit"))
    needs = replace(launch.resources, threads=2048, registers=64, shared=4096)
    wide = replace(launch, resources=needs)
    texts("a block of too many threads", line_with(show(wide), "does not fit"))


@pytest.mark.lane("full")
def test_many_launches_are_rows_of_a_table(tmp_path, texts):
    tuned, _ = ask(lowered_kernels.tuned, tmp_path, every=True)
    fp8 = Contract(formats=("fp8e4m3",))
    (promoted,), _ = ask(lowered_kernels.promoted, tmp_path, "sm_89", fp8)
    refused = replace(promoted, error="no such type", where="a/b.py:3")
    full = replace(promoted, resources=replace(promoted.resources, shared=10**6, spill_stores=8))
    wide = replace(promoted, resources=replace(promoted.resources, threads=2048))
    odd = replace(promoted, unrecognised=("b.py:4: mma.new",))
    lines = [text for text, _ in tabulate([*tuned, refused, full, wide, odd])]
    # what follows, registers for instance, differs by version of the compiler
    cells = [" | ".join(re.split(" {2,}", line)[:3]) for line in lines]
    texts("a table of launches, without their resources", "\n".join(cells))
    assert "8 B      1000000  no " in lines[7]
    assert [" no " in line for line in lines[7:10]] == [True, True, False]


def test_fp32_in_full_is_told_as_fused_multiply_adds(tmp_path, texts):
    (launch,), _ = ask(lowered_kernels.flat, tmp_path, "sm_75", Contract(formats=("fp32",)))
    texts("a dot of fused multiply-adds", line_with(show(launch), "fma.rn.f32"))


def test_what_triton_refuses_has_its_message_and_line(tmp_path):
    (launch,), _ = ask(lowered_kernels.shallow, tmp_path)
    assert launch.where.endswith("lowered_kernels.py:13")
    assert "K >= 16" in launch.error
    assert launch.error.startswith("Triton refuses")
    assert f"not compiled: {Path(launch.where).name}: {launch.error}" in show(launch)


def test_what_a_target_lacks_is_told_by_its_own_verifier(tmp_path, texts):
    """Triton has no integer dot before Ampere, and reports it only after its optimisation."""
    (launch,), _ = ask(lowered_kernels.right, tmp_path, "sm_75", Contract(formats=("int8",)))
    assert launch.where.endswith("lowered_kernels.py:13")
    compiling_it, _, why = launch.error.partition(": ")
    texts("what a launch was compiled for", compiling_it)
    assert why.split()[:4] == ["'arith.extf'", "op", "operand", "#0"]


def test_what_ptxas_refuses_has_the_line_of_the_source(tmp_path):
    (launch,), _ = ask(lowered_kernels.wrong_assembly, tmp_path)
    message = "compiling wrong_assembly_kernel for sm_90: ptxas: Unknown modifier '.such'"
    assert launch.error == message
    line = launch.where.rpartition(":")[2]
    source = Path(lowered_kernels.__file__).read_text().splitlines()
    call = source[int(line) - 1]  # its first line, or in older Tritons the line of its text
    assert "tl.inline_asm_elementwise(" in call or "no.such.instruction" in call


def test_without_ptxas_it_is_one_line(tmp_path, monkeypatch):
    hide_tools(monkeypatch)
    (launch,) = capture(lowered_kernels.right, "sm_80")
    with pytest.raises(CompileError, match="compiling tile_kernel for sm_80: Cannot find ptxas"):
        compiling.compile_launch(launch, tmp_path)


def test_a_ptxas_that_dies_is_one_line(tmp_path, monkeypatch, texts):
    replace_ptxas(monkeypatch, tmp_path, "kill -SEGV $$")
    (launch,), _ = ask(lowered_kernels.right, tmp_path, "sm_80")
    texts("a ptxas that dies", launch.error)


@pytest.mark.lane("full")
@pytest.mark.parametrize(
    ("wrapper", "options", "message"),
    [
        ("raises", {}, r"lowered_kernels.py:\d+: got ValueError: no such thing, expected launches"),
        ("launches_nothing", {}, "k: got no launch of a Triton kernel, expected one"),
        ("right", {"sizes": {"batch": 3}}, "--sizes: got batch, expected one of M N K"),
        ("right", {"layouts": {"a": "shared"}}, "case a: got"),
    ],
)
def test_a_wrapper_that_launches_nothing_is_told_in_a_line(wrapper, options, message, tmp_path):
    with pytest.raises(TargetError, match=message):
        ask(getattr(lowered_kernels, wrapper), tmp_path, **options)


def test_sizes_are_those_that_the_contract_admits(tmp_path):
    seen = {}

    def note(a, b, ids):
        seen.update(a=tuple(a.shape), b=tuple(b.shape), b_strides=b.stride(), ids=tuple(ids.shape))
        return lowered_kernels.right(a, b)

    contract = Contract(M="..48", K="512..")
    operands, spec = {"ids": Operand("int32", "M", (0, 7))}, lambda a, b, ids: a @ b
    options = {"sizes": {"N": 72}, "layouts": {"b": "column"}}
    ask(note, tmp_path, contract=contract, operands=operands, spec=spec, **options)
    assert seen == {"a": (32, 1024), "b": (1024, 72), "b_strides": (1, 1024), "ids": (32,)}
