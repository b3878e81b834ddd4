"""The tile simulator against Triton's interpreter on one GEMM; run with --benchmark-enable -s."""

import time

import pytest
from tests.support.interpreter_process import start_interpreter
from tests.support.simulator_cases import Case, operands_of
from tests.support.simulator_kernels import multiply

from gemmproof.reference.simulator import run

pytestmark = pytest.mark.lane("full")

GOAL = Case("masked", 256, 256, 512, "fp16", BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, fill="normal")
SMALL = Case("masked", 32, 32, 32, "fp16", BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
OTHERS = [
    Case(kernel, 256, 256, 512, "fp16", BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, PARTS=7)
    for kernel in ("grouped", "swizzled", "persistent", "splitk")
]
TIMED = ("tests.support.interpreter_process:time_call", "tests.support.simulator_kernels:multiply")
ROUNDS = 15
RATIO = 200


@pytest.fixture(scope="module")
def interpreter():
    with start_interpreter() as call:
        yield call


def on_simulator(case):
    """A call of the wrapper on the simulator, its operands made beforehand."""
    a, b = operands_of(case)
    return lambda: run(lambda a, b: multiply(case, a, b), a, b)


@pytest.mark.parametrize("case", [GOAL, *OTHERS], ids=lambda c: c.kernel)
def test_simulator(benchmark, case):
    case = case if benchmark.enabled else SMALL
    seen = benchmark.pedantic(on_simulator(case), rounds=ROUNDS, warmup_rounds=1)
    assert seen.faults == []


@pytest.mark.triton("interpreter")
def test_interpreter(benchmark, interpreter):
    case = GOAL if benchmark.enabled else SMALL
    benchmark.pedantic(interpreter, (*TIMED, case, *operands_of(case)), rounds=1)


@pytest.mark.triton("interpreter")
def test_ratio(benchmark, interpreter):
    """Both in one run: the simulator's fastest round and the interpreter's, in CPU and wall time.

    Both run on one thread, so CPU time says the same on a busy machine as on an idle one; it is
    what the goal is asserted on.
    """
    case = GOAL if benchmark.enabled else SMALL
    call, wall, cpu = on_simulator(case), [], []
    call()
    theirs = interpreter(*TIMED, case, *operands_of(case))
    for _ in range(ROUNDS):
        started = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - started[0])
        cpu.append(time.process_time() - started[1])
    ratios = theirs[0] / min(wall), theirs[1] / min(cpu)
    print(
        f"\nsimulator {min(wall) * 1e3:.1f} ms, CPU {min(cpu) * 1e3:.1f} ms; interpreter "
        f"{theirs[0]:.2f} s, CPU {theirs[1]:.2f} s: "
        f"{ratios[0]:.0f} times, CPU {ratios[1]:.0f} times"
    )
    benchmark.extra_info["ratio"] = round(ratios[0], 1)
    benchmark.extra_info["ratio of CPU time"] = round(ratios[1], 1)
    benchmark.pedantic(call, rounds=1)
    if benchmark.enabled:
        assert ratios[1] >= RATIO, f"got {ratios[1]:.0f} times the interpreter, expected {RATIO}"
