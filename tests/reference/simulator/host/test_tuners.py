"""Tuners: configurations that Triton drops, pruning, and tuners of users' own."""

from functools import partial

import pytest
import torch
import triton
import triton.language as tl
from tests.corpora.tiled import launch, product, store
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import KernelInterface

from gemmproof.compiled.compile import capture_launches
from gemmproof.engine.kernel_check import check
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.properties.proof.prove import prove
from gemmproof.reference.simulation import CompileError
from gemmproof.reference.simulator import run

A, B = torch.arange(60.0).reshape(6, 10), torch.arange(70.0).reshape(10, 7)


@triton.jit
def short_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, sa, sb, sc, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr
):
    tl.static_assert(BLOCK_K <= 32, "BLOCK_K is at most 32")
    offs_m = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    acc = product(a_ptr, b_ptr, offs_m, offs_n, M, N, 0, K, sa, sb, BLOCK_K)
    store(c_ptr, acc, offs_m, offs_n, M, N, sc)


def configs(*sizes):
    return [triton.Config({"BLOCK_K": size}) for size in sizes]


class Measuring(Autotuner):
    """Measures in a loop of its own, as tuners with a cache on disk do."""

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        times = {
            config: self._bench(*args, config=config, **kwargs)
            for config in self.prune_configs(kwargs)
        }
        best = min(times, key=lambda config: times[config][0])
        return self.fn.run(*args, **kwargs, **best.all_kwargs())


class Catching(KernelInterface):
    """No Autotuner at all: drops what does not compile by catching Triton's errors."""

    def __init__(self, fn, configs):
        self.fn, self.configs, self.arg_names, self.refusals = fn, configs, fn.arg_names, []

    def run(self, *args, grid, warmup, **kwargs):
        times = {}
        for config in self.configs:
            launched = partial(self.fn[grid], *args, **kwargs, **config.all_kwargs())
            try:
                times[config] = triton.testing.do_bench(launched)
            except CompilationError as error:
                self.refusals.append(str(error))
        return self.fn[grid](*args, **kwargs, **min(times, key=times.get).all_kwargs())


def shortest(BLOCK_K, **kwargs):
    return BLOCK_K


dropping = triton.autotune(configs(64, 16, 32), key=["M"])(short_kernel)
pruning = triton.autotune(
    configs(64, 32, 16),
    key=["M"],
    prune_configs_by={
        "early_config_prune": lambda configs, named_args, **kwargs: configs[1:],
        "perf_model": shortest,
        "top_k": 1,
    },
)(short_kernel)
measuring = Measuring(short_kernel, short_kernel.arg_names, configs(64, 16), ["M"], None, None)
catching = Catching(short_kernel, configs(64, 16))
excluded = triton.autotune(configs(64, 128), key=["M"])(short_kernel)


def tuned(a, b):
    return launch(dropping, a, b)


@pytest.mark.parametrize(
    ("kernel", "config", "expected"),
    [
        (dropping, 0, 16),
        (dropping, 1, 16),
        (dropping, 2, 32),
        (pruning, 0, 16),
        (measuring, 0, 16),
        (catching, 0, 16),
    ],
)
@pytest.mark.parametrize("tries", [False, True])
def test_a_configuration_that_a_static_assert_excludes_is_dropped(kernel, config, expected, tries):
    seen = run(lambda a, b: launch(kernel, a, b), A, B, config=config, tries=tries)
    assert torch.equal(seen.result, A @ B)
    assert seen.launches[-1].constexprs["BLOCK_K"] == expected
    assert seen.faults == []


def test_a_failed_assert_of_every_configuration_is_quoted():
    with pytest.raises(CompileError, match=r"BLOCK_K is at most 32 with \[BLOCK_K=64\]$"):
        run(lambda a, b: launch(excluded, a, b), A, B)
    with pytest.raises(CompileError, match=r"BLOCK_K is at most 32$"):
        run(lambda a, b: launch(short_kernel, a, b, BLOCK_K=64), A, B)


def test_the_other_configurations_are_proved_and_compiled():
    kernel = KernelUnderTest("tuned", tuned)
    assert check(kernel, max_examples=4).verdict == "pass"
    assert {proof.status for proof in prove(kernel).verdicts} == {"proved"}
    with capture_launches("sm_90") as launches:
        tuned(A, B)
    assert [launch.tuned["BLOCK_K"] for launch in launches] == [16, 32]
