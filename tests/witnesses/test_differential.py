"""Drawn programs: the simulator stores what Triton's interpreter stores, bit for bit.

GEMMPROOF_DRAWN_PROGRAMS asks for another number of programs, GEMMPROOF_DRAWN_FROM for other seeds.
"""

import os

import numpy as np
import pytest
from tests.witnesses.differential.generator import draw_program, write_module
from tests.witnesses.differential.runner import BATCH, compare, describe, find_difference

PROGRAMS = int(os.environ.get("GEMMPROOF_DRAWN_PROGRAMS", "100"))
FIRST = int(os.environ.get("GEMMPROOF_DRAWN_FROM", "0"))


@pytest.mark.triton("interpreter")
@pytest.mark.lane("full")
@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS, BATCH))
def test_a_drawn_program_stores_what_the_interpreter_stores(first):
    """A batch of seeds; each difference comes with its source and what reproduces it."""
    count = min(BATCH, FIRST + PROGRAMS - first)
    compared = list(compare(first, count))
    assert len(compared) == count
    differences = [describe(program, difference) for program, difference in compared if difference]
    assert not differences, "\n\n".join(differences)


def test_a_seed_is_one_program():
    """A seed gives the same program wherever it is drawn, another seed another one."""
    texts = [write_module([draw_program(seed)]) for seed in (3, 4, 3)]
    assert texts[0] == texts[2]
    assert texts[0] != texts[1]


def test_a_changed_bit_is_a_difference():
    """One bit of one element, a zero's sign, or a failure on either side."""
    program = draw_program(3)
    theirs = {"p1": np.zeros(8, np.float32), "p2": np.arange(8)}
    assert find_difference(program, theirs, {n: x.copy() for n, x in theirs.items()}) is None
    for name, value in (("p1", -0.0), ("p2", 9)):
        ours = {n: x.copy() for n, x in theirs.items()}
        ours[name][5] = value
        difference = find_difference(program, theirs, ours)
        assert difference is not None
        assert difference.startswith(f"{name}[5]")
    why = "ValueError: no"
    assert find_difference(program, theirs, why) == f"simulator: {why}"
    assert find_difference(program, why, theirs) == f"interpreter: {why}"
    again = describe(program, "p1[5]: got 1, expected 2")
    assert "seed 3: p1[5]" in again
    assert "runner.py 3 1" in again
    assert "def kernel3(" in again
