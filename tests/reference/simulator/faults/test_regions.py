"""Functions of lanes (reductions, scans, maps): assertions, decisions, and the named programs."""

import pytest
import torch
import triton
import triton.language as tl
from tests.support.simulator_lanes import launcher, result_of
from tests.support.simulator_masks import line, the

from gemmproof.reference.simulation import KernelError
from gemmproof.reference.simulator import run

N, PROGRAMS = 64, 4
X = torch.arange(PROGRAMS * N, dtype=torch.int32)


@triton.jit
def add_asserted(a, b):
    tl.device_assert(a < 200, "too large")
    return a + b


@triton.jit
def add_assumed(a, b):
    tl.assume(a < 200)
    return a + b


@triton.jit
def add_where_defined(a, b):
    if b // (b - b) > 3:
        a += b
    return a


@triton.jit
def add_multiple(a, b):
    return tl.multiple_of(a + b, 16)


@triton.jit
def add_and_place(a, b):
    return a + b + tl.program_id(0)


def seen_of(kind, combine):
    @triton.jit
    def kernel(x_ptr, o_ptr, N: tl.constexpr, KIND: tl.constexpr):
        i = tl.program_id(0) * N + tl.arange(0, N)
        x = tl.load(x_ptr + i)
        if KIND == "reduce":
            tl.store(o_ptr + i, tl.reduce(x, 0, combine))
        elif KIND == "scan":
            tl.store(o_ptr + i, tl.associative_scan(x, 0, combine))
        else:
            tl.store(o_ptr + i, tl.map_elementwise(combine, x, x))

    return run(launcher(kernel, (PROGRAMS,), N, kind, shape=(PROGRAMS * N,)), X)


@pytest.mark.parametrize("kind", ["reduce", "scan", "map"])
@pytest.mark.parametrize(
    ("combine", "fault", "text", "programs"),
    [
        (add_asserted, "failed_assert", "tl.device_assert", {"reduce": 4, "scan": 4, "map": 1}),
        (add_assumed, "false_hint", "tl.assume", {"reduce": 4, "scan": 4, "map": 1}),
        (add_where_defined, "undefined_used", "if b", {"reduce": 4, "scan": 4, "map": 4}),
    ],
)
def test_a_function_of_lanes_names_its_line_and_its_programs(kind, combine, fault, text, programs):
    """The last 56 of 256 lanes reach 200, all in the last program; sums do in every one."""
    located = the(seen_of(kind, combine), fault)
    assert located.where.line == line(combine, text)
    assert located.programs == programs[kind]


@pytest.mark.parametrize("kind", ["reduce", "scan", "map"])
def test_a_false_hint_in_a_function_of_lanes_reaches_the_output(kind):
    fault = the(seen_of(kind, add_multiple), "false_hint")
    assert "tl.multiple_of(16)" in fault.got


def test_what_all_programs_share_is_charged_to_all():
    @triton.jit
    def kernel(o_ptr, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(o_ptr + tl.program_id(0) * N + i, tl.reduce(4 * i, 0, add_asserted))

    seen = run(launcher(kernel, (PROGRAMS,), N, shape=(PROGRAMS * N,)))
    assert the(seen, "failed_assert").programs == PROGRAMS


@pytest.mark.parametrize("shared", [True, False])
def test_a_function_of_lanes_knows_its_program(shared):
    @triton.jit
    def kernel(o_ptr, N: tl.constexpr, SHARED: tl.constexpr):
        p = tl.program_id(0)
        first = 0 if SHARED else p
        tl.store(o_ptr + p, tl.reduce(first + tl.arange(0, N), 0, add_and_place))

    got = result_of(kernel, (PROGRAMS,), N, shared, shape=(PROGRAMS,))
    expected = [sum(range(N)) + (N - 1) * p + (0 if shared else N * p) for p in range(PROGRAMS)]
    assert got.tolist() == expected


def test_a_step_that_is_zero_in_some_programs_only():
    @triton.jit
    def kernel(o_ptr, N: tl.constexpr):
        p = tl.program_id(0)
        total = 0
        for i in range(0, N, 2 - p):
            total += i
        tl.store(o_ptr + p, total)

    with pytest.raises(KernelError, match="range: got step -1, expected a positive one"):
        run(launcher(kernel, (PROGRAMS,), N))


def test_a_pair_splits_into_scalars():
    @triton.jit
    def kernel(x_ptr, o_ptr):
        u, v = tl.split(tl.load(x_ptr + 1 + tl.arange(0, 2)))
        tl.store(o_ptr, 10 * u + v)

    assert result_of(kernel, (1,), shape=(1,), tensors=(X,)).tolist() == [12]
