"""The paths through a wrapper: the decisions, launches and arguments of each."""

import importlib.util
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.reference.symbolic import traced_wrappers as wrappers
from tests.reference.symbolic.symbolic_sizes import STEPS, K, M, N, operands, trace

from gemmproof import kernels
from gemmproof.reference.symbolic import tracing
from gemmproof.reference.symbolic.terms import eq, evaluate, every, le, make, term
from gemmproof.reference.symbolic.tracing import take_config
from gemmproof.reference.symbolic.tracing.trace import HostDescriptor, TensorView
from gemmproof.reference.symbolic.tracing.trace import Path as PathOfWrapper

SOME = every(le(1, n) for n in (M, N, K))
EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "right.py"


def cdiv(n, block):
    return make("floordiv", n + (block - 1), block)


def only(traced):
    """The only path of a trace that visits everything."""
    assert traced.unvisited == []
    (path,) = traced.paths
    assert path.failed is None
    return path


def at(path, **sizes):
    """Return whether a path is that of the given sizes; other values do not matter."""
    given = {x.atom: sizes.get(name, 1) for name, x in (("M", M), ("N", N), ("K", K))}
    given |= {x.atom: 1 for x in STEPS.values()}
    return bool(evaluate(path.condition, given))


def list_blocks(traced, name, **sizes):
    """A constant of the first launch of each path of some sizes."""
    return [p.launches[0].constants[name] for p in traced.paths if at(p, **sizes)]


def list_constants(path, name):
    return [launch.constants[name] for launch in path.launches]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_launches_unless_c_is_empty():
    launched, empty = trace(load(EXAMPLE).matmul).paths
    assert launched.condition == le(1, M * N)
    assert empty.condition == le(M * N, 0)
    assert empty.launches == []
    (launch,) = launched.launches
    assert launch.grid == (cdiv(M, 32), cdiv(N, 64), term(1))
    names = ["a_ptr", "b_ptr", "c_ptr", "M", "N", "K"]
    strides = ["stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_cm"]
    assert launch.parameters == names + strides  # stride_cn is 1
    a, b, c, *numbers = launch.arguments
    row = make("max", 1, N)
    assert numbers == [M, N, K, *(STEPS[x] for x in ("am", "ak", "bk", "bn")), row]
    assert [x.name for x in (a, b, c)] == ["a", "b", "c"]
    assert (a.shape, a.strides, a.offset) == ((M, K), (STEPS["am"], STEPS["ak"]), term(0))
    assert (c.dtype, c.owner_shape, c.defined, a.defined) == ("f16", (M, N), False, True)
    assert launch.constants["BLOCK_K"] == 32
    assert str(launch.where) == "right.py:35"
    assert str(launched.guards[0][1]) == "right.py:32"
    public = [f for f in launch.functions.values() if f.public]
    assert len(public[0].args) == len(launch.arguments)


@pytest.mark.parametrize(
    "name", ["matmul", "matmul_grouped", "matmul_swizzled", "matmul_persistent"]
)
def test_the_kernels_of_this_repository(name):
    traced = trace(getattr(kernels, name), SOME, config=1)
    launched = [path for path in traced.paths if path.launches]
    assert launched
    assert {len(path.launches) for path in launched} == {1}
    assert {path.launches[0].kernel for path in launched} == {f"{name}_kernel"}
    assert {path.launches[0].config for path in launched} == {1}
    assert all(path.launches[0].configs > 1 for path in launched)


def test_heuristics_decide_by_the_sizes():
    even, odd = sorted(trace(wrappers.by_heuristics).paths, key=lambda p: not at(p, K=64))
    assert even.condition == eq(make("mod", K, 32), 0)
    assert [p.launches[0].constants["EVEN_K"] for p in (even, odd)] == [True, False]


@pytest.mark.parametrize(("config", "few", "many"), [(0, 16, 16), (1, 32, 32), (2, 16, 64)])
def test_autotuned_kernels_prune_by_the_sizes(config, few, many):
    traced = trace(wrappers.tuned, config=config)
    assert [list_blocks(traced, "BLOCK", M=m) for m in (1000, 1001)] == [[few], [many]]
    assert {p.launches[0].configs for p in traced.paths} == {2, 3}
    assert traced.paths[0].launches[0].options["num_warps"] in (2, 4, 8)


