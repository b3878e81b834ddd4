"""Terms are simplified when they are made: their values stay those of the operation."""

import gc
import os
import random
import subprocess
import sys
import weakref

import numpy as np
import pytest

from gemmproof.reference.symbolic.lemmas import define, lane
from gemmproof.reference.symbolic.terms import OPERATIONS, eq, evaluate, make, symbol

SIZES = (2, 16, 64)
DRAWS = 400  # terms of each kind


def draw_term(rng):
    """A sum of lanes and a size, some of them counted backwards."""
    total = rng.choice((0, 1, 15, 63, 128)) + symbol("M", is_natural=True) * rng.choice((0, 0, 32))
    for axis, size in enumerate(SIZES):
        total = total + lane(axis, size) * rng.choice((-32, -2, -1, 0, 1, 2, 16))
    return total


def draw_values(seed, count, most):
    """So many values of each lane, and of M below `most`."""
    rng = np.random.default_rng(seed)
    values = {lane(i, n).atom: rng.integers(0, n, count) for i, n in enumerate(SIZES)}
    return values | {symbol("M", is_natural=True).atom: rng.integers(0, most, count)}


@pytest.mark.parametrize("kind", ["floordiv", "mod", "div", "rem", "min", "max", "and", "shr"])
def test_a_simplified_term_is_what_the_operation_gives(kind):
    rng = random.Random(kind)
    values = draw_values(7, 64, 1000)
    for _ in range(DRAWS):
        x = draw_term(rng)
        y = draw_term(rng) if kind in ("min", "max") else rng.choice((1, 3, 4, 7, 16, 31, 32))
        given = evaluate(y, values) if kind in ("min", "max") else y
        plain = OPERATIONS[kind](evaluate(x, values) + np.zeros(64, np.int64), given)
        assert (evaluate(make(kind, x, y), values) == plain).all(), (x, y)


@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_low_bits_and_no_bits_of_bits(kind):
    rng = random.Random(kind)
    values = draw_values(9, 64, 9)
    zeros = 0
    for _ in range(DRAWS):
        x, y = draw_term(rng), draw_term(rng)
        plain = OPERATIONS[kind](evaluate(x, values), evaluate(y, values)) + np.zeros(64, np.int64)
        low = make("mod", make(kind, x, y), 16)
        assert (evaluate(low, values) == plain % 16).all(), (x, y)
        for simplified, n in ((low, plain % 16), (make(kind, x, y), plain)):
            is_zero = evaluate(eq(simplified, 0), values) + np.zeros(64, np.bool_)
            assert (is_zero == (n == 0)).all(), (x, y)
            zeros += int(is_zero.sum())
    assert zeros


def test_bounds_that_are_plain_hold():
    rng = random.Random(1)
    values = draw_values(8, 4000, 3)
    bounded = 0
    for _ in range(DRAWS):
        x = draw_term(rng)
        x_values = evaluate(x, values)
        assert not x.is_natural or np.min(x_values) >= 0, x
        assert x.most is None or np.max(x_values) <= x.most, x
        bounded += x.most is not None
    assert bounded > 20


def test_a_quotient_of_a_quotient_is_freed_at_once():
    """The definition of each names it: the garbage collector frees them, in one collection."""
    inner = make("floordiv", symbol("rows", is_natural=True) + 4, 7)
    outer = make("floordiv", inner + 2, 5)
    atoms = [inner.atom, outer.atom]
    for atom in atoms:
        assert any(atom in cond.term.atoms for cond in define(atom) if cond.term is not None)
    alive = list(map(weakref.ref, atoms))
    del inner, outer, atoms, atom
    gc.collect()
    assert [x() for x in alive] == [None, None]


def test_the_hash_of_a_condition_is_the_same_in_every_process():
    """It orders sets of conditions, and with them what z3 is asked."""
    code = """
from gemmproof.reference.symbolic.terms import FALSE, TRUE, eq, le, symbol
M, N = symbol("M"), symbol("N")
print([hash(x) for x in (FALSE, TRUE, eq(M, 0), le(M, N) & eq(N, 1), le(M, N) | eq(N, 1))])
"""
    seeds = (dict(os.environ, PYTHONHASHSEED=seed) for seed in "12")
    runs = [subprocess.check_output([sys.executable, "-c", code], env=env) for env in seeds]
    assert runs[0] == runs[1]
