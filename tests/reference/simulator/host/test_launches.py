"""Launches of every form, heuristics, configurations, helpers from other modules."""

import textwrap

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher, result_of

from gemmproof.reference.simulation import KernelError, Unsupported
from gemmproof.reference.simulator import run, session


@triton.jit
def filled(o, n, value, S: tl.constexpr, EVEN: tl.constexpr = False):
    i = tl.program_id(0) * S + tl.arange(0, S)
    if EVEN:
        tl.store(o + i, value)
    else:
        tl.store(o + i, value, mask=i < n)


def wrappers():
    grid = lambda META: (triton.cdiv(META["n"], META["S"]),)  # noqa: E731

    def positional(o):
        filled[(4,)](o, 50, 3, 16)

    def keywords(o):
        filled[(4,)](o, S=16, value=3, n=50, num_warps=2, num_stages=3)

    def by_lambda(o):
        filled[grid](o, 50, 3, S=16)

    def by_list(o):
        filled[[4, 1]](o, 50, 3, S=16)

    def by_run(o):
        filled.run(o, 50, 3, 16, grid=(4,), warmup=False)

    def by_int_like(o):
        filled[(torch.tensor(4).item(),)](o, 50, 3, tl.constexpr(16))

    def partly(o):
        launch = filled[(4, 1, 1)]
        launch(o, 50, value=3, S=16)

    return [positional, keywords, by_lambda, by_list, by_run, by_int_like, partly]


@pytest.mark.parametrize("launch", wrappers(), ids=lambda f: f.__name__)
def test_every_form_of_a_launch(launch):
    def wrapper(x):
        o = torch.zeros(64, device="cuda")
        launch(o)
        return o

    seen = run(wrapper, torch.zeros(1))
    assert seen.faults == []
    assert seen.result.tolist() == [3.0] * 50 + [0.0] * 14
    (launched,) = seen.launches
    assert (launched.kernel, launched.grid) == ("filled", (4, 1, 1))
    assert launched.constexprs["S"] == 16
    assert launched.where.file == __file__


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [((50, 3), {}, "S"), ((50, 3, 16), {"value": 1}, "value"), ((object(), 3, 16), {}, "n")],
)
def test_wrong_arguments_of_a_launch(args, kwargs, message):
    """The kernel's name, the argument, and the wrapper's line."""
    with pytest.raises(KernelError, match=message) as raised:
        run(launcher(filled, (4,), *args, **kwargs))
    assert raised.value.where.file == launcher.__code__.co_filename


def test_an_option_that_triton_does_not_know_says_nothing_about_the_kernel():
    """Another backend's, or another version's."""
    with pytest.raises(Unsupported, match=r"filled.*waves_per_eu") as raised:
        run(launcher(filled, (4,), 50, 3, 16, waves_per_eu=2))
    assert raised.value.where.file == launcher.__code__.co_filename


@pytest.mark.parametrize(
    ("grid", "message"),
    [((-1,), "grid"), ((1, 70000), "grid"), ((2.0,), "grid"), ((), "out of range")],
    ids=str,
)
def test_grids_that_cuda_or_triton_refuses(grid, message):
    with pytest.raises(KernelError, match=f"filled.*{message}"):
        run(launcher(filled, grid, 50, 3, 16))


def test_an_empty_grid_runs_nothing():
    seen = run(launcher(filled, (0,), 50, 3, 16))
    assert not seen.result.any()