@pytest.mark.parametrize("first", [0, 1])
def test_one_run_sees_every_configuration(first):
    traced = trace(wrappers.tuned, config=first)
    for config in range(3):
        selected, alone = take_config(traced, config), trace(wrappers.tuned, config=config)
        assert [p.condition for p in selected.paths] == [p.condition for p in alone.paths]
        assert all(map(PathOfWrapper.does_as, selected.paths, alone.paths))


def test_tuners_choose_independently():
    (path,) = trace(wrappers.tuned_twice, SOME).paths
    assert path.choices == {0: 2, 1: 2}
    splits = [list_constants(path.take(config), "SPLIT") for config in range(4)]
    assert splits == [[2, 2], [4, 4], [2, 4], [4, 2]]
    alone = [trace(wrappers.tuned_twice, SOME, config=config).paths[0] for config in range(4)]
    assert [list_constants(path, "SPLIT") for path in alone] == splits


def test_a_tuner_chooses_once_for_a_key():
    (path,) = trace(wrappers.tuned_once_for_two_launches, SOME).paths
    assert path.choices == {0: 2}
    assert list_constants(path.take(1), "BLOCK") == [32, 32]
    (path,) = trace(wrappers.tuned_for_two_keys, SOME).paths
    assert path.choices == {0: 2, 1: 2}
    assert list_constants(path.take(2), "BLOCK") == [16, 32]


@pytest.mark.parametrize("first", [0, 1])
def test_a_hook_that_does_more_than_set_arguments_has_runs_of_its_own(first):
    traced = trace(wrappers.tuned_with_a_hook, config=first)
    assert take_config(traced, 1 - first) is None
    (path,) = traced.paths
    assert [call.name for call in path.operations].count("aten.zero_.default") == 1 - first
    (view,) = (x for x in path.launches[0].arguments if getattr(x, "name", "") == "c")
    assert view.defined == (first == 0)


def test_fast_paths():
    fast, slow = sorted(trace(wrappers.fast_path).paths, key=lambda p: not at(p, K=64))
    assert fast.condition == eq(make("mod", K, 64), 0) == ~slow.condition
    assert [p.launches[0].constants["BLOCK_K"] for p in (fast, slow)] == [64, 16]
    traced = trace(wrappers.few_rows)
    assert [list_blocks(traced, "BLOCK_M", M=m) for m in (16, 17)] == [[16], [64]]


def test_each_power_of_two_is_a_path():
    traced = trace(wrappers.power_of_rows, SOME, most=500)
    expected = {1: [16], 16: [16], 17: [32], 33: [64], 64: [64], 65: [64], 500: [64]}
    assert {m: list_blocks(traced, "BLOCK_M", M=m) for m in expected} == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("made_a_number", "M is a size, made a number here"),
        ("constant_k", "plain_kernel: BLOCK_K is K, made a constant by the launch"),
        ("kept_by_size", "a size is the key of a table"),
        ("reads_an_element", "elements of a tensor are read on the host"),
    ],
)
def test_what_cannot_be_followed_says_why(name, message):
    for path in trace(getattr(wrappers, name), most_paths=8).paths:
        assert message in str(path.failed)
        assert path.failed.where.file.endswith(("traced_wrappers.py", "tiled.py"))
        assert not path.failed.raised


def test_a_size_that_a_decision_leaves_one_value_is_that_number():
    traced = trace(wrappers.constant_where_equal)
    (path,) = [p for p in traced.paths if at(p, K=128)]
    assert path.launches[0].constants["BLOCK_K"] == 128
    assert path.condition == eq(K, 128)


def test_sizes_that_a_wrapper_refuses(texts):
    traced = trace(wrappers.refuses)
    assert traced.unvisited == []
    failed = {str(p.failed) for p in traced.paths if p.failed and p.failed.raised}
    texts("sizes that a wrapper refuses", "\n".join(sorted(failed)))
    (right,) = [p for p in traced.paths if p.failed is None]
    assert at(right, K=8, N=100)
    assert not at(right, K=8, N=101)
    assert not at(right, K=9, N=100)


def test_a_message_that_is_caught_and_only_shown_decides_nothing():
    paths = trace(wrappers.catches_a_message).paths
    assert len(paths) > 1
    assert not any(path.failed for path in paths)


def test_a_handler_around_the_trace_is_not_the_wrappers():
    try:
        paths = trace(wrappers.catches_a_message).paths
    except ValueError as error:
        pytest.fail(str(error)[:40])
    assert not any(path.failed for path in paths)


