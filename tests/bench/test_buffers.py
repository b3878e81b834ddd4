"""Buffers: enough of them to exceed the cache, data drawn from a seed, exact products."""

from __future__ import annotations

import math

import pytest
import torch

from gemmproof.bench.device_operands import (
    MOST_SETS,
    choose_heights,
    count_sets,
    fill_integers,
    make_buffers,
)
from gemmproof.bench.problems import LARGEST_SIMULATED, SUITES, Problem, read_problems
from gemmproof.bench.verify import Stated
from gemmproof.properties.cases.data import TORCH_DTYPES
from gemmproof.properties.kernel import KernelUnderTest
from gemmproof.reference.formats import FORMATS, OPERANDS

OUT = {"fp8e4m3": "fp32", "fp8e5m2": "fp32", "int8": "int32", "tf32": "fp32"}
L2 = 60 * 2**20


@pytest.mark.parametrize("size", [2**14, 2**20, 2**24, L2, 2 * L2, 2**30])
def test_the_sets_exceed_twice_the_cache(size: int) -> None:
    count = count_sets(size, L2)
    assert count >= 2
    assert count == MOST_SETS or count * size > 2 * L2
    assert count == 2 or (count - 1) * size <= 2 * L2


def filled(fmt: str, seed: int = 0):
    workload = Stated(KernelUnderTest("plain", print), Problem(24, 20, 40), FORMATS[fmt])
    buffers = workload.make("cpu")
    workload.fill(buffers, seed)
    return buffers


@pytest.mark.parametrize("fmt", OPERANDS)
def test_data_are_uniform_and_the_same_for_a_seed(fmt: str) -> None:
    first, again, other = filled(fmt), filled(fmt), filled(fmt, seed=1)
    as_bytes = [x.a.contiguous().view(torch.uint8) for x in (first, again, other)]
    assert torch.equal(as_bytes[0], as_bytes[1])
    assert not torch.equal(as_bytes[0], as_bytes[2])
    values = first.a.double()
    if FORMATS[fmt].kind == "int":
        assert values.min() < -100 < 100 < values.max()
    else:
        assert -1 <= values.min() < -0.8
        assert 0.8 < values.max() <= 1
    assert first.a.dtype == TORCH_DTYPES[fmt]


@pytest.mark.parametrize("fmt", OPERANDS)
@pytest.mark.parametrize("K", [1, 16, 1000, 8192, 49152])
def test_no_sum_of_the_integers_is_rounded_in_any_order(fmt: str, K: int) -> None:
    """The largest sum of magnitudes stays in the exact range of the accumulator."""
    known = FORMATS[fmt]
    heights, stride = choose_heights(known, FORMATS[OUT.get(fmt, fmt)], K)
    bits = min(FORMATS[name].p for name in (known.sums[0], *known.units))
    assert math.ceil(K / stride) * heights[0] * heights[1] <= 2**bits + heights[0] * heights[1]
    assert all(1 <= height <= min(2**known.p, known.max) for height in heights)
    assert stride <= K