@triton.heuristics({"S": lambda args: 16, "EVEN": lambda args: args["n"] % args["S"] == 0})
@triton.jit
def heuristic(o, n, value, S: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * S + tl.arange(0, S)
    if EVEN:
        tl.store(o + i, value)
    else:
        tl.store(o + i, -value, mask=i < n)


@pytest.mark.parametrize(("n", "sign"), [(48, 1), (41, -1)])
def test_heuristics_are_evaluated(n, sign):
    got = result_of(heuristic, (triton.cdiv(n, 16),), n, 2.0)
    assert got.tolist() == [2.0 * sign] * n + [0.0] * (64 - n)


def fill_with_nines(nargs):
    nargs["o"].fill_(9)


def prune(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["S"] <= named_args["n"]]


@triton.autotune(
    configs=[
        triton.Config({"S": 16}, num_warps=4),
        triton.Config({"S": 32}, num_stages=2, pre_hook=fill_with_nines),
        triton.Config({"S": 64}),
        triton.Config({"S": 128}),
    ],
    key=["n"],
    prune_configs_by={"early_config_prune": prune},
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["S"] == 0})
@triton.jit
def tuned(o, n, value, S: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * S + tl.arange(0, S)
    if EVEN:
        tl.store(o + i, value + S)
    else:
        tl.store(o + i, value + S, mask=i < n)


@pytest.mark.parametrize("config", range(6))
def test_every_configuration_of_an_autotuner(config):
    """The index counts what pruning leaves; the config's hook runs; the grid sees its constants."""
    n = 70  # prunes S = 128
    sizes = (16, 32, 64)

    grid = lambda META: (triton.cdiv(n, META["S"]),)  # noqa: E731
    how = {"shape": (128,), "dtype": torch.float32}
    seen = run(launcher(tuned, grid, n, 1.0, **how), config=config)
    assert seen.faults == []
    S = sizes[config % 3]
    rest = 9.0 if S == 32 else 0.0
    assert seen.result.tolist() == [1.0 + S] * n + [rest] * (128 - n)
    (launched,) = seen.launches
    assert (launched.config, launched.configs) == (config % 3, 3)
    assert launched.constexprs["S"] == S
    assert launched.grid[0] == -(-n // S)


@triton.jit
def fill_first(o, n, S: tl.constexpr):
    tl.static_assert(S < 64)
    tl.store(o + tl.arange(0, S), 1, mask=tl.arange(0, S) < n)


@pytest.mark.parametrize(("hooks", "written"), [({}, 32), ({"reset_to_zero": ["o"]}, 16)])
def test_trial_runs_in_other_configurations_leave_their_results(hooks, written):
    """Elements that the chosen configuration does not store keep their values of a trial."""
    configs = [triton.Config({"S": n}) for n in (16, 64, 32)]  # of which one does not compile
    kernel = triton.autotune(configs, key=["n"], **hooks)(fill_first)

    def wrapper(o):
        o.zero_()
        kernel[(1,)](o, 64)
        return o

    o = torch.zeros(64, dtype=torch.int32)
    assert int(run(wrapper, o.clone()).result.sum()) == 16
    tried = run(wrapper, o.clone(), tries=True)
    assert int(tried.result.sum()) == written
    assert [launch.constexprs["S"] for launch in tried.launches] == [16]
    assert tried.faults == []


def test_a_launch_leaves_triton_as_it_was():
    """After a run, and after a run that failed, kernels are Triton's again."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    before = JITFunction.run, JITFunction.__call__, Autotuner.run, torch.cuda.is_available
    result_of(filled, (4,), 50, 3, 16)
    with pytest.raises(ZeroDivisionError):
        run(lambda x: 1 // 0, torch.zeros(1))
    after = JITFunction.run, JITFunction.__call__, Autotuner.run, torch.cuda.is_available
    assert before == after
    assert not torch.zeros(1).is_cuda
    with pytest.raises(Unsupported, match="outside of a kernel launch"):
        session.current()


def test_helpers_imported_from_another_module(tmp_path, monkeypatch):
    """By name, through the module, and through a module that was imported under another name."""
    (tmp_path / "simulator_helper_module.py").write_text(
        textwrap.dedent(
            """
            import triton
            import triton.language as language
            from triton.language import program_id

            SHIFT = language.constexpr(3)

            @triton.jit
            def inner(x):
                return x + SHIFT

            @triton.jit
            def helper(x):
                return inner(x) * (1 + program_id(0))
            """
        )
    )
    (tmp_path / "simulator_user_module.py").write_text(
        textwrap.dedent(
            """
            import simulator_helper_module
            import simulator_helper_module as other
            from simulator_helper_module import helper
            import triton
            from triton import jit
            from triton.language import arange, store
            import triton.language.extra.libdevice as libdevice
            from triton.language.extra import libdevice as same
            from triton.language import math

            @jit
            def kernel(o):
                i = arange(0, 16)
                x = helper(i) + simulator_helper_module.helper(i) + other.inner(i)
                x += triton.cdiv(7, 2) + triton.language.cdiv(i, 4) + triton.next_power_of_2(5)
                y = libdevice.sqrt(x.to(triton.language.float32) * 0 + 4.0) + same.exp(0.0 * i)
                store(o + i, x + y + math.exp2(0.0 * i))
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    import simulator_user_module

    got = result_of(simulator_user_module.kernel, (1,))[:16]
    i = np.arange(16)
    assert got.tolist() == (3 * (i + 3) + 4 + (i + 3) // 4 + 8 + 4).tolist()