def test_sizes_are_integers_and_tensors_on_a_gpu():
    assert only(trace(wrappers.asks_types)).condition == every(())


def test_the_largest_side_is_one_decision():
    traced = trace(wrappers.widest)
    assert len(traced.paths) == 2


def test_split_k_through_a_workspace():
    traced = trace(wrappers.split_k, every(le(2, n) for n in (M, N, K)))
    path = next(p for p in traced.paths if p.launches)
    workspace = path.launches[0].arguments[2]
    assert workspace.name.startswith("workspace#")
    assert (workspace.owner_shape, workspace.defined) == ((term(4), M, N), False)
    names = [x.name for x in path.operations]
    assert names == ["launch", "aten.sum.dim_IntList", "aten._to_copy.default"]
    _, summed, cast = path.operations
    assert summed.args[0].storage == workspace.storage
    assert cast.args[0].storage == summed.outputs[0].storage
    (result,) = path.results
    assert (result.name, result.storage) == ("c", cast.outputs[0].storage)


def test_a_batch():
    path = only(trace(wrappers.batched, given=operands(batched=True)))
    launch = path.launches[0]
    assert launch.parameters[6:9] == ["sa[0]", "sa[1]", "sa[2]"]
    assert launch.arguments[6] == STEPS["ab"]
    assert launch.grid[2].atom.args == ("batch",)


def test_host_descriptors():
    traced = trace(wrappers.described, SOME)
    (path,) = [p for p in traced.paths if p.launches]
    first = path.launches[0].arguments[0]
    assert isinstance(first, HostDescriptor)
    assert (first.tensor.name, first.shape, first.block_shape) == ("a", (M, K), (16, 16))
    assert path.launches[0].arguments[1:5] == [M, K, STEPS["am"], STEPS["ak"]]
    refused = {p.failed.message for p in traced.paths if p.failed}
    assert any("base must be 16-byte aligned" in x for x in refused)
    assert any("strides must be 16-byte aligned" in x for x in refused)


def test_autograd_functions():
    assert isinstance(only(trace(wrappers.by_function)).launches[0].arguments[0], TensorView)


def test_dense_operands():
    dense = only(trace(wrappers.plain, given=operands(row_major=True)))
    given = dict(zip(dense.launches[0].parameters, dense.launches[0].arguments, strict=True))
    assert (given["stride_am"], given["stride_bk"]) == (K, N)
    assert dense.launches[0].constants["stride_ak"] == 1


def test_paths_and_time_are_limited(monkeypatch):
    few = trace(wrappers.refuses, most_paths=1)
    assert len(few.paths) == 1
    assert {(x.why, x.late) for x in few.unvisited} == {("too many paths", False)}
    late = trace(wrappers.refuses, deadline=0.0)
    assert "out of time" in str(late.paths[0].failed)
    assert late.paths[0].failed.late
    # once the first path was run
    monkeypatch.setattr(tracing, "counted_seconds", lambda: float("inf"))
    monkeypatch.setattr(tracing, "_run", partial(_before_the_end, tracing._run))
    assert {(x.why, x.late) for x in trace(wrappers.refuses, deadline=1.0).unvisited} == {
        ("out of time", True)
    }


def _before_the_end(run, *asked):
    return run(*asked[:-1], None)


def test_what_an_earlier_call_kept_is_not_taken_for_this_ones(texts):
    kept = []

    def wrapper(a, b):
        kept.append(a)
        return wrappers.plain(kept[0], b) if b.shape[1] > 16 else wrappers.plain(a, b)

    traced = trace(wrapper)
    later = trace(wrapper)
    assert all(path.failed is None for path in traced.paths)
    failed = {str(path.failed) for path in later.paths if path.failed}
    texts("an operand of an earlier call", "\n".join(sorted(failed)))


WITHOUT_COMPILER = """
import sys
from gemmproof.reference.symbolic.tracing.symbolic_shapes import without_compiler, without_imports

def product(a, b):
    pass

with without_compiler():
    with without_imports():
        import torch._dynamo
        assert torch._dynamo.disable(product, True, wrapping=False) is product
    product.__dynamo_disable = product
assert "torch._dynamo" not in sys.modules
assert not vars(product)
"""


@pytest.mark.lane("full")
def test_what_torch_disables_for_its_compiler_is_forgotten_afterwards():
    """Else a compiler that is imported later would compile what it must leave alone."""
    source = Path(__file__).parents[3] / "src"
    env = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-c", WITHOUT_COMPILER], env=env, check=True)
