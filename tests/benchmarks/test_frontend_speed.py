"""The time of a check in Triton's frontend, and a larger product against Triton's interpreter."""

import time
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from tests.support.interpreter_process import start_interpreter

from gemmproof.engine.kernel_check import check
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.simulator import launch as launched_kernel
from gemmproof.reference.simulator import run
from gemmproof.target import load_file

pytestmark = pytest.mark.lane("full")

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "right.py"
SIDE, SMALL_SIDE = 512, 64
RATIO, SECONDS = 40, 1.0


def test_a_hundred_cases_build_few_programs(benchmark):
    """Seconds spent in building and reading TTIR over a whole check, from nothing."""
    kernel = KernelUnderTest("matmul", load_file(EXAMPLE).matmul)
    launched_kernel._programs.clear()
    spent = []

    def timed(*args):
        started = time.perf_counter()
        try:
            return compile_program(*args)
        finally:
            spent.append(time.perf_counter() - started)

    compile_program = launched_kernel.compile_program
    with patch.object(launched_kernel, "compile_program", timed):
        benchmark.pedantic(check, (kernel,), {"max_examples": 100 if benchmark.enabled else 2})
    benchmark.extra_info["seconds in the frontend"] = round(sum(spent), 3)
    print(f"\n{len(spent)} specialisations, {sum(spent):.2f} s in the frontend")
    if benchmark.enabled:
        assert sum(spent) < SECONDS


@pytest.mark.triton("interpreter")
def test_ratio_on_a_larger_product(benchmark):
    """CPU time of docs/examples/right.py on the interpreter over that on the simulator."""
    side = SIDE if benchmark.enabled else SMALL_SIDE
    matmul = load_file(EXAMPLE).matmul
    a, b = (torch.randn(side, side, dtype=torch.float16) for _ in "ab")
    with start_interpreter() as call:
        _, theirs = call("tests.support.interpreter_process:time_call", "right:matmul", a, b)
    run(matmul, a, b)
    ours = []
    for _ in range(7):
        started = time.process_time()
        run(matmul, a, b)
        ours.append(time.process_time() - started)
    ratio = theirs / min(ours)
    print(f"\nsimulator {min(ours) * 1e3:.1f} ms, interpreter {theirs:.2f} s: {ratio:.0f} times")
    benchmark.extra_info["ratio"] = round(ratio, 1)
    benchmark.pedantic(run, (matmul, a, b), rounds=1)
    if benchmark.enabled:
        assert ratio >= RATIO
