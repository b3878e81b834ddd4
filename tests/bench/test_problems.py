"""Shapes: the suites, what can be typed, and their small versions."""

from __future__ import annotations

import pytest

from gemmproof.bench.problems import LARGEST_SIMULATED, SUITES, Problem, read_problems


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
