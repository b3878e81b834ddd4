"""Nothing is proved of a drawn program that is false at some size."""

import pytest
from tests.properties.proof_fuzzer import saved
from tests.properties.proof_fuzzer.compare import compare, list_counts
from tests.properties.proof_fuzzer.draws import draw_program
from tests.properties.proof_fuzzer.truth import COUNTS, find_truth

FAILURES = ("contradiction", "grid", "crash")


def _compare_all(seeds, seconds):
    results = {seed: compare(draw_program(seed), seconds) for seed in seeds}
    failed = {n: (x.kind, x.witnesses or x.text) for n, x in results.items() if x.kind in FAILURES}
    assert not failed
    return list(results.values())


def test_nothing_false_is_proved_of_a_few_programs():
    results = _compare_all(range(100, 107), 1.0)
    assert {"right", "wrong"} <= {x.kind for x in results}


@pytest.mark.lane("full")
@pytest.mark.parametrize("first", range(200, 320, 40))
def test_nothing_false_is_proved_of_many_programs(first):
    """A third of the right ones are proved in every property, else little could be false."""
    right = [x for x in _compare_all(range(first, first + 40), 1.0) if x.is_right]
    assert 3 * sum(x.is_whole for x in right) >= len(right) > 10


FILES = sorted(saved.FOLDER.glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_what_was_once_proved_and_false_is_not_proved(file):
    program, _ = saved.read(file)
    result = compare(program, 4.0)
    assert result.kind not in FAILURES, result.witnesses or result.text


@pytest.mark.parametrize("seed", [60605, 64116])
def test_a_proof_for_some_gpus_is_compared_with_calls_on_those(seed):
    """With little time these are proved for some numbers of multiprocessors, and say so.

    The step of their loops is that number rounded up to 4, so that 142 and 5 miss tiles.
    """
    program = draw_program(seed)
    result = compare(program, 1.5)
    assert result.kind not in FAILURES
    assert {x.multiprocessors for x in find_truth(program).false.values()} == {5}
    assert not find_truth(program, counts=(132, 108)).false


def test_the_numbers_of_multiprocessors_of_a_proof_are_read_from_its_assumptions():
    assert list_counts(["every M, N, K; a GPU of 40 or 132 multiprocessors"]) == (132,)
    assert list_counts(["every M, N, K; a GPU of 108, 132 or 142 multiprocessors", "x"]) == (
        132,
        142,
        108,
    )
    assert list_counts(["every M, N, K"]) == COUNTS
