"""Launches captured, compiled and reported as in a worker, but in this process."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.kernels.replaced_ptxas import hide_tools, replace_ptxas
from tests.lowering import lowered_kernels
from tests.lowering.lower import capture, label, run_task

from gemmproof.compiled import compile as compiling
from gemmproof.compiled.compile import join_launches
from gemmproof.lowering.record import LaunchRequest
from gemmproof.lowering.task import compile_launches
from gemmproof.lowering.text import SCHEMA, describe, document, tabulate
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
    launched = [("wrong_assembly_kernel", []), ("tile_kernel", [(2, 2, 1)])]
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
    assert document("k", [first], [])["schema"] == SCHEMA
    assert [path.name for path in tmp_path.iterdir()] == ["sm_90.output"]


@pytest.mark.lane("full")
def test_the_screen_says_what_an_engineer_asks(tmp_path):
    (launch,), _ = ask(lowered_kernels.promoted, tmp_path, contract=Contract(formats=("fp8e4m3",)))
    assert show(launch).splitlines()[:3] == [
        "tile_kernel fp8e4m3 for sm_90: BM=64 BN=64 BK=64 PRECISION=ieee EVERY=64 WHOLE=False",
        "  lowered_kernels.py:12  dot 64x64x64 of f8E4M3FN x f8E4M3FN: 2 wgmma m64n64k32,"
        " e4m3 x e4m3 + f32, from shared memory",
        "                         sums of 64 of k are added in fp32: 32 additions a thread",
    ]
    (launch,), _ = ask(lowered_kernels.cut, tmp_path, "sm_80", Contract(formats=("fp32",)))
    assert "fp32 operands are cut to tf32 (input_precision=tf32)" in show(launch)
    quiet = replace(launch, dots=(replace(launch.dots[0], precision="ieee"),))
    assert "which the source does not ask for" in show(quiet)
    assert "does not fit" not in show(launch)
    full = replace(launch, resources=replace(launch.resources, shared=10**6))
    assert "1000000 of 166912 bytes of shared memory: does not fit" in show(full)
    wide = replace(launch, resources=replace(launch.resources, threads=2048))
    assert "bytes of shared memory: does not fit: 2048 of 1024 threads" in show(wide)


@pytest.mark.lane("full")
def test_many_launches_are_rows_of_a_table(tmp_path):
    tuned, _ = ask(lowered_kernels.tuned, tmp_path, every=True)
    fp8 = Contract(formats=("fp8e4m3",))
    (promoted,), _ = ask(lowered_kernels.promoted, tmp_path, "sm_89", fp8)
    refused = replace(promoted, error="no such type", where="a/b.py:3")
    full = replace(promoted, resources=replace(promoted.resources, shared=10**6, stack=8))
    wide = replace(promoted, resources=replace(promoted.resources, threads=2048))
    odd = replace(promoted, unrecognised=("b.py:4: mma.new",))
    lines = [text for text, _ in tabulate([*tuned, refused, full, wide, odd])]
    assert [lines[0], lines[4]] == ["tuned_kernel fp16", ""]
    assert lines[2].startswith("sm_90   BM=32 BN=64 BK=32 warps=4 stages=3  8 mma m16n8k16 f16")
    assert lines[3].startswith("sm_90   BM=64 BN=64 BK=32 warps=4 stages=3  2 wgmma m64n64k16 f16")
    assert "mma m16n8k32 e4m3, added every 64 of k" in lines[7]
    assert "8 B      1000000  no " in lines[7]
    assert [" no " in line for line in lines[7:10]] == [True, True, False]
    assert lines[10].endswith("warps=4 stages=3: not compiled: b.py:3: no such type")
    assert lines[11].endswith("warps=4 stages=3: not recognised: b.py:4: mma.new")


def test_fp32_in_full_is_told_as_fused_multiply_adds(tmp_path):
    (launch,), _ = ask(lowered_kernels.flat, tmp_path, "sm_75", Contract(formats=("fp32",)))
    assert "256 fma.rn.f32: fused multiply-adds, no tensor core" in show(launch)


def test_what_triton_refuses_has_its_message_and_line(tmp_path):
    (launch,), _ = ask(lowered_kernels.shallow, tmp_path)
    assert launch.where.endswith("lowered_kernels.py:13")
    assert "K >= 16" in launch.error
    assert "not compiled: lowered_kernels.py:13: Triton refuses" in show(launch)


def test_what_a_target_lacks_is_told_by_its_own_verifier(tmp_path):
    """Triton has no integer dot before Ampere, and reports it only after its optimisation."""
    (launch,), _ = ask(lowered_kernels.right, tmp_path, "sm_75", Contract(formats=("int8",)))
    assert launch.where.endswith("lowered_kernels.py:13")
    assert "compiling tile_kernel for sm_75: 'arith.extf' op operand #0 must be" in launch.error


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


def test_a_ptxas_that_dies_is_one_line(tmp_path, monkeypatch):
    replace_ptxas(monkeypatch, tmp_path, "kill -SEGV $$")
    (launch,), _ = ask(lowered_kernels.right, tmp_path, "sm_80")
    assert launch.error == (
        "compiling tile_kernel for sm_80: PTXAS error: `ptxas` failed with error code -11"
    )


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