@pytest.mark.parametrize("fmt", OPERANDS)
@pytest.mark.parametrize(
    "problem",
    [Problem(24, 20, 40), Problem(1, 16, 16384), Problem(16, 1, 16384), Problem(8, 8, 64, 3)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_product_of_the_integers_is_exact(fmt: str, problem: Problem, seed: int) -> None:
    out = FORMATS[OUT.get(fmt, fmt)]
    buffers = make_buffers(problem, FORMATS[fmt], "cpu")
    expected = fill_integers(buffers, FORMATS[fmt], out, seed)
    a, b = (x.float().double() for x in (buffers.a, buffers.b))
    assert torch.equal(a, a.round())
    assert torch.equal(expected.double(), (a @ b).to(TORCH_DTYPES[out.name]).double())
    known = FORMATS[fmt]
    bits = min(FORMATS[name].p for name in (known.sums[0], *known.units))
    assert (a.abs() @ b.abs()).max() <= 2**bits
    assert expected.double().abs().max() > 0
    # every k has a nonzero element on both sides, in some row and column
    met = (a != 0).flatten(0, -2).any(0) & (b != 0).transpose(-1, -2).flatten(0, -2).any(0)
    assert met.float().mean() > 0.5


@pytest.mark.parametrize("seed", [0, 1])
def test_units_that_read_tf32_are_wrong_on_fp32(seed: int) -> None:
    buffers = make_buffers(Problem(64, 64, 512), FORMATS["fp32"], "cpu")
    expected = fill_integers(buffers, FORMATS["fp32"], FORMATS["fp32"], seed)
    wide = (buffers.a, buffers.b)[seed]
    assert wide.abs().max() > 2**11
    cut = [(x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (buffers.a, buffers.b)]
    assert not torch.equal(cut[0] @ cut[1], expected)
    assert torch.equal(buffers.a @ buffers.b, expected)


# -- shapes: the suites, the accepted spellings, and their small versions --------------------------
def test_the_suites_are_those_that_the_docs_name_and_hold_25_shapes() -> None:
    names = "square tall wide small_k llama mixtral gpt decode ragged batched"
    assert list(SUITES) == names.split()
    everything = [problem for suite in SUITES.values() for problem in suite]
    assert len({p.sides for p in everything}) >= 25
    assert len({p.name for p in everything}) == len(everything)
    assert all(p.name.startswith(f"{name}/") for name, suite in SUITES.items() for p in suite)


def test_each_suite_is_of_its_kind() -> None:
    kinds = {
        "square": lambda p: p.M == p.N == p.K,
        "tall": lambda p: p.M > 8 * p.N,
        "wide": lambda p: p.N > 8 * p.M,
        "small_k": lambda p: 8 * p.K <= min(p.M, p.N),
        "decode": lambda p: p.M <= 64 < p.N,
        "ragged": lambda p: all(side % 32 for side in (p.M, p.N, p.K)),
    }
    for name, holds in kinds.items():
        assert all(map(holds, SUITES[name])), name
    assert all(
        (p.batch is not None) == (name == "batched") for name in SUITES for p in SUITES[name]
    )


def test_suites_parts_and_sides_can_be_typed() -> None:
    assert read_problems("llama") == SUITES["llama"]
    assert read_problems("llama/qkv") == SUITES["llama"][:1]
    assert read_problems("4096x4096x4096,16x8192x8192") == (
        Problem(4096, 4096, 4096),
        Problem(16, 8192, 8192),
    )
    assert read_problems("3x4x5x6") == (Problem(4, 5, 6, batch=3),)
    assert read_problems(["decode", (1, 2, 3), Problem(7, 8, 9)])[-2:] == (
        Problem(1, 2, 3),
        Problem(7, 8, 9),
    )
    assert read_problems("llama,llama") == SUITES["llama"]
    for problem in (Problem(4, 5, 6, batch=3), Problem(4, 5, 6)):
        assert read_problems(problem.sides) == (problem,)


@pytest.mark.parametrize(
    "text", ["lama", "4096x4096", "1x2x3x4x5", "0x1x1", "1x1x2000000", "", "٣x1x1"]
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^shapes: got .*, expected ") as caught:
        read_problems(text)
    assert "\n" not in str(caught.value)


def test_an_unknown_suite_is_told_which_there_are() -> None:
    with pytest.raises(ValueError, match=" ".join(SUITES)):
        read_problems("lama")


def test_the_work_of_a_product_is_counted() -> None:
    problem = Problem(2, 3, 4, batch=5)
    assert problem.flops == 2 * 2 * 3 * 4 * 5
    assert problem.count_results() == 5 * 2 * 3
    assert problem.shapes == ((5, 2, 4), (5, 4, 3), (5, 2, 3))


def test_a_small_version_keeps_what_a_shape_is_about() -> None:
    for suite in SUITES.values():
        for problem in suite:
            small = problem.shrink()
            assert max(small.M, small.N, small.K) <= LARGEST_SIMULATED
            assert (small.M == 1) >= (problem.M == 1)
            assert (small.batch is None) == (problem.batch is None)
    assert Problem(2049, 2047, 2051).shrink() == Problem(65, 64, 65)
    assert Problem(8, 8, 8).shrink() == Problem(8, 8, 8)
